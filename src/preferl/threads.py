"""Limit torch's processor threads, since more threads than free cores make it slow."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, final

MOST_WEIGHTS: Final = 1_000_000
"""Most weights of a small network: one update takes some ten milliseconds on one core."""


@final
class _Threads(NamedTuple):
    """Threads that networks of two sizes take."""

    small: int
    large: int


_THREADS: ContextVar[_Threads | None] = ContextVar("threads", default=None)
"""The threads of the block that the program is in; None outside of all blocks."""


@contextmanager
def _block(count: int, within: _Threads) -> Iterator[None]:
    """Let torch, if it is loaded, take `count` threads in a block, and then as many as before.

    Networks in blocks of `threads_for` inside this block take the threads of `within`.
    """
    token = _THREADS.set(within)
    torch: Any = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    if before is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        _THREADS.reset(token)
        if before is not None:
            torch.set_num_threads(before)


def torch_threads(count: int) -> AbstractContextManager[None]:
    """Let torch, if it is loaded, use `count` threads, at least 1, inside the block.

    Networks of all sizes use as many there: `threads_for` changes nothing.
    """
    return _block(count, _Threads(small=count, large=count))


def threads_for(*, small: bool) -> AbstractContextManager[None]:
    """Let a network take one thread inside the block if it is small, and all of torch's if not.

    Several threads wait for one another at the end of every operation. Where another program
    works on the same cores, that is a hundred times slower than one thread for small networks.
    "All" means the number outside of all blocks, also for a large network inside the block of a
    small one.
    """
    threads = _THREADS.get()
    if threads is None:
        threads = _Threads(small=1, large=sys.modules["torch"].get_num_threads())
    return _block(threads.small if small else threads.large, threads)


def is_small(network: Any, *, context: int = 1) -> bool:
    """Whether a module of torch is too small for several threads to be any faster.

    A small network has at most `MOST_WEIGHTS` weights, no convolutions and no memory, and reads a
    single step. A `context` above 1, as in transformers, multiplies the work.
    """
    nn: Any = sys.modules["torch"].nn
    large_parts = (nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention)
    if context > 1 or any(isinstance(part, large_parts) for part in network.modules()):
        return False
    weights: int = sum(numbers.numel() for numbers in network.parameters())
    return weights <= MOST_WEIGHTS


def usable_cores() -> int:
    """Processor cores that this program may use; at least 1."""
    mine = hasattr(os, "sched_getaffinity")  # not on every system; jobs may use fewer
    return max(1, len(os.sched_getaffinity(0)) if mine else os.cpu_count() or 1)


def half_of_the_cores() -> int:
    """Threads for heavy work beside another program that is as busy; at least 1."""
    return max(1, usable_cores() // 2)
