"""Checkpoints of a run: numbered folders; each stays until the next one is complete.

A state is a tree of lists and dictionaries whose leaves are numbers, text, arrays, tensors,
generators, experience and rewards. Small values go into a JSON file; arrays and tensors go into
files beside it. Unlike a pickle, a checkpoint folder holds nothing that can be run.
"""

import json
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, final

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

from preferl.data.arrays import load_npy
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Segments
from preferl.errors import CheckpointError, ConfigError, StorageError
from preferl.feedback.likelihood import Likelihood
from preferl.files import write_json, writing
from preferl.printing import get_logger
from preferl.reading import read_json, read_object, reading
from preferl.runs import versions as package_versions
from preferl.runs.versioned import (
    digests,
    is_left,
    names_in,
    remove_versions,
    require_whole,
    version_folder,
    versions,
)
from preferl.shapes import Array
from preferl.training.annotator_trust import Trust
from preferl.training.fit_report import FitReport, Validation
from preferl.training.reward_function import RewardFunction, load_reward, save_reward

LOGGER = get_logger(__name__)

FORMAT: Final = 1
"""Version of a checkpoint's layout; checkpoints with another version are refused."""

DESCRIPTION: Final = "checkpoint.json"
STATE: Final = "state.json"
TENSORS: Final = "tensors.safetensors"
ARRAYS: Final = "arrays.safetensors"
LARGE: Final = "large"
REWARDS: Final = "rewards"

RESTORE: Final = "Restore it from a copy, or remove it and begin again."

JOURNAL: Final = "answers"
"""Folder of answers that came after the newest checkpoint, see `AnswerJournal`."""

TAG: Final = "$"
"""Key of JSON objects that stand for values which JSON does not have."""

LARGE_BYTES: Final = 2**20
"""Arrays above this size get their own files, which are written without a copy in memory."""

STRUCTS: Final[dict[str, type]] = {
    kind.__name__: kind
    for kind in (Comparisons, Episodes, FitReport, Likelihood, Segments, Trust, Validation)
}
"""Dataclasses that a state may hold, by name; `saved_in_states` adds one."""

Struct = TypeVar("Struct", bound=type)

_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
GENERATORS: Final = {name: getattr(np.random, name) for name in _BIT_GENERATORS}


def saved_in_states(struct: Struct) -> Struct:
    """Let states hold a dataclass; files refer to it by its class name."""
    STRUCTS[struct.__name__] = struct
    return struct


class Checkpoint(NamedTuple):
    """A checkpoint that was read: its folder, the run's steps, and the state."""

    path: Path
    steps: int
    state: Any


def write_checkpoint(folder: Path | str, state: Any, *, steps: int, run: Mapping[str, Any]) -> Path:
    """Write a checkpoint to disk, then remove earlier ones; return the new checkpoint's folder.

    Args:
        folder: folder that holds the checkpoints of this run only; created if missing.
        state: state that `write_state` can write.
        steps: steps that the run has made.
        run: JSON that describes the run; a run resumes only if it is the same.

    Raises:
        CheckpointError: the newest checkpoint in the folder is damaged.
        ConfigError: the run in the folder has made more steps than this one, or the state cannot
            be written.
        StorageError: the folder cannot be written to, is full, or holds something else.
    """
    folder = Path(folder)
    earlier_versions = require_own(folder, steps)
    path = version_folder(folder, max(earlier_versions, default=0) + 1)
    with writing(path) as draft:
        draft.mkdir()
        write_state(draft, state)
        description = {"format": FORMAT, "steps": steps, "run": dict(run), "files": digests(draft)}
        write_json(draft / DESCRIPTION, description | {"versions": package_versions()})
    remove_versions(folder, earlier_versions)
    return path


def read_checkpoint(folder: Path | str, *, run: Mapping[str, Any]) -> Checkpoint:
    """Read the newest checkpoint that `write_checkpoint` wrote for the same `run`.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it belongs to another run.
        StorageError: the folder cannot be read.
    """
    numbers = versions(folder)
    actual = "none in it" if Path(folder).is_dir() else "no such folder"
    if not numbers:
        raise CheckpointError(
            f"{folder}: expected a folder of checkpoints, got {actual}. Name the folder that the "
            "run was saved to, or begin without resuming."
        )
    path = version_folder(folder, numbers[-1])
    description = _read_description(path, check_files=True)
    require_same(path, description["run"], run)
    saved_packages = description["versions"]["packages"]
    present_packages = package_versions()["packages"]
    changed = [
        f"{name} {saved_packages.get(name)} to {present_packages.get(name)}"
        for name in sorted(present_packages | saved_packages)
        if saved_packages.get(name) != present_packages.get(name)
    ]
    if changed:
        LOGGER.warning(
            "The run resumes, but may differ slightly from an uninterrupted one, since packages "
            "have changed: %s.",
            ", ".join(changed),
        )
    return Checkpoint(path, description["steps"], read_state(path))


