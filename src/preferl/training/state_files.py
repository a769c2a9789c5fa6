"""What a program remembers as files: JSON for what is small, arrays and safetensors beside it.

A state is numbers, text, lists and dictionaries with arrays, tensors, generators, experience and
rewards as their leaves. Nothing in such a folder can be run, unlike a pickle.
"""

import json
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

from preferl.data.arrays import load_npy
from preferl.errors import ConfigError
from preferl.reading import read_json, reading
from preferl.shapes import Array
from preferl.training.reward_function import RewardFunction
from preferl.training.saving import load_reward, save_reward

STATE: Final = "state.json"
TENSORS: Final = "tensors.safetensors"
ARRAYS: Final = "arrays.safetensors"
LARGE: Final = "large"
REWARDS: Final = "rewards"

TAG: Final = "$"
"""Key of JSON objects that stand for what JSON does not have."""

LARGE_BYTES: Final = 2**20
"""Arrays above lie in files of their own, which are written without a second copy in memory."""

DATA: Final = {
    "Comparisons": "preferl.data.comparisons",
    "Episodes": "preferl.data.episodes",
    "FitReport": "preferl.training.fit_report",
    "IterationReport": "preferl.online.report",
    "Likelihood": "preferl.feedback.likelihood",
    "Segments": "preferl.data.segments",
}
"""Structs that a state may hold, and the modules they are in; no file names any other."""

GENERATORS: Final = {
    kind.__name__: kind
    for kind in (
        *(np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937),
        *(np.random.Philox, np.random.SFC64),
    )
}


def write_state(folder: Path, state: Any) -> None:
    """Write a state into a folder that is there.

    Args:
        folder: on the way to its place, see `preferl.files.writing`.
        state: None, numbers, text, lists, tuples, deques, dictionaries, numpy arrays and
            generators, tensors, episodes, segments, comparisons, reports of fits and iterations,
            and `RewardFunction`s that can be saved.

    Raises:
        ConfigError: something else, by its place in the state.
        OSError, SafetensorError: the folder cannot be written to, or is full.
    """
    writer = _Writer(folder)
    told = writer.encode(state, "state")
    safetensors.torch.save_file(writer.tensors, folder / TENSORS)
    safetensors.numpy.save_file(writer.arrays, folder / ARRAYS)
    (folder / STATE).write_text(json.dumps(told, allow_nan=False), encoding="utf-8")


def read_state(folder: Path) -> Any:
    """Read what `write_state` wrote; tensors come to the processor, arrays can be written to.

    Raises:
        CheckpointError: files that are not there, cut short, or something else.
    """
    with reading(folder, expected="a whole state"):
        told = read_json(folder / STATE)
        reader = _Reader(
            folder,
            safetensors.torch.load_file(folder / TENSORS),
            safetensors.numpy.load_file(folder / ARRAYS),
        )
        return reader.decode(told)


def is_plain(value: Any) -> bool:
    """Whether a state may hold this.

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
    """Takes arrays and tensors out of a state, and leaves names in their places."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tensors: dict[str, torch.Tensor] = {}
        self.arrays: dict[str, Array] = {}
        self._count = 0

    def encode(self, value: Any, where: str) -> Any:
        match value:
            case Mapping():
                return self._mapping(value, where)
            case list():
                return self._each(value, where)
            case tuple():
                return _tagged("tuple", self._each(value, where))
            case deque():
                return _tagged("deque", self._each(value, where)) | {"length": value.maxlen}
            case np.random.Generator() if is_plain(value):
                state = self.encode(value.bit_generator.state, where)
                return _tagged("generator", type(value.bit_generator).__name__) | {"state": state}
            case _ if DATA.get(type(value).__name__) == type(value).__module__:
                held = {one.name: getattr(value, one.name) for one in fields(value)}
                return _tagged(type(value).__name__, self._mapping(held, where))
            case torch.Tensor() | RewardFunction():
                return self._torch(value)
            case np.ndarray() | np.generic() if is_plain(value):
                return self._array(value)
            case float():
                return value if math.isfinite(value) else _tagged("float", str(value))
            case None | bool() | int() | str():
                return value
        raise ConfigError.mismatch(
            where,
            expected="numbers, text, arrays, tensors, generators, or lists of such",
            got=type(value).__name__,
        )

    def _each(self, values: Any, where: str) -> list[Any]:
        return [self.encode(value, f"{where}[{i}]") for i, value in enumerate(values)]

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        encoded = [[key, self.encode(item, f"{where}.{key}")] for key, item in value.items()]
        if all(isinstance(key, str) and key != TAG for key in value):
            return dict(encoded)
        return _tagged("dict", encoded)

    def _torch(self, value: torch.Tensor | RewardFunction) -> Any:
        name = self._name()
        if isinstance(value, RewardFunction):
            save_reward(self._folder / REWARDS / name, value)
            return _tagged("reward", name)
        self.tensors[name] = value.detach().cpu().contiguous().clone()
        return _tagged("tensor", name)

    def _array(self, value: Any) -> Any:
        name, scalar = self._name(), isinstance(value, np.generic)
        if value.nbytes > LARGE_BYTES:
            (self._folder / LARGE).mkdir(exist_ok=True)
            np.save(self._folder / LARGE / f"{name}.npy", value, allow_pickle=False)
            return _tagged("large", name)
        self.arrays[name] = np.array(value, order="C")
        return _tagged("scalar" if scalar else "array", name)

    def _name(self) -> str:
        self._count += 1
        return f"{self._count:05d}"


@final
class _Reader:
    """Puts arrays and tensors back into their places."""

    def __init__(
        self, folder: Path, tensors: dict[str, torch.Tensor], arrays: dict[str, Array]
    ) -> None:
        self._folder, self._tensors, self._arrays = folder, tensors, arrays
        self._kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "float": lambda told: float(told["is"]),
            "tuple": lambda told: tuple(map(self.decode, told["is"])),
            "deque": lambda told: deque(map(self.decode, told["is"]), told["length"]),
            "dict": lambda told: {key: self.decode(item) for key, item in told["is"]},
            "tensor": lambda told: self._tensors[told["is"]],
            "array": lambda told: np.array(self._arrays[told["is"]]),
            "scalar": lambda told: self._arrays[told["is"]][()],
            "large": self._large,
            "generator": self._generator,
            **dict.fromkeys(DATA, self._data),
            "reward": lambda told: load_reward(self._folder / REWARDS / _word(told["is"])),
        }

    def decode(self, told: Any) -> Any:
        if isinstance(told, list):
            return [self.decode(item) for item in told]
        if not isinstance(told, dict):
            return told
        if TAG in told:
            return self._kinds[told[TAG]](told)
        return {key: self.decode(item) for key, item in told.items()}

    def _large(self, told: dict[str, Any]) -> Array:
        file = self._folder / LARGE / f"{_word(told['is'])}.npy"
        return np.asarray(load_npy(file))

    def _data(self, told: dict[str, Any]) -> Any:
        name: str = told[TAG]
        return getattr(import_module(DATA[name]), name)(**self.decode(told["is"]))

    def _generator(self, told: dict[str, Any]) -> np.random.Generator:
        generator = np.random.Generator(GENERATORS[told["is"]]())
        generator.bit_generator.state = self.decode(told["state"])
        return generator


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {TAG: kind, "is": value}


def _word(name: str) -> str:
    """A file's name that cannot point elsewhere."""
    if not name.isdigit():
        raise ValueError(f"{name!r} is no name in a state")
    return name
