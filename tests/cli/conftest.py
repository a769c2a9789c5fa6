"""Recorded episodes, and a project that asks about them."""

from shutil import copytree

import numpy as np
import pytest

from helpers import offline_runs
from helpers.command_line import run
from preferl.data import save_episodes
from preferl.data.episodes import Episodes


@pytest.fixture(scope="session")
def episodes():
    rng = np.random.default_rng(0)
    angle = rng.uniform(-3, 3, size=120)
    seen = np.stack([np.cos(angle), np.sin(angle), rng.normal(size=120)], axis=1)
    ends = np.zeros((3, 3))
    return Episodes(
        seen.astype(np.float32), rng.normal(size=(120, 1)).astype(np.float32), np.cos(angle),
        np.zeros(120, bool), ends, np.array([40, 50, 30]),
    )  # fmt: skip


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
