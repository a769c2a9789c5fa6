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
from preferl.evaluation.curve import in_step
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
)
from preferl.offline.experiment.conditions import (
    LABELS,
    LEARNED,
    NO_ANSWERS,
    SUCCESS,
    ConditionScore,
    paired_differences,
)
from preferl.offline.experiment.config import OfflineConfig
from preferl.offline.experiment.inputs import Inputs, LearnedReward, OpenRun
from preferl.reporting import common_series, read_jsonl, series
from preferl.runs import versions
from preferl.shapes import FloatArray
from preferl.statistics import (
    FEWEST_IN_PERCENT,
    bootstrap_interval,
    interquartile_mean,
    share_in_words,
    share_interval,
)

ENOUGH: Final = 5  # fewest seeds for which there is an interquartile mean and a bootstrap interval
COLUMNS: Final[Mapping[str, Callable[[RewardReport], str]]] = {
    "accuracy": lambda report: percent(report.accuracy, 1),
    "log loss": lambda report: decimal(report.log_loss),
    "calibration error": lambda report: decimal(report.calibration.error),
}
SHOWN_EPISODE: Final = 20_000  # seed of the filmed episode; evaluations use other seeds

_number = partial(number, digits=1)


def write_page(
    run: OpenRun, result: Mapping[str, Any], scores: Mapping[str, ConditionScore]
) -> None:
    """Write `report.html` of a result and of scores by condition, empty without evaluation."""
    config = run.config
    inputs = run.inputs
    learned = run.learned
    sections = [_returns(config, result, scores)] if scores else []
    sections.append(_sweep(result))
    if learned is not None:
        shown = shown_episode(run)
        sections += [
            _along(learned, shown, evaluated=bool(scores)),
            attention_section(learned.reward, shown),
            _reward(inputs, learned),
        ]
    sections += [_evaluations(run), _training(run)]
    where = config.row.name if config.row else config.env_id or "Recorded episodes"
    lead = f"Learned by {config.kind.words} from recorded episodes alone: "
    lead += f"{len(inputs.episodes):,} of them, {inputs.episodes.steps:,} steps. "
    if config.kind.learns_from == "actions":
        title = f"{where}, cloned"
    elif config.uses_true_reward:
        title = f"{where}, learned from the true reward"
        lead += f"{NO_ANSWERS} "
    else:
        answers = f"{len(inputs.comparisons):,} comparisons" if inputs.comparisons else "a reward"
        title = f"{where}, learned from {answers}"
    page = Report(
        title,
        lead=lead + _comparison(result),
        facts=(*_score_facts(config, scores), *_reward_facts(learned), _updates(result)),
        sections=tuple(sections),
        details={
            "Settings": to_json(config) | {"seeds": list(result["seeds"])},
            "Versions": versions() | {"simulators": result["simulators"]},
        },
    )
    write_report(run.folder.path("report.html"), page)


def _comparison(result: Mapping[str, Any]) -> str:
    """Return the comparison with controls in words; empty if there is none."""
    return result["comparison"]["text"] if result["comparison"] else ""


def _updates(result: Mapping[str, Any]) -> Fact:
    return Fact("Updates", f"{result['steps']:,}", f"seeds {_list(result['seeds'])}")


def _score_facts(config: OfflineConfig, scores: Mapping[str, ConditionScore]) -> list[Fact]:
    if not scores:
        return []
    first = next(iter(scores.values()))
    means = [f"{LABELS[name]} {_number(s.shown.mean())}" for name, s in scores.items()][1:]
    if first.unit == SUCCESS:
        low, high = share_interval(first.shown / 100, config.episodes)
        means.insert(0, f"95 % interval {_number(100 * low)} to {_number(100 * high)} %")
        facts = [Fact("Success", f"{_number(first.shown.mean())} %", " · ".join(means))]
    else:
        facts = [Fact(first.unit.capitalize(), _spread(first.shown), " · ".join(means))]
    note = f"of {config.episodes} episodes for each of {len(first.shown)} seeds"
    if first.success is not None and first.scores is None:
        facts.append(Fact("Return", _spread(first.returns), note))
    elif first.success is not None:
        facts.append(Fact("Success", percent(first.success.mean()), note))
    return facts


