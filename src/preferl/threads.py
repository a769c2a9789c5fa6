"""How many processor threads torch takes; more than are free make it slow."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch, if it is loaded, use `count` threads, at least 1, inside the block.

    Several threads wait for one another at the end of every operation. Where another program
    works on the same cores, that is a hundred times slower than one thread for small networks.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def usable_cores() -> int:
    """Processor cores that this program may use; at least 1."""
    mine = hasattr(os, "sched_getaffinity")  # not everywhere, and fewer than there are in jobs
    return max(1, len(os.sched_getaffinity(0)) if mine else os.cpu_count() or 1)


def half_of_the_cores() -> int:
    """Threads for heavy work beside another program that is as busy; at least 1."""
    return max(1, usable_cores() // 2)
