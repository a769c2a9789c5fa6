"""Blocks that reports share, and the usual report of a run that acted while it learned."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from preferl.data.episodes import Episodes
from preferl.errors import DataError
from preferl.evaluation.page import Clip, Fact, Figure, Report, Section, Table
from preferl.evaluation.plots import (
    Curve,
    Share,
    accuracy_bars,
    calibration_diagram,
    episode_returns,
    learning_curves,
    reward_over_clip,
)
from preferl.evaluation.policy import PolicyReport
from preferl.evaluation.reward_report import RewardReport
from preferl.shapes import FloatArray
from preferl.training.reward_function import RewardFunction

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

    Raises:
        DataError: `taught` is not one of the policies.
    """
    if taught not in policies:
        raise DataError.mismatch("taught policy", expected=f"one of {list(policies)}", got=taught)
    sections = [_behaviour(policies, taught)]
    sections += [Section("How it behaves", clips=tuple(clips))] if clips else []
    sections += [_learning(policies, taught, curves)] if curves else []
    sections += [_reward({"learned": reward, **(controls or {})}, reward_figures)]
    others = " · ".join(
        f"{name}\u00a0{number(report.mean)}" for name, report in policies.items() if name != taught
    )
    decided = f"{_percent_range(reward.interval)} with 95 % confidence"
    known = (
        Fact("Return", number(policies[taught].mean), others),
        Fact("Held-out accuracy", percent(reward.accuracy), decided),
    )
    return Report(
        title=title,
        lead=lead,
        facts=(*known, *facts),
        sections=tuple(sections),
        details=details or {},
    )


def number(value: float, digits: int | None = None) -> str:
    """A number with a true minus sign; three digits or more, or `digits` after the point.

    >>> number(-1234.5), number(12.34), number(0.5), number(0.5, 1)
    ('−1,234', '12.3', '0.50', '0.5')
    """
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}".replace("-", "−")


def decimal(value: float | None) -> str:
    """Three digits after the point, or that there are none."""
    return MISSING if value is None else number(value, 3)


def percent(value: float | None, digits: int = 0) -> str:
    """A share in [0, 1] as percent, or that there is none."""
    return MISSING if value is None else f"{100 * value:.{digits}f} %"


def reward_figure(reward: RewardFunction, episode: Episodes, alt: str, caption: str) -> Figure:
    """The learned reward of each step of an episode, scaled as agents get it, beside the true one.

    Args:
        reward: learned.
        episode: the only one in it.
        alt: the message in words.
        caption: below it.
    """
    rewards = reward.member_rewards(episode)
    scaled = rewards if reward.scaler is None else reward.scaler(rewards)
    return Figure(reward_over_clip(scaled, episode.rewards), alt, caption)


def accuracy_figure(
    accuracies: Mapping[str, Sequence[float] | FloatArray], alt: str, caption: str
) -> Figure:
    """Accuracy of a reward over the epochs of its fit.

    Args:
        accuracies: which answers, to a share of them for each epoch; those of which nothing is
            known are left out.
        alt: the message in words.
        caption: below it.
    """
    named = {label: np.array(values, float) for label, values in accuracies.items()}
    curves = [
        Curve(label, np.arange(1, len(values) + 1), values)
        for label, values in named.items()
        if np.isfinite(values).any()
    ]
    return Figure(learning_curves(curves, x_label="epoch", y_label="accuracy"), alt, caption)


def rewards_table(
    caption: str,
    rewards: Mapping[str, RewardReport],
    columns: Mapping[str, Callable[[RewardReport], str]],
) -> Table:
    """Several rewards on the same answers, the learned one first.

    Args:
        caption: which answers.
        rewards: names to reports.
        columns: heads to what is below them.
    """
    rows = tuple(
        (name, *(cell(report) for cell in columns.values())) for name, report in rewards.items()
    )
    return Table(caption, ("reward", *columns), rows, 0)


def _behaviour(policies: Mapping[str, PolicyReport], taught: str) -> Section:
    rows = tuple(
        (
            name,
            number(report.mean),
            f"{number(report.interval[0])} to {number(report.interval[1])}",
            number(report.median),
            number(report.std),
            number(float(report.lengths.mean())),
            str(report.episodes),
        )
        for name, report in policies.items()
    )
    heads = ("policy", "mean", "95 % interval", "median", "deviation", "steps", "episodes")
    means = ", ".join(f"{name} {number(report.mean)}" for name, report in policies.items())
    returns = {name: report.returns for name, report in policies.items()}
    return Section(
        "What the policy earns",
        ("Judged by the environment's own reward.",),
        tables=(Table("Returns of whole episodes", heads, rows, list(policies).index(taught)),),
        figures=(
            Figure(
                episode_returns(returns, emphasis=taught),
                f"Returns of single episodes by policy. Means: {means}.",
                "Each dot is an episode; the upright mark is the mean, the bar its 95 % interval.",
            ),
        ),
    )


def _learning(
    policies: Mapping[str, PolicyReport], taught: str, curves: Sequence[Curve]
) -> Section:
    references = {name: report.mean for name, report in policies.items() if name != taught}
    names = " and ".join(curve.label for curve in curves)
    lines = ", ".join(f"{name} at {number(height)}" for name, height in references.items())
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


def _reward(reports: Mapping[str, RewardReport], figures: Sequence[Figure]) -> Section:
    reward = reports["learned"]
    columns: dict[str, Callable[[RewardReport], str]] = {
        "accuracy": lambda r: percent(r.accuracy),
        "95 % interval": lambda r: _percent_range(r.interval) if r.decided else MISSING,
        "log loss": lambda r: decimal(r.log_loss),
        "calibration": lambda r: decimal(r.calibration.error),
        "Spearman": lambda r: decimal(r.spearman),
        "EPIC": lambda r: decimal(r.epic),
    }
    counts = (
        f"{reward.decided} decided answers, {reward.ties} ties and {reward.declined} declined, "
        "none of which were used for fitting. Chance is 50 % and a log loss of 0.693."
    )
    return Section(
        "How good the reward is",
        (counts, *reward.notes),
        tables=(rewards_table("Rewards on the same answers", reports, columns),),
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
    accuracies = ", ".join(f"{share.label} {percent(share.value)}" for share in shares)
    calibration = reports["learned"].calibration
    return (
        Figure(
            accuracy_bars(shares),
            f"Accuracy: {accuracies}.",
            "Share of held-out answers on the side the reward expects, with 95 % intervals; the "
            "dashed line is chance.",
            half=True,
        ),
        Figure(
            calibration_diagram(calibration),
            f"Observed against predicted preference in {len(calibration.count)} groups; expected "
            f"calibration error {decimal(calibration.error)}.",
            "Predicted against observed preference; on the dashed line probabilities come true. "
            "Larger dots hold more answers.",
            half=True,
        ),
    )


def _percent_range(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f} %"
