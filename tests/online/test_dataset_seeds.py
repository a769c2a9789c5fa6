"""Data sets of several trainings: as if each had been recorded alone, and resumed."""

import shutil

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv

from preferl.data import load_episodes
from preferl.data.arrays import load_arrays
from preferl.errors import ConfigError, DataError
from preferl.online import DatasetConfig, SACConfig, dataset, record_dataset
from preferl.online.dataset import data_id, record_seeds
from preferl.runs import read_run

SMALL = DatasetConfig(
    "Pendulum-v1",
    mix="random:2,replay:all",
    train_steps=800,
    checkpoint_every=400,
    eval_episodes=1,
    algorithm=SACConfig(hidden=(8,), batch_size=8, learning_starts=50, train_freq=20),
    environments=2,
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
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


def test_a_data_set_of_several_seeds_is_a_run_that_can_be_read(recorded):
    out, result, _ = recorded
    assert read_run(out).state == "finished"
    record = read_run(out).summary
    assert (record.kind, record.subject) == ("data", "Pendulum-v1")
    assert record.steps == 2_400
    assert {"random, seed 3", "replay, seed 5"} <= record.beside.keys()
    assert record.beside["random"].mean == result["references"]["random"]


def test_a_recording_that_was_stopped_goes_on(recorded, tmp_path, monkeypatch):
    def stopped(units, on_done, *, processes):
        run_units(units[:1], on_done, processes=processes)
        raise KeyboardInterrupt

    run_units = dataset.run_units
    out = tmp_path / "both"
    monkeypatch.setattr(dataset, "run_units", stopped)
    assert record_seeds(SMALL, out, [3, 5], report_to=())["interrupted"]
    monkeypatch.setattr(dataset, "run_units", run_units)
    result = record_seeds(SMALL, out, [3, 5], report_to=(), resume=True)
    assert result["id"] == recorded[1]["id"]


def test_a_recording_that_was_killed_once_it_had_its_result_counts_as_done(recorded, tmp_path):
    out = shutil.copytree(recorded[0], tmp_path / "both")
    for file in (out / "seeds/5/done.json", out / "summary.json"):
        file.unlink()
    assert record_seeds(SMALL, out, [3, 5], report_to=(), resume=True)["id"] == recorded[1]["id"]


def test_a_recording_that_fails_reports_why(tmp_path):
    short = DatasetConfig(**vars(SMALL) | {"train_steps": 100})
    with pytest.raises(DataError, match=r"(?s)recording of seed 3.*episodes that ended while"):
        record_seeds(short, tmp_path / "data", [3], report_to=())
    for seeds in ([], [1, 1]):
        with pytest.raises(ConfigError, match="all different"):
            record_seeds(SMALL, tmp_path / "other", seeds)
    assert not (tmp_path / "other").exists()


class Succeeds(gymnasium.Env):
    """Reports success at the third of four steps, where the action is positive."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.step_number += 1
        success = self.step_number == 3 and action[0] > 0
        return np.zeros(1, np.float32), 0.0, False, self.step_number == 4, {"success": success}


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


def test_minari_gets_the_data_set_of_an_environment_of_a_function(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari", reason="the extra preferl[minari] is not installed")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    gymnasium.register("preferl-test/Function-v0", entry_point=lambda **_: PendulumEnv())
    settings = {"env": "preferl-test/Function-v0", "max_episode_steps": 9, "mix": "random:2"}
    alone = DatasetConfig(**vars(SMALL) | settings)
    record_dataset(alone, tmp_path / "data", report_to=(), minari="mine/function-v0")
    assert minari.load_dataset("mine/function-v0").total_steps == 18
    named = DatasetConfig(**vars(alone) | {"env": "Pendulum-v1"})
    record_seeds(named, tmp_path / "seeds", [1, 2], report_to=(), minari="mine/seeds-v0")
    assert minari.load_dataset("mine/seeds-v0").total_steps == 36
    del gymnasium.registry["preferl-test/Function-v0"]
