"""Offline runs whose agents learn from answers, and runs from comparisons in our own format."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.offline_runs import LENGTH, config_of, run
from preferl.cli.data import LabelConfig, data_label
from preferl.data import load_comparisons, load_episodes, save_comparisons
from preferl.errors import SpaceError
from preferl.offline.cpl import CPL
from preferl.offline.experiment.conditions import build_answer_conditions
from preferl.offline.learner_configs import CPLConfig, IPLConfig
from preferl.reporting import read_jsonl
from preferl.testing import make_comparisons
from preferl.training import load_reward

AGENTS = {
    "cpl": {"cpl": CPLConfig(hidden=(16,), batch_size=32, pairs=8)},
    "ipl": {"ipl": IPLConfig(hidden=(16,), batch_size=32, pairs=8)},
}
CONDITIONS = ["answers", "true_answers", "negated_answers", "random_answers", "cloning"]


@pytest.fixture(scope="module")
def answers(data):
    """Answers in our own format, which form four lists."""
    folder = data / "answers"
    where = {"path": f"{data / 'episodes'}", "out": folder}
    data_label(LabelConfig(**where, queries=120, length=LENGTH, lists=4))
    return folder


@pytest.mark.parametrize("policy", AGENTS)
def test_agents_of_answers_have_controls_of_their_own(data, tmp_path, policy):
    config = config_of(data, policy=policy, **AGENTS[policy])
    result = run(config, tmp_path / "run")
    assert list(result["conditions"]) == CONDITIONS
    assert result["reward"] is None
    assert result["labels"]["pairs"] == 300
    assert not (tmp_path / "run/reward").exists()
    assert result["comparison"]["text"].startswith("The answers")
    metrics = read_jsonl(tmp_path / "run/metrics.jsonl")
    assert {f"{policy}/answers/accuracy", "eval/answers/mean_reward"} <= set(metrics)
    page = (tmp_path / "run/report.html").read_text()
    assert "learned from 300 comparisons" in page
    assert "negated answers" in page


@pytest.mark.slow
def test_comparisons_take_the_place_of_labels(data, answers, tmp_path):
    config = config_of(data, labels=None, comparisons=answers, controls=False)
    result = run(config, tmp_path / "run")
    assert result["labels"]["pairs"] == 120
    assert result["reward"]["fit"]["pairs"] == 120
    implied = run(replace(config, implied=True), tmp_path / "implied")
    assert implied["reward"]["fit"]["pairs"] == 120
    first, second = (one["reward"]["fit"]["train_accuracy"] for one in (result, implied))
    assert first != second


def test_controls_answer_what_was_asked_and_imply_from_that(data, answers, tmp_path, monkeypatch):
    given = []
    set_answers = CPL.set_answers

    def noted(self, comparisons, preferences=None, **how):
        given.append((comparisons.pairs, preferences, how))
        set_answers(self, comparisons, preferences, **how)

    monkeypatch.setattr(CPL, "set_answers", noted)
    how = {"labels": None, "comparisons": answers, "policy": "cpl", "implied": True, "episodes": 0}
    run(config_of(data, **how, **AGENTS["cpl"]), tmp_path / "run")
    ((pairs, preferences, how),) = given
    asked = load_comparisons(answers)
    np.testing.assert_array_equal(pairs, asked.pairs)
    expected = build_answer_conditions(asked, seeds=(0, 1)).flat_signals
    np.testing.assert_array_equal(preferences, expected)
    assert how == {"implied": True}


def test_comparisons_of_another_environment_are_refused(data, tmp_path, rng):
    other = make_comparisons(rng)
    wide = np.tile(other.segments.observations, 2)
    save_comparisons(
        tmp_path / "other", replace(other, segments=replace(other.segments, observations=wide))
    )
    with pytest.raises(SpaceError, match="clips"):
        run(config_of(data, labels=None, comparisons=tmp_path / "other"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_conditions_of_answers(answers):
    comparisons = load_comparisons(answers)
    conditions = build_answer_conditions(comparisons, seeds=(3, 5))
    assert list(conditions.names) == CONDITIONS[:-1]
    rows = dict(zip(conditions.names, conditions.signals, strict=True))
    np.testing.assert_array_equal(rows["answers"], rows["true_answers"])  # a perfect teacher's
    np.testing.assert_array_equal(rows["negated_answers"], 1 - rows["answers"])
    assert set(rows["random_answers"].flat) == {0, 1}
    assert (rows["random_answers"][0] != rows["random_answers"][1]).any()
    alone = build_answer_conditions(comparisons, seeds=(0,), controls=False)
    assert alone.names == ("answers",)


def test_a_pessimist_relabels_by_the_mean_less_the_members_deviation(data, tmp_path):
    config = config_of(data, controls=False, steps=2, episodes=0)
    run(config, tmp_path / "mean")
    run(replace(config, pessimism=0.5), tmp_path / "pessimist")
    reward = load_reward(tmp_path / "pessimist/reward")
    episodes = load_episodes(data / "episodes")
    members = reward.scaler(reward.member_rewards(episodes))
    expected = members.mean(0) - 0.5 * members.std(0)
    found = np.load(tmp_path / "pessimist/relabelled/rewards.npy")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (found < np.load(tmp_path / "mean/relabelled/rewards.npy") + 1e-6).all()
