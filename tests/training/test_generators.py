"""Generators of the program: kept and restored."""

import random
from contextlib import suppress

import numpy as np
import torch

from preferl.training.generators import generators_left_alone, global_generators, restore_generators


def draws():
    return float(torch.rand(1)), float(np.random.random()), random.random()  # noqa: NPY002


def test_a_block_leaves_no_trace_even_if_it_fails():
    state = global_generators()
    expected = draws()
    restore_generators(state)
    with suppress(KeyError), generators_left_alone():
        assert draws() == expected
        torch.manual_seed(3)
        raise KeyError
    assert draws() == expected
