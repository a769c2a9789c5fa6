"""Reports of a reward that no agent learned from yet: of its fit, and of its evaluation."""

from collections.abc import Mapping
from typing import Any

from preferl.data.episodes import Episodes
from preferl.data.sources.labels import LabelReport
from preferl.evaluation.attention import attention_section
from preferl.evaluation.filming import FilmedEpisode
from preferl.evaluation.report import Fact, Report, Section, decimal, percent, percent_range
from preferl.evaluation.reward_report import RewardReport
from preferl.evaluation.summary import accuracy_figure, reward_figure, rewards_section
from preferl.training.fit_report import FitReport
from preferl.training.reward_function import RewardFunction


def fit_page(
    title: str,
    reward: RewardFunction,
    fit: FitReport,
    episodes: Episodes,
    labels: LabelReport,
    *,
    source: str,
    unit: str = "episode",
    details: Mapping[str, Mapping[str, Any]],
) -> Report:
    """How a fit went, and the rewards of the episode with the highest true return.

    A preference transformer also shows what it attends to in that episode. The answers are about
    the `source`; one of the episodes is called a `unit`.
    """
    best = int(episodes.returns.argmax())
    has_true_reward = episodes.has_true_reward
    beside = " beside the true one" if has_true_reward else ""
    article = "an" if unit == "episode" else "a"
    which = ", the one with the highest true return" if has_true_reward else ""
    shown = episodes[best : best + 1]
    figures = (
        accuracy_figure(
            {
                "trained on": fit.train_accuracy,
                fit.validated_on or "left out": fit.validation_accuracy,
            },
            f"Accuracy by epoch; the reward predicts {fit.trained_accuracy:.0%} of the answers "
            f"trained on and {fit.held_out_in_words}.",
            "Share of decided answers on the side that the reward expects. Left out of training "
            "are held-out answers, or else the third that each member's bootstrap misses.",
        ),
        reward_figure(
            reward,
            shown,
            f"The learned reward of each step of {article} {unit}{beside}.",
            f"{unit.capitalize()} {best}{which}; the band is the range of the members.",
            has_true_reward=has_true_reward,
        ),
    )
    words = fit.held_out_in_words
    note = words.partition(" of ")[2] or words
    facts = (
        Fact("Left-out accuracy", percent(fit.held_out_accuracy), note),
        Fact("Answers", f"{fit.pairs:,}", f"{labels.ties} equal, {labels.dropped} dropped"),
        Fact("Members", f"{fit.members}", f"{fit.seconds:.1f} s of fitting"),
    )
    attention = attention_section(reward, FilmedEpisode(shown, None, 30))
    return Report(
        title,
        lead=f"Fitted to {fit.pairs:,} answers about {source}. Left-out accuracy is the share of "
        "decided answers, not learned from, that it predicts.",
        facts=facts,
        sections=(Section("The fit", figures=figures), *([attention] if attention else [])),
        details=details,
    )


def evaluation_page(
    title: str,
    rewards: Mapping[str, RewardReport],
    *,
    headline: str,
    details: Mapping[str, Mapping[str, Any]],
) -> Report:
    """How good a reward is on given answers, the `learned` one, beside its controls.

    The `headline` tells which answers these are.
    """
    learned = rewards["learned"]
    beside = (
        Fact("Spearman", decimal(learned.spearman), "with the true reward of single steps")
        if learned.epic is None
        else Fact("EPIC distance", decimal(learned.epic), "0 same, 0.71 unrelated, 1 opposite")
    )
    between = f"95 % interval {percent_range(learned.interval)}"
    facts = (
        Fact("Accuracy", percent(learned.accuracy), f"of {learned.decided:,} answers; {between}"),
        Fact("Log loss", decimal(learned.log_loss), "0.693 is chance"),
        beside,
    )
    return Report(
        title,
        lead=f"{headline}. It has learned something where it beats its controls: random, negated, "
        "zero.",
        facts=facts,
        sections=(rewards_section(rewards),),
        details=details,
    )
