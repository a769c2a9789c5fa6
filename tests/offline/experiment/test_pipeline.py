"""Whole offline runs of a small world: what is left behind, what it shows, and going on."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.folder_contents import contents
from helpers.offline_runs import ENV, SMALL, config_of, run
from preferl.data import TASKS, load_episodes
from preferl.errors import (
    ConfigError,
    DataError,
    PreferlError,
    SpaceError,
)
from preferl.evaluation import evaluate_policy, make_task_env, task_env
from preferl.offline import OfflineConfig, OfflinePolicy
from preferl.offline.experiment.inputs import FIRST_CURVE_EPISODE
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import read_jsonl
from preferl.runs import read_run
from preferl.statistics import mean_interval
from preferl.training import load_reward, relabel


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "small"
    return out, run(config_of(data), out, report_to=("jsonl", "tensorboard"))


def test_the_result_holds_every_condition_by_seed(finished):
    out, result = finished
    assert json.loads((out / "result.json").read_text()) == json.loads(
        json.dumps(result).replace("NaN", "null")
    )
    assert list(result["conditions"]) == ["learned", "true", "zero", "negated", "random", "cloning"]
    policy = OfflinePolicy.load(out / "policies/negated-1")
    alone = evaluate_policy(
        policy, lambda: make_task_env(ENV), episodes=3, seed=10_000, parallel=20
    )
    assert result["conditions"]["negated"]["return"]["seeds"][1] == alone.mean
    assert result["conditions"]["learned"]["normalised_score"] is None
    assert result["simulators"]["gymnasium"]
    assert set(result["comparison"]) >= {"beaten", "unclear", "lost_to", "passed", "text"}


def test_the_reward_can_be_used_again(finished, data, tmp_path):
    out, _ = finished
    reward = load_reward(out / "reward")
    assert reward.members == 2
    episodes = load_episodes(data / "episodes")
    rewards = np.load(out / "relabelled/rewards.npy")
    np.testing.assert_array_equal(rewards, relabel(episodes, reward).rewards)
    np.testing.assert_allclose(reward.scaler(reward.member_rewards(episodes)).std(1), 1, rtol=1e-4)
    again = run(
        config_of(data, reward=out, labels=None, controls=False),
        tmp_path / "again",
        report_to=(),
    )
    assert list(again["conditions"]) == ["learned"]
    first = finished[1]["conditions"]["learned"]["return"]["seeds"]
    assert again["conditions"]["learned"]["return"]["seeds"] == pytest.approx(first, rel=1e-4)
    assert again["comparison"] is None
    assert again["reward"]["fit"] is None


def test_metrics_are_means_over_the_seeds_of_a_condition(finished):
    out, _ = finished
    metrics = read_jsonl(out / "metrics.jsonl")
    assert {"iql/learned/value", "iql/zero/value", "cloning/cloning/policy_loss"} <= set(metrics)
    shown = metrics["eval/learned/mean_reward"]
    by_agent = finished[1]["evaluations"].values()
    means = np.mean([[one["mean"] for one in of] for of in by_agent], axis=0)
    assert shown[np.isfinite(shown)] == pytest.approx(means)
    low = metrics["eval/learned/mean_reward_low"]
    last = mean_interval(np.array([of[-1]["mean"] for of in by_agent]))  # over agents
    assert low[np.isfinite(low)][-1] == pytest.approx(last[0])
    assert list((out / "tensorboard").glob("events*"))


def test_the_report_holds_the_comparison(finished):
    out, result = finished
    page = (out / "report.html").read_text()
    assert result["comparison"]["text"] in page
    for words in ("learned reward", "cloning the data", "The reward along an episode", "Settings"):
        assert words in page
    assert "https://" not in page


@pytest.mark.parametrize(
    ("stage", "at"),
    [
        ("training 10 agents", 20),
        pytest.param("evaluating 12 policies", 5, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_goes_on_to_the_same_end(finished, data, tmp_path, stage, at):
    out = tmp_path / "run"
    config = config_of(data)

    def stop(doing, done, _):
        if (doing, done) == (stage, at):
            raise KeyboardInterrupt

    stopped = run(config, out, on_progress=stop)
    assert stopped == {"interrupted": True, "stage": stage}
    assert not (out / "result.json").exists()
    progress = []
    result = run(config, out, resume=True, on_progress=lambda *now: progress.append(now))
    assert result["conditions"] == finished[1]["conditions"]
    assert not [now for now in progress if now[0] == "fitting the reward" and now[1]]
    for policy in sorted((out / "policies").iterdir()):
        file = f"policies/{policy.name}/policy.safetensors"
        assert (out / file).read_bytes() == (finished[0] / file).read_bytes()
    assert result["evaluations"] == finished[1]["evaluations"]


def test_the_agents_of_the_learned_reward_are_evaluated_while_they_learn(finished):
    out, result = finished
    assert list(result["evaluations"]) == ["learned-0", "learned-1"]
    for agent, found in result["evaluations"].items():
        assert [one["step"] for one in found] == list(range(3, 31, 3))
        assert {one["episodes"] for one in found} == {2}
        file = json.loads((out / f"curves/{agent}.json").read_text())
        assert file == {"evaluations": found}
        policy = OfflinePolicy.load(out / "policies" / agent)
        by_seed = finished[1]["seeds"][0] + FIRST_CURVE_EPISODE
        alone = evaluate_policy(policy, task_env(ENV), episodes=2, seed=by_seed)
        assert found[-1]["returns"] == alone.returns.tolist()
    page = (out / "report.html").read_text()
    assert "Returns while they learned" in page
    assert "Of the same 2 episodes at each of 10 times" in page
    assert "The finished agents are scored by" in page


def test_the_settings_that_a_run_took_from_task_and_data_are_written(finished):
    written = json.loads((finished[0] / "config.json").read_text())["resolved"]
    assert written["iql"]["kind"] == "IQLConfig"
    assert written["iql"]["hidden"] == [16]
    assert written["model"]["kind"] == "MLPRewardConfig"
    assert written["trainer"]["epochs"] >= 1
    assert written["steps"] == 30
    assert written["eval_every"] == 3


def test_evaluations_leave_no_trace_in_the_policies(finished, data, tmp_path):
    seen = []
    result = run(
        config_of(data, eval_every=4),
        tmp_path / "run",
        on_evaluation=lambda *now: seen.append(now),
    )
    assert result["conditions"] == finished[1]["conditions"]
    steps = [one.step for _, one in seen]
    assert steps == [4, 8, 12, 16, 20, 24, 28, 30]
    assert {name for name, _ in seen} <= {"learned"}
    for policy in sorted((finished[0] / "policies").iterdir()):
        file = f"policies/{policy.name}/policy.safetensors"
        assert (tmp_path / "run" / file).read_bytes() == (finished[0] / file).read_bytes()


@pytest.fixture
def killed(finished, tmp_path):
    """A run that was killed just before its result was written."""
    shutil.copytree(finished[0], tmp_path / "killed")
    (tmp_path / "killed" / "summary.json").unlink()
    return tmp_path / "killed"


def test_what_is_evaluated_already_is_not_evaluated_again(finished, killed, data):
    _, result = finished
    progress = []
    again = run(config_of(data), killed, resume=True, on_progress=lambda *now: progress.append(now))
    assert again["conditions"] == result["conditions"]
    assert [now for now in progress if now[1]] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": Path("nowhere")},
        {"device": "cud"},
    ],
)
def test_a_mistake_leaves_the_older_run_at_its_name(finished, data, wrong):
    before = contents(finished[0].parent)
    with pytest.raises(PreferlError):
        run(config_of(data, **wrong), finished[0])
    with pytest.raises(ConfigError, match="report_to"):
        run(config_of(data), finished[0], report_to=("tensorbord",))
    assert contents(finished[0].parent) == before


def test_cloning_alone_needs_no_labels(data, tmp_path):
    result = run(config_of(data, policy="bc", labels=None), tmp_path / "run")
    assert list(result["conditions"]) == list({k.partition("-")[0] for k in result["evaluations"]})
    assert list(result["conditions"]) == ["cloning"]
    assert result["reward"] is None
    assert "cloned" in (tmp_path / "run/report.html").read_text()


CAREFUL = """
from dataclasses import dataclass

