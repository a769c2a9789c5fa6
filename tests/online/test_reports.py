"""What iterations report: numbers under names that tell which answers they are about, and words."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from preferl.evaluation.curve import Evaluation
from preferl.evaluation.policy import PolicyReport
from preferl.feedback.likelihood import Likelihood
from preferl.online import OnlineConfig
from preferl.online.reports import (
    IterationReport,
    Stopwatch,
    course_of,
)
from preferl.statistics import wilson_interval
from preferl.training import RewardTrainerConfig
from preferl.training.fit_report import FitReport, Validation


def fit(**changes: Any) -> FitReport:
    given: dict[str, Any] = {"pairs": 20, "members": 2, "epochs": 2, "best_epoch": 1}
    given |= {"train_loss": np.array([0.5, 0.4]), "train_accuracy": np.array([0.7, 0.8])}
    given |= {"validation_loss": np.array([0.6, 0.9]), "validation_accuracy": np.array([0.8, 0.6])}
    given |= {"decided": 10, "penalty": 0.0, "seconds": 1.5, "validated_on": "out-of-bag"}
    return FitReport(**(given | changes))


def report(**changes: Any) -> IterationReport:
    return replace(IterationReport(1, 3, 600, 20, None, -5.0, 2), **changes)


def test_an_iteration_without_a_fit_has_no_accuracy() -> None:
    assert report().metrics() == {"policy/true_return": -5.0, "feedback/answers": 20}
    assert report().accuracy_in_words == "unknown"


@pytest.mark.parametrize(
    ("validated_on", "name"), [("out-of-bag", "out_of_bag"), ("validation", "validation")]
)
def test_names_tell_which_answers_an_accuracy_is_about(validated_on: Any, name: str) -> None:
    low, high = wilson_interval(8, 10)
    found = report(fit=fit(validated_on=validated_on)).metrics()
    assert found == pytest.approx(
        {
            "policy/true_return": -5.0,
            "feedback/answers": 20,
            "reward/train_loss": 0.5,  # of the first epoch, whose weights remain
            "reward/train_accuracy": 0.7,
            f"reward/{name}_loss": 0.6,
            f"reward/{name}_accuracy": 0.8,
            f"reward/{name}_accuracy_low": low,
            f"reward/{name}_accuracy_high": high,
            f"reward/{name}_answers": 10,
            "reward/seconds": 1.5,
        }
    )


def test_words_have_the_interval_and_the_kind_of_answers() -> None:
    words = "80 % of 10 out-of-bag answers (95 % interval 49 to 94 %)"
    assert report(fit=fit()).accuracy_in_words == words
    held_out = Validation(answers=5, decided=4, accuracy=0.5)
    assert report(fit=fit(), validation=held_out).accuracy_in_words == (
        "2 of 4 held-out answers (so few show nothing)"
    )
    none = fit(decided=0, validated_on=None)
    assert report(fit=none).accuracy_in_words == "unknown, since no decided answer was left out"
    assert not {"reward/validation_accuracy", "reward/out_of_bag_accuracy"} & {
        *report(fit=none).metrics()
    }


def test_a_part_within_a_part_counts_as_its_own() -> None:
    clock = iter([0.0, 1.0, 4.0, 10.0, 11.0, 13.0])  # relabelling from 1 to 4, fitting to 10
    stopwatch = Stopwatch(lambda: next(clock))

    with stopwatch.part("fitting"), stopwatch.part("relabelling"):
        pass
    with pytest.raises(KeyError), stopwatch.part("asking"):
        raise KeyError
    assert stopwatch.take() == {"acting": 0, "fitting": 7, "relabelling": 3, "asking": 2}
    assert set(stopwatch.take().values()) == {0}


def test_the_accuracy_of_more_unseen_answers_counts() -> None:
    assert report(fit=fit()).unseen_accuracy == (0.8, 10)
    few = Validation(5, 4, 0.5)
    many = Validation(30, 20, 0.55)
    assert report(fit=fit(), validation=few).unseen_accuracy == (0.8, 10)
    assert report(fit=fit(), validation=many).unseen_accuracy == (0.55, 20)
    nothing = report(fit=fit(decided=0), validation=Validation(3, 0)).unseen_accuracy
    np.testing.assert_array_equal(nothing, (np.nan, 0))


def evaluation(step: int, *returns: float) -> Evaluation:
    return Evaluation(step, PolicyReport(np.array(returns), np.full(len(returns), 5)))


def test_the_course_has_each_evaluation_once_and_the_noise_that_was_fitted() -> None:
    trainer = RewardTrainerConfig(noise=0.1)
    config = OnlineConfig(steps=900, initial_steps=100, max_comparisons=60, trainer=trainer)
    first = evaluation(300, -9.0, -7.0)  # a resumed run's copy
    again = evaluation(300, -9.0, -7.0)
    guessed = fit(likelihood=Likelihood(0.1), decided=0, validated_on=None)
    found = course_of(
        [
            report(env_steps=300, evaluation=first, fit=guessed),
            report(evaluation=again, comparisons=59, fit=fit(likelihood=Likelihood(0.4))),
            report(env_steps=900, evaluation=evaluation(700, -3.0), comparisons=60, ties=0.2),
        ],
        config,
    )
    np.testing.assert_array_equal(found.steps, [300, 600, 900])
    np.testing.assert_array_equal(found.true_return, [-8.0, np.nan, -3.0])
    np.testing.assert_array_equal(found.low, [first.interval[0], np.nan, -3.0])
    np.testing.assert_array_equal(found.high, [first.interval[1], np.nan, -3.0])
    np.testing.assert_array_equal(found.answers, [20, 59, np.nan])  # from 60 on the oldest go
    np.testing.assert_array_equal(found.accuracy, [np.nan, 0.8, np.nan])
    np.testing.assert_array_equal(found.decided, [0, 10, 0])
    np.testing.assert_array_equal(found.ties, [np.nan, np.nan, 0.2])
    np.testing.assert_array_equal(found.noise, [np.nan, 0.4, np.nan])  # no unseen answer, no fit
    assert found.total == 900
    assert course_of([], config).steps.shape == (0,)


@pytest.mark.parametrize(
    ("noise", "calibrate", "known"),
    [
        (0.5, True, 0.1),  # which the fit came to, though it is the most that is expected
        (0.5, False, np.nan),
        ("fitted", False, np.nan),
    ],
)
def test_noise_is_known_where_it_was_fitted(noise: Any, calibrate: bool, known: float) -> None:
    trainer = RewardTrainerConfig(noise=noise, calibrate=calibrate)
    one = report(fit=fit(likelihood=Likelihood(0.1)))
    found = course_of([one], OnlineConfig(steps=900, initial_steps=100, trainer=trainer))
    np.testing.assert_array_equal(found.noise, [known])
