"""Instructions of a pickle, read before any of them is carried out.

Unpickling a few bytes may take all memory (a memo index of 2^28 makes a table of 4 GB) or all time
(the hash of a tuple that holds itself twice, sixty times over). This module carries nothing out.
"""

import pickletools
from dataclasses import dataclass, field
from mmap import mmap
from typing import Final, NamedTuple, final

from preferl.errors import DataError

MEMO_AHEAD: Final = 1_024
"""How far a memo index may be ahead of a count of all: Python counts from 0 or 1, in steps of 1."""

MOST_IN_KEY: Final = 100
"""Parts of a key of a dictionary or a member of a set, those of its parts included."""


class _Opcode(NamedTuple):
    """What an instruction does to the stack.

    Attributes:
        name: of pickletools.
        argument: its bytes, or a negative code of pickletools for how they are found.
        pops: objects that it takes, below a mark if it takes all down to one.
        to_mark: whether it takes all down to a mark first.
        pushes: objects that it leaves.
    """

    name: str
    argument: int
    pops: int
    to_mark: bool
    pushes: int

    @classmethod
    def of(cls, info: pickletools.OpcodeInfo) -> "_Opcode":
        before = [part.name for part in info.stack_before]
        mark = "mark" in before
        pops = before.index("mark") if mark else len(before)
        argument = 0 if info.arg is None else info.arg.n
        return cls(info.name, argument, pops, mark, len(info.stack_after))


_OPCODES: Final = {ord(info.code): _Opcode.of(info) for info in pickletools.opcodes}
_LENGTHS: Final = {-2: 1, -3: 4, -4: 4, -5: 8}
"""Bytes of the length before an argument, by pickletools' code."""

_NEWLINE: Final = -1
_TWO_LINES: Final = {"GLOBAL", "INST"}
_TUPLES: Final = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET"}
_KEYS: Final = {"SETITEM", "SETITEMS", "DICT"}
_MEMBERS: Final = {"ADDITEMS", "FROZENSET"}
_PUTS: Final = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS: Final = {"GET", "BINGET", "LONG_BINGET"}


def check_opcodes(content: bytes | mmap) -> None:
    """Refuse a pickle whose instructions take more memory or time than its size explains.

    Args:
        content: the whole pickle; what follows its end is not looked at.

    Raises:
        DataError: a memo index or a key beyond bounds.
        ValueError: no whole pickle.
    """
    at, state = 0, _State()
    while True:
        opcode = _OPCODES.get(content[at]) if at < len(content) else None
        if opcode is None:
            raise ValueError(f"no instruction at byte {at}")
        start, at = _argument(opcode, content, at + 1)
        if at > len(content):
            raise ValueError(f"{opcode.name} of {at - start:,} bytes in {len(content):,}")
        if opcode.name == "STOP":
            return
        state.follow(opcode, content[start:at] if opcode.name in _PUTS | _GETS else b"")


def _argument(opcode: _Opcode, content: bytes | mmap, at: int) -> tuple[int, int]:
    """Where an instruction's argument begins and ends."""
    if opcode.argument >= 0:
        end = at + opcode.argument
        if opcode.name == "FRAME" and at + 8 <= len(content):  # its content follows, and is read
            frame = int.from_bytes(content[at:end], "little")
            return (at, end) if end + frame <= len(content) else (end, end + frame)
        return at, end
    if opcode.argument == _NEWLINE:
        end = at
        for _ in range(2 if opcode.name in _TWO_LINES else 1):
            found = content.find(b"\n", end)
            end = len(content) + 1 if found < 0 else found + 1
        return at, end
    start = at + _LENGTHS[opcode.argument]
    return start, start + int.from_bytes(content[at:start], "little")


@final
@dataclass
class _State:
    """The stack as the instructions would leave it: of each object only how many parts it has.

    Only tuples and frozen sets count their parts, since only those can be keys; whatever is asked
    of another object does not grow with what it shares.
    """

    stack: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, int] = field(default_factory=dict)
    puts: int = 0

    def follow(self, opcode: _Opcode, argument: bytes) -> None:
        """Do to the stack what an instruction does to it."""
        name = opcode.name
        if name in _PUTS:
            self._put(name, argument)
        elif name in _GETS:
            self.stack.append(self.memo.get(_number(name, argument), 1))
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name == "DUP":
            self.stack.append(self._top())
        elif name == "POP" and self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self._replace(opcode)

    def _replace(self, opcode: _Opcode) -> None:
        parts = self._to_mark() if opcode.to_mark else []
        if opcode.pops > len(self.stack):
            raise ValueError(f"{opcode.name} on an empty stack")
        if opcode.pops and not opcode.to_mark:
            parts = self.stack[-opcode.pops :]
        if opcode.pops:
            del self.stack[-opcode.pops :]
        if opcode.name in _KEYS:
            keys = parts[1:2] if opcode.name == "SETITEM" else parts[::2]
            _require_small(keys)
        elif opcode.name in _MEMBERS:
            _require_small(parts)
        held = 1 + sum(parts) if opcode.name in _TUPLES else 1
        self.stack += [min(held, 2**62)] * opcode.pushes

    def _put(self, name: str, argument: bytes) -> None:
        index = len(self.memo) if name == "MEMOIZE" else _number(name, argument)
        if not 0 <= index <= self.puts + MEMO_AHEAD:
            raise _refused(f"a memo index of at most {self.puts + MEMO_AHEAD:,}", f"{index:,}")
        self.puts += 1
        self.memo[index] = self._top()

    def _top(self) -> int:
        if not self.stack:
            raise ValueError("an empty stack")
        return self.stack[-1]

    def _to_mark(self) -> list[int]:
        if not self.marks:
            raise ValueError("no mark where one is needed")
        at = self.marks.pop()
        parts = self.stack[at:]
        del self.stack[at:]
        return parts


def _number(name: str, argument: bytes) -> int:
    """A memo index, in digits or in bytes."""
    return int(argument) if name in ("PUT", "GET") else int.from_bytes(argument, "little")


def _require_small(keys: list[int]) -> None:
    if max(keys, default=0) > MOST_IN_KEY:
        raise _refused(f"keys of at most {MOST_IN_KEY} parts", f"one of {max(keys):,}")


def _refused(expected: str, got: object) -> DataError:
    return DataError.mismatch("pickle", expected=expected, got=got)
