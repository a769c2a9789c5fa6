"""What iterations report: numbers under names that tell which answers they are about, and words."""

from dataclasses import replace

import numpy as np
import pytest

from preferl.evaluation.curve import Evaluation
from preferl.evaluation.policy import PolicyReport
from preferl.feedback.likelihood import Likelihood
from preferl.online import OnlineConfig
from preferl.online.reports import IterationReport, Stopwatch, course_of
from preferl.statistics import wilson_interval
from preferl.training import RewardTrainerConfig
from preferl.training.fit_report import FitReport, Validation


def fit(**changes):
    given = {"pairs": 20, "members": 2, "epochs": 2, "best_epoch": 1}
    given |= {"train_loss": np.array([0.5, 0.4]), "train_accuracy": np.array([0.7, 0.8])}
    given |= {"validation_loss": np.array([0.6, 0.9]), "validation_accuracy": np.array([0.8, 0.6])}
    given |= {"decided": 10, "penalty": 0.0, "seconds": 1.5, "validated_on": "out-of-bag"}
    return FitReport(**(given | changes))


def report(**changes):
    return replace(IterationReport(1, 3, 600, 20, None, -5.0, 2), **changes)


@pytest.mark.parametrize(
    ("validated_on", "name"), [("out-of-bag", "out_of_bag"), ("validation", "validation")]
)
def test_names_tell_which_answers_an_accuracy_is_about(validated_on, name):
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


def test_words_have_the_interval_and_the_kind_of_answers():
    words = "80 % of 10 out-of-bag answers (95 % interval 49 to 94 %)"
    assert report(fit=fit()).accuracy_in_words == words
    held_out = Validation(answers=5, decided=4, accuracy=0.5)
    assert report(fit=fit(), validation=held_out).accuracy_in_words == (
        "2 of 4 held-out answers (so few show nothing)"
    )
    assert report().metrics() == {"policy/true_return": -5.0, "feedback/answers": 20}
    assert report().accuracy_in_words == "unknown"
    none = fit(decided=0, validated_on=None)
    assert report(fit=none).accuracy_in_words == "unknown, since no decided answer was left out"
    assert not {"reward/validation_accuracy", "reward/out_of_bag_accuracy"} & {
        *report(fit=none).metrics()
    }


def test_a_part_within_a_part_counts_as_its_own():
    clock = iter([0.0, 1.0, 4.0, 10.0, 11.0, 13.0])  # relabelling from 1 to 4, fitting to 10
    stopwatch = Stopwatch(lambda: next(clock))

    with stopwatch.part("fitting"), stopwatch.part("relabelling"):
        pass
    with pytest.raises(KeyError), stopwatch.part("asking"):
        raise KeyError
    assert stopwatch.take() == {"acting": 0, "fitting": 7, "relabelling": 3, "asking": 2}
    assert set(stopwatch.take().values()) == {0}


def test_the_accuracy_of_more_unseen_answers_counts():
    assert report(fit=fit()).unseen_accuracy == (0.8, 10)
    few = Validation(5, 4, 0.5)
    many = Validation(30, 20, 0.55)
    assert report(fit=fit(), validation=few).unseen_accuracy == (0.8, 10)
    assert report(fit=fit(), validation=many).unseen_accuracy == (0.55, 20)
    nothing = report(fit=fit(decided=0), validation=Validation(3, 0)).unseen_accuracy
    np.testing.assert_array_equal(nothing, (np.nan, 0))


def evaluation(step, *returns):
    return Evaluation(step, PolicyReport(np.array(returns), np.full(len(returns), 5)))


def test_the_course_has_each_evaluation_once_and_the_noise_that_was_fitted():
    trainer = RewardTrainerConfig(noise=0.1)
    config = OnlineConfig(steps=900, initial_steps=100, max_comparisons=60, trainer=trainer)
    first = evaluation(300, -9.0, -7.0)
    guessed = fit(likelihood=Likelihood(0.1), decided=0, validated_on=None)
    noisy = fit(likelihood=Likelihood(0.4))
    iterations = [
        report(env_steps=300, evaluation=first, fit=guessed),
        report(
            evaluation=evaluation(300, -9.0, -7.0), comparisons=59, fit=noisy
        ),  # of a resumed run
        report(env_steps=900, evaluation=evaluation(700, -3.0), comparisons=60, ties=0.2),
    ]
    course = course_of(iterations, config)
    low, high = first.interval
    expected = {
        "steps": [300, 600, 900],
        "true_return": [-8.0, np.nan, -3.0],
        "low": [low, np.nan, -3.0],
        "high": [high, np.nan, -3.0],
        "answers": [20, 59, np.nan],  # from 60 on the oldest go
        "accuracy": [np.nan, 0.8, np.nan],
        "decided": [0, 10, 0],
        "ties": [np.nan, np.nan, 0.2],
        "noise": [np.nan, 0.4, np.nan],  # no unseen answer, no fit
        "total": 900,
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(getattr(course, name), values, err_msg=name)
    assert course_of([], config).steps.shape == (0,)
    uncalibrated = replace(config, trainer=replace(trainer, calibrate=False))
    assert np.isnan(course_of([report(fit=noisy)], uncalibrated).noise)
