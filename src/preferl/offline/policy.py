"""Gaussian policies that were learned offline. They act, and can be saved and exported."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from preferl._optional import require
from preferl.errors import SpaceError
from preferl.files import writing
from preferl.models.folder import POLICY, require_finite
from preferl.offline.transitions import ActionScale, flat_observations, observation_size
from preferl.shapes import Array
from preferl.threads import MOST_WEIGHTS, threads_for


@final
class OfflinePolicy:
    """A diagonal Gaussian policy of one agent, with stable-baselines3's `predict`.

    Args:
        observation_space: a Box of floats, or a Dict of these.
        action_space: a Box of floats.
        parameters: `weight_0` `[out, in]`, `bias_0` `[out]` and so on for each layer, and
            `log_std` `[A]`.
        log_std_bounds: bounds of the log deviations.
        learner: name of the algorithm that trained the policy.
        seed: seed of drawn actions.

    Raises:
        SpaceError: a space is of another kind, or parameters have other sizes.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        parameters: Mapping[str, Tensor],
        *,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        learner: str = "",
        seed: int = 0,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.learner = learner
        self._bounds = log_std_bounds
        self._parameters = dict(parameters)
        sizes = (observation_size(observation_space), int(np.prod(action_space.shape or ())))
        _require_layers(parameters, *sizes)
        self._actor = _Actor(parameters, ActionScale.of(action_space), sizes[0]).eval()
        self._small = sum(numbers.numel() for numbers in parameters.values()) <= MOST_WEIGHTS
        log_std = parameters["log_std"].clamp(*log_std_bounds)
        self._deviation = (log_std.exp() * self._actor.scale.half).numpy()
        self._rng = np.random.default_rng(seed)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Array, Any]:
        """Map observations `[V, *obs]`, or a single one, to actions within the action space.

        If `deterministic`, actions are the mean actions, otherwise they are drawn. The policy has
        no memory: `state` is returned unchanged, and `episode_start` is ignored.

        Raises:
            SpaceError: observations have another shape.
        """
        del episode_start
        single, batch = batched(observation, self.observation_space)
        flat = flat_observations(batch)
        if flat.shape[1] != self._actor.inputs:
            raise SpaceError(
                f"observation: expected {self._actor.inputs} numbers, as in "
                f"{self.observation_space}, got {flat.shape[1]}."
            )
        with torch.no_grad(), threads_for(small=self._small):
            actions = self._actor(torch.from_numpy(flat)).numpy()
        if not deterministic:
            actions = actions + self._deviation * self._rng.standard_normal(actions.shape)
        actions = within(actions, self.action_space)
        return (actions[0] if single else actions), state

    def save(self, path: Path | str) -> None:
        """Write the policy as a folder, all or nothing; replace an earlier policy there.

        Raises:
            StorageError: the folder cannot be written to, or holds other files.
        """
        about = {"learner": self.learner, "log_std_bounds": list(self._bounds)}
        spaces_of = (self.observation_space, self.action_space)
        with POLICY.saving(path, about, self._parameters, *spaces_of):
            pass

    @classmethod
    def load(cls, path: Path | str, *, seed: int = 0) -> Self:
        """Read a policy that `save` wrote, with the same numbers. `seed` is for drawn actions.

        Raises:
            CheckpointError: the folder is missing, damaged, or of another format.
        """
        path = Path(path)
        about, spaces_of, parameters = POLICY.load(path)
        with POLICY.reading(path):
            low, high = map(float, about["log_std_bounds"])
            if not -math.inf < low <= high < math.inf:
                raise ValueError(f"log deviations between {low} and {high}")
            require_finite(path, parameters, dtype=torch.float32)
            return cls(
                *spaces_of,
                parameters,
                log_std_bounds=(low, high),
                learner=about["learner"],
                seed=seed,
            )

    def export_torchscript(self, path: Path | str) -> None:
        """Write the map from observations `[V, O]` to mean actions `[V, A]` as TorchScript.

        C++ can run TorchScript, too. Observations are flat float32; actions are in the space's
        layout.

        Raises:
            StorageError: the file cannot be written.
        """
        example = torch.zeros(2, self._actor.inputs)
        with warnings.catch_warnings(), writing(Path(path)) as draft:
            # torch warns that it prefers another format; callers can do nothing about this.
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.trace(self._actor, example).save(str(draft))

    def export_onnx(self, path: Path | str) -> None:
        """Write the map to mean actions as ONNX, with inputs `observations` and outputs `actions`.

        Raises:
            MissingExtraError: onnx is not installed; the extra `onnx` brings it.
            StorageError: the file cannot be written.
        """
        for module in ("onnx", "onnxscript"):
            require(module, extra="onnx")
        with warnings.catch_warnings(), writing(Path(path)) as draft:
            warnings.simplefilter("ignore", FutureWarning)  # torch's exporter warns about itself
            program: Any = torch.onnx.export(
                self._actor,
                (torch.zeros(2, self._actor.inputs),),
                input_names=["observations"],
                output_names=["actions"],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                dynamo=True,
                verbose=False,
            )
            program.save(str(draft))


def batched(observation: Any, space: spaces.Space[Any]) -> tuple[bool, Any]:
    """Return whether there is only one observation, and the observations with an axis `V`."""
    first = observation
    while isinstance(space, spaces.Dict):
        key = next(iter(space))
        first = first[key]
        space = space[key]
    single = np.ndim(first) == len(space.shape or ())
    return single, _with_axis(observation) if single else observation


def _with_axis(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: _with_axis(part) for key, part in observation.items()}
    return np.asarray(observation)[None]


def within(actions: Array, space: spaces.Space[Any]) -> Array:
    """Turn numbers `[V, A]` into actions `[V, *act]`, cut off at the bounds of a box."""
    shaped = actions.reshape(len(actions), *(space.shape or ()))
    if isinstance(space, spaces.Box):
        shaped = np.clip(shaped, space.low, space.high)
    return np.asarray(shaped.astype(space.dtype))


def _require_layers(parameters: Mapping[str, Tensor], inputs: int, outputs: int) -> None:
    """Refuse parameters that are not layers from observations to actions, before building them."""
    there = {name: tuple(tensor.shape) for name, tensor in parameters.items()}
    expected: dict[str, tuple[int, ...]] = {"log_std": (outputs,)}
    units = inputs
    for layer in range((len(there) - 1) // 2):
        bias = there.get(f"bias_{layer}", (0,))
        expected |= {f"weight_{layer}": (bias[0], units), f"bias_{layer}": bias[:1]}
        units = bias[0]
    if units != outputs or there != expected:
        raise SpaceError(
            f"spaces of a policy: expected layers of parameters from {inputs} to {outputs} "
            f"numbers, got {there}."
        )


@final
class _Actor(nn.Module):
    """Maps observations `[V, O]` to mean actions `[V, A]` of the space."""

    def __init__(self, parameters: Mapping[str, Tensor], scale: ActionScale, inputs: int) -> None:
        super().__init__()
        self.scale = scale
        self.inputs = inputs
        modules: list[nn.Module] = []
        for layer in range(sum(name.startswith("weight") for name in parameters)):
            weight = parameters[f"weight_{layer}"]
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight.data.copy_(weight)
            linear.bias.data.copy_(parameters[f"bias_{layer}"])
            modules += [linear, nn.ReLU()]
        self.network = nn.Sequential(*modules[:-1], nn.Tanh())

    def forward(self, observations: Tensor) -> Tensor:
        actions: Tensor = self.scale.outward(self.network(observations))
        return actions
