"""Other projects' pickles, read without letting them run anything.

A pickle is a program. This reader knows the few instructions that numpy arrays, numbers, strings
and plain containers need, and does even those with functions of its own: nothing that a file
names is looked up, imported or called. What the instructions would take is checked before they
are carried out, and what arrays take is counted.
"""

import io
import math
import mmap
import pickle
import re
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, Self, cast, final

import numpy as np

from preferl.bounds import Expansion
from preferl.data.sources.opcodes import check_opcodes
from preferl.errors import DataError, UnsafePickleError
from preferl.shapes import Array

_NUMERIC_TYPE = re.compile(r"[biufcSU]\d+|O8?")
"""Booleans, numbers, strings and objects; records are refused, for they can hide pointers."""


@final
class Fields:
    """What a file has instead of an object: its attributes, and nothing that it could do."""

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise DataError.mismatch("object", expected="attributes by name", got=type(state))
        self.__dict__.update(state)


@final
class Nothing:
    """What a file has instead of an object that nobody asked for: it takes all, and keeps none."""

    def __new__(cls, *_: object, **__: object) -> Self:
        """Whatever it is made of."""
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        """Forget it."""

    def __setitem__(self, key: object, value: object) -> None:
        """Forget it."""


def load_pickle(
    path: str | Path,
    *,
    encoding: str = "latin1",
    objects: Collection[str] = (),
    left_out: Collection[str] = (),
) -> Any:
    """Read a pickle that holds only arrays, numbers, strings and plain containers.

    Args:
        path: the file.
        encoding: how strings written by Python 2 become text. `"latin1"` (the default) is the
            one that keeps the bytes of numpy arrays; pickles of Python 3 do not depend on it.
        objects: names of classes, of whatever module, whose objects become `Fields`.
        left_out: names of classes and functions, of whatever module, whose objects become
            `Nothing`.

    Returns:
        What the file holds. Take `np.asarray` of its arrays: they come as a subclass.

    Raises:
        UnsafePickleError: the file asks for something else; nothing of it was executed.
        DataError: the file is not there, cut off, or no pickle.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                check_opcodes(content)
            return _ArrayUnpickler(file, encoding, objects, Expansion.of(path), left_out).load()
    except DataError as error:
        raise type(error)(f"{path}: {error}") from error
    except Exception as error:  # a damaged pickle fails in whichever way its bytes suggest
        raise _damaged(error, str(path)) from error


def read_pickle(
    content: bytes,
    *,
    expansion: Expansion,
    encoding: str = "latin1",
    objects: Collection[str] = (),
) -> Any:
    """The same of bytes in memory, whose arrays count as a part of what their file becomes.

    Raises:
        UnsafePickleError: the file asks for something else; nothing of it was executed.
        DataError: it is cut off, or no pickle.
    """
    try:
        check_opcodes(content)
        return _ArrayUnpickler(io.BytesIO(content), encoding, objects, expansion).load()
    except DataError:
        raise
    except Exception as error:  # as above
        raise _damaged(error, "pickle") from error


def array_of(
    value: Any, name: str, expansion: Expansion, *, expected: str = "an array of numbers"
) -> Array:
    """`np.asarray` of nested lists, which a pickle may make share their parts, once counted.

    Args:
        value: numbers, arrays and lists of such.
        name: how errors call it.
        expansion: of the file, by which the array is counted.
        expected: what errors call for.

    Raises:
        DataError: lists of other things, of unequal lengths, nested too deeply, or larger than
            the file explains.
    """
    if isinstance(value, list | tuple):
        expansion.add(_ENTRY * _entries(value, name, {}, 0))
    try:
        return np.asarray(value)
    except (ValueError, OverflowError) as error:  # rows of different lengths, too large numbers
        raise DataError.mismatch(name, expected=expected, got=error) from error


_ENTRY: Final = 16
"""Bytes of a number, at most."""

_DEEPEST: Final = 32
"""Axes of an array."""


def _entries(value: Any, name: str, known: dict[int, int], depth: int) -> int:
    """Numbers in nested lists when each is written out; lists that are shared are counted once."""
    if isinstance(value, np.ndarray):
        return int(value.size)
    if isinstance(value, str | bytes):
        raise DataError.mismatch(name, expected="numbers", got="text")
    if not isinstance(value, list | tuple):
        return 1
    if depth > _DEEPEST:
        expected = f"lists at most {_DEEPEST} deep"
        raise DataError.mismatch(name, expected=expected, got="deeper ones")
    if id(value) not in known:
        known[id(value)] = 1 + sum(_entries(part, name, known, depth + 1) for part in value)
    return known[id(value)]


def _damaged(error: Exception, what: str) -> DataError:
    return DataError.mismatch(
        what,
        expected="a whole pickle of arrays, numbers and plain containers",
        got=f"{type(error).__name__}: {error}",
        fix="Check the path, and that the file was copied whole and in binary mode.",
    )


@final
class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that gives every name a file may use a harmless meaning of its own."""

    def __init__(
        self,
        file: BinaryIO,
        encoding: str,
        objects: Collection[str],
        expansion: Expansion,
        left_out: Collection[str] = (),
    ) -> None:
        super().__init__(file, encoding=encoding)
        self._objects, self._left_out = objects, left_out
        self._expansion = expansion

    def find_class(self, module: str, name: str) -> object:
        """The stand-in for a global that arrays need; any other global is refused."""
        if name in self._objects:
            return Fields
        if name in self._left_out:
            return Nothing
        if (module, name) in _STAND_INS:
            return _Callable(_STAND_INS[module, name], self._expansion)
        raise UnsafePickleError.mismatch(
            "pickle",
            expected="numpy arrays, numbers, strings and plain containers",
            got=f"the global {module}.{name}",
            fix="Nothing was executed. Do not open it with pickle unless you trust its maker.",
        )


