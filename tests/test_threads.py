"""Torch takes as many threads as it is given, and afterwards as many as before."""

import os
import subprocess
import sys

import pytest
import torch

from preferl.threads import half_of_the_cores, torch_threads


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with torch_threads(before + 2):
        assert torch.get_num_threads() == before + 2
        with torch_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before


def test_threads_are_put_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), torch_threads(before + 1):
        raise KeyError
    assert torch.get_num_threads() == before


def test_torch_is_not_loaded_for_its_threads():
    code = (
        "import sys\nfrom preferl.threads import half_of_the_cores, torch_threads\n"
        "with torch_threads(2):\n    half_of_the_cores()\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="not every system limits cores")
def test_half_of_the_cores_that_this_process_may_use():
    mine = os.sched_getaffinity(0)
    try:
        for count in range(1, len(mine) + 1):
            os.sched_setaffinity(0, sorted(mine)[:count])
            assert half_of_the_cores() == (1 if count == 1 else count // 2)
    finally:
        os.sched_setaffinity(0, mine)
