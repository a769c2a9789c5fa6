"""What iterations report: numbers under names that tell which answers they are about, and words."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from preferl.online.reports import IterationReport
from preferl.statistics import wilson_interval
from preferl.training.fit_report import FitReport, Validation


def fit(**changes: Any) -> FitReport:
    given: dict[str, Any] = {"pairs": 20, "members": 2, "epochs": 2, "best_epoch": 1}
    given |= {"train_loss": np.array([0.5, 0.4]), "train_accuracy": np.array([0.7, 0.8])}
    given |= {"validation_loss": np.array([0.6, 0.9]), "validation_accuracy": np.array([0.8, 0.6])}
    given |= {"judged": 10, "penalty": 0.0, "seconds": 1.5, "validated_on": "out-of-bag"}
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
    held_out = Validation(answers=5, judged=4, accuracy=0.5)
    assert report(fit=fit(), validation=held_out).accuracy_in_words == (
        "50 % of 4 held-out answers (95 % interval 15 to 85 %)"
    )
    none = fit(judged=0, validated_on=None)
    assert report(fit=none).accuracy_in_words == "unknown, since no decided answer was left out"
    assert not {"reward/validation_accuracy", "reward/out_of_bag_accuracy"} & {
        *report(fit=none).metrics()
    }


def test_held_out_answers_come_with_their_interval() -> None:
    found = report(fit=fit(), validation=Validation(5, 4, 0.5)).metrics()
    assert found["reward/held_out_accuracy"] == 0.5
    low, high = wilson_interval(2, 4)
    assert found["reward/held_out_accuracy_low"] == pytest.approx(low)
    assert found["reward/held_out_accuracy_high"] == pytest.approx(high)
    assert found["reward/held_out_answers"] == 4
