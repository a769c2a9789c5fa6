"""The parameters of a Decision Transformer, with their settings and statistics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from gymnasium import spaces
from torch import Tensor, nn

from preferl.errors import ConfigError
from preferl.models.configs import dense
from preferl.models.folder import require_numbers
from preferl.offline.decision_transformer.critics import Critics
from preferl.offline.decision_transformer.pixel_encoder import PixelEncoder
from preferl.offline.decision_transformer.sequences import (
    InputStatistics,
    action_size,
    are_pictures,
)
from preferl.offline.learner_configs import DTRConfig, PixelEncoderConfig, TokenShape
from preferl.offline.transitions import observation_size

ACTIONS: Final = "actions"  # the engine that equals `hugging_face.plain_actions`
ARRAYS: Final = ("mean", "deviation")  # statistics that are saved as tensors


@final
@dataclass(frozen=True, eq=False)
class LearnedTransformer:
    """Parameters of a Decision Transformer and the settings that belong to them.

    Settings in a damaged file could ask for more memory than any machine has. They are therefore
    compared with the parameters before anything is built.

    Attributes:
        observation_space: a Box of floats, a Dict of these, or pictures.
        action_space: a Box of floats, or Discrete.
        parameters: tensors by Hugging Face's names; those of the pixel encoder and the critics
            begin with `pixel_encoder.` and `critics.`.
        shape: shape of the transformer.
        statistics: statistics and limits from which inputs are made.
        hub: config of Hugging Face's model.
        pixel_encoder: shape of the pixel encoder; ignored if states are numbers.
        regulariser: settings of the critics, or None if there are none.

    Raises:
        ConfigError: the settings do not belong to these parameters.
        SpaceError: a space is of another kind.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    parameters: Mapping[str, Tensor]
    shape: TokenShape
    statistics: InputStatistics
    hub: Mapping[str, Any]
    pixel_encoder: PixelEncoderConfig
    regulariser: DTRConfig | None = None

    def __post_init__(self) -> None:
        encoder = self.pixel_encoder
        states = self.state_size
        actions = action_size(self.action_space)
        shapes = {name: tuple(tensor.shape) for name, tensor in self.parameters.items()}
        expected = _transformer_shapes(shapes, self.shape, self.statistics, states, actions)
        expected |= dict.fromkeys(ARRAYS, (1 if self.sees_pictures else states,))
        shapes |= {name: getattr(self.statistics, name).shape for name in ARRAYS}
        for name, size in expected.items():
            if shapes.get(name) != size:
                raise ConfigError(
                    f"shape of {name}: expected {size}, got {shapes.get(name)}. The files belong "
                    "to different policies; restore the folder as a whole."
                )
        least_numbers = {}
        if self.sees_pictures:
            least_numbers["pixel_encoder"] = encoder.network().least_numbers(
                self.observation_space, self.action_space
            )
        if self.regulariser is not None:  # two critics and their targets
            least_numbers["critics"] = 4 * dense((states + actions, *self.regulariser.hidden, 1))
        for part, numbers in least_numbers.items():
            saved = sum(tensor.numel() for tensor in self._part(part).values())
            try:
                require_numbers(numbers, saved)
            except ValueError as error:
                raise ConfigError(f"{part} of a policy: {error}") from error

    @property
    def sees_pictures(self) -> bool:
        """Whether observations are pictures, from which the pixel encoder makes states."""
        return are_pictures(self.observation_space)

    @property
    def state_size(self) -> int:
        """`O`, how many numbers a state has."""
        if self.sees_pictures:
            return self.pixel_encoder.size
        return observation_size(self.observation_space)

    @property
    def algorithm(self) -> str:
        """The name of the algorithm: "DTR" with critics, otherwise "DecisionTransformer"."""
        return "DecisionTransformer" if self.regulariser is None else "DTR"

    def build_pixel_encoder(self) -> PixelEncoder | None:
        """Return the pixel encoder, frozen; None if states are numbers."""
        if not self.sees_pictures:
            return None
        generator = torch.Generator()
        encoder = PixelEncoder(self.observation_space, self.pixel_encoder, generator)
        self._load("pixel_encoder", encoder)
        return encoder

    def build_critics(self) -> Critics | None:
        """Return the critics, frozen; None if there are none."""
        if self.regulariser is None:
            return None
        inputs = self.state_size + action_size(self.action_space)
        critics = Critics(inputs, self.regulariser, generator=torch.Generator())
        self._load("critics", critics)
        return critics

    def _load(self, part: str, module: nn.Module) -> None:
        module.load_state_dict(self._part(part))
        module.eval().requires_grad_(False)

    def _part(self, part: str) -> dict[str, Tensor]:
        """Return the parameters of the pixel encoder or critics, by their names in that network."""
        start = f"{part}."
        return {
            name.removeprefix(start): tensor
            for name, tensor in self.parameters.items()
            if name.startswith(start)
        }


def _transformer_shapes(
    saved_shapes: Mapping[str, tuple[int, ...]],
    shape: TokenShape,
    statistics: InputStatistics,
    states: int,
    actions: int,
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that all parameters must have, from the sizes of three saved ones."""
    matrices = ("encoder.h.0.mlp.c_fc.weight", "encoder.wpe.weight", "embed_timestep.weight")
    for name in matrices:
        matrix = saved_shapes.get(name, ())
        if len(matrix) != 2 or min(matrix) < 1:
            raise ConfigError(f"{name}: expected a matrix, got {matrix}.")
    (width, inner), (positions, _), (times, _) = (saved_shapes[name] for name in matrices)
    for name, setting, limit in (
        ("layers", shape.layers, len(saved_shapes)),
        ("tokens of a context", 3 * statistics.context, positions),
        ("timesteps of a horizon", statistics.horizon, times),
    ):
        if setting > limit:
            raise ConfigError(
                f"{name}: expected at most {limit:,}, the number in its parameters, got "
                f"{setting:,}."
            )
    if width % shape.heads != 0:
        raise ConfigError(f"heads: expected a divisor of {width}, got {shape.heads}.")
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.wpe.weight": (positions, width),
        "embed_timestep.weight": (times, width),
    }
    layers = _layers(shape.layers, width=width, inner=inner, states=states, actions=actions)
    for name, size in layers.items():
        units = size[1:] if ".c_" in name else size[:1]  # weights of GPT-2's layers are [in, out]
        shapes |= {f"{name}.weight": size, f"{name}.bias": units}
    return shapes


def _layers(
    count: int, *, width: int, inner: int, states: int, actions: int
) -> dict[str, tuple[int, ...]]:
    """Return the weight shapes of layers with a bias, for a transformer of `count` blocks."""
    layers: dict[str, tuple[int, ...]] = {
        "embed_return": (width, 1),
        "embed_state": (width, states),
        "embed_action": (width, actions),
        "embed_ln": (width,),
        "encoder.ln_f": (width,),
        "predict_action.0": (actions, width),
    }
    for block in (f"encoder.h.{k}" for k in range(count)):
        layers |= {
            f"{block}.ln_1": (width,),
            f"{block}.ln_2": (width,),
            f"{block}.attn.c_attn": (width, 3 * width),
            f"{block}.attn.c_proj": (width, width),
            f"{block}.mlp.c_fc": (width, inner),
            f"{block}.mlp.c_proj": (inner, width),
        }
    return layers
