"""The usual report of a run: what the policy learned, how it looks, and how good its reward is."""

from collections.abc import Mapping, Sequence
from typing import Any

from preferl.errors import DataError
from preferl.evaluation.page import Clip, Fact, Figure, Report, Section, Table
from preferl.evaluation.plots import (
    Curve,
    Share,
    accuracy_bars,
    calibration_diagram,
    episode_returns,
    learning_curves,
)
from preferl.evaluation.policy import PolicyReport
from preferl.evaluation.reward_report import RewardReport

MISSING = "–"


def run_report(
    title: str,
    *,
    policies: Mapping[str, PolicyReport],
    taught: str,
    reward: RewardReport,
    controls: Mapping[str, RewardReport] | None = None,
    curves: Sequence[Curve] = (),
    clips: Sequence[Clip] = (),
    reward_figures: Sequence[Figure] = (),
    lead: str = "",
    facts: Sequence[Fact] = (),
    details: Mapping[str, Mapping[str, Any]] | None = None,
    footer: str = "",
) -> Report:
    """Put a page together, ready for `write_report`.

    Args:
        title: of the page.
        policies: names to judged policies in the order to show, such as random, taught, oracle.
        taught: which of them the run is about.
        reward: the learned reward on held-out answers.
        controls: names to other rewards on the same answers.
        curves: returns over environment steps while learning.
        clips: such as before and after.
        reward_figures: more drawings of the reward, such as `reward_over_clip`.
        lead: one or two sentences below the title.
        facts: numbers beside return and accuracy, such as how many answers were asked for.
        details: names to settings and versions, folded away.
        footer: the last line.

    Raises:
        DataError: `taught` is not one of the policies.
    """
    if taught not in policies:
        raise DataError.mismatch("taught policy", expected=f"one of {list(policies)}", got=taught)
    sections = [_behaviour(policies, taught), _clips(clips), _learning(policies, taught, curves)]
    sections.append(_reward(reward, controls or {}, reward_figures))
    return Report(
        title=title,
        lead=lead,
        facts=(*_facts(policies, taught, reward), *facts),
        sections=tuple(section for section in sections if section is not None),
        details=details or {},
        footer=footer,
    )


def _facts(
    policies: Mapping[str, PolicyReport], taught: str, reward: RewardReport
) -> tuple[Fact, ...]:
    others = " · ".join(
        f"{name}\u00a0{_number(report.mean)}" for name, report in policies.items() if name != taught
    )
    decided = f"{_percent_range(reward.interval)} with 95 % confidence"
    return (
        Fact("Return", _number(policies[taught].mean), others),
        Fact("Held-out accuracy", _percent(reward.accuracy), decided),
    )


def _behaviour(policies: Mapping[str, PolicyReport], taught: str) -> Section:
    rows = tuple(
        (
            name,
            _number(report.mean),
            _range(report.interval),
            _number(report.median),
            _number(report.std),
            _number(float(report.lengths.mean())),
            str(report.episodes),
        )
        for name, report in policies.items()
    )
    heads = ("policy", "mean", "95 % interval", "median", "deviation", "steps", "episodes")
    means = ", ".join(f"{name} {_number(report.mean)}" for name, report in policies.items())
    return Section(
        "What the policy earns",
        ("Judged by the environment's own reward.",),
        tables=(Table("Returns of whole episodes", heads, rows, list(policies).index(taught)),),
        figures=(
            Figure(
                episode_returns(
                    {name: report.returns for name, report in policies.items()}, emphasis=taught
                ),
                f"Returns of single episodes by policy. Means: {means}.",
                "Each dot is an episode; the upright mark is the mean, the bar its 95 % interval.",
            ),
        ),
    )


def _clips(clips: Sequence[Clip]) -> Section | None:
    return Section("How it behaves", clips=tuple(clips)) if clips else None


def _learning(
    policies: Mapping[str, PolicyReport], taught: str, curves: Sequence[Curve]
) -> Section | None:
    if not curves:
        return None
    references = {name: report.mean for name, report in policies.items() if name != taught}
    names = " and ".join(curve.label for curve in curves)
    lines = ", ".join(f"{name} at {_number(height)}" for name, height in references.items())
    return Section(
        "How it learned",
        figures=(
            Figure(
                learning_curves(curves, references=references),
                f"Return over environment steps of {names}; dashed lines: {lines or 'none'}.",
                "Return while learning; dashed lines are the other policies' means.",
            ),
        ),
    )


def _reward(
    reward: RewardReport, controls: Mapping[str, RewardReport], figures: Sequence[Figure]
) -> Section:
    reports = {"learned": reward, **controls}
    rows = tuple(
        (
            name,
            _percent(report.accuracy),
            _percent_range(report.interval) if report.decided else MISSING,
            _decimal(report.log_loss),
            _decimal(report.calibration.error),
            _decimal(report.spearman),
            _decimal(report.epic),
        )
        for name, report in reports.items()
    )
    heads = ("reward", "accuracy", "95 % interval", "log loss", "calibration", "Spearman", "EPIC")
    counts = (
        f"{reward.decided} decided answers, {reward.ties} ties and {reward.declined} declined, "
        "none of which were used for fitting. Chance is 50 % and a log loss of 0.693."
    )
    return Section(
        "How good the reward is",
        (counts, *reward.notes),
        tables=(Table("Rewards on the same answers", heads, rows, 0),),
        figures=(*_reward_figures(reports), *figures),
    )


def _reward_figures(reports: Mapping[str, RewardReport]) -> tuple[Figure, ...]:
    shares = [
        Share(name, report.accuracy, report.interval)
        for name, report in reports.items()
        if report.accuracy is not None
    ]
    if not shares:
        return ()
    bars = Figure(
        accuracy_bars(shares),
        "Accuracy: "
        + ", ".join(f"{share.label} {_percent(share.value)}" for share in shares)
        + ".",
        "Share of held-out answers on the side the reward expects, with 95 % intervals; the "
        "dashed line is chance.",
        half=True,
    )
    calibration = next(iter(reports.values())).calibration
    diagram = Figure(
        calibration_diagram(calibration),
        f"Observed against predicted preference in {len(calibration.count)} groups; expected "
        f"calibration error {_decimal(calibration.error)}.",
        "Predicted against observed preference; on the dashed line probabilities come true. "
        "Larger dots hold more answers.",
        half=True,
    )
    return bars, diagram


def _number(value: float) -> str:
    """Three digits or more, and a true minus sign.

    >>> _number(-1234.5), _number(12.34), _number(0.5)
    ('−1,234', '12.3', '0.50')
    """
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{digits}f}".replace("-", "−")


def _range(interval: tuple[float, float]) -> str:
    return f"{_number(interval[0])} to {_number(interval[1])}"


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f} %"


def _percent_range(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f} %"


def _decimal(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}".replace("-", "−")
