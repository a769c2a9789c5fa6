"""Recorded episodes, and a project that asks about them."""

from shutil import copytree

import numpy as np
import pytest
from gymnasium import spaces

from helpers import offline_runs
from helpers.command_line import run
from preferl.data import save_episodes
from preferl.testing import make_episodes


@pytest.fixture(scope="session")
def episodes():
    space = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))
    return make_episodes(np.random.default_rng(0), [40, 50, 30], *space)


@pytest.fixture
def answered(rng, tmp_path):
    """Recorded episodes, and sixty answers about them: options of commands that read both."""
    episodes = offline_runs.recorded(rng, episodes=20)
    save_episodes(tmp_path / "episodes", episodes)
    offline_runs.write_labels(tmp_path / "labels", episodes, rng, count=60)
    return ("--demonstrations", tmp_path / "episodes", "--labels", tmp_path / "labels")


@pytest.fixture
def recorded(episodes, tmp_path):
    save_episodes(tmp_path / "run/episodes", episodes)
    return tmp_path / "run"


@pytest.fixture(scope="session")
def project(episodes, tmp_path_factory):
    """The folder of a project with twelve queries and two known pairs."""
    folder = tmp_path_factory.mktemp("project")
    save_episodes(folder / "episodes", episodes)
    more = ("--queries", 12, "--length", 10, "--known", 2, "--env", "Pendulum-v1", "--quorum", 2)
    store = folder / "labels"
    assert run("annotate", "create", "--run", folder / "episodes", "--store", store, *more) == 0
    return store


@pytest.fixture
def labels(project, tmp_path):
    """A copy of that project, as options."""
    return ("--store", copytree(project, tmp_path / "labels"))
