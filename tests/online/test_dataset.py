"""Data sets of mixed quality: what is in them, their expert, and interrupted recordings."""

import json
from dataclasses import replace

import numpy as np
import pytest

from preferl.data import Episodes, load_episodes
from preferl.data.sources import load_source
from preferl.errors import ConfigError
from preferl.evaluation.policy import PolicyReport, evaluate_policy
from preferl.online import DatasetConfig, PPOConfig, SACConfig, dataset, record_dataset
from preferl.online.dataset import medium, spread

SMALL = DatasetConfig(
    "Pendulum-v1",
    mix="random:3,medium:2,expert:2,replay:3",
    train_steps=800,
    checkpoint_every=200,
    eval_episodes=1,
    algorithm=SACConfig(hidden=(8,), batch_size=8, learning_starts=50, train_freq=20),
    environments=2,
)


@pytest.fixture
def rising(monkeypatch):
    """Every checkpoint is evaluated better than the one before, from -1000 in steps of 300."""
    count = 0

    def evaluate(*args, seed, **settings):
        nonlocal count
        if seed != SMALL.seed + dataset.SEEDS["checkpoints"]:  # a reference, not a checkpoint
            return evaluate_policy(*args, seed=seed, **settings)
        count += 1
        return PolicyReport(np.array([-1300.0 + 300 * count]), np.array([200]))

    monkeypatch.setattr(dataset, "evaluate_policy", evaluate)


def stop_at(word, when=0):
    """Ctrl-C as soon as something is that far."""

    def tell(doing, done, total):
        if doing.startswith(word) and done >= when:
            raise KeyboardInterrupt

    return tell


def lines(path):
    rows = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [row["step"] for row in rows if "eval/mean_reward" in row]


def test_every_tier_lies_where_the_result_says(tmp_path, rising):
    result = record_dataset(SMALL, tmp_path)
    episodes = load_source(tmp_path / "episodes")
    assert [(tier["name"], tier["first"], tier["episodes"]) for tier in result["tiers"]] == [
        ("random", 0, 3),
        ("medium", 3, 2),
        ("expert", 5, 2),
        ("replay", 7, 3),
    ]
    assert (len(episodes), episodes.steps, episodes.states.shape) == (10, 2_000, (2_000, 2))
    for tier in result["tiers"]:
        own = episodes.returns[tier["first"] : tier["first"] + tier["episodes"]]
        assert tier["return"]["mean"] == pytest.approx(own.mean(), abs=1e-3)
        assert tier["return"]["max"] == pytest.approx(own.max(), abs=1e-3)
    # evaluated at -1000, -700, -400, -100, and random is below: the expert is the last
    assert [tier["trained"] for tier in result["tiers"]][2:] == [800, None]
    assert result["tiers"][1]["trained"] < 800
    tiers = {tier["name"]: tier["return"]["mean"] for tier in result["tiers"]}
    references = {name: tiers[name] for name in ("random", "expert")}
    assert result["references"] == pytest.approx(references, abs=1e-3)
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert not (tmp_path / "tiers").exists()


def test_a_training_that_was_stopped_comes_to_the_same(tmp_path):
    config = replace(SMALL, mix="replay:3")
    record_dataset(config, tmp_path / "whole")
    record_dataset(config, tmp_path / "parts", on_progress=stop_at("training", 500))
    record_dataset(config, tmp_path / "parts", resume=True)
    whole, parts = (load_episodes(tmp_path / name / "episodes") for name in ("whole", "parts"))
    np.testing.assert_array_equal(whole.observations, parts.observations)


def test_a_training_takes_no_more_steps_than_it_may(tmp_path):
    ppo = PPOConfig(n_steps=50, batch_size=50, n_epochs=1)
    config = replace(SMALL, algorithm=ppo, training_environments=2, mix="expert:1")
    record_dataset(replace(config, train_steps=330, checkpoint_every=130), tmp_path)
    assert lines(tmp_path) == [100, 260, 330]  # 30 steps are less than a minibatch
    too_few = replace(config, train_steps=49)
    with pytest.raises(ConfigError, match="train_steps: expected at least 50, got 49"):
        record_dataset(too_few, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_recording_that_was_stopped_keeps_the_tiers_it_has(tmp_path, rising):
    stopped = record_dataset(SMALL, tmp_path, on_progress=stop_at("recording expert"))
    assert stopped == {"interrupted": True, "stage": "recording expert"}
    kept = load_episodes(tmp_path / "tiers" / "random")
    record_dataset(SMALL, tmp_path, resume=True, on_progress=stop_at("recording random"))
    assert lines(tmp_path) == [200, 400, 600, 800]
    np.testing.assert_array_equal(
        load_episodes(tmp_path / "episodes").observations[:600], kept.observations
    )


def test_a_policy_of_ones_own_is_the_expert(tmp_path):
    class Still:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.zeros((len(observation), 1), np.float32), state

    config = replace(SMALL, mix="random:1,expert:2")
    result = record_dataset(config, tmp_path, policy=Still())
    episodes = load_episodes(tmp_path / "episodes")
    assert not episodes.actions[200:].any()
    assert result["tiers"][1]["trained"] is None
    with pytest.raises(ConfigError, match="only random and expert"):
        record_dataset(SMALL, tmp_path, policy=Still())


def test_too_little_experience_is_taken_whole_with_a_warning(tmp_path):
    config = replace(SMALL, mix="replay:9")
    with pytest.warns(UserWarning, match="only 4 episodes of 800 steps"):
        result = record_dataset(config, tmp_path)
    assert result["tiers"][0]["episodes"] == 4


def test_replay_is_spread_over_all_of_training():
    steps = np.arange(20.0)[:, None]
    experience = Episodes(steps, steps, steps[:, 0], np.zeros(20, bool), steps[:10], np.full(10, 2))
    assert spread(experience, count=4).observations[::2, 0].tolist() == [0, 6, 12, 18]
    assert len(spread(experience, steps=5)) == 3
    assert len(spread(experience, count=99)) == 10


def way(*means):
    return {10 * k: mean for k, mean in enumerate(means, 1)}


@pytest.mark.parametrize(
    ("random", "means", "step"),
    [
        (0.0, (10, 40, 90, 100), 20),  # a third of 100 is 33.3
        (-300.0, (-280, -90, 150, 300), 20),  # -300 + 600 / 3 = -100
        (0.0, (10, 99, 100, 33), 10),  # what comes after the expert is not on its way
    ],
)
def test_medium_is_a_third_of_the_way_from_random(random, means, step):
    assert medium(way(*means), random) == step


def test_without_a_checkpoint_before_the_expert_nobody_is_medium():
    with pytest.raises(ConfigError, match=r"a checkpoint before the expert's.*after 10 steps"):
        medium(way(5, 4, 3), 0.0)
