"""Data of small offline runs, and the world that they are about."""

import gymnasium
import numpy as np
import pytest

from helpers.offline_runs import ENV, recorded, write_labels
from preferl.data import save_episodes
from preferl.testing import PointWorld


@pytest.fixture(scope="module")
def world():
    gymnasium.register(ENV, PointWorld, order_enforce=False, disable_env_checker=True)
    yield
    del gymnasium.registry[ENV]


@pytest.fixture(scope="module")
def data(world, tmp_path_factory):
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data")
    episodes = recorded(rng)
    save_episodes(folder / "episodes", episodes)
    write_labels(folder / "labels", episodes, rng)
    return folder
