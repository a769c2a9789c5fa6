"""The report of an offline run: returns of its policies beside controls, and its reward.

It begins with the comparison, whatever its result.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from preferl.configs import to_json
from preferl.errors import StorageError
from preferl.evaluation.attention import attention_section, clip_of
from preferl.evaluation.curve import Evaluation, in_step
from preferl.evaluation.filming import FilmedEpisode, show
from preferl.evaluation.plots import Curve, condition_scores, learning_curves
from preferl.evaluation.report import (
    Fact,
    Figure,
    Report,
    ReportTable,
    Section,
    decimal,
    number,
    percent,
    write_report,
)
from preferl.evaluation.reward_report import RewardReport
from preferl.evaluation.summary import (
    accuracy_figure,
    evaluation_curve,
    reward_figure,
    rewards_table,
)
from preferl.offline.experiment.conditions import (
    LABELS,
    LEARNED,
    NO_ANSWERS,
    SUCCESS,
    ConditionScore,
    load_agent,
    paired_differences,
)
from preferl.offline.experiment.config import OfflineConfig
from preferl.offline.experiment.inputs import Inputs, LearnedReward
from preferl.reporting import common_series, read_jsonl, series
from preferl.runs import RunFolder, versions
from preferl.shapes import FloatArray
from preferl.statistics import (
    bootstrap_interval,
    interquartile_mean,
    share_in_words,
    share_interval,
    wilson_interval,
)

ENOUGH: Final = 5  # seeds for an interquartile mean and a bootstrap interval that mean something
COLUMNS: Final[Mapping[str, Callable[[RewardReport], str]]] = {
    "accuracy": lambda report: percent(report.accuracy, 1),
    "log loss": lambda report: decimal(report.log_loss),
    "calibration error": lambda report: decimal(report.calibration.error),
}
SHOWN_EPISODE: Final = 20_000  # seed of the episode in the report, which evaluates no policy

_number = partial(number, digits=1)


def write_page(
    folder: RunFolder,
    config: OfflineConfig,
    inputs: Inputs,
    result: Mapping[str, Any],
    scores: Mapping[str, ConditionScore],
    learned: LearnedReward | None,
) -> None:
    """Write `report.html` of a result, and of scores by condition, empty without evaluation."""
    sections = [_returns(config, result, scores) if scores else None, _sweep(result)]
    if learned is not None:
        shown = shown_episode(folder, config, inputs, learned, result["seeds"][0])
        sections += [
            _along(learned, shown, evaluated=bool(scores)),
            attention_section(learned.reward, shown),
            _reward(inputs, learned),
        ]
    sections += [_evaluations(config, result), _training(folder, config, inputs)]
    comparison = result["comparison"]["text"] if result["comparison"] else ""
    where = config.row.name if config.row else config.env_id or "Recorded episodes"
    lead = f"Learned by {config.kind.words} from recorded episodes alone: "
    lead += f"{len(inputs.episodes):,} of them, {inputs.episodes.steps:,} steps. "
    if config.kind.learns_from == "actions":
        title = f"{where}, cloned"
    elif config.uses_true_reward:
        title = f"{where}, learned from the true reward"
        lead = f"{lead}{NO_ANSWERS} "
    else:
        answers = f"{len(inputs.comparisons):,} comparisons" if inputs.comparisons else "a reward"
        title = f"{where}, learned from {answers}"
    page = Report(
        title,
        lead=lead + comparison,
        facts=_facts(config, result, scores, learned),
        sections=tuple(section for section in sections if section is not None),
        details={
            "Settings": to_json(config) | {"seeds": list(result["seeds"])},
            "Versions": versions() | {"simulators": result["simulators"]},
        },
    )
    write_report(folder.path("report.html"), page)


def _facts(
    config: OfflineConfig,
    result: Mapping[str, Any],
    scores: Mapping[str, ConditionScore],
    learned: LearnedReward | None,
) -> tuple[Fact, ...]:
    facts = []
    if scores:
        first, *_ = scores.values()
        means = [f"{LABELS[name]} {_number(s.shown.mean())}" for name, s in scores.items()]
        beside = " · ".join(means[1:])
        if first.unit == SUCCESS:
            between = f"95 % interval {_between(first.shown, config.episodes)} %"
            beside = " · ".join((between, *means[1:]))
            facts.append(Fact("Success", f"{_number(first.shown.mean())} %", beside))
        else:
            facts.append(Fact(first.unit.capitalize(), _spread(first.shown), beside))
        note = f"of {config.episodes} episodes for each of {len(first.shown)} seeds"
        if first.success is not None and first.scores is None:
            facts.append(Fact("Return", _spread(first.returns), note))
        elif first.success is not None:
            facts.append(Fact("Success", percent(first.success.mean()), note))
    if learned is not None and learned.reports:
        accuracy = percent(learned.reports[LEARNED].accuracy, 1)
        fit = learned.fit
        if fit is None:
            facts.append(Fact("Accuracy", accuracy, "on answers it was not fitted to"))
        else:
            held_out = fit["validation_accuracy"][fit["best_epoch"] - 1]
            count = fit["decided"]
            note = f"{accuracy} on answers it was fitted to"
            if held_out is not None:
                interval = wilson_interval(round(2 * held_out * count) / 2, count)
                of = f"{fit.get('validated_on') or 'held-out'} answers"
                note = f"{share_in_words(held_out, interval, count, of)}, {note}"
            facts.append(Fact("Held-out accuracy", percent(held_out, 1), note))
    facts.append(Fact("Updates", f"{result['steps']:,}", f"seeds {_list(result['seeds'])}"))
    return tuple(facts)


def _returns(
    config: OfflineConfig, result: Mapping[str, Any], scores: Mapping[str, ConditionScore]
) -> Section:
    unit = next(iter(scores.values())).unit
    cells: dict[str, Callable[[ConditionScore], str]] = {unit: lambda one: _spread(one.shown)}
    if unit != "return":
        cells["return"] = lambda one: _spread(one.returns)
    if unit == "normalised score" and any(one.success is not None for one in scores.values()):
        cells["success"] = lambda one: percent(None if one.success is None else one.success.mean())
    several = len(next(iter(scores.values())).shown) >= ENOUGH
    if several:
        cells["interquartile mean"] = lambda one: _middle(one.shown)
    cells["by seed"] = lambda one: _list(_number(value) for value in one.shown)
    heads = ("reward", *cells)
    rows = tuple(
        (LABELS[name], *(cell(score) for cell in cells.values())) for name, score in scores.items()
    )
    shown = {LABELS[name]: score.shown for name, score in scores.items()}
    means = ", ".join(f"{label} {_number(values.mean())}" for label, values in shown.items())
    rule = (
        f"Each policy after its last update, by {config.episodes} episodes of {config.env_id} "
        "with the true reward. Means over seeds and their standard deviation."
    )
    if several:
        rule += " Interquartile means have 95 % bootstrap intervals over seeds."
    if unit == SUCCESS and result["comparison"]:
        rule += " The comparison in words is of returns."
    if config.row is not None:
        rule += " A normalised score of 0 is a random policy's return, and 100 an expert's."
    if result.get("following"):
        target = str(config.settings.target)
        quantile = f"the quantile {target[1:]} of the recorded returns"
        rule += f" Its target return is {quantile if target.startswith('q') else target}."
    figure = Figure(
        condition_scores(shown, emphasis=next(iter(shown)), x_label=unit),
        f"Scores by condition and seed. Means: {means}.",
        "Each dot is one seed's mean over its episodes; the upright mark is their mean, the bar "
        "their range.",
        half=True,
    )
    return Section(
        "Returns of the policies",
        (result["comparison"]["text"], rule) if result["comparison"] else (rule,),
        tables=(
            ReportTable("By the reward that the agents learned from", heads, rows, 0),
            *_differences(scores, unit, config.episodes),
        ),
        figures=(figure,),
    )


def _differences(
    scores: Mapping[str, ConditionScore], unit: str, episodes: int
) -> tuple[ReportTable, ...]:
    """The learned condition's differences from its controls; none with a single seed."""
    found = paired_differences(
        {name: score.shown for name, score in scores.items()},
        percentages_of=episodes if unit == SUCCESS else None,
    )
    rows = tuple(
        (LABELS[name], _number(mean), f"{_number(low)} to {_number(high)}")
        for name, (mean, (low, high)) in found.items()
    )
    ours = LABELS[next(iter(scores))].capitalize()
    caption = f"{ours} minus each control, seed by seed: {unit}"
    heads = ("control", "mean difference", "95 % interval over seeds")
    return (ReportTable(caption, heads, rows),) if rows else ()