def _reward_facts(learned: LearnedReward | None) -> list[Fact]:
    if learned is None or not learned.reports:
        return []
    accuracy = percent(learned.reports[LEARNED].accuracy, 1)
    if learned.fit is None:
        return [Fact("Accuracy", accuracy, "on answers it was not fitted to")]
    note = f"{accuracy} on answers it was fitted to"
    held_out = learned.estimate
    if held_out is None or held_out.interval is None:
        return [Fact("Held-out accuracy", percent(None), note)]
    words = share_in_words(held_out.mean, held_out.interval, held_out.count, held_out.of)
    shown = None if held_out.count < FEWEST_IN_PERCENT else held_out.mean
    return [Fact("Held-out accuracy", percent(shown, 1), f"{words}, {note}")]


def _returns(
    config: OfflineConfig, result: Mapping[str, Any], scores: Mapping[str, ConditionScore]
) -> Section:
    first = next(iter(scores.values()))
    unit = first.unit
    cells: dict[str, Callable[[ConditionScore], str]] = {unit: lambda score: _spread(score.shown)}
    if unit != "return":
        cells["return"] = lambda score: _spread(score.returns)
    if unit == "normalised score" and any(score.success is not None for score in scores.values()):
        cells["success"] = lambda score: percent(
            None if score.success is None else score.success.mean()
        )
    comparison = _comparison(result)
    rule = (
        f"Each policy after its last update, by {config.episodes} episodes of {config.env_id} "
        "with the true reward. Means over seeds and their standard deviation."
    )
    if len(first.shown) >= ENOUGH:
        cells["interquartile mean"] = lambda score: _middle(score.shown)
        rule += " Interquartile means have 95 % bootstrap intervals over seeds."
    cells["by seed"] = lambda score: _list(_number(value) for value in score.shown)
    if unit == SUCCESS and comparison:
        rule += " The comparison in words is of returns."
    if config.row is not None:
        rule += " A normalised score of 0 is a random policy's return, and 100 an expert's."
    if result.get("following"):
        target = str(config.settings.target)
        quantile = f"the quantile {target[1:]} of the recorded returns"
        rule += f" Its target return is {quantile if target.startswith('q') else target}."
    labelled = {LABELS[name]: score for name, score in scores.items()}
    caption = "By the reward that the agents learned from"
    return Section(
        "Returns of the policies",
        (comparison, rule) if comparison else (rule,),
        tables=(
            ReportTable.of(caption, "reward", labelled, cells, 0),
            _differences(scores, unit, config.episodes),
        ),
        figures=(_scores_figure(labelled, unit),),
    )


def _scores_figure(scores: Mapping[str, ConditionScore], unit: str) -> Figure:
    shown = {label: score.shown for label, score in scores.items()}
    means = ", ".join(f"{label} {_number(values.mean())}" for label, values in shown.items())
    return Figure(
        condition_scores(shown, emphasis=next(iter(shown)), x_label=unit),
        f"Scores by condition and seed. Means: {means}.",
        "Each dot is one seed's mean over its episodes; the upright mark is their mean, the bar "
        "their range.",
        half=True,
    )


def _differences(scores: Mapping[str, ConditionScore], unit: str, episodes: int) -> ReportTable:
    """Return differences of the learned condition from its controls; no rows with one seed."""
    differences = paired_differences(
        {name: score.shown for name, score in scores.items()},
        percentages_of=episodes if unit == SUCCESS else None,
    )
    rows = tuple(
        (LABELS[name], _number(mean), f"{_number(low)} to {_number(high)}")
        for name, (mean, (low, high)) in differences.items()
    )
    ours = LABELS[next(iter(scores))].capitalize()
    caption = f"{ours} minus each control, seed by seed: {unit}"
    heads = ("control", "mean difference", "95 % interval over seeds")
    return ReportTable(caption, heads, rows)


def _sweep(result: Mapping[str, Any]) -> Section:
    """Report returns of Decision Transformers by target return; empty for other agents."""
    title = "Target and achieved returns"
    sweep = result.get("following")
    if sweep is None:
        return Section(title)
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
        title,
        (
            "Target returns are by the reward that the policies learned from: quantiles of the "
            "returns that it gives the recorded episodes; q0.25 exceeds a quarter of them. "
            "Achieved returns are by the true reward.",
            f"Rank correlation of both: {decimal(sweep['rank_correlation'])}, of means over "
            f"seeds. It does not show how far achieved returns move: {spread}.",
        ),
        tables=(ReportTable("By target return", ("quantile", "target", "achieved"), rows, None),),
        figures=(Figure(chart, "Returns of policies over their target returns, by seed."),),
    )


