"""Save and restore the program's global generators, from which libraries draw."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def global_generators() -> dict[str, Any]:
    """Return the state of the global generators of numpy, torch and Python."""
    return {
        "numpy": np.random.get_state(),  # noqa: NPY002  # SB3 draws from it
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
    }


def restore_generators(state: Mapping[str, Any]) -> None:
    """Set the global generators to a state, so that draws continue from there."""
    np.random.set_state(state["numpy"])  # noqa: NPY002  # as above
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == (torch.cuda.device_count() if torch.cuda.is_available() else 0):
        torch.cuda.set_rng_state_all(state["cuda"])
    random.setstate(state["python"])


@contextmanager
def generators_left_alone() -> Iterator[None]:
    """Restore the global generators after the block to their state before the block."""
    before = global_generators()
    try:
        yield
    finally:
        restore_generators(before)