def _sweep(result: Mapping[str, Any]) -> Section | None:
    """Returns of Decision Transformers over their target returns."""
    sweep = result.get("following")
    if sweep is None:
        return None
    targets = np.array(sweep["asked"])
    achieved = np.array(sweep["achieved"])
    rows_by_seed = zip(result["seeds"], achieved, strict=True)
    curves = [Curve(f"seed {seed}", targets, row) for seed, row in rows_by_seed]
    spread = f"from the lowest mean to the highest it is {_number(float(np.ptp(achieved.mean(0))))}"
    if len(achieved) > 1:  # the root of the mean variance between seeds
        deviation = float(np.sqrt(achieved.var(0, ddof=1).mean()))
        spread += f", while seeds deviate by {_number(deviation)}"
    rows = tuple(
        (word, _number(targets[k]), _spread(achieved[:, k]))
        for k, word in enumerate(sweep["targets"])
    )
    x_label = "target return, by the reward learned from"
    chart = learning_curves(curves, x_label=x_label, y_label="return achieved")
    return Section(
        "Target and achieved returns",
        (
            "Target returns are by the reward that the policies learned from: quantiles of the "
            "returns that it gives the recorded episodes; q0.25 exceeds a quarter of them. "
            "Achieved returns are by the true reward.",
            f"Rank correlation of both: {decimal(sweep['rank_correlation'])}, of means over "
            f"seeds. It does not show how much: {spread}.",
        ),
        tables=(ReportTable("By target return", ("quantile", "target", "achieved"), rows, None),),
        figures=(Figure(chart, "Returns of policies over their target returns, by seed."),),
    )


