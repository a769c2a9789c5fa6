"""Offline runs of Decision Transformers: from labels to policies that are asked for returns."""

import json

import gymnasium
import numpy as np
import pytest

from helpers.installed import needs
from helpers.offline_runs import ENV, config_of, run
from preferl.data import save_episodes
from preferl.evaluation import evaluate_policy, make_task_env
from preferl.feedback.step_rewards import Negated
from preferl.models import CNNReward
from preferl.offline import DecisionTransformerPolicy, DTConfig, OfflineConfig
from preferl.offline.experiment.conditions import reward_of_condition, target_sweep
from preferl.testing import MovingDot, make_episodes
from preferl.training import RewardFunction, load_reward, save_reward

pytestmark = needs("transformers", "accelerate")

SMALL = DTConfig(context=4, width=8, layers=1, batch_size=8, horizon=20)


def sequences_of(data, **changes):
    return config_of(data, **{"policy": "dt", "dt": SMALL, "steps": 6, "episodes": 2} | changes)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "dt"
    config = sequences_of(data, target_return="q0.75", only_controls=("zero", "cloning"))
    return out, run(config, out, checkpoint_every=3)


def test_all_conditions_are_there_and_what_was_asked(finished):
    out, result = finished
    assert list(result["conditions"]) == ["learned", "zero", "cloning"]
    assert result["policy"] == "dt"
    following = result["following"]
    assert following["targets"] == ["q0", "q0.25", "q0.5", "q0.75", "q0.95"]
    assert np.shape(following["achieved"]) == (2, 5)
    assert following["asked"] == sorted(following["asked"])
    page = (out / "report.html").read_text()
    for words in ("Target and achieved returns", "How they learned", "Rank correlation of both"):
        assert words in page
    assert not list((out / "training").iterdir())
    assert list(result["evaluations"]) == ["learned-0", "learned-1"]
    for found in result["evaluations"].values():
        assert [one["step"] for one in found] == [1, 2, 3, 4, 5, 6]
    rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    assert sum("eval/learned-1/mean_reward" in row for row in rows) == 6


def test_a_policy_asks_in_the_units_of_its_reward(finished):
    out, result = finished
    reward = load_reward(out / "reward")
    returns = np.load(out / "relabelled/rewards.npy").reshape(40, 20).sum(1)
    policy = DecisionTransformerPolicy.load(out / "policies/learned-1")
    assert policy.target == pytest.approx(np.quantile(returns, 0.75), rel=1e-4)
    report = evaluate_policy(
        policy.with_reward(reward),
        lambda: make_task_env(ENV),
        episodes=2,
        seed=10_000,
        parallel=20,
    )
    earned = result["conditions"]["learned"]["return"]["seeds"]
    assert report.mean == pytest.approx(earned[1], rel=1e-5)


def test_each_condition_goes_by_the_reward_it_learned_from(finished, rng):
    reward = load_reward(finished[0] / "reward")
    seen = rng.uniform(-1, 1, (3, 1, 2)), rng.uniform(-1, 1, (3, 1, 2)), np.ones((3, 1), bool)
    assert reward_of_condition("learned", 0, reward) is reward
    assert reward_of_condition("true", 0, reward) is None
    assert isinstance(reward_of_condition("negated", 0, reward), Negated)
    np.testing.assert_array_equal(reward_of_condition("zero", 0, reward)(*seen), 0)
    first, second = (reward_of_condition("random", seed, reward)(*seen) for seed in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.slow
def test_pictures_and_choices_by_a_reward_that_was_fitted_before(rng, tmp_path):
    """Cloning knows neither, and is left out."""
    dot = MovingDot(length=6)
    name = "MovingDotOfSequences-v0"
    spaces = dot.observation_space, dot.action_space
    save_reward(tmp_path / "reward", RewardFunction(CNNReward(*spaces, seed=0)))
    episodes = make_episodes(rng, [6, 6, 6], *spaces)
    save_episodes(tmp_path / "episodes", episodes)
    gymnasium.register(name, lambda **how: MovingDot(length=6, **how), disable_env_checker=True)
    try:
        config = OfflineConfig(
            demonstrations=str(tmp_path / "episodes"),
            reward=tmp_path / "reward",
            env=name,
            policy="dt",
            dt=SMALL,
            steps=2,
            episodes=1,
        )
        result = run(config, tmp_path / "run", seeds=(0,))
    finally:
        del gymnasium.registry[name]
    assert list(result["conditions"]) == ["learned", "true", "zero", "negated", "random"]
    assert "video/mp4" in (tmp_path / "run/report.html").read_text()


@pytest.mark.slow
def test_dtr_has_critics(data, tmp_path):
    run(sequences_of(data, policy="dtr", controls=False), tmp_path / "run", seeds=(0,))
    policy = DecisionTransformerPolicy.load(tmp_path / "run/policies/learned-0")
    assert policy.learner == "DTR"


def test_a_sweep_knows_when_it_cannot_tell():
    flat = target_sweep(("q0", "q1"), [1.0, 1.0], np.array([[1.0, 2.0]]))
    assert flat["rank_correlation"] is None
