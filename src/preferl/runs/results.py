"""Results of each kind of run as the same few numbers: score, accuracy, steps, answers, curves."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np

from preferl.reading import read_object
from preferl.reporting import common_series, series
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
        of: what they are: "episodes", "seeds", or "answers", with a word for which these are.
        interval: 95 % interval; None where nobody knows it.
        values: the single ones, where they were kept.
        success: share of the episodes that succeeded; None where that is not known.
    """

    mean: float
    count: int = 0
    of: str = ""
    interval: tuple[float, float] | None = None
    values: tuple[float, ...] = field(default=(), repr=False)
    success: float | None = None


UNSEEN: Final = {"held_out": "held-out", "validation": "left-out", "out_of_bag": "out-of-bag"}
"""Answers that a reward was not fitted to, by the names that they have in metrics."""


class RunCurve(NamedTuple):
    """A metric of a run over its steps.

    Attributes:
        title: what it shows.
        unit: of the values.
        x_unit: of the steps.
        steps: `[n]`.
        values: `[n]`, or `[S, n]` of several agents.
        interval: `[2, n]` ends of the 95 % interval of their mean; None where nobody knows it.
    """

    title: str
    unit: str
    x_unit: str
    steps: Array
    values: FloatArray
    interval: FloatArray | None = None


EVALUATED: Final = "Evaluated return while learning"
"""The curve that agents of every kind have, whatever they learn from."""