def shown_episode(
    folder: RunFolder, config: OfflineConfig, inputs: Inputs, learned: LearnedReward, seed: int
) -> FilmedEpisode:
    """An episode of a policy of the learned reward, or else the best recorded one."""
    if config.episodes and config.env_id is not None:
        policy = load_agent(folder, config, LEARNED, seed, learned.reward)
        return show(policy, config, seed=SHOWN_EPISODE, max_steps=config.max_steps)
    best = int(inputs.episodes.returns.argmax())
    return FilmedEpisode(inputs.episodes[best : best + 1], None, 30)


def _along(learned: LearnedReward, shown: FilmedEpisode, *, evaluated: bool) -> Section:
    whose = "an episode of the policy" if evaluated else "the best recorded episode"
    unseen = ", which no reward was fitted to and no policy evaluated by" if evaluated else ""
    alt = f"The learned reward of each step of {whose} beside the true one."
    caption = f"Along {whose}{unseen}; the band is the range of the members."
    return Section(
        "The reward along an episode",
        clips=clip_of(shown.frames, shown.rate, "An episode", whose),
        figures=(reward_figure(learned.reward, shown.episode, alt, caption),),
    )


def _reward(inputs: Inputs, learned: LearnedReward) -> Section | None:
    fit = learned.fit
    labels = inputs.labels
    if fit is None and not learned.reports:
        return None
    figures = []
    tables = []
    if fit is not None:
        unseen = fit.get("validated_on") or "held out"
        accuracy = {"trained on": fit["train_accuracy"], unseen: fit["validation_accuracy"]}
        alt = "Accuracy of the reward by epoch of its fit."
        caption = "Share of decided answers that the reward predicts."
        figures.append(accuracy_figure(accuracy, alt, caption))
    rank = "unknown" if np.isnan(learned.spearman) else f"{learned.spearman:.2f}"
    text = [f"Rank correlation with the recorded rewards of all steps: {rank}."]
    if labels is not None:
        fate = "left out" if labels.dropped else "kept"
        text.append(
            f"{labels.pairs:,} answers about segments of {labels.length} steps, {labels.ties} "
            f"of them equal; {labels.crossing} run across an episode's end and are {fate}."
        )
    if learned.reports:
        seen = "the answers it was fitted to" if fit else "answers it was not fitted to"
        named = {LABELS.get(name, name): report for name, report in learned.reports.items()}
        tables.append(rewards_table(f"On {seen}", named, COLUMNS))
        text.append(
            "Log loss is in nats, 0.693 for guessing. Calibration error is the distance of the "
            "predicted shares of answers from the given ones."
        )
    return Section("Quality of the reward", tuple(text), tuple(tables), figures=tuple(figures))


