"""Answers that are held out inside the loop, and what its reports measure."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.tiny_runs import tiny
from preferl.data.validation import VALIDATION, validation_split
from preferl.feedback import ScriptedTeacher
from preferl.models import MLPRewardConfig
from preferl.online import learn_from_preferences
from preferl.store.clips import clip_ids
from preferl.training import AdaptivePenalty, RewardTrainer, RewardTrainerConfig

TINY = tiny(
    steps=1_200,
    comparisons=60,
    iterations=3,
    validation=0.3,
    model=MLPRewardConfig(hidden=(16,), members=3),
    trainer=RewardTrainerConfig(epochs=20),
    teacher=ScriptedTeacher.oracle(),
)


def fitted(config, monkeypatch):
    """The report of a run, and the clips that each fit was given to train on and to validate."""
    calls = []
    fit = RewardTrainer.fit
    validate = RewardTrainer.validate

    def noted(some):
        names = clip_ids(some.segments)
        return {names[row] for row in some.pairs.flat}

    def fits(self, train, validation=None, **options):
        calls.append([noted(train), None if validation is None else len(validation)])
        return fit(self, train, validation, **options)

    def validates(self, held_out, likelihood):
        calls[-1].append(noted(held_out))
        return validate(self, held_out, likelihood)

    monkeypatch.setattr(RewardTrainer, "fit", fits)
    monkeypatch.setattr(RewardTrainer, "validate", validates)
    return learn_from_preferences(config), calls


def test_no_clip_that_is_held_out_is_ever_trained_on(monkeypatch):
    report, calls = fitted(TINY, monkeypatch)
    trained = set().union(*(train for train, _, _ in calls))
    held_out = set().union(*(held for _, _, held in calls))
    assert len(calls) == 3
    assert held_out
    assert not trained & held_out
    assert [len(held) for *_, held in calls] == sorted(len(held) for *_, held in calls)
    assert all(validation is None for _, validation, _ in calls), "they choose no epoch either"
    assert len(report.comparisons) == 60


def test_the_report_has_the_accuracy_on_them_and_how_many_they_are():
    report = learn_from_preferences(TINY)
    *asked, last = report.iterations
    assert last.validation is None
    counts = [one.validation.answers for one in asked]
    assert counts == sorted(counts)
    found = asked[-1].validation
    assert 5 < found.decided <= found.answers < 30
    assert found.answers + asked[-1].fit.pairs <= 60
    answers = report.comparisons
    names = np.array(clip_ids(answers.segments))[answers.pairs].tolist()
    held_out = answers[np.array(validation_split(names, 0.3)) == VALIDATION]
    scores = report.reward.scores(held_out.segments)[:, held_out.pairs]  # [E, P, 2], last fit
    odds = report.reward.likelihood.scale * (scores[..., 0] - scores[..., 1])
    first = (1 / (1 + np.exp(-odds))).mean(0) > 0.5
    assert found.answers == len(held_out)
    assert found.accuracy == pytest.approx((first == (held_out.preference > 0.5)).mean())
    assert found.interval[0] < found.accuracy < found.interval[1] < 1
    metrics = asked[-1].metrics()
    assert metrics["reward/held_out_accuracy"] == found.accuracy
    assert metrics["reward/held_out_answers"] == found.decided


BAND = AdaptivePenalty(1e-4, band=(1.1, 1.5))


@pytest.mark.parametrize("changes", [{"patience": 3}, {"penalty": BAND}])
def test_one_network_may_stop_or_be_penalised_by_them(changes, monkeypatch):
    single = {"model": MLPRewardConfig(hidden=(16,)), "trainer": RewardTrainerConfig(**changes)}
    report, calls = fitted(replace(TINY, **single), monkeypatch)
    assert all(validation for _, validation, _ in calls)
    assert all(np.isfinite(one.fit.validation_loss).all() for one in report.iterations[:3])


@pytest.mark.parametrize(("changes", "waits"), [({}, False), ({"penalty": BAND}, True)])
def test_where_none_is_held_out_yet_a_penalised_network_waits(changes, waits, caplog):
    config = replace(
        TINY,
        comparisons=3,
        initial_fraction=0.3,
        validation=1e-9,
        model=MLPRewardConfig(hidden=(16,)),
        trainer=RewardTrainerConfig(**changes),
    )
    report = learn_from_preferences(config)
    assert (report.reward is None) == waits
    assert ("No fit yet: of 3 answers 0 are held out" in caplog.text) == waits


def test_entropy_and_deviation_are_of_new_queries_before_they_are_learned_from():
    report = learn_from_preferences(TINY)
    first, *others, last = report.iterations
    for untold in (first, last):  # no reward yet, and no query
        assert np.isnan([untold.query_entropy, untold.query_deviation]).all()
        assert not {"feedback/entropy", "feedback/deviation"} & untold.metrics().keys()
    for one in others:
        assert 0 < one.query_entropy < np.log(2)
        assert one.query_deviation > 0
        assert one.metrics()["feedback/entropy"] == one.query_entropy
        assert one.metrics()["feedback/deviation"] == one.query_deviation
