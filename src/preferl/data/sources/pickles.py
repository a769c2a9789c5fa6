"""Other projects' pickles, read without letting them run anything.

A pickle is a program. This reader knows the few instructions that numpy arrays, numbers, strings
and plain containers need, and does even those with functions of its own: nothing that a file
names is looked up, imported or called.

Unpickling a few bytes may take all memory (a memo index of 2^28 makes a table of 4 GB in C) or all
time (the hash of a tuple that holds itself twice, sixty times over). The unpickler is therefore the
one that Python has in Python, keys are looked at before they are hashed, and arrays are counted.
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
"""Parts of a key of a dictionary or a member of a set, those of its parts included."""

_PLAIN: Final = "arrays, numbers, strings and plain containers"
_WHOLE: Final = f"a whole pickle of {_PLAIN}"

_ENTRY: Final = 16
"""Bytes of a number, at most."""

_NUMBERS: Final = (int, float, np.number, np.bool_)

_DEEPEST: Final = 32
"""Axes of an array."""

_NUMERIC_TYPE = re.compile(r"[biufcSU]\d+|O8?")
"""Booleans, numbers, strings and objects; records are refused, for they can hide pointers."""


@final
class Fields:
    """What a file has instead of an object: its attributes, and none of its methods."""

    def __setstate__(self, state: object) -> None:
        if not (isinstance(state, dict) and all(isinstance(name, str) for name in state)):
            raise DataError(f"object: expected attributes by name, got {type(state)}.")
        self.__dict__.update(state)


@final
class Nothing:
    """What a file has instead of an object that nobody needs: it takes all, and keeps none."""

    def __new__(cls, *_: object, **__: object) -> Self:
        """Ignore the arguments."""
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None: ...

    def __setitem__(self, key: object, value: object) -> None: ...


def load_pickle(
    path: str | Path, *, objects: Collection[str] = (), left_out: Collection[str] = ()
) -> Any:
    """Read a pickle that holds only arrays, numbers, strings and plain containers.

    Objects of the classes named in `objects`, of whatever module, become `Fields`; those of classes
    and functions named in `left_out` become `Nothing`. Take `np.asarray` of the arrays that are
    returned: they come as a subclass.

    Raises:
        UnsafePickleError: the file asks for something else; nothing of it was executed.
        DataError: the file is not there, cut off, or no pickle.
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
    """Do as `load_pickle` with bytes, whose arrays count as a part of what their file becomes."""
    with reading_foreign("pickle", _WHOLE):
        classes = dict.fromkeys(objects, Fields)
        return _ArrayUnpickler(io.BytesIO(content), classes, expansion).load()


def array_of(
    value: Any, name: str, expansion: Expansion, *, expected: str = "an array of numbers"
) -> Array:
    """Make an array of nested lists, which a pickle may make share their parts, once counted."""
    if isinstance(value, list | tuple):
        expansion.add(_ENTRY * _entries(value, name, {}, 0))
    try:
        return np.asarray(value)
    except (ValueError, OverflowError) as error:  # rows of different lengths, too large numbers
        raise DataError(f"{name}: expected {expected}, got {in_words(error)}.") from error


def pickled(array: Array) -> bytes:
    """An array as a pickle that numpy 1 reads, too, for programs that take nothing else."""
    # Its module by the name that numpy 1 knows, which numpy 2 knows as well.
    return pickle.dumps(array, protocol=2).replace(b"cnumpy._core.", b"cnumpy.core.")


def _entries(value: Any, name: str, known: dict[int, int], depth: int) -> int:
    """Numbers in nested lists when each is written out; lists that are shared are counted once.

    Numpy would give every number as much room as the longest text or buffer among them.
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
    """Refuse a key of a dictionary or member of a set that has too many parts to be hashed."""
    for key in keys:
        parts = [key]
        for part in parts:  # which grow meanwhile
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
"""Where the keys of an instruction are on the stack, above the last mark."""


def _with_small_keys(opcode: bytes) -> Callable[[Any], None]:
    load = PythonUnpickler.dispatch[opcode[0]]

    def load_checked(unpickler: Any) -> None:
        _require_small(unpickler.stack[_KEYS[opcode]])
        load(unpickler)

    return load_checked


def _load_bytearray(unpickler: Any) -> None:
    """Read bytes that can be written to: those that are there, whatever length is declared."""
    unpickler.load_binbytes8()
    unpickler.append(bytearray(unpickler.stack.pop()))


def _refuse_byte(_: object) -> NoReturn:
    raise ValueError("a byte that is no instruction")


@final
class _ArrayUnpickler(PythonUnpickler):
    """An unpickler that gives every name a file may use a harmless meaning of its own."""

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
        """The stand-in for a global that arrays need; any other global is refused."""
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
    """A function that a pickle can call but not change; what it makes is counted."""

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
        content = content.encode("latin1") if isinstance(content, str) else content  # Python 2's
        size = math.prod(shape)
        byte_count = size if dtype.hasobject else size * dtype.itemsize
        if min(shape, default=0) < 0 or len(content) != byte_count:
            raise DataError(f"array: expected {byte_count} for shape {shape}, got {len(content)}.")
        if dtype.hasobject != isinstance(content, list):
            raise DataError(f"array: expected content of {dtype}, got {type(content)}.")
        self.expansion.add(size * dtype.itemsize)
        super().__setstate__(cast("Any", (1, shape, dtype, bool(fortran), content)))


def _make_dtype(code: str | bytes, *_: object) -> _Type:
    """The data type of a code such as `f8`; numpy's copy and alignment flags mean nothing here."""
    code = code.decode("latin1") if isinstance(code, bytes) else code
    if not _NUMERIC_TYPE.fullmatch(code):
        raise DataError(f"array: expected numbers or strings, got data type {code!r}.")
    return _Type(np.dtype(code[0] if code[0] == "O" else code))


def _dtype_of(kind: object) -> np.dtype[Any]:
    if not isinstance(kind, _Type):
        raise DataError(f"array: expected a data type, got {type(kind).__name__}.")
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
    content = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(content, _dtype_of(kind), count=1)[0]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """What protocol 2 writes for bytes."""
    return text.encode("latin1" if encoding != "utf-8" else "utf-8")


def _no_bytes(*content: object) -> bytes:
    """What protocol 2 writes for bytes of length 0."""
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
