"""Offline runs of Decision Transformers: from labels to policies that are asked for returns."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from helpers.installed import needs
from preferl.data import Episodes, save_episodes
from preferl.errors import ConfigError
from preferl.evaluation import evaluate_policy, make_task_env
from preferl.feedback.step_rewards import Negated
from preferl.models import CNNReward
from preferl.offline import (
    DecisionTransformerPolicy,
    DTConfig,
    DTRConfig,
    OfflineConfig,
    run_offline,
)
from preferl.offline.experiment.conditions import reward_of_condition, target_sweep
from preferl.testing import MovingDot, PointWorld, linear_reward, make_episodes
from preferl.training import RewardFunction, load_reward, save_reward

pytestmark = needs("transformers", "accelerate")

ENV = "PointWorldOfSequences-v0"
SMALL = DTConfig(context=4, width=8, layers=1, batch_size=8, horizon=20)
CLIP = 8


@pytest.fixture(scope="module", autouse=True)
def world():
    gymnasium.register(ENV, PointWorld, order_enforce=False, disable_env_checker=True)
    yield
    del gymnasium.registry[ENV]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Random walks, and answers by their true returns in the layout of Uni-RLHF."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data")
    push = rng.uniform(-1, 1, (30, 20, 2)).astype(np.float32)
    path = np.zeros((30, 21, 2), np.float32)
    for t in range(20):
        path[:, t + 1] = np.clip(path[:, t] + 0.2 * push[:, t], -2, 2)
    seen = path[:, :-1].reshape(-1, 2)
    done = push.reshape(-1, 2)
    rewards = linear_reward(seen, done)
    episodes = Episodes(
        observations=seen,
        actions=done,
        rewards=rewards,
        terminated=np.zeros(600, bool),
        final_observations=path[:, -1],
        lengths=np.full(30, 20),
    )
    save_episodes(folder / "episodes", episodes)
    rows = episodes.starts[rng.integers(30, size=(2, 100))] + rng.integers(12, size=(2, 100))
    sums = np.lib.stride_tricks.sliding_window_view(rewards, CLIP).sum(-1)[rows]
    answers = np.where(sums[0] > sums[1], 0, 1)
    files = {"human_label_x": answers, "indices_1_x": rows[0], "indices_2_x": rows[1]}
    (folder / "labels").mkdir()
    for name, array in files.items():
        (folder / "labels" / f"{name}_len_{CLIP}.pkl").write_bytes(pickle.dumps(array))
    return folder


def config_of(data: Path, **changes) -> OfflineConfig:
    usual = {"policy": "dt", "dt": SMALL, "steps": 6, "episodes": 2, "budget": 5, "members": 2}
    return OfflineConfig(
        demonstrations=str(data / "episodes"), labels=data / "labels", env=ENV, **usual | changes
    )


def run(config, out, **options):
    usual = {"seeds": (0, 1), "processes": 1, "checkpoint_every": 3, "report_to": ("jsonl",)}
    return run_offline(config, out, **usual | options)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "dt"
    return out, run(config_of(data, target_return="q0.75"), out)


def test_all_conditions_are_there_and_what_was_asked(finished) -> None:
    out, result = finished
    assert list(result["conditions"]) == ["learned", "true", "zero", "negated", "random", "cloning"]
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


def test_evaluations_leave_no_trace_in_the_policies(finished, data, tmp_path) -> None:
    config = config_of(data, target_return="q0.75", controls=False)
    seen: list[tuple[str, int]] = []
    for every in (0, 4):
        out = tmp_path / str(every)
        run(
            replace(config, eval_every=every),
            out,
            on_evaluation=lambda agent, found: seen.append((agent, found.step)),
        )
        for name in ("learned-0", "learned-1"):
            ours, theirs = (
                {file.name: file.read_bytes() for file in (folder / "policies" / name).iterdir()}
                for folder in (out, finished[0])
            )
            assert ours == theirs
    steps = (4, 6)  # the last one, too
    assert seen == [(name, step) for name in ("learned-0", "learned-1") for step in steps]


def test_a_policy_asks_in_the_units_of_its_reward(finished) -> None:
    out, result = finished
    reward = load_reward(out / "reward")
    returns = np.load(out / "relabelled/rewards.npy").reshape(30, 20).sum(1)
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


def test_each_condition_goes_by_the_reward_it_learned_from(finished, rng) -> None:
    reward = load_reward(finished[0] / "reward")
    seen = rng.uniform(-1, 1, (3, 1, 2)), rng.uniform(-1, 1, (3, 1, 2)), np.ones((3, 1), bool)
    assert reward_of_condition("learned", 0, reward) is reward
    assert reward_of_condition("true", 0, reward) is None
    assert isinstance(reward_of_condition("negated", 0, reward), Negated)
    np.testing.assert_array_equal(reward_of_condition("zero", 0, reward)(*seen), 0)
    first, second = (reward_of_condition("random", seed, reward)(*seen) for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_an_interrupted_run_goes_on_to_the_same_end(finished, data, tmp_path) -> None:
    out = tmp_path / "run"
    config = config_of(data, target_return="q0.75")

    def stop(doing, done, _):
        if doing == "training 10 agents" and done == 18:
            raise KeyboardInterrupt

    assert run(config, out, on_progress=stop)["interrupted"]
    result = run(config, out, resume=True)
    assert result["conditions"] == finished[1]["conditions"]
    assert result["following"] == finished[1]["following"]


def test_pictures_and_choices_by_a_reward_that_was_fitted_before(tmp_path) -> None:
    """Cloning knows neither, and is left out."""
    dot = MovingDot(length=6)
    name = "MovingDotOfSequences-v0"
    spaces = dot.observation_space, dot.action_space
    save_reward(tmp_path / "reward", RewardFunction(CNNReward(*spaces, seed=0)))
    episodes = make_episodes(np.random.default_rng(0), [6, 6, 6], *spaces)
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


def test_dtr_has_critics(data, tmp_path) -> None:
    run(config_of(data, policy="dtr", controls=False), tmp_path / "run", seeds=(0,))
    policy = DecisionTransformerPolicy.load(tmp_path / "run/policies/learned-0")
    assert policy.learner == "DTR"


def test_the_report_names_the_loss_that_is_drawn(finished, data, tmp_path) -> None:
    page = (finished[0] / "report.html").read_text()
    assert "Mean square error of actions" in page
    config = config_of(data, dt=replace(SMALL, action_loss="gaussian"), controls=False)
    run(config, tmp_path / "run", seeds=(0,))
    page = (tmp_path / "run/report.html").read_text()
    assert "Negative log likelihood of each number of an action" in page
    assert "square error" not in page


def test_what_a_config_makes_of_its_settings(data) -> None:
    assert config_of(data, steps=None).updates == 10_000
    assert config_of(data, steps=None, policy="iql").updates == 100_000
    assert config_of(data, target_return="7").settings.target == "7"
    assert config_of(data).settings.regulariser is None
    assert config_of(data, policy="dtr").settings.regulariser == DTRConfig()
    assert config_of(data, dt=None, task="door-human-v1").settings.horizon == 200
    with pytest.raises(ConfigError, match="target_return: expected a policy with one, dt or dtr"):
        config_of(data, policy="iql", target_return="q1")


def test_a_sweep_knows_when_it_cannot_tell() -> None:
    flat = target_sweep(("q0", "q1"), [1.0, 1.0], np.array([[1.0, 2.0]]))
    assert flat["rank_correlation"] is None


def test_transformers_learn_from_the_recorded_rewards_without_labels(data, tmp_path):
    config = replace(config_of(data), labels=None, reward="true")
    result = run(config, tmp_path / "run", seeds=(0,))
    assert list(result["conditions"]) == ["true", "zero", "random", "cloning"]
    assert len(result["following"]["asked"]) == 5
    seen = np.ones((3, 1, 2)), np.ones((3, 1, 2)), np.ones((3, 1), bool)
    np.testing.assert_array_equal(reward_of_condition("zero", 0, None)(*seen), 0)
    assert reward_of_condition("true", 0, None) is None
