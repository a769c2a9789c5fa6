"""Results of each kind of run as the same few numbers: score, accuracy, steps, answers, curves."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np

from preferl.reading import read_object
from preferl.reporting import series
from preferl.shapes import Array, FloatArray
from preferl.statistics import mean_interval, wilson_interval

Json = Mapping[str, Any]
Metrics = Mapping[str, FloatArray]  # columns of `metrics.jsonl`; empty if there are none
Found = dict[str, Any]  # fields of a `RunRecord`


@final
@dataclass(frozen=True)
class Estimate:
    """A mean, and how sure it is.

    Attributes:
        mean: of `values`, or as it was reported.
        count: how many things it is a mean of; 0 if that is not known.
        of: what they are: "episodes", "seeds", "answers" or "out-of-bag answers".
        interval: 95 % interval; None where nobody knows it.
        values: the single ones, where they were kept.
    """

    mean: float
    count: int = 0
    of: str = ""
    interval: tuple[float, float] | None = None
    values: tuple[float, ...] = field(default=(), repr=False)


UNSEEN: Final = {"held_out": "held-out", "validation": "left-out", "out_of_bag": "out-of-bag"}
"""Answers that a reward was not fitted to, by the names that they have in metrics."""


class RunCurve(NamedTuple):
    """A metric of a run: what it shows, units of both axes, `[n]` steps and `[n]` values."""

    title: str
    unit: str
    x_unit: str
    steps: Array
    values: FloatArray


def _online(_path: Path, config: Json, result: Json, metrics: Metrics) -> Found:
    policies = {str(name): _episodes(policy) for name, policy in result.get("policies", {}).items()}
    accuracy, reward = _reward(result.get("reward"))
    if accuracy is None:
        accuracy = _while_it_runs(metrics)
    return {
        "subject": config["env"],
        "seconds": _number(result.get("seconds")),
        "steps": _count(result.get("env_steps", _last(metrics, "step"))),
        "answers": _count(result.get("comparisons", _last(metrics, "feedback/answers"))),
        "score": policies.pop("taught", None),
        "beside": policies,
        "accuracy": accuracy,
        "reward": reward,
        "curves": _curves(
            metrics,
            ("eval/mean_reward", "Evaluated return while learning", "return"),
            ("policy/true_return", "Return of the exploring policy", "return"),
            *(
                (f"reward/{kind}_accuracy", f"Accuracy on {words} answers", "accuracy")
                for kind, words in UNSEEN.items()
            ),
        ),
    }


def _while_it_runs(metrics: Metrics) -> Estimate | None:
    """The accuracy of a run without a result, on answers that its reward was not fitted to."""
    for kind, words in UNSEEN.items():
        name = f"reward/{kind}_accuracy"
        share, low, high = (_last(metrics, name + end) for end in ("", "_low", "_high"))
        if share is not None:
            count = int(_last(metrics, f"reward/{kind}_answers") or 0)
            interval = None if low is None or high is None else (low, high)
            return Estimate(share, count, f"{words} answers", interval)
    return None


def _offline(path: Path, config: Json, result: Json, metrics: Metrics) -> Found:
    settings = config["config"]
    conditions = result.get("arms", {})
    unit = "normalised_score"
    if any(of.get(unit) is None for of in conditions.values()):
        unit = "return"
    seeds = config["seeds"]
    scores = {name: _seeds(path, seeds, name, of[unit]) for name, of in conditions.items()}
    first = next(iter(scores), None)
    fitted = result.get("reward") or {}
    on_labels, learned = _reward((fitted.get("on_labels") or {}).get("learned"))
    names = ("env", "task", "demonstrations", "dataset")
    subject = result.get("env") or next(filter(None, map(settings.get, names)), "")
    policy = str(settings.get("policy", ""))
    return {
        "subject": str(subject),
        "seconds": _number(result.get("seconds")),
        "steps": _count(result.get("steps", _last(metrics, "step"))),
        "steps_of": "updates",
        "answers": _count((result.get("labels") or {}).get("pairs")),
        "score": None if first is None else scores.pop(first),
        "unit": unit.replace("_", " "),
        "beside": scores,
        "accuracy": _of_fit(fitted.get("fit")) or on_labels,
        "reward": learned | _finite({"spearman": fitted.get("spearman")}),
        "curves": _curves(
            metrics,
            ("eval/learned/mean_reward", "Evaluated return of the learned reward", "return"),
            ("eval/true/mean_reward", "Evaluated return of the true reward", "return"),
            (f"{policy}/learned/value", "Expected return of the learned reward", "expected return"),
            (f"{policy}/learned/policy_loss", "Loss of the policy", "loss"),
            (f"{policy}/learned-0/loss", "Loss of the first seed", "loss"),
            ("cloning/cloning/policy_loss", "Loss of cloning", "loss"),
            x_unit="updates",
        ),
    }


def _fit(_path: Path, config: Json, result: Json, _metrics: Metrics) -> Found:
    fit = result.get("fit") or {}
    places = map(config.get, ("labels", "comparisons", "demonstrations"))
    subject = config.get("project") or config.get("store")
    subject = subject or Path(next(filter(None, places), "")).name
    curves = []
    for name, which in (("train", "answers learned from"), ("validation", "left-out answers")):
        values = np.array(fit.get(f"{name}_accuracy", ()), float)
        steps, known = np.arange(1, len(values) + 1), np.isfinite(values)
        if known.any():
            title = f"Accuracy on {which} by epoch"
            curves.append(RunCurve(title, "accuracy", "epochs", steps[known], values[known]))
    return {
        "subject": str(subject),
        "seconds": _number(fit.get("seconds")),
        "steps": _count(fit.get("epochs")),
        "steps_of": "epochs",
        "answers": _count(fit.get("pairs")),
        "accuracy": _of_fit(fit),
        "curves": tuple(curves),
    }


def _data(_path: Path, config: Json, result: Json, metrics: Metrics) -> Found:
    tiers = {str(tier["name"]): tier for tier in result.get("tiers", ())}
    known = _finite(result.get("references", {})) | {
        name: tier["return"]["mean"] for name, tier in tiers.items()
    }
    scores = {
        name: Estimate(mean, tiers.get(name, {}).get("episodes", 0), "episodes")
        for name, mean in known.items()
    }
    recorded = sum(tier["steps"] for tier in tiers.values())
    return {
        "subject": config["env"],
        "seconds": _number(result.get("seconds")),
        "steps": _count(recorded or _last(metrics, "step")),
        "steps_of": "recorded steps",
        "score": scores.pop("expert", None),
        "beside": scores,
        "curves": _curves(metrics, ("return", "Return of checkpoints", "return")),
    }


KINDS: Final[Mapping[str, tuple[str, Callable[[Path, Json, Json, Metrics], Found]]]] = {
    "OnlineConfig": ("online", _online),
    "OfflineRun": ("offline", _offline),
    "FitConfig": ("reward", _fit),
    "DatasetConfig": ("data", _data),
}
"""By the dataclass of its settings: the kind of a run, and how its result is read."""


def _number(value: object) -> float | None:
    """A number that is finite; None for null."""
    if value is None:
        return None
    number = float(value)  # type: ignore[arg-type]  # raises of what is none
    return number if math.isfinite(number) else None


def _finite(values: Mapping[str, object]) -> dict[str, float]:
    numbers = {str(name): _number(value) for name, value in values.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _count(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _last(metrics: Mapping[str, FloatArray], name: str) -> float | None:
    """The newest value of a metric; None where it was never logged."""
    if name not in metrics:
        return None
    _, values = series(metrics, name)
    return float(values[-1]) if len(values) else None


def _curves(
    metrics: Metrics, *known: tuple[str, str, str], x_unit: str = "environment steps"
) -> tuple[RunCurve, ...]:
    """Curves of those metrics that were logged; each as its name, title and unit."""
    found = (
        RunCurve(title, unit, x_unit, *series(metrics, name))
        for name, title, unit in known
        if name in metrics
    )
    return tuple(curve for curve in found if len(curve.steps))


def _episodes(policy: Mapping[str, Any]) -> Estimate:
    """The score that a report on a policy has."""
    returns = np.array(policy["returns"], float)
    low, high = policy["interval"]
    return Estimate(
        float(policy["mean"]),
        len(returns),
        "episodes",
        (float(low), float(high)),
        tuple(returns.tolist()),
    )


def _seeds(path: Path, seeds: Sequence[int], condition: str, summary: Json) -> Estimate:
    """The score of a condition over its seeds; of a single seed the interval is of its episodes."""
    values = np.array(summary["seeds"], float)
    count, of, interval = len(values), "seeds", mean_interval(values)
    one = path / "evaluations" / f"{condition}-{seeds[0]}.json"
    if interval is None and one.is_file():
        report = _episodes(read_object(one))
        if math.isclose(report.mean, values[0], rel_tol=1e-9):  # and not on another scale
            return report
    return Estimate(float(summary["mean"]), count, of, interval, tuple(values.tolist()))


def _reward(report: Mapping[str, Any] | None) -> tuple[Estimate | None, dict[str, float]]:
    """Accuracy and further numbers of a report on a reward."""
    if not report:
        return None, {}
    share, numbers = _number(report["accuracy"]), dict(report)
    numbers["calibration"] = (report.get("calibration") or {}).get("error")
    wanted = ("log_loss", "calibration", "spearman", "epic")
    reward = _finite({name: numbers.get(name) for name in wanted})
    if share is None:
        return None, reward
    low, high = report["interval"]
    interval = (float(low), float(high))
    return Estimate(share, int(report["decided"]), "answers", interval), reward


def _of_fit(fit: Mapping[str, Any] | None) -> Estimate | None:
    """The accuracy of a fit on the answers that it left out; None without any."""
    if not fit or not fit.get("judged"):
        return None
    share, count = _number(fit["validation_accuracy"][fit["best_epoch"] - 1]), int(fit["judged"])
    if share is None:
        return None
    right = round(2 * share * count) / 2  # an undecided reward is half right
    return Estimate(share, count, "answers", wilson_interval(right, count))
