"""A Ray cluster on this machine, and the example's learner.

`make rllib` installs RLlib with the gymnasium that it pins; elsewhere these tests skip.
"""

import os
import runpy
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

EXAMPLE = Path(__file__).parents[2] / "examples/rllib/cartpole.py"


def missing():
    """What RLlib requires beyond Ray and is not installed in that version."""
    try:
        needed = [Requirement(text) for text in requires("ray") or []]
    except PackageNotFoundError:
        return ["ray"]
    needed = [one for one in needed if one.marker and one.marker.evaluate({"extra": "rllib"})]
    return [str(one).partition(";")[0] for one in needed if not installed(one)]


def installed(requirement):
    try:
        return requirement.specifier.contains(version(requirement.name))
    except PackageNotFoundError:
        return False


@pytest.fixture(scope="session")
def example():
    """The names of the example. Its module is none that EnvRunners would have to import."""
    if lacks := missing():
        pytest.skip(f"`make rllib` installs {', '.join(lacks)}")
    import ray

    # Short: the addresses of sockets in it have to fit into 107 characters.
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    settings = {"include_dashboard": False, "object_store_memory": 80 * 2**20, "num_cpus": 5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # beside other programs, Ray's 15 takes minutes
        patch.setenv("HOME", folder)  # where RLlib makes a folder for each algorithm
        patch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
        with ray.init("local", _temp_dir=folder, log_to_driver=False, **settings):
            yield SimpleNamespace(**runpy.run_path(str(EXAMPLE), run_name="rllib_cartpole"))
    shutil.rmtree(folder, ignore_errors=True)
