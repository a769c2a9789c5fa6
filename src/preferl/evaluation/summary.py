"""Reports of runs, fits and evaluations of a reward, and the sections that they share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from preferl.data.episodes import Episodes
from preferl.data.sources.labels import LabelReport
from preferl.errors import DataError
from preferl.evaluation import plots
from preferl.evaluation.attention import attention_section
from preferl.evaluation.curve import Evaluation, in_step
from preferl.evaluation.filming import FilmedEpisode
from preferl.evaluation.policy import PolicyReport
from preferl.evaluation.report import (
    MISSING,
    Fact,
    Figure,
    Report,
    ReportTable,
    Section,
    Video,
    decimal,
    number,
    percent,
    percent_range,
)
from preferl.evaluation.reward_report import RewardReport
from preferl.runs.summary import Finding
from preferl.shapes import FloatArray
from preferl.statistics import share_in_words
from preferl.training.fit_report import FitReport
from preferl.training.reward_function import RewardFunction


def run_report(
    title: str,
    *,
    policies: Mapping[str, PolicyReport],
    taught: str,
    reward: RewardReport,
    controls: Mapping[str, RewardReport] | None = None,
    findings: Sequence[Finding] = (),
    curves: Sequence[plots.Curve] = (),
    curve_episodes: int = 0,
    clips: Sequence[Video] = (),
    reward_figures: Sequence[Figure] = (),
    left_out: str = "",
    trust: Mapping[str, Mapping[str, float]] | None = None,
    has_true_reward: bool = True,
    lead: str = "",
    facts: Sequence[Fact] = (),
    details: Mapping[str, Mapping[str, Any]] | None = None,
) -> Report:
    """Build the report of a run, ready for `write_report`.

    The report shows the `policies` in their order, such as random, taught, true reward, and is
    about the `taught` one. The learned `reward` and the `controls` were evaluated on the same
    held-out answers; `reward_figures` are more drawings of it. The `findings` come first, if there
    are any. The `curves` are evaluations over environment steps, of the same `curve_episodes` each
    time. The `facts` stand beside return and accuracy, and `details` are settings, folded away.

    `trust` is that in each annotator, see `trust_by_name`. `left_out` is the accuracy on answers
    that were left out of the last fit, in the words of `IterationReport.accuracy_in_words`. It is
    the headline if no held-out answer is decided.

    Without `has_true_reward` the report leaves out returns and the true reward's predictions.

    Raises:
        DataError: `taught` is not one of the policies.
    """
    if taught not in policies:
        raise DataError(f"taught policy: expected one of {list(policies)}, got {taught}.")
    other_policies = {name: report for name, report in policies.items() if name != taught}
    knows_success = any(report.success is not None for report in policies.values())
    sections = [findings_section(findings)]
    if has_true_reward or knows_success:
        sections.append(_behaviour(policies, taught, has_true_reward=has_true_reward))
    sections.append(Section("How it behaves", clips=tuple(clips)))
    if curves and has_true_reward:
        sections.append(_learning(other_policies, curves, curve_episodes))
    rewards = {"learned": reward, **(controls or {})} if has_true_reward else {}
    sections.append(_reward_quality(rewards, left_out, reward_figures))
    sections.append(trust_section(trust or {}))
    success = []
    if policies[taught].success is not None:
        success.append(_fact("Success", policies[taught], other_policies, form=_success))
    headline = [_accuracy_fact(reward, left_out), *success]
    if has_true_reward:
        headline = [
            _fact("Return", policies[taught], other_policies, form=_mean),
            *success,
            headline[0],
        ]
    return Report(title, lead, (*headline, *facts), tuple(sections), details or {})


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
    """Build the report of a fit, with the rewards of the episode with the highest true return.

    A preference transformer's attention in that episode is shown, too. `source` names the data that
    the answers are about, and `unit` what one of the episodes is called.
    """
    best = int(episodes.returns.argmax())
    best_episode = FilmedEpisode(episodes[best : best + 1], None, 30)
    unseen = fit.validated_on or "left out"
    figures = [_episode_figure(reward, episodes, best, unit)]
    if fit.pairs:
        curves = accuracy_figure(
            {"trained on": fit.train_accuracy, unseen: fit.validation_accuracy},
            f"Accuracy by epoch; the reward predicts {fit.trained_accuracy:.0%} of the answers "
            f"trained on and {fit.held_out_in_words}.",
            "Share of decided answers on the side that the reward expects. Left out of training "
            "are held-out answers, or else the third that each member's bootstrap misses.",
        )
        figures.insert(0, curves)
    words = fit.held_out_in_words
    note = words.partition(" of ")[2] or words
    facts = [
        Fact("Left-out accuracy", percent(fit.held_out_accuracy), note),
        Fact("Answers", f"{fit.pairs:,}", f"{labels.ties} equal, {labels.dropped} dropped"),
        Fact("Members", f"{fit.members}", f"{fit.seconds:.1f} s of fitting"),
    ]
    if fit.ratings is not None:
        rated = f"{fit.ratings.ratings:,} and {fit.ratings.outcomes:,}"
        facts.append(Fact("Ratings and outcomes", rated, fit.ratings.in_words))
    return Report(
        title,
        lead=f"Fitted to {fit.pairs:,} answers about {source}. Left-out accuracy is the share of "
        "decided answers, not learned from, that it predicts.",
        facts=tuple(facts),
        sections=(
            Section("The fit", figures=tuple(figures)),
            attention_section(reward, best_episode),
        ),
        details=details,
    )


def _episode_figure(reward: RewardFunction, episodes: Episodes, row: int, unit: str) -> Figure:
    """Draw the reward of the episode with the highest true return, which is called a `unit`."""
    has_true_reward = episodes.has_true_reward
    comparison = " beside the true one" if has_true_reward else ""
    article = "an" if unit == "episode" else "a"
    choice = ", the one with the highest true return" if has_true_reward else ""
    return reward_figure(
        reward,
        episodes[row : row + 1],
        f"The learned reward of each step of {article} {unit}{comparison}.",
        f"{unit.capitalize()} {row}{choice}; the band is the range of the members.",
        has_true_reward=has_true_reward,
    )


def evaluation_page(
    title: str,
    rewards: Mapping[str, RewardReport],
    *,
    headline: str,
    details: Mapping[str, Mapping[str, Any]],
) -> Report:
    """Build the report on a reward, named `learned`, and its controls on given answers.

    The `headline` says which answers these are.
    """
    learned = rewards["learned"]
    rewards_section_of_run = (
        Fact("Spearman", decimal(learned.spearman), "with the true reward of single steps")
        if learned.epic is None
        else Fact("EPIC distance", decimal(learned.epic), "0 same, 0.71 unrelated, 1 opposite")
    )
    between = f"95 % interval {percent_range(learned.interval)}"
    facts = (
        Fact("Accuracy", percent(learned.accuracy), f"of {learned.decided:,} answers; {between}"),
        Fact("Log loss", decimal(learned.log_loss), "0.693 is chance"),
        rewards_section_of_run,
    )
    return Report(
        title,
        lead=f"{headline}. It has learned something where it beats its controls: random, negated, "
        "zero.",
        facts=facts,
        sections=(rewards_section(rewards),),
        details=details,
    )


def findings_section(findings: Sequence[Finding]) -> Section:
    """Return a section with the findings about the run; it is empty without findings."""
    text = (f"{finding.name}: {finding.in_words}" for finding in findings)
    return Section("What to look at", tuple(text))


def trust_section(trust: Mapping[str, Mapping[str, float]]) -> Section:
    """Return a section on the trust in each annotator, see `trust_by_name`; empty without any."""
    if not trust:
        return Section("People")
    text = (
        "Trust is how far the reward trusts a person, by decided answers that it was not fitted "
        "to: 1 for careful people, 0 for random answers, negative for opposite ones. Beside it is "
        "half of its 95 % interval."
    )
    cells: dict[str, Callable[[Mapping[str, float]], str]] = {
        "answers": lambda person: f"{person['answers']:,}",
        "trust": lambda person: (
            f"{number(person['value'], 2)} ± {person['high'] - person['value']:.2f}"
        ),
    }
    return Section(
        "People", (text,), (ReportTable.of("Trust in annotators", "name", trust, cells),)
    )


def reward_figure(
    reward: RewardFunction,
    episode: Episodes,
    alt: str,
    caption: str,
    *,
    has_true_reward: bool = True,
) -> Figure:
    """Draw the scaled learned reward of each step of an episode, beside the true one if any."""
    rewards = reward.member_rewards(episode)
    scaled = rewards if reward.scaler is None else reward.scaler(rewards)
    true = episode.rewards if has_true_reward else None
    return Figure(plots.reward_over_clip(scaled, true), alt, caption)


def accuracy_figure(
    accuracies: Mapping[str, Sequence[float] | FloatArray], alt: str, caption: str
) -> Figure:
    """Draw the accuracy of a reward on several answers over the epochs of its fit, where known."""
    curves = [
        plots.Curve(label, np.arange(1, len(values) + 1), np.array(values, float))
        for label, values in accuracies.items()
        if np.isfinite(np.array(values, float)).any()
    ]
    return Figure(plots.learning_curves(curves, x_label="epoch", y_label="accuracy"), alt, caption)


def evaluation_curve(label: str, runs: Sequence[Sequence[Evaluation]]) -> plots.Curve:
    """A line for each agent of `runs`, their mean, and its 95 % interval.

    The interval is over agents, or over the episodes of a single agent. Steps are those at which
    all agents were evaluated.
    """
    points = in_step(runs)
    pooled = [Evaluation.pooled(point) for point in points]
    return plots.Curve(
        label,
        np.array([point.step for point in pooled]),
        np.array([[evaluation.report.mean for evaluation in point] for point in points]).T,
        np.array([point.interval for point in pooled]).T,
    )


def _fact(
    label: str,
    taught: PolicyReport,
    others: Mapping[str, PolicyReport],
    *,
    form: Callable[[PolicyReport], str],
) -> Fact:
    """Return a number of the taught policy, with that of the others beside it."""
    other_values = " · ".join(f"{name}\u00a0{form(report)}" for name, report in others.items())
    return Fact(label, form(taught), other_values)


def _mean(report: PolicyReport) -> str:
    return number(report.mean)


def _success(report: PolicyReport) -> str:
    return percent(report.success_rate)


def _accuracy_fact(reward: RewardReport, left_out: str) -> Fact:
    """Return the accuracy on held-out answers; if none is decided, on those left out of a fit."""
    name = "Accuracy"
    words = left_out
    if reward.decided and reward.accuracy is not None:
        name = "Held-out accuracy"
        words = share_in_words(reward.accuracy, reward.interval, reward.decided, "held-out answers")
    share, _, of = words.partition(" % of ")
    return Fact(name, f"{share} %", f"of {of}") if of else Fact(name, MISSING, words)


def _behaviour(
    policies: Mapping[str, PolicyReport], taught: str, *, has_true_reward: bool
) -> Section:
    cells: dict[str, Callable[[PolicyReport], str]] = {}
    if has_true_reward:
        cells = {
            "mean": _mean,
            "95 % interval": lambda r: f"{number(r.interval[0])} to {number(r.interval[1])}",
            "median": lambda r: number(r.median),
            "deviation": lambda r: number(r.std),
        }
    cells["steps"] = lambda r: number(r.lengths.mean())
    if any(report.success is not None for report in policies.values()):
        cells["success"] = _success
    cells["episodes"] = lambda r: str(r.episodes)
    caption = "Returns" if has_true_reward else "Successes"
    emphasis = list(policies).index(taught)
    table = ReportTable.of(f"{caption} of whole episodes", "policy", policies, cells, emphasis)
    basis = f"over {policies[taught].episodes} episodes that nothing else used."
    if not has_true_reward:
        return Section("What the policy reaches", (f"At the end of the run, {basis}",), (table,))
    means = ", ".join(f"{name} {_mean(report)}" for name, report in policies.items())
    returns = {name: report.returns for name, report in policies.items()}
    drawing = Figure(
        plots.episode_returns(returns, emphasis=taught),
        f"Returns of single episodes by policy. Means: {means}.",
        "Each dot is an episode; the upright mark is the mean, the bar its 95 % interval.",
        half=True,
    )
    text = f"Evaluated by the true reward at the end of the run, {basis}"
    return Section("What the policy earns", (text,), tables=(table,), figures=(drawing,))


def _learning(
    others: Mapping[str, PolicyReport], curves: Sequence[plots.Curve], episodes: int
) -> Section:
    references = {name: report.mean for name, report in others.items()}
    names = " and ".join(curve.label for curve in curves)
    lines = ", ".join(f"{name} at {number(height)}" for name, height in references.items())
    drawing = Figure(
        plots.learning_curves(curves, references=references),
        f"Return over environment steps of {names}; dashed lines: {lines or 'none'}.",
        f"Evaluations of {names} while learning, without exploring: the mean return of the same "
        f"{episodes} episodes each time. They are no part of the other returns on this page, so "
        "that the end of the curve may differ from these. The band is its 95 % interval, dashed "
        "lines are the other policies' means.",
    )
    return Section("How it learned", figures=(drawing,))


def _reward_quality(
    rewards: Mapping[str, RewardReport], left_out: str, figures: Sequence[Figure]
) -> Section:
    """Return the section on the reward; without reports, on the answers that its fit left out."""
    text: tuple[str, ...] = ()
    if " of " in left_out:
        text = (f"After its last fit, the learned reward predicted {left_out}.",)
    if not rewards:
        return Section("How good the reward is", text, figures=tuple(figures))
    unseen = ", none of which were used for fitting"
    return rewards_section(rewards, about=unseen, text=text, figures=figures)


def rewards_section(
    reports: Mapping[str, RewardReport],
    *,
    about: str = "",
    text: tuple[str, ...] = (),
    figures: Sequence[Figure] = (),
) -> Section:
    """Build the section on the reward named `learned` in the reports, beside its controls.

    All were evaluated on the same answers. `about` ends the sentence that counts the answers, and
    further `text` follows it. The `figures` are more drawings of the reward.
    """
    reward = reports["learned"]
    columns: dict[str, Callable[[RewardReport], str]] = {
        "accuracy": lambda r: percent(r.accuracy),
        "95 % interval": lambda r: percent_range(r.interval) if r.decided else MISSING,
        "log loss": lambda r: decimal(r.log_loss),
        "calibration": lambda r: decimal(r.calibration.error),
        "Spearman": lambda r: decimal(r.spearman),
        "EPIC": lambda r: decimal(r.epic),
    }
    counts = f"{reward.decided} decided answers and {reward.ties} ties"
    if reward.declined:  # collected answers never include declined ones
        counts += f", {reward.declined} declined"
    counts += f"{about}. Chance is 50 % and a log loss of 0.693."
    return Section(
        "How good the reward is",
        (counts, *text, *reward.notes),
        tables=(ReportTable.of("Rewards on the same answers", "reward", reports, columns, 0),),
        figures=(*_reward_figures(reports), *figures),
    )


def _reward_figures(reports: Mapping[str, RewardReport]) -> tuple[Figure, ...]:
    judged = {name: report for name, report in reports.items() if report.accuracy is not None}
    if not judged:
        return ()
    shares = {name: (report.accuracy or 0.0, report.interval) for name, report in judged.items()}
    accuracies = ", ".join(f"{name} {percent(share)}" for name, (share, _) in shares.items())
    calibration = reports["learned"].calibration
    return (
        Figure(
            plots.accuracy_bars(shares),
            f"Accuracy: {accuracies}.",
            "Share of held-out answers on the side the reward expects, with 95 % intervals; the "
            "dashed line is chance.",
            half=True,
        ),
        Figure(
            plots.calibration_diagram(calibration),
            f"Observed against predicted preference in {len(calibration.count)} groups; expected "
            f"calibration error {decimal(calibration.error)}.",
            "Predicted against observed preference; on the dashed line probabilities come true. "
            "Larger dots hold more answers.",
            half=True,
        ),
    )
