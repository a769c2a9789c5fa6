"""Networks as folders: safetensors for numbers, JSON for settings, spaces and version.

Reward models and policies are stored in such folders. Nothing in a folder can be run, and files
that do not belong together are refused.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple, final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from preferl.errors import CheckpointError, DivergenceError, StorageError
from preferl.files import writing
from preferl.models.spaces import Space, space_from_json, space_to_json
from preferl.reading import read_object, reading

SCALE = "deviation"
"""Last part of the names of tensors by which inputs are divided."""


class Saved(NamedTuple):
    """The contents of a folder: its JSON file, both spaces, and tensors by name."""

    description: dict[str, Any]
    spaces: tuple[Space, Space]
    tensors: dict[str, Tensor]

    @property
    def numbers(self) -> int:
        """How many numbers all tensors have together."""
        return sum(tensor.numel() for tensor in self.tensors.values())


@final
@dataclass(frozen=True)
class NetworkFolder:
    """The layout of folders of one kind of network."""

    what: str  # name of this kind of network in errors
    weights: str  # name of the file of tensors; a folder with this file is of this kind
    config: str  # name of the JSON file
    format: int = 1  # version of the layout; the JSON file has it

    @contextmanager
    def saving(
        self,
        path: Path | str,
        description: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        *spaces: Space,
    ) -> Iterator[Path]:
        """Write a folder, all or nothing, and replace an earlier folder of its kind.

        The JSON file gets the `description` and the two `spaces`, of observations and actions. The
        block may write more files into the draft. If the folder has other contents, `StorageError`
        is raised.
        """
        path = Path(path)
        is_folder = path.is_dir() and any(path.iterdir())
        if is_folder and not (path / self.weights).is_file():
            raise StorageError(
                f"{path}: expected a new or empty folder, or one that holds a {self.what}, got a "
                "folder that holds something else. Choose another name, since the folder would be "
                "replaced."
            )
        space_items = zip(
            ("observation_space", "action_space"), map(space_to_json, spaces), strict=True
        )
        layout = {"format": self.format, "preferl": version("preferl")}
        written = {**layout, **description, **dict(space_items)}
        # Networks may share tensors, which safetensors writes only once.
        own_tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        with writing(path) as draft:
            draft.mkdir()
            save_file(own_tensors, draft / self.weights)
            (draft / self.config).write_text(json.dumps(written, indent=2), encoding="utf-8")
            yield draft

    def reading(self, path: Path) -> AbstractContextManager[None]:
        """Turn any error of reading inside the block into a `CheckpointError` about this folder."""
        return reading(
            f"{self.what} {path}",
            expected=f"a folder with a whole {self.weights} and {self.config}",
            fix=f"Name the {self.what} folder of a preferl run, or restore it from a copy.",
        )

    def load(self, path: Path) -> Saved:
        """Read a folder that `saving` wrote; raise `CheckpointError` for any other folder."""
        with self.reading(path):
            description = read_object(path / self.config)
            tensors = load_file(path / self.weights)
        if description.get("format") != self.format:
            raise CheckpointError(
                f"format of {path}: expected {self.format}, got {description.get('format')}. It "
                f"was written by preferl {description.get('preferl', 'of an unknown version')}."
            )
        with reading(path / self.config, expected="the shape of a known model"):
            observations = space_from_json(description["observation_space"])
            actions = space_from_json(description["action_space"])
        return Saved(description, (observations, actions), tensors)


REWARD_MODEL = NetworkFolder("reward model", "model.safetensors", "config.json")
POLICY = NetworkFolder("policy", "policy.safetensors", "policy.json")
"""Folder of a policy of stable-baselines3 or of an offline learner."""


def require_numbers(needed: int, saved: int) -> None:
    """Raise `ValueError` if a config's model needs more numbers than the folder has."""
    if needed > saved:
        raise ValueError(
            f"a model of at least {needed:,} numbers beside {saved:,}: they belong to different "
            "models"
        )


@contextmanager
def bounded_network(numbers: int) -> Iterator[None]:
    """In this block, refuse to build networks with far more parameters than were saved.

    `ValueError` is raised before a parameter gets its first values, since it takes no memory before
    that.
    """
    thread = get_ident()
    built = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal built
        if parameter is None or get_ident() != thread:
            return
        built += max(1, parameter.numel())
        if built > 2 * numbers:  # a replaced parameter is registered twice
            raise ValueError(
                f"{name} of {type(module).__name__} makes {built:,} numbers beside {numbers:,} "
                "that were saved: they belong to different models"
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def require_state(
    file: object, state: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Raise `CheckpointError` unless a state has the expected names, shapes and types.

    Nothing is converted or left out. Numbers must pass `require_finite`. Errors name the `file`.
    """
    different = sorted(set(state) ^ set(expected)) or [
        name for name, tensor in expected.items() if tensor.shape != state[name].shape
    ]
    if different:
        raise CheckpointError(
            f"{file}: expected the numbers of the model in the JSON file beside it, got other "
            f"names or shapes for {different[:3]}. The files belong to different models; restore "
            "the folder as a whole."
        )
    for name, tensor in expected.items():
        require_finite(file, {name: state[name]}, dtype=tensor.dtype)


def require_converged(training: str, tensors: Iterable[Tensor]) -> None:
    """Raise `DivergenceError` if tensors of a training hold NaN or infinite numbers."""
    for tensor in tensors:
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise DivergenceError.of(training, infinite=not bool(tensor.isnan().any()))


def require_finite(
    file: object, tensors: Mapping[str, Tensor], *, dtype: torch.dtype | None = None
) -> None:
    """Raise `CheckpointError` for NaN, infinity, scales of at most 0, or a wrong number type."""
    for name, tensor in tensors.items():
        infinite = int((~tensor.isfinite()).sum()) if tensor.is_floating_point() else 0
        if dtype not in (None, tensor.dtype):
            problem = f"expected {dtype}, got {tensor.dtype}"
        elif infinite:
            problem = f"expected finite numbers, got {infinite} of {tensor.numel()} NaN or infinite"
        elif name.rpartition(".")[2] == SCALE and not bool((tensor > 0).all()):
            problem = f"expected numbers above 0, got {tensor.min().item()}"
        else:
            continue
        raise CheckpointError(
            f"{file}, {name}: {problem}. The training that wrote it diverged, or the file is "
            "damaged."
        )