def shown_episode(run: OpenRun) -> FilmedEpisode:
    """Return an episode of a policy of the learned reward, or else the best recorded one."""
    config = run.config
    if config.episodes and config.env_id is not None:
        policy = run.load_policy(LEARNED, run.seeds[0])
        return show(policy, config, seed=SHOWN_EPISODE, max_steps=config.max_steps)
    episodes = run.inputs.episodes
    best = int(episodes.returns.argmax())
    return FilmedEpisode(episodes[best : best + 1], None, 30)


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


def _reward(inputs: Inputs, learned: LearnedReward) -> Section:
    """Report how good the reward is; empty if it was fitted before and there are no labels."""
    title = "Quality of the reward"
    fit = learned.fit
    labels = inputs.labels
    if fit is None and not learned.reports:
        return Section(title)
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
        tables.append(ReportTable.of(f"On {seen}", "reward", named, COLUMNS, 0))
        text.append(
            "Log loss is in nats, 0.693 for guessing. Calibration error is the distance between "
            "predicted and actual shares of answers."
        )
    return Section(title, tuple(text), tuple(tables), figures=tuple(figures))


def _evaluations(run: OpenRun) -> Section:
    """Report returns of the main condition's agents while they learned; empty without any."""
    title = "Returns while they learned"
    config = run.config
    runs = list(run.evaluations().values())
    if not in_step(runs):
        return Section(title)
    curve = evaluation_curve("evaluations", runs)
    seeds = len(runs)
    averaged = "the episodes, with its 95 % interval over them"
    if seeds > 1:
        averaged = "seeds, with its 95 % interval over them; thin lines are seeds"
    steps = f"{curve.steps[0]:,} to {curve.steps[-1]:,} updates"
    means = curve.values.mean(0)
    chart = learning_curves([curve], x_label="updates")
    return Section(
        title,
        (
            f"Of the same {config.eval_episodes} episodes at each of {len(curve.steps)} times, for "
            f"each of {seeds} seeds. The finished agents are scored by {config.episodes} others. "
            "No policy is selected by this curve: those after the last update count.",
        ),
        figures=(
            Figure(
                chart,
                f"Mean returns from {_number(means[0])} to {_number(means[-1])}, from {steps}.",
                f"The mean of {averaged}.",
            ),
        ),
    )


def _training(run: OpenRun) -> Section:
    """Report metrics of the agents over their updates; empty if they were not written."""
    title = "How they learned"
    config = run.config
    try:
        columns = read_jsonl(run.folder.path("metrics.jsonl"))
    except StorageError:
        return Section(title)
    discrete = np.issubdtype(run.inputs.episodes.actions.dtype, np.integer)
    drawn = config.settings.curve(discrete=discrete)
    if drawn is None:
        return Section(title)
    prefix = config.kind.prefix or config.policy
    curves = []
    for name, label in LABELS.items():  # agents one by one, or all together
        pattern = rf"{re.escape(f'{prefix}/{name}')}(-\d+)?/{drawn.metric}"
        steps, values = common_series(
            series(columns, column) for column in columns if re.fullmatch(pattern, column)
        )
        if len(steps):
            curves.append(Curve(label, steps, values))
    if not curves:
        return Section(title)
    chart = learning_curves(curves, x_label="updates", y_label=drawn.unit)
    return Section(title, figures=(Figure(chart, drawn.alt, drawn.caption),))


def _spread(values: FloatArray) -> str:
    """Return the mean and, for several seeds, the standard deviation."""
    mean = _number(float(values.mean()))
    return f"{mean} ± {_number(float(values.std(ddof=1)))}" if len(values) > 1 else mean


def _middle(values: FloatArray) -> str:
    """Return the interquartile mean over seeds and its interval."""
    ends = bootstrap_interval(values, np.random.default_rng(0), statistic=interquartile_mean)
    low, high = (_number(end) for end in ends)
    return f"{_number(float(interquartile_mean(values)))} ({low} to {high})"


def _list(items: Iterable[Any]) -> str:
    return ", ".join(map(str, items))