def _online(_path: Path, config: Json, result: Json, metrics: Metrics) -> Found:
    policies = {}
    has_true_reward = result.get("has_true_reward", True)
    for name, policy in result.get("policies", {}).items():
        episodes = _episodes(policy)
        if has_true_reward or episodes.success is not None:  # returns of 0 say nothing
            policies[str(name)] = episodes
    accuracy, reward = _reward(result.get("reward"))
    if accuracy is None:
        accuracy = _while_it_runs(metrics)
    return {
        "subject": config["env"],
        "seconds": _number(result.get("seconds")),
        "steps": _furthest(result.get("env_steps"), _last(metrics, "step")),
        "answers": _furthest(result.get("comparisons"), _last(metrics, "feedback/answers")),
        "score": policies.pop("taught", None),
        "beside": policies,
        "accuracy": accuracy,
        "reward": reward,
        "curves": _curves(
            metrics,
            ("eval/mean_reward", EVALUATED, "return"),
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
        if (share := _last(metrics, name)) is not None:
            steps, _ = series(metrics, name)
            beside = (f"{name}_low", f"{name}_high", f"reward/{kind}_answers")
            low, high, count = (_last(metrics, other, at=steps[-1]) for other in beside)
            interval = None if low is None or high is None else (low, high)
            return Estimate(share, int(count or 0), f"{words} answers", interval)
    return None


def _offline(path: Path, config: Json, result: Json, metrics: Metrics) -> Found:
    settings = config["config"]
    conditions = result["conditions"]
    unit = "normalised_score"
    if any(of.get(unit) is None for of in conditions.values()):
        unit = "return"
    seeds = config["seeds"]
    scores = {name: _seeds(path, seeds, name, of[unit]) for name, of in conditions.items()}
    first = next(iter(scores), None)
    fitted = result.get("reward") or {}
    kept = path / "fit.json"
    fit = fitted.get("fit") or (read_object(kept).get("fit") if kept.is_file() else None)
    # Labels are the answers that the reward was fitted to, unless it was fitted before.
    on_labels = None if fit else (fitted.get("on_labels") or {}).get("learned")
    accuracy, reward = _reward(on_labels)
    names = ("env", "task", "demonstrations", "dataset")
    subject = result.get("env") or next(filter(None, map(settings.get, names)), "")
    main = "true" if settings.get("reward") == "true" else "learned"
    return {
        "subject": str(subject),
        "seconds": _number(result.get("seconds")),
        "steps": _count(result.get("steps", _last(metrics, "step"))),
        "steps_of": "updates",
        "answers": _count((fit or {}).get("pairs")),
        "score": None if first is None else scores.pop(first),
        "unit": unit.replace("_", " "),
        "beside": scores,
        "accuracy": _of_fit(fit) if fit else accuracy,
        "reward": reward | _finite({"spearman": fitted.get("spearman")}),
        "curves": (
            *_while_they_learn(path),
            *_curves(
                metrics,
                (rf"[^/]+/{main}(-\d+)?/value", f"Expected {main} return", "expected return"),
                (rf"[^/]+/{main}(-\d+)?/policy_loss", "Loss of the policy", "loss"),
                (rf"[^/]+/{main}(-\d+)?/loss", "Loss of the agents", "loss"),
                ("cloning/cloning/policy_loss", "Loss of cloning", "loss"),
                x_unit="updates",
            ),
        ),
    }


def _while_they_learn(path: Path) -> Iterator[RunCurve]:
    """The evaluations of an offline run's agents, if there are any, with the mean's interval."""
    files = sorted((path / "curves").glob("*.json"))
    agents = [{one["step"]: one for one in read_object(file)["evaluations"]} for file in files]
    steps, means = common_series(
        (np.array(sorted(of)), np.array([of[step]["mean"] for step in sorted(of)], float))
        for of in agents
    )
    if len(steps):
        ends = [
            mean_interval(column) or agents[0][step]["interval"]
            for step, column in zip(steps, means.T, strict=True)
        ]
        yield RunCurve(EVALUATED, "return", "updates", steps, means, np.array(ends, float).T)


def _fit(_path: Path, config: Json, result: Json, metrics: Metrics) -> Found:
    fit = result.get("fit") or {}
    places = map(config.get, ("labels", "comparisons", "demonstrations"))
    subject = config.get("project") or config.get("store")
    subject = subject or Path(next(filter(None, places), "")).name
    accuracy = _of_fit(fit) if fit else _while_it_runs(metrics)
    if fit:
        rows = {name: fit.get(f"{name}_accuracy", ()) for name in ("train", "validation")}
        epochs = np.arange(1.0, 1 + len(rows["train"]))
        metrics = {f"reward/{n}_accuracy": np.array(row, float) for n, row in rows.items() if row}
        metrics |= {"step": epochs}
    return {
        "subject": str(subject),
        "seconds": _number(fit.get("seconds")),
        "steps": _count(fit.get("epochs", _last(metrics, "step"))),
        "steps_of": "epochs",
        "answers": _count(fit.get("pairs")),
        "accuracy": accuracy,
        "curves": _curves(
            metrics,
            ("reward/train_accuracy", "Accuracy on answers learned from by epoch", "accuracy"),
            (
                "reward/(validation|out_of_bag)_accuracy",
                "Accuracy on left-out answers by epoch",
                "accuracy",
            ),
            x_unit="epochs",
        ),
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


def _data_seeds(path: Path, config: Json, result: Json, metrics: Metrics) -> Found:
    tiers = [
        {**tier, "name": f"{tier['name']}, seed {tier['seed']}"} for tier in result.get("tiers", ())
    ]
    return _data(path, config["config"], {**result, "tiers": tiers}, metrics)


KINDS: Final[Mapping[str, tuple[str, Callable[[Path, Json, Json, Metrics], Found]]]] = {
    "OnlineConfig": ("online", _online),
    "OfflineRun": ("offline", _offline),
    "FitConfig": ("reward", _fit),
    "DatasetConfig": ("data", _data),
    "DatasetSeeds": ("data", _data_seeds),
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


def _furthest(*values: object) -> int | None:
    """The largest count: metrics of a resumed run go on after the result of its interruption."""
    counts = [count for count in map(_count, values) if count is not None]
    return max(counts, default=None)


def _last(metrics: Metrics, name: str, *, at: float | None = None) -> float | None:
    """The newest value of a metric, or that of a step; None where it was not logged."""
    if name not in metrics:
        return None
    steps, values = series(metrics, name)
    values = values if at is None else values[steps == at]
    return float(values[-1]) if len(values) else None


def _curves(
    metrics: Metrics, *known: tuple[str, str, str], x_unit: str = "environment steps"
) -> tuple[RunCurve, ...]:
    """Curves of those metrics that were logged; each as a pattern of its names, title and unit.

    Several names are those of several agents.
    """
    found = []
    for pattern, title, unit in known:
        names = [name for name in metrics if re.fullmatch(pattern, name)]
        steps, values = common_series(series(metrics, name) for name in names)
        if len(steps):
            values = values if len(names) > 1 else values[0]
            interval = _interval(metrics, names[0], steps) if len(names) == 1 else None
            found.append(RunCurve(title, unit, x_unit, steps, values, interval))
    return tuple(found)


def _interval(metrics: Metrics, name: str, steps: Array) -> FloatArray | None:
    """`[2, n]` ends of a metric's interval, where they were logged at all of its steps."""
    ends = [end for end in (f"{name}_low", f"{name}_high") if end in metrics]
    at, values = common_series(series(metrics, end) for end in ends)
    return values if len(ends) == 2 and np.array_equal(at, steps) else None


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
        _number(policy.get("success_rate")),
    )


def _seeds(path: Path, seeds: Sequence[int], condition: str, summary: Json) -> Estimate:
    """The score of a condition over its seeds; of a single seed the interval is of its episodes."""
    values = np.array(summary["seeds"], float)
    count = len(values)
    of = "seeds"
    interval = mean_interval(values)
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
    share = _number(report["accuracy"])
    numbers = dict(report)
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
    if not fit or not fit.get("decided"):
        return None
    share = _number(fit["validation_accuracy"][fit["best_epoch"] - 1])
    count = int(fit["decided"])
    if share is None:
        return None
    right = round(2 * share * count) / 2  # an undecided reward is half right
    of = f"{fit.get('validated_on') or 'held-out'} answers"
    return Estimate(share, count, of, wilson_interval(right, count))