@final
class _Callable:
    """A function that a pickle can call but not change; what it makes is counted."""

    __slots__ = ("_expansion", "_function")

    def __init__(self, function: Callable[..., object], expansion: Expansion) -> None:
        self._function, self._expansion = function, expansion

    def __call__(self, *arguments: object) -> object:
        made = self._function(*arguments)
        if isinstance(made, _Array):
            made.expansion = self._expansion
        self._expansion.add(made.nbytes if isinstance(made, np.ndarray) else sys.getsizeof(made))
        return made

    def __setstate__(self, state: object) -> NoReturn:
        raise UnsafePickleError("It tries to change a function. Nothing was executed.")


@final
class _Type:
    """A numpy data type under construction: only its byte order can still change."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, *inner = state
        if any(part is not None for part in inner[:3]):
            raise DataError.mismatch("array", expected="plain numbers", got="records")
        self.dtype = self.dtype.newbyteorder(order)


@final
class _Array(np.ndarray[Any, Any]):
    """An array that a pickle can only fill with content of the right size."""

    expansion: Expansion

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        dtype = _dtype_of(kind)
        if isinstance(content, str):  # Python 2 knew no bytes
            content = content.encode("latin1")
        size = math.prod(shape)
        wanted = size if dtype.hasobject else size * dtype.itemsize
        if min(shape, default=0) < 0 or len(content) != wanted:
            raise DataError.mismatch(
                "array", expected=f"{wanted} for shape {shape}", got=len(content)
            )
        if dtype.hasobject != isinstance(content, list):
            raise DataError.mismatch("array", expected=f"content of {dtype}", got=type(content))
        self.expansion.add(size * dtype.itemsize)
        super().__setstate__(cast("Any", (1, shape, dtype, bool(fortran), content)))


def _make_dtype(code: str | bytes, *_: object) -> _Type:
    """The data type of a code such as `f8`; numpy's copy and alignment flags mean nothing here."""
    code = code.decode("latin1") if isinstance(code, bytes) else code
    if not _NUMERIC_TYPE.fullmatch(code):
        raise DataError.mismatch("array", expected="numbers or strings", got=f"data type {code!r}")
    return _Type(np.dtype(code[0] if code[0] == "O" else code))


def _dtype_of(kind: object) -> np.dtype[Any]:
    if not isinstance(kind, _Type):
        raise DataError.mismatch("array", expected="a data type", got=type(kind).__name__)
    return kind.dtype


def _empty_array(*_: object) -> _Array:
    """What numpy's `_reconstruct` makes: an array without content, which follows as its state."""
    return _Array((0,), np.int8)


def _array_of_buffer(
    buffer: bytes | bytearray, kind: object, shape: tuple[int, ...], order: str = "C"
) -> np.ndarray[Any, Any]:
    """What protocol 5 makes of an array; the copy can be written to."""
    flat = np.frombuffer(buffer, _dtype_of(kind)).copy()
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _scalar(kind: object, content: str | bytes) -> object:
    if isinstance(content, str):
        content = content.encode("latin1")
    return np.frombuffer(content, _dtype_of(kind), count=1)[0]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """What protocol 2 writes for bytes."""
    return text.encode("latin1" if encoding != "utf-8" else "utf-8")


def _no_bytes(*content: object) -> bytes:
    """What protocol 2 writes for bytes of length 0."""
    if content:
        raise DataError.mismatch("pickle", expected="bytes()", got=f"bytes{content}")
    return b""


def _not_called(*_: object) -> NoReturn:
    raise DataError.mismatch("pickle", expected="arrays made by numpy", got="ndarray called")


_STAND_INS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _not_called,
    ("numpy", "dtype"): _make_dtype,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    ("builtins", "bytes"): _no_bytes,
    **{
        (f"numpy.{core}.{module}", name): stand_in
        for core in ("core", "_core")
        for module, name, stand_in in (
            ("multiarray", "_reconstruct", _empty_array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _array_of_buffer),
        )
    },
}
