"""What a Decision Transformer's settings ask for, compared with the parameters that are there.

Settings of a few bytes can ask for what no memory holds. Their parameters lie beside them, so
they are compared before anything is built.
"""

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from torch import Tensor

from preferl.errors import ConfigError
from preferl.models.configs import dense
from preferl.models.folder import require_numbers
from preferl.offline.context import Conditions
from preferl.offline.dt_config import DTRConfig, SightConfig, TokenShape
from preferl.offline.sequences import action_size, are_pictures
from preferl.offline.transitions import observation_size

Sizes = dict[str, tuple[int, ...]]
"""Shapes of tensors by their names."""


def require_fitting(
    parameters: Mapping[str, Tensor],
    shape: TokenShape,
    conditions: Conditions,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    sight: SightConfig,
    regulariser: DTRConfig | None,
) -> None:
    """Refuse settings to which these parameters do not belong, before anything is built.

    Args:
        parameters: by Hugging Face's names, and those of `sight.` and `critics.`.
        shape: of the transformer.
        conditions: how inputs are made.
        observation_space: what it sees.
        action_space: what it does.
        sight: shape of what looks at pictures.
        regulariser: settings of critics, or None where there are none.

    Raises:
        ConfigError: parameters that are missing or of other shapes, a context or horizon beyond
            theirs, statistics of other states, or parts that need more numbers.
        SpaceError: observations or actions of another kind.
    """
    pictures = are_pictures(observation_space)
    seen = sight.size if pictures else observation_size(observation_space)
    done = action_size(action_space)
    there = {name: tuple(tensor.shape) for name, tensor in parameters.items()}
    positions, times = _require_transformer(there, shape, seen, done)
    _require_most("tokens of a context", 3 * conditions.context, positions)
    _require_most("timesteps of a horizon", conditions.horizon, times)
    for name in ("mean", "deviation"):
        _require_equal(name, getattr(conditions, name).shape, (1,) if pictures else (seen,))
    if pictures:
        needed = sight.network().least_numbers(observation_space, action_space)
        _require_numbers("sight", needed, parameters)
    if regulariser is not None:
        needed = 4 * dense((seen + done, *regulariser.hidden, 1))  # two, and what they follow
        _require_numbers("critics", needed, parameters)


def _require_transformer(there: Sizes, shape: TokenShape, seen: int, done: int) -> tuple[int, int]:
    """Refuse a transformer of other shapes; how many positions and timesteps it tells apart."""
    _require_most("layers", shape.layers, len(there))
    width, inner = _matrix(there, "encoder.h.0.mlp.c_fc.weight")
    positions, _ = _matrix(there, "encoder.wpe.weight")
    times, _ = _matrix(there, "embed_timestep.weight")
    if width % shape.heads:
        raise ConfigError.mismatch("heads", expected=f"a divisor of {width}", got=shape.heads)
    usual: Sizes = {f"embed_{of}": (width, n) for of, n in (("return", 1), ("state", seen))}
    usual |= {"embed_action": (width, done), "predict_action.0": (done, width)}
    usual |= {"embed_ln": (width,), "encoder.ln_f": (width,)}
    turned: Sizes = {}  # dense layers of GPT-2, whose weights are [in, out]
    for block in (f"encoder.h.{layer}" for layer in range(shape.layers)):
        usual |= {f"{block}.ln_1": (width,), f"{block}.ln_2": (width,)}
        turned |= {
            f"{block}.attn.c_attn": (width, 3 * width),
            f"{block}.attn.c_proj": (width, width),
            f"{block}.mlp.c_fc": (width, inner),
            f"{block}.mlp.c_proj": (inner, width),
        }
    expected: Sizes = {
        "encoder.wpe.weight": (positions, width),
        "embed_timestep.weight": (times, width),
    }
    expected |= {f"{name}.weight": size for name, size in (usual | turned).items()}
    expected |= {f"{name}.bias": size[:1] for name, size in usual.items()}
    expected |= {f"{name}.bias": size[1:] for name, size in turned.items()}
    for name, size in expected.items():
        _require_equal(name, there.get(name), size)
    return positions, times


def _matrix(there: Sizes, name: str) -> tuple[int, int]:
    match there.get(name):
        case (rows, columns) if rows and columns:
            return rows, columns
        case other:
            raise ConfigError.mismatch(name, expected="a matrix", got=other)


def _require_equal(name: str, got: object, expected: tuple[int, ...]) -> None:
    if got != expected:
        raise ConfigError.mismatch(
            f"shape of {name}",
            expected=expected,
            got=got,
            fix="The files belong to different policies; restore the folder as a whole.",
        )


def _require_most(what: str, got: int, most: int) -> None:
    if got > most:
        raise ConfigError.mismatch(
            what, expected=f"at most {most:,}, as its parameters have", got=f"{got:,}"
        )


def _require_numbers(part: str, needed: int, parameters: Mapping[str, Tensor]) -> None:
    there = [t.numel() for name, t in parameters.items() if name.startswith(f"{part}.")]
    try:
        require_numbers(needed, sum(there))
    except ValueError as error:
        raise ConfigError(f"{part} of a policy: {error}") from error