from preferl.offline import IQL, IQLConfig
from preferl.offline.learner_configs import LearnerConfig

BUILT = []


@dataclass(frozen=True)
class CarefulConfig(LearnerConfig):
    words = "careful Q-learning"

    expectile: float = 0.6

    @classmethod
    def of_run(cls, run):
        return cls(expectile=0.5)


class Careful:
    load_policy = IQL.load_policy

    def __init__(self, observation_space, action_space, config, *, seeds, steps, device):
        BUILT.append((config.expectile, tuple(seeds)))
        config = IQLConfig(hidden=(16,), expectile=config.expectile)
        how = {"seeds": seeds, "steps": steps, "device": device}
        self.agents = IQL(observation_space, action_space, config, **how)
        self.learn, self.policies = self.agents.learn, self.agents.policies
"""


def test_a_learner_of_ones_own_takes_part(data, tmp_path, monkeypatch):
    (tmp_path / "careful_learner.py").write_text(CAREFUL)
    monkeypatch.syspath_prepend(tmp_path)
    OFFLINE_LEARNERS.register("careful", "careful_learner:Careful", "careful_learner:CarefulConfig")
    try:
        config = config_of(data, policy="careful", controls=False)
        result = run(config, tmp_path / "run", seeds=(0,))
    finally:
        OFFLINE_LEARNERS.remove("careful")
    assert (result["policy"], list(result["conditions"])) == ("careful", ["learned"])
    built = sys.modules.pop("careful_learner").BUILT
    assert built == [(0.5, (0,))] * 2  # before there is a folder, and to learn
    assert "careful Q-learning" in (tmp_path / "run" / "report.html").read_text()
    assert "careful/learned/value" in read_jsonl(tmp_path / "run" / "metrics.jsonl")
    with pytest.raises(ConfigError, match="offline learner"):
        run(config, tmp_path / "again", seeds=(0,))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"env": "PointWorldOfTest-v0"}, ConfigError, "Did you mean PointWorldOfTests-v0"),
        ({"env": "Pendulum-v1"}, SpaceError, r"observations.*\(3,\).*Pendulum-v1, got \(2,\)"),
        ({"demonstrations": "missing.pickle"}, DataError, "missing.pickle"),
    ],
)
def test_bad_input_is_worded_and_leaves_nothing(data, tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        run(config_of(data, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_people_prefer_is_learned_and_meaningless_rewards_are_not(data, tmp_path):
    config = config_of(data, steps=1_500, episodes=20, budget=None, members=None)
    config = replace(config, iql=replace(SMALL, hidden=(32, 32), temperature=10.0))
    # What a random reward teaches differs much from seed to seed.
    result = run(config, tmp_path / "run", seeds=range(8), checkpoint_every=5_000)
    assert result["comparison"]["passed"], result["comparison"]["text"]
    means = {name: values["return"]["mean"] for name, values in result["conditions"].items()}
    assert means["learned"] > 0.7 * means["true"] + 0.3 * means["zero"]
    assert means["negated"] < means["zero"]


def test_agents_learn_from_the_recorded_rewards_without_labels(data, tmp_path):
    config = config_of(data, labels=None, reward="true")
    stages = []
    result = run(config, tmp_path / "run", on_progress=lambda *now: stages.append(now[0]))
    assert list(result["conditions"]) == ["true", "zero", "negated", "random", "cloning"]
    assert stages[0] == "training 8 agents"
    assert (result["reward"], result["labels"]) == (None, None)
    assert "The true reward" in result["comparison"]["text"]
    page = (tmp_path / "run/report.html").read_text()
    assert "No answers were used" in page
    assert "learned from the true reward" in page
    assert not (tmp_path / "run/reward").exists()
    read = read_run(tmp_path / "run")
    assert read.summary.score.mean == pytest.approx(result["conditions"]["true"]["return"]["mean"])
    assert "Evaluated return while learning" in [curve.title for curve in read.curves]


def test_a_task_of_a_maze_is_evaluated_in_it(tmp_path):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("gymnasium_robotics")
    task = TASKS["antmaze-umaze-v2"]
    env = make_task_env(task.env)
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    observations = []
    actions = []
    for _ in range(60):
        observations.append(observation)
        actions.append(env.action_space.sample())
        observation, *_ = env.step(actions[-1])
    row = np.arange(60)
    path = tmp_path / "umaze.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = np.array(observations, np.float32)
        file["actions"] = np.array(actions)
        file["rewards"] = (row == 30).astype(np.float32)
        file["terminals"] = row == 30
        file["timeouts"] = row % 20 == 19
        file["infos/goal"] = np.tile(env.unwrapped.goal, (60, 1))
    config = OfflineConfig(
        demonstrations=str(path),
        task=task.name,
        reward="true",
        controls=False,
        iql=SMALL,
        steps=5,
        episodes=1,
        eval_every=0,
    )
    result = run(config, tmp_path / "run", seeds=(0,))
    evaluated = result["conditions"]["true"]
    assert evaluated["return"]["seeds"] == [0]
    assert evaluated["normalised_score"]["seeds"] == [0]
    assert result["simulators"]["gymnasium-robotics"]