def _evaluations(config: OfflineConfig, result: Mapping[str, Any]) -> Section | None:
    """Returns of the agents that the run is about while they learned."""
    known = result.get("evaluations", {}).values()
    runs = [[Evaluation.from_json(one) for one in of] for of in known]
    if not in_step(runs):
        return None
    curve = evaluation_curve("evaluations", runs)
    seeds = len(runs)
    of = "seeds, with its 95 % interval over them; thin lines are seeds"
    of = of if seeds > 1 else "the episodes, with its 95 % interval over them"
    steps = f"{curve.steps[0]:,} to {curve.steps[-1]:,} updates"
    means = curve.values.mean(0)
    chart = learning_curves([curve], x_label="updates")
    return Section(
        "Returns while they learned",
        (
            f"Of the same {config.eval_episodes} episodes at each of {len(curve.steps)} times, for "
            f"each of {seeds} seeds. The finished agents are scored by {config.episodes} others. "
            "No policy is selected by this curve: those after the last update count.",
        ),
        figures=(
            Figure(
                chart,
                f"Mean returns from {_number(means[0])} to {_number(means[-1])}, from {steps}.",
                f"The mean of {of}.",
            ),
        ),
    )


def _training(folder: RunFolder, config: OfflineConfig, inputs: Inputs) -> Section | None:
    """Metrics of the agents over their updates; None where they were not written."""
    try:
        columns = read_jsonl(folder.path("metrics.jsonl"))
    except StorageError:
        return None
    discrete = np.issubdtype(inputs.episodes.actions.dtype, np.integer)
    drawn = config.settings.curve(discrete=discrete)
    prefix = config.kind.prefix or config.policy
    named = {} if drawn is None else {f"{prefix}/{name}": label for name, label in LABELS.items()}
    found = (_curve(columns, agents, drawn.metric, label) for agents, label in named.items())
    curves = [curve for curve in found if curve is not None]
    if not curves:
        return None
    chart = learning_curves(curves, x_label="updates", y_label=drawn.unit)
    return Section("How they learned", figures=(Figure(chart, drawn.alt, drawn.caption),))


def _curve(columns: Mapping[str, FloatArray], agents: str, metric: str, label: str) -> Curve | None:
    """A metric of a condition's agents, one by one or in all, at updates that all report."""
    names = rf"{re.escape(agents)}(-\d+)?/{metric}"
    found = (series(columns, name) for name in columns if re.fullmatch(names, name))
    steps, values = common_series(found)
    return Curve(label, steps, values) if len(steps) else None


def _spread(values: FloatArray) -> str:
    """Mean and, of several seeds, their deviation."""
    mean = _number(float(values.mean()))
    return f"{mean} ± {_number(float(values.std(ddof=1)))}" if len(values) > 1 else mean


def _between(percentages: FloatArray, episodes: int) -> str:
    """95 % interval of a mean percentage over seeds."""
    low, high = share_interval(percentages / 100, episodes)
    return f"{_number(100 * low)} to {_number(100 * high)}"


def _middle(values: FloatArray) -> str:
    """Interquartile mean over seeds, and its interval."""
    ends = bootstrap_interval(values, np.random.default_rng(0), statistic=interquartile_mean)
    low, high = (_number(end) for end in ends)
    return f"{_number(float(interquartile_mean(values)))} ({low} to {high})"


def _list(items: Iterable[Any]) -> str:
    return ", ".join(map(str, items))
