"""Read other projects' pickles without running anything.

A pickle is a program. This reader knows the few instructions that numpy arrays, numbers, strings
and plain containers need. It replaces even these by functions of its own: no name in a file is
looked up, imported or called.

Unpickling a few bytes may take all memory (a memo index of 2^28 makes a table of 4 GB in C) or all
time (the hash of a tuple that contains itself twice, sixty times over). The unpickler is therefore
Python's own in Python, keys are checked before they are hashed, and arrays are counted.
"""

import io
import math
import mmap
import pickle
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from pickle import _Unpickler as PythonUnpickler
from typing import Any, ClassVar, Final, NoReturn, Self, cast, final

import numpy as np

from preferl.data.columns import naming, reading_foreign
from preferl.errors import DataError, UnsafePickleError, in_words
from preferl.reading import Expansion
from preferl.shapes import Array

MOST_IN_KEY: Final = 100
"""Most parts of a dictionary's key or a set's member, including parts of parts."""

_PLAIN: Final = "arrays, numbers, strings and plain containers"
_WHOLE: Final = f"a whole pickle of {_PLAIN}"

_ENTRY: Final = 16
"""Most bytes of a number."""

_NUMBERS: Final = (int, float, np.number, np.bool_)

_DEEPEST: Final = 32
"""Most axes of an array."""

_NUMERIC_TYPE = re.compile(r"[biufcSU]\d+|O8?")
"""Kinds of numbers, strings and objects. Records are refused, since they can hide pointers."""


@final
class Fields:
    """Replaces an object of the file: it has its attributes, and none of its methods."""

    def __setstate__(self, state: object) -> None:
        if not (isinstance(state, dict) and all(isinstance(name, str) for name in state)):
            raise DataError(f"object: expected attributes by name, got {type(state)}.")
        self.__dict__.update(state)


@final
class Nothing:
    """Replaces an object of the file that nobody needs: it takes everything, and keeps nothing."""

    def __new__(cls, *_: object, **__: object) -> Self:
        """Ignore the arguments."""
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None: ...

    def __setitem__(self, key: object, value: object) -> None: ...