def has_run(folder: Path | str) -> bool:
    """Whether a folder has a checkpoint of a run that can be resumed, even a damaged one."""
    return bool(versions(folder))


def require_own(folder: Path | str, steps: int) -> list[int]:
    """Check that a run may write checkpoints into a folder; return the numbers of earlier ones.

    It raises the same errors as `write_checkpoint`.
    """
    numbers = versions(folder)
    if numbers:
        saved_steps = _read_description(version_folder(folder, numbers[-1]))["steps"]
        if not saved_steps <= steps:
            raise ConfigError(
                f"{folder}: expected a run of at least {saved_steps} steps, the number of the run "
                f"that was saved there, got {steps}. Resume that run, or save to another folder."
            )
        return numbers
    other_files = [name for name in names_in(folder) if name != JOURNAL and not is_left(name)]
    if other_files:
        raise StorageError(
            f"{folder}: expected an empty folder or one of checkpoints, got one that holds other "
            "files. Choose another name."
        )
    return numbers


def require_same(path: Path, saved: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` unless a run is the saved one; the message names what differs."""
    for name, value in json.loads(json.dumps(dict(run))).items():
        if saved.get(name) != value:
            raise CheckpointError(
                f"{name} of the run in {path}: expected {saved.get(name)}, as when it was saved, "
                f"got {value}. Build everything in the same way as when the run began, or begin "
                "another run."
            )


def _read_description(path: Path, *, check_files: bool = False) -> dict[str, Any]:
    """Read a checkpoint's description. If `check_files`, compare its files with the description."""
    with reading(path, expected="a whole checkpoint", fix=RESTORE):
        description = read_object(path / DESCRIPTION)
        layout = description["format"]
        description["steps"] = int(description["steps"])
        if layout != FORMAT:
            raise CheckpointError(
                f"format of {path}: expected {FORMAT}, got {layout}. Resume it with the version of "
                "preferl that wrote it."
            )
        packages = description["versions"].setdefault("packages", {})
        for value in (description["run"], description["versions"], description["files"], packages):
            if not isinstance(value, dict):
                raise TypeError(f"a description with {type(value).__name__} for an object")
        if check_files:
            require_whole(path, description["files"])
    return description


def write_state(folder: Path, state: Any) -> None:
    """Write a state into an existing folder, a draft of `preferl.files.writing`.

    A state may hold None, numbers, text, lists, tuples, deques, dictionaries, numpy arrays and
    generators, tensors, the dataclasses of `STRUCTS`, and `RewardFunction`s that can be saved.
    Any other value raises a `ConfigError` that names its place.
    """
    writer = _Writer(folder)
    encoded = writer.encode(state, "state")
    safetensors.torch.save_file(writer.tensors, folder / TENSORS)
    safetensors.numpy.save_file(writer.arrays, folder / ARRAYS)
    (folder / STATE).write_text(json.dumps(encoded, allow_nan=False), encoding="utf-8")


def read_state(folder: Path) -> Any:
    """Read a state that `write_state` wrote; tensors are on the CPU, and arrays are writable."""
    with reading(folder, expected="a whole state"):
        return _Reader(folder).decode(read_json(folder / STATE))


def is_plain(value: Any) -> bool:
    """Whether a state may hold a value.

    >>> is_plain({"angle": (np.zeros(2), None)}), is_plain(print)
    (True, False)
    """
    if type(value) in (dict, OrderedDict):
        keys = all(type(key) in (str, int, type(None)) for key in value)
        return keys and all(map(is_plain, value.values()))
    if type(value) in (list, tuple, deque):
        return all(map(is_plain, value))
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biuf"
    if isinstance(value, np.random.Generator):
        return type(value.bit_generator).__name__ in GENERATORS
    return type(value) in (type(None), bool, int, float, str, torch.Tensor)


@final
class _Writer:
    """Encodes a state as JSON, in which file names stand for arrays and tensors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tensors: dict[str, torch.Tensor] = {}
        self.arrays: dict[str, Array] = {}
        self._count = 0

    def encode(self, value: Any, where: str) -> Any:
        match value:
            case Mapping():
                return self._mapping(value, where)
            case list() | tuple() | deque():
                items = [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
                if isinstance(value, deque):
                    return _tagged("deque", items) | {"length": value.maxlen}
                return _tagged("tuple", items) if isinstance(value, tuple) else items
            case np.random.Generator() if is_plain(value):
                state = self.encode(value.bit_generator.state, where)
                return _tagged("generator", type(value.bit_generator).__name__) | {"state": state}
            case _ if STRUCTS.get(type(value).__name__) is type(value):
                columns = fields(value)  # type: ignore[arg-type]  # of a class in `STRUCTS`
                columns_by_name = {column.name: getattr(value, column.name) for column in columns}
                return _tagged(type(value).__name__, self._mapping(columns_by_name, where))
            case torch.Tensor() | RewardFunction():
                return self._array(value)
            case np.ndarray() | np.generic() if is_plain(value):
                return self._array(value)
            case float():
                return value if math.isfinite(value) else _tagged("float", str(value))
            case None | bool() | int() | str():
                return value
        raise ConfigError(
            f"{where}: expected numbers, text, arrays, tensors, generators, or lists of such, got "
            f"{type(value).__name__}."
        )

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        encoded = [[key, self.encode(item, f"{where}.{key}")] for key, item in value.items()]
        if all(isinstance(key, str) and key != TAG for key in value):
            return dict(encoded)
        return _tagged("dict", encoded)

    def _array(self, value: Any) -> Any:
        """Write an array, a tensor or a reward to a file, and return its name."""
        self._count += 1
        name = f"{self._count:05d}"
        if isinstance(value, RewardFunction):
            save_reward(self._folder / REWARDS / name, value)
            return _tagged("reward", name)
        if isinstance(value, torch.Tensor):
            self.tensors[name] = value.detach().cpu().contiguous().clone()
            return _tagged("tensor", name)
        if value.nbytes > LARGE_BYTES:
            (self._folder / LARGE).mkdir(exist_ok=True)
            np.save(self._folder / LARGE / f"{name}.npy", value, allow_pickle=False)
            return _tagged("large", name)
        self.arrays[name] = np.array(value, order="C")
        return _tagged("scalar" if isinstance(value, np.generic) else "array", name)


@final
class _Reader:
    """Decodes the JSON of a state, with the arrays and tensors that it names."""

    def __init__(self, folder: Path) -> None:
        tensors = safetensors.torch.load_file(folder / TENSORS)
        arrays = safetensors.numpy.load_file(folder / ARRAYS)
        self._decoders: dict[str, Callable[[dict[str, Any]], Any]] = {
            "float": lambda part: float(part["is"]),
            "tuple": lambda part: tuple(map(self.decode, part["is"])),
            "deque": lambda part: deque(map(self.decode, part["is"]), part["length"]),
            "dict": lambda part: {key: self.decode(item) for key, item in part["is"]},
            "tensor": lambda part: tensors[part["is"]],
            "array": lambda part: np.array(arrays[part["is"]]),
            "scalar": lambda part: arrays[part["is"]][()],
            "large": lambda part: np.asarray(load_npy(folder / LARGE / f"{_word(part['is'])}.npy")),
            "generator": self._generator,
            "reward": lambda part: load_reward(folder / REWARDS / _word(part["is"])),
        }

    def decode(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self.decode(item) for item in part]
        if not isinstance(part, dict):
            return part
        if TAG not in part:
            return {key: self.decode(item) for key, item in part.items()}
        kind = part[TAG]
        if kind in STRUCTS:
            return STRUCTS[kind](**self.decode(part["is"]))
        return self._decoders[kind](part)

    def _generator(self, part: dict[str, Any]) -> np.random.Generator:
        generator = np.random.Generator(GENERATORS[part["is"]]())
        generator.bit_generator.state = self.decode(part["state"])
        return generator


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {TAG: kind, "is": value}


def _word(name: str) -> str:
    """Return a file's name; refuse one that points outside the folder."""
    if not name.isdigit():
        raise ValueError(f"{name!r} is no name in a state")
    return name
