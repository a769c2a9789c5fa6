"""What a Decision Transformer sees as it acts: its last steps, and the return-to-go of each."""

from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np
from gymnasium import spaces
from torch import Tensor

from preferl.data.windows import History
from preferl.errors import ConfigError, SpaceError
from preferl.models.configs import dense
from preferl.models.folder import require_numbers
from preferl.offline.decision_transformer.sequences import (
    PADDED_ACTION,
    InputStatistics,
    action_size,
    are_pictures,
)
from preferl.offline.learner_configs import DTRConfig, PixelEncoderConfig, Spending, TokenShape
from preferl.offline.transitions import observation_size
from preferl.shapes import Array, BoolArray, FloatArray, IntArray

ARRAYS: Final = ("mean", "deviation")  # statistics that are saved as tensors


@final
class Context:
    """The last `H` steps of `V` environments, as a Decision Transformer sees them.

    `predict` returns it as its state: pass it on unchanged. Returns-to-go are divided by the scale,
    for each of `C` candidates; a step is real once its episode has begun.
    """

    def __init__(
        self, statistics: InputStatistics, states: Array, actions: int, targets: FloatArray
    ) -> None:
        count, steps = shape = (len(states), statistics.context)  # [V, H]
        self._statistics = statistics  # [C]
        self._targets = targets / statistics.scale
        self._time = np.zeros(count, np.int64)
        self.states = np.zeros((*shape, *states.shape[1:]), states.dtype)
        self.actions = np.full((*shape, actions), PADDED_ACTION, np.float32)
        self.returns_to_go = np.zeros((count, len(targets), steps), np.float32)
        self.timesteps: IntArray = np.zeros(shape, np.int64)
        self.real: BoolArray = np.zeros(shape, bool)
        self.rewards: FloatArray | None = None  # `[V]` of the last actions, once known
        self.history: History | None = None  # of a learned reward with memory

    def append(self, states: Array, starts: BoolArray | None, spending: Spending) -> None:
        """Append a step with normalised states `[V, *state]`, whose action is not known yet.

        Episodes begin where `starts` `[V]` is true, and at the first step in all environments.
        """
        if len(states) != len(self.states) or (starts is not None and len(starts) != len(states)):
            raise SpaceError(f"observations: expected {len(self.states)} rows, got {len(states)}.")
        begin = ~self.real[:, -1]
        if starts is not None:
            begin = begin | np.asarray(starts, bool)
        self._time = np.where(begin, 0, self._time + 1)
        returns_to_go = self._next_returns_to_go(begin, spending)
        if self.history is not None:
            self.history.forget(begin)
        for steps, empty, step in (
            (self.states, 0, states),
            (self.actions, PADDED_ACTION, PADDED_ACTION),
            (self.returns_to_go.swapaxes(1, 2), 0, returns_to_go),  # [V, H, C]
            (self.timesteps, 0, np.minimum(self._time, self._statistics.horizon - 1)),
            (self.real, False, True),
        ):
            steps[begin] = empty
            steps[:, :-1] = steps[:, 1:]
            steps[:, -1] = step
        self.rewards = None

    def _next_returns_to_go(self, begin: BoolArray, spending: Spending) -> FloatArray:
        """`[V, C]` of the new step."""
        if spending == "even":
            left = np.maximum(1 - self._time / self._statistics.longest, 0)
            return np.asarray(self._targets * left[:, None])
        if begin.all():
            return np.broadcast_to(self._targets, self.returns_to_go.shape[:2])
        if self.rewards is None:
            raise ConfigError(
                "reward of the last actions: expected policy.earned(state, rewards) before the "
                "next predict, got nothing. Call it, or lower the target return evenly: "
                'spending="even".'
            )
        received = self.rewards[:, None] / self._statistics.scale
        left = (self.returns_to_go[:, :, -1] - received) / self._statistics.discount
        return np.where(begin[:, None], self._targets, left)


def require_fitting(
    parameters: Mapping[str, Tensor],
    shape: TokenShape,
    statistics: InputStatistics,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    encoder: PixelEncoderConfig,
    regulariser: DTRConfig | None,
) -> int:
    """Refuse settings that do not belong to these parameters, before anything is built.

    Settings of a few bytes can ask for more than any memory holds. Returns `O`.
    """
    pictures = are_pictures(observation_space)
    states = encoder.size if pictures else observation_size(observation_space)
    actions = action_size(action_space)
    there = {name: tuple(tensor.shape) for name, tensor in parameters.items()}
    expected = _transformer_shapes(there, shape, statistics, states, actions)
    expected |= dict.fromkeys(ARRAYS, (1 if pictures else states,))
    there |= {name: getattr(statistics, name).shape for name in ARRAYS}
    fix = "The files belong to different policies; restore the folder as a whole."
    for name, size in expected.items():
        got = there.get(name)
        if got != size:
            raise ConfigError(f"shape of {name}: expected {size}, got {got}. {fix}")
    needed = {}
    if pictures:
        needed["pixel_encoder"] = encoder.network().least_numbers(observation_space, action_space)
    if regulariser is not None:  # two, and their targets
        needed["critics"] = 4 * dense((states + actions, *regulariser.hidden, 1))
    for part, numbers in needed.items():
        found = (t.numel() for name, t in parameters.items() if name.startswith(f"{part}."))
        try:
            require_numbers(numbers, sum(found))
        except ValueError as error:
            raise ConfigError(f"{part} of a policy: {error}") from error
    return states


def _transformer_shapes(
    there: Mapping[str, tuple[int, ...]],
    shape: TokenShape,
    statistics: InputStatistics,
    states: int,
    actions: int,
) -> dict[str, tuple[int, ...]]:
    """Shapes of the transformer's parameters, by its sizes that are `there`."""
    matrices = ("encoder.h.0.mlp.c_fc.weight", "encoder.wpe.weight", "embed_timestep.weight")
    for name in matrices:
        size = there.get(name, ())
        if not (len(size) == 2 and min(size) > 0):
            raise ConfigError(f"{name}: expected a matrix, got {size}.")
    (width, inner), (positions, _), (times, _) = (there[name] for name in matrices)
    for what, got, most in (
        ("layers", shape.layers, len(there)),
        ("tokens of a context", 3 * statistics.context, positions),
        ("timesteps of a horizon", statistics.horizon, times),
    ):
        if not got <= most:
            raise ConfigError(
                f"{what}: expected at most {most:,}, as its parameters have, got {got:,}."
            )
    if width % shape.heads != 0:
        raise ConfigError(f"heads: expected a divisor of {width}, got {shape.heads}.")
    layers: dict[str, tuple[int, ...]] = {
        "embed_return": (width, 1),
        "embed_state": (width, states),
        "embed_action": (width, actions),
        "embed_ln": (width,),
        "encoder.ln_f": (width,),
        "predict_action.0": (actions, width),
    }
    for block in (f"encoder.h.{k}" for k in range(shape.layers)):
        layers |= {
            f"{block}.ln_1": (width,),
            f"{block}.ln_2": (width,),
            f"{block}.attn.c_attn": (width, 3 * width),
            f"{block}.attn.c_proj": (width, width),
            f"{block}.mlp.c_fc": (width, inner),
            f"{block}.mlp.c_proj": (inner, width),
        }
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.wpe.weight": (positions, width),
        "embed_timestep.weight": (times, width),
    }
    for name, size in layers.items():
        units = size[1:] if ".c_" in name else size[:1]  # weights of GPT-2's layers are [in, out]
        shapes |= {f"{name}.weight": size, f"{name}.bias": units}
    return shapes