def load_pickle(
    path: str | Path, *, objects: Collection[str] = (), left_out: Collection[str] = ()
) -> Any:
    """Read a pickle that holds only arrays, numbers, strings and plain containers.

    Objects of the classes in `objects`, from any module, become `Fields`. Objects of classes and
    functions in `left_out` become `Nothing`. Arrays are returned as a subclass; use `np.asarray`.

    Raises:
        UnsafePickleError: the file asks for something else. Nothing of it was executed.
        DataError: the file is missing, cut off, or not a pickle.
    """
    path = Path(path)
    classes = dict.fromkeys(left_out, Nothing) | dict.fromkeys(objects, Fields)
    with (
        reading_foreign(path, _WHOLE),
        naming(path),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return _ArrayUnpickler(content, classes, Expansion.of(path)).load()


def read_pickle(content: bytes, *, expansion: Expansion, objects: Collection[str] = ()) -> Any:
    """Read a pickle from bytes, see `load_pickle`.

    Its arrays count towards its file's expansion.
    """
    with reading_foreign("pickle", _WHOLE):
        classes = dict.fromkeys(objects, Fields)
        return _ArrayUnpickler(io.BytesIO(content), classes, expansion).load()


def array_of(
    value: Any, name: str, expansion: Expansion, *, expected: str = "an array of numbers"
) -> Array:
    """Make an array of nested lists, after counting: a pickle may let lists share their parts."""
    if isinstance(value, list | tuple):
        expansion.add(_ENTRY * _entries(value, name, {}, 0))
    try:
        return np.asarray(value)
    except (ValueError, OverflowError) as error:  # rows of different lengths, or too large numbers
        raise DataError(f"{name}: expected {expected}, got {in_words(error)}.") from error


def pickled(array: Array) -> bytes:
    """Return an array as a pickle that numpy 1 can read, for programs that read nothing else."""
    # numpy 1 knows this name of the module, and numpy 2 knows it as well.
    return pickle.dumps(array, protocol=2).replace(b"cnumpy._core.", b"cnumpy.core.")


def _entries(value: Any, name: str, known: dict[int, int], depth: int) -> int:
    """Count the numbers in nested lists as if each list were written out; visit shared lists once.

    Numpy would give every number as much space as the longest text or buffer among them.
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise DataError(f"{name}: expected numbers, got an array of {value.dtype}.")
        return int(value.size)
    if not isinstance(value, list | tuple):
        if not isinstance(value, _NUMBERS):
            raise DataError(f"{name}: expected numbers, got a {type(value).__name__}.")
        return 1
    if depth > _DEEPEST:
        raise DataError(f"{name}: expected lists at most {_DEEPEST} deep, got deeper ones.")
    if id(value) not in known:
        known[id(value)] = 1 + sum(_entries(part, name, known, depth + 1) for part in value)
    return known[id(value)]


def _require_small(keys: Iterable[object]) -> None:
    """Refuse a key of a dictionary, or member of a set, with too many parts to hash."""
    for key in keys:
        parts = [key]
        for part in parts:  # the list grows during the loop
            if isinstance(part, tuple | frozenset):
                parts += part
            if len(parts) > MOST_IN_KEY:
                raise DataError(f"pickle: expected keys of at most {MOST_IN_KEY} parts, got more.")


_KEYS: Final = {
    pickle.SETITEM: slice(-2, -1),
    pickle.SETITEMS: slice(None, None, 2),
    pickle.DICT: slice(None, None, 2),
    pickle.ADDITEMS: slice(None),
    pickle.FROZENSET: slice(None),
}
"""Where on the stack, above the last mark, the keys of an instruction are."""


def _with_small_keys(opcode: bytes) -> Callable[[Any], None]:
    load = PythonUnpickler.dispatch[opcode[0]]

    def load_checked(unpickler: Any) -> None:
        _require_small(unpickler.stack[_KEYS[opcode]])
        load(unpickler)

    return load_checked


def _load_bytearray(unpickler: Any) -> None:
    """Read bytes that can be changed: those in the file, whatever length it declares."""
    unpickler.load_binbytes8()
    unpickler.append(bytearray(unpickler.stack.pop()))


def _refuse_byte(_: object) -> NoReturn:
    raise ValueError("a byte that is no instruction")


@final
class _ArrayUnpickler(PythonUnpickler):
    """An unpickler that replaces every name in a file by a harmless meaning."""

    dispatch: ClassVar = {
        **dict.fromkeys(range(256), _refuse_byte),
        **PythonUnpickler.dispatch,
        **{opcode[0]: _with_small_keys(opcode) for opcode in _KEYS},
        pickle.BYTEARRAY8[0]: _load_bytearray,
    }

    def __init__(self, file: Any, classes: Mapping[str, type], expansion: Expansion) -> None:
        super().__init__(file, encoding="latin1")  # keeps the bytes of Python 2's numpy arrays
        self._classes = classes
        self._expansion = expansion

    def find_class(self, module: str, name: str) -> object:
        """Return the replacement for a global that arrays need; refuse any other global."""
        if name in self._classes:
            return self._classes[name]
        if (module, name) in _STAND_INS:
            return _Callable(_STAND_INS[module, name], self._expansion)
        raise UnsafePickleError(
            f"pickle: expected {_PLAIN}, got the global {module}.{name}. Nothing was executed. Do "
            "not open it with pickle unless you trust its maker."
        )


@final
class _Callable:
    """A function that a pickle can call but not change; its results are counted."""

    __slots__ = ("_expansion", "_function")

    def __init__(self, function: Callable[..., object], expansion: Expansion) -> None:
        self._function = function
        self._expansion = expansion

    def __call__(self, *arguments: object) -> object:
        result = self._function(*arguments)
        if isinstance(result, _Array):
            result.expansion = self._expansion
        self._expansion.add(
            result.nbytes if isinstance(result, np.ndarray) else sys.getsizeof(result)
        )
        return result

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
        if not all(part is None for part in inner[:3]):
            raise DataError("array: expected plain numbers, got records.")
        self.dtype = self.dtype.newbyteorder(order)


@final
class _Array(np.ndarray[Any, Any]):
    """An array that a pickle can only fill with content of the right size."""

    expansion: Expansion

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        dtype = _dtype_of(kind)
        content = content.encode("latin1") if isinstance(content, str) else content  # from Python 2
        size = math.prod(shape)
        byte_count = size if dtype.hasobject else size * dtype.itemsize
        if min(shape, default=0) < 0 or len(content) != byte_count:
            raise DataError(f"array: expected {byte_count} for shape {shape}, got {len(content)}.")
        if dtype.hasobject != isinstance(content, list):
            raise DataError(f"array: expected content of {dtype}, got {type(content)}.")
        self.expansion.add(size * dtype.itemsize)
        super().__setstate__(cast("Any", (1, shape, dtype, bool(fortran), content)))


def _make_dtype(code: str | bytes, *_: object) -> _Type:
    """Return the data type of a code such as `f8`. Numpy's copy and alignment flags are ignored."""
    code = code.decode("latin1") if isinstance(code, bytes) else code
    if not _NUMERIC_TYPE.fullmatch(code):
        raise DataError(f"array: expected numbers or strings, got data type {code!r}.")
    return _Type(np.dtype(code[0] if code[0] == "O" else code))


def _dtype_of(kind: object) -> np.dtype[Any]:
    if not isinstance(kind, _Type):
        raise DataError(f"array: expected a data type, got {type(kind).__name__}.")
    return kind.dtype


def _empty_array(*_: object) -> _Array:
    """Make an empty array, as numpy's `_reconstruct` does. Its content follows as its state."""
    return _Array((0,), np.int8)


def _array_of_buffer(
    buffer: bytes | bytearray, kind: object, shape: tuple[int, ...], order: str = "C"
) -> np.ndarray[Any, Any]:
    """Make an array from protocol 5's buffer, as a copy that can be changed."""
    flat = np.frombuffer(buffer, _dtype_of(kind)).copy()
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _scalar(kind: object, content: str | bytes) -> object:
    content = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(content, _dtype_of(kind), count=1)[0]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Return bytes that protocol 2 writes as text."""
    return text.encode("latin1" if encoding != "utf-8" else "utf-8")


def _no_bytes(*content: object) -> bytes:
    """Return the bytes of length 0 that protocol 2 writes as a call."""
    if content:
        raise DataError(f"pickle: expected bytes(), got bytes{content}.")
    return b""


def _not_called(*_: object) -> NoReturn:
    raise DataError("pickle: expected arrays made by numpy, got ndarray called.")


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
