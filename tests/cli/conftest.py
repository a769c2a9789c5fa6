"""Recorded episodes, and a project that asks about them."""

import numpy as np
import pytest

from helpers.command_line import run
from preferl.data import save_episodes
from preferl.data.episodes import Episodes


@pytest.fixture
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
def recorded(episodes, tmp_path):
    save_episodes(tmp_path / "run/episodes", episodes)
    return tmp_path / "run"


@pytest.fixture
def labels(recorded, tmp_path):
    """A project with twelve questions and two known pairs."""
    where = ("--store", tmp_path / "labels")
    more = ("--queries", 12, "--length", 10, "--known", 2, "--env", "Pendulum-v1")
    assert run("annotate", "create", "--run", recorded, *where, *more, "--quorum", 2) == 0
    return where
