"""Data sets of several trainings: as if each had been recorded alone, and resumed."""

import shutil

import numpy as np
import pytest

from preferl.data import load_episodes
from preferl.data.arrays import load_arrays
from preferl.errors import ConfigError, DataError
from preferl.online import DatasetConfig, SACConfig, dataset, record_dataset
from preferl.online.dataset import data_id, record_seeds
from preferl.runs.executor import pending_units, perform, unit_failures
from preferl.testing import PointWorld

SMALL = DatasetConfig(
    "Pendulum-v1",
    mix="random:2,replay:all",
    train_steps=800,
    checkpoint_every=400,
    eval_episodes=1,
    algorithm=SACConfig(hidden=(8,), batch_size=8, learning_starts=50, train_freq=20),
    environments=2,
)


def in_this_process(units, on_done, *, processes):
    """As `run_units`, without processes, which have tests of their own."""
    for unit in pending_units(units, on_done):
        perform(unit)
        unit_failures(unit, 0, on_done)
    return {}


@pytest.fixture(scope="module", autouse=True)
def no_processes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "run_units", in_this_process)
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, no_processes):
    out = tmp_path_factory.mktemp("data") / "both"
    progress = []
    result = record_seeds(
        SMALL, out, [3, 5], report_to=(), on_progress=lambda *now: progress.append(now)
    )
    return out, result, progress


def test_every_seed_is_recorded_as_it_would_be_alone(recorded, tmp_path):
    out, result, progress = recorded
    episodes = load_episodes(out / "episodes")
    assert [(t["name"], t["seed"], t["first"], t["episodes"]) for t in result["tiers"]] == [
        ("random", 3, 0, 2),
        ("replay", 3, 2, 4),
        ("random", 5, 6, 2),
        ("replay", 5, 8, 4),
    ]
    assert (len(episodes), episodes.steps) == (12, 2_400)
    alone = record_dataset(
        DatasetConfig(**vars(SMALL) | {"seed": 5}), tmp_path / "alone", report_to=()
    )
    own = load_episodes(tmp_path / "alone/episodes")
    np.testing.assert_array_equal(episodes[6:].observations, own.observations)
    assert alone["id"] == data_id(own) != result["id"] == data_id(episodes)
    assert result["references"]["random"] != alone["references"]["random"]
    assert load_arrays(out / "episodes")[1]["about"]["id"] == result["id"]
    assert progress[0] == ("recording seeds", 0, 2)
    assert progress[-1] == ("recording seeds", 2, 2)


def test_a_recording_that_was_stopped_goes_on(recorded, tmp_path, monkeypatch):
    def stopped(units, on_done, *, processes):
        in_this_process(units[:1], on_done, processes=processes)
        raise KeyboardInterrupt

    out = tmp_path / "both"
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "run_units", stopped)
        assert record_seeds(SMALL, out, [3, 5], report_to=())["interrupted"]
    result = record_seeds(SMALL, out, [3, 5], report_to=(), resume=True)
    assert result["id"] == recorded[1]["id"]


def test_a_recording_that_was_killed_once_it_had_its_result_counts_as_done(recorded, tmp_path):
    out = shutil.copytree(recorded[0], tmp_path / "both")
    for file in (out / "seeds/5/done.json", out / "summary.json"):
        file.unlink()
    assert record_seeds(SMALL, out, [3, 5], report_to=(), resume=True)["id"] == recorded[1]["id"]


def test_a_recording_that_fails_reports_why(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset, "run_units", lambda *_, **__: {"seed 3": "no room"})
    with pytest.raises(DataError, match=r"recording of seed 3: expected a whole one, got no room"):
        record_seeds(SMALL, tmp_path / "data", [3], report_to=())
    for seeds in ([], [1, 1]):
        with pytest.raises(ConfigError, match="all different"):
            record_seeds(SMALL, tmp_path / "other", seeds)
    assert not (tmp_path / "other").exists()


class Succeeds(PointWorld):
    """Reports success at the third of four steps, where the push is to the right."""

    def __init__(self):
        super().__init__(length=4)

    def reset(self, **options):
        self.number = 0
        return super().reset(**options)

    def step(self, action):
        self.number += 1
        *outcome, info = super().step(action)
        return *outcome, info | {"success": self.number == 3 and action[0] > 0}


def test_success_is_kept_with_the_steps(tmp_path):
    config = DatasetConfig(
        Succeeds, mix="random:20,replay:all", train_steps=120, checkpoint_every=60
    )
    config = DatasetConfig(**vars(config) | {"algorithm": SMALL.algorithm, "eval_episodes": 1})
    result = record_dataset(config, tmp_path, report_to=())
    episodes = load_episodes(tmp_path / "episodes")
    third = np.arange(episodes.steps) % 4 == 2
    np.testing.assert_array_equal(episodes.success, third & (episodes.actions[:, 0] > 0))
    for tier in result["tiers"]:
        own = episodes[tier["first"] : tier["first"] + tier["episodes"]]
        assert tier["success"] == pytest.approx(own.succeeded.mean(), abs=1e-4)
    assert episodes[:3].succeeded.shape == (3,)
    assert load_episodes(tmp_path / "episodes")[0].success.dtype == bool
