"""Limit torch's processor threads, since more threads than free cores make it slow."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, final

MOST_WEIGHTS: Final = 1_000_000
"""Most weights of a small network, for which an update takes about ten milliseconds on a core."""


@final
class _Threads(NamedTuple):
    """How many threads small and large networks use."""

    small: int
    large: int


_THREADS: ContextVar[_Threads | None] = ContextVar("threads", default=None)
"""The threads of the block that the program is in; None outside of all blocks."""


@contextmanager
def _block(count: int, within: _Threads) -> Iterator[None]:
    """Let torch, if it is loaded, use `count` threads in the block, and restore the number after.

    In blocks of `threads_for` inside this block, networks use the threads of `within`.
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

    This is the number for networks of all sizes: `threads_for` does not change it inside.
    """
    return _block(count, _Threads(small=count, large=count))


def threads_for(*, small: bool) -> AbstractContextManager[None]:
    """Inside the block, let a small network use one thread, and a large one all of torch's.

    Several threads wait for each other at the end of every operation. If another program uses the
    same cores, this makes small networks a hundred times slower than one thread does. "All" is the
    number outside of all blocks, even for a large network in the block of a small one.
    """
    threads = _THREADS.get()
    if threads is None:
        threads = _Threads(small=1, large=sys.modules["torch"].get_num_threads())
    return _block(threads.small if small else threads.large, threads)


def is_small(network: Any, *, context: int = 1) -> bool:
    """Whether a torch module is so small that several threads do not make it faster.

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
    mine = hasattr(os, "sched_getaffinity")  # not on every system; a job may be allowed fewer cores
    return max(1, len(os.sched_getaffinity(0)) if mine else os.cpu_count() or 1)


def half_of_the_cores() -> int:
    """Threads for heavy work beside another program that is just as busy; at least 1."""
    return max(1, usable_cores() // 2)
