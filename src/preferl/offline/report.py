"""The page about an offline run: what its policies earn, against what, and how good its reward is.

It begins with the verdict, whichever way that went.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from preferl.configs import to_json
from preferl.evaluation.filming import FilmedEpisode, show
from preferl.evaluation.plots import (
    Curve,
    attention_map,
    condition_scores,
    importance_bar,
    learning_curves,
)
from preferl.evaluation.report import (
    Fact,
    Figure,
    Report,
    ReportTable,
    Section,
    Video,
    write_report,
)
from preferl.evaluation.reward_report import RewardReport
from preferl.evaluation.summary import (
    MISSING,
    accuracy_figure,
    best_window,
    decimal,
    number,
    percent,
    preference_attention,
    reward_figure,
    rewards_table,
)
from preferl.offline.agents import load_agent
from preferl.offline.arms import LEARNED, MEANING
from preferl.offline.config import OfflineConfig
from preferl.offline.dt_config import DTConfig
from preferl.offline.inputs import Inputs
from preferl.offline.learned import LearnedReward
from preferl.offline.scores import ArmScore
from preferl.offline.training_section import training_section
from preferl.runs import RunFolder, versions
from preferl.shapes import Array, FloatArray

COLUMNS: Final[Mapping[str, Callable[[RewardReport], str]]] = MappingProxyType(
    {
        "accuracy": lambda report: percent(report.accuracy, 1),
        "log loss": lambda report: decimal(report.log_loss),
        "calibration error": lambda report: decimal(report.calibration.error),
    }
)
"""Of the table of rewards."""

_number = partial(number, digits=1)

SHOWN_EPISODE = 20_000
"""Seed of the episode on the page, which nothing was judged by."""


def write_page(
    folder: RunFolder,
    config: OfflineConfig,
    inputs: Inputs,
    result: Mapping[str, Any],
    arms: Mapping[str, ArmScore],
    learned: LearnedReward | None,
) -> None:
    """Write `report.html`.

    Args:
        folder: of the run, with its policies.
        config: of the run.
        inputs: its data.
        result: what `result.json` will hold.
        arms: scores; empty where nothing was judged.
        learned: the reward; None for cloning alone.
    """
    sections = [_earned(config, result, arms) if arms else None, _followed(result)]
    if learned is not None:
        shown = _shown(folder, config, inputs, result, learned)
        sections += [
            _along(learned, shown, judged=bool(arms)),
            _attention(learned, shown),
            _reward(inputs, learned),
        ]
    sections.append(training_section(folder, config, inputs))
    verdict = result["verdict"]["text"] if result["verdict"] else ""
    page = Report(
        _title(config, inputs),
        lead=f"Learned by {config.kind.words} from recorded episodes alone: "
        f"{len(inputs.episodes):,} of them, {inputs.episodes.steps:,} steps. " + verdict,
        facts=_facts(config, result, arms, learned),
        sections=tuple(section for section in sections if section is not None),
        details={
            "Settings": to_json(config) | {"seeds": list(result["seeds"])},
            "Versions": versions() | {"simulators": result["simulators"]},
        },
    )
    write_report(folder.path("report.html"), page)


def _title(config: OfflineConfig, inputs: Inputs) -> str:
    where = config.row.name if config.row else config.env_id or "Recorded episodes"
    if not config.kind.taught:
        return f"{where}, cloned"
    answers = f"{len(inputs.comparisons):,} comparisons" if inputs.comparisons else "a reward"
    return f"{where}, learned from {answers}"


def _facts(
    config: OfflineConfig,
    result: Mapping[str, Any],
    arms: Mapping[str, ArmScore],
    learned: LearnedReward | None,
) -> tuple[Fact, ...]:
    facts = []
    first = next(iter(arms), None)
    if first is not None:
        unit = "Return" if config.row is None else "Normalised score"
        others = [f"{MEANING[arm]} {_number(arms[arm].shown.mean())}" for arm in arms]
        facts.append(Fact(unit, _spread(arms[first].shown), " · ".join(others[1:])))
        success = arms[first].success
        if success is not None:
            note = f"of {config.episodes} episodes for each of {len(success)} seeds"
            facts.append(Fact("Success", percent(success.mean()), note))
    if learned is not None and LEARNED in learned.judged:
        report = learned.judged[LEARNED]
        accuracy, fit = percent(report.accuracy, 1), learned.fit
        held_out = None if fit is None else fit["validation_accuracy"][fit["best_epoch"] - 1]
        note = "on answers it was fitted to" if fit else "on answers it has not seen"
        if held_out is None:
            facts.append(Fact("Accuracy", accuracy, note))
        else:
            facts.append(Fact("Held-out accuracy", percent(held_out, 1), f"{accuracy} {note}"))
    facts.append(Fact("Updates", f"{result['steps']:,}", f"seeds {_list(result['seeds'])}"))
    return tuple(facts)


def _earned(
    config: OfflineConfig, result: Mapping[str, Any], arms: Mapping[str, ArmScore]
) -> Section:
    unit = "return" if config.row is None else "normalised score"
    heads = ("paid by", unit, "return", "success", "by seed")
    rows = tuple(
        (
            MEANING[arm],
            _spread(score.shown),
            _spread(score.returns),
            MISSING if score.success is None else percent(score.success.mean()),
            _list(_number(value) for value in score.shown),
        )
        for arm, score in arms.items()
    )
    means = ", ".join(f"{MEANING[arm]} {_number(s.shown.mean())}" for arm, s in arms.items())
    rule = (
        f"Each policy after its last update, by {config.episodes} episodes of {config.env_id} "
        "with the environment's own reward. Means over seeds and their standard deviation."
    )
    if config.row is not None:
        rule += " A normalised score of 0 is a random policy's return, and 100 an expert's."
    if result.get("following"):
        target = config.target_return or (config.dt or DTConfig()).target
        rule += f" Each is asked for {_asked(target)}."
    text = (result["verdict"]["text"], rule) if result["verdict"] else (rule,)
    return Section(
        "What the policies earn",
        text,
        tables=(ReportTable("By what the agents were paid", heads, rows, 0),),
        figures=(
            Figure(
                condition_scores(
                    {MEANING[arm]: score.shown for arm, score in arms.items()},
                    emphasis=MEANING[next(iter(arms))],
                    x_label=unit,
                ),
                f"Scores by arm and seed. Means: {means}.",
                "Each dot is one seed's mean over its episodes; the upright mark is their mean.",
            ),
        ),
    )


def _asked(target: str | float) -> str:
    """A target in words.

    >>> _asked("q0.95"), _asked("3000")
    ('the quantile 0.95 of the recorded returns', 'a return of 3000')
    """
    word = str(target)
    if word.startswith("q"):
        return f"the quantile {word[1:]} of the recorded returns"
    return f"a return of {word}"


def _followed(result: Mapping[str, Any]) -> Section | None:
    """What a Decision Transformer earns beside what it is asked for."""
    following = result.get("following")
    if following is None:
        return None
    asked, achieved = np.array(following["asked"]), np.array(following["achieved"])
    curves = [
        Curve(f"seed {seed}", asked, row)
        for seed, row in zip(result["seeds"], achieved, strict=True)
    ]
    means = achieved.mean(0)
    spread = f"from the lowest mean to the highest it is {_number(float(np.ptp(means)))}"
    if len(achieved) > 1:  # the root of the mean variance between seeds
        deviation = float(np.sqrt(achieved.var(0, ddof=1).mean()))
        spread += f", while seeds deviate by {_number(deviation)}"
    rows = tuple(
        (target, _number(asked[k]), _spread(achieved[:, k]))
        for k, target in enumerate(following["targets"])
    )
    return Section(
        "Asked and achieved",
        (
            "Returns asked of the taught policies, by the reward they were taught by: quantiles of "
            "what it pays the recorded episodes; q0.25 is more than a quarter of them are paid. "
            "What they earn is the environment's reward.",
            f"Rank correlation of both: {decimal(following['rank_correlation'])}, of means over "
            f"seeds. It does not say how much: {spread}.",
        ),
        tables=(ReportTable("By what was asked for", ("quantile", "asked", "achieved"), rows),),
        figures=(
            Figure(
                learning_curves(
                    curves,
                    x_label="return asked for, by the reward that taught",
                    y_label="return achieved",
                ),
                "What policies earn over what they are asked for, by seed.",
            ),
        ),
    )


def _shown(
    folder: RunFolder,
    config: OfflineConfig,
    inputs: Inputs,
    result: Mapping[str, Any],
    learned: LearnedReward,
) -> FilmedEpisode:
    """An episode of the first taught policy, or else the best that was recorded."""
    if config.episodes and config.env_id is not None:
        policy = load_agent(folder, config, LEARNED, result["seeds"][0], learned.reward)
        steps = config.row.max_episode_steps if config.row else None
        return show(policy, config.env_id, seed=SHOWN_EPISODE, max_steps=steps)
    best = int(inputs.episodes.returns.argmax())
    return FilmedEpisode(inputs.episodes[best : best + 1], None, 30)


def _along(learned: LearnedReward, shown: FilmedEpisode, *, judged: bool) -> Section:
    whose = "an episode of the taught policy" if judged else "the best recorded episode"
    unseen = ", which nothing was fitted to or judged by" if judged else ""
    return Section(
        "What the reward says",
        clips=_clips(shown.frames, shown.rate, "An episode", whose),
        figures=(
            reward_figure(
                learned.reward,
                shown.episode,
                f"The learned reward of each step of {whose} beside the true one.",
                f"Along {whose}{unseen}; the band is the range of the members.",
            ),
        ),
    )


def _attention(learned: LearnedReward, shown: FilmedEpisode) -> Section | None:
    """The segment of the episode that is paid best, and what the reward looks at in it."""
    paid = learned.reward.combine(learned.reward.member_rewards(shown.episode))
    rows = best_window(paid, learned.reward.context)
    looked = preference_attention(learned.reward, shown.episode, rows)
    if looked is None:
        return None
    steps = f"steps {rows.start} to {rows.stop - 1}"
    frames = None if shown.frames is None else shown.frames[rows]
    most = rows.start + int(looked.importance.argmax())
    return Section(
        "What the reward looks at",
        (f"In {steps}, the segment of that episode with the highest learned reward.",),
        clips=_clips(frames, shown.rate, "The segment", steps),
        figures=(
            Figure(
                importance_bar(looked.importance, offset=rows.start),
                f"Share of each step in the segment's score; the largest is that of step {most}.",
                "How much each step of the clip counts for the score of the segment; on the dashed "
                "line all count alike.",
            ),
            Figure(
                attention_map(looked.shares),
                "Which steps the preference attention of each step looks at.",
                "Preference attention among the steps, counted from the segment's first.",
                half=True,
            ),
        ),
    )


def _clips(frames: Array | None, rate: int, title: str, what: str) -> tuple[Video, ...]:
    """One clip, or none where nothing could be drawn."""
    if frames is None:
        return ()
    from preferl.video import encode

    return (Video(encode(frames, rate), title, f"Pictures of {what}."),)


def _reward(inputs: Inputs, learned: LearnedReward) -> Section | None:
    fit = learned.fit
    figures: tuple[Figure, ...] = ()
    if fit is not None:
        figures = (
            accuracy_figure(
                {"trained on": fit["train_accuracy"], "held out": fit["validation_accuracy"]},
                "Accuracy of the reward by epoch of its fit.",
                "Share of decided answers on the side that the reward expects.",
            ),
        )
    if not learned.judged and not figures:
        return None
    seen = "the answers it was fitted to" if learned.fit else "answers it was not fitted to"
    rank = "unknown" if np.isnan(learned.spearman) else f"{learned.spearman:.2f}"
    text = [f"Rank correlation with the recorded rewards of all steps: {rank}."]
    if inputs.labels is not None:
        labels = inputs.labels
        fate = "left out" if labels.dropped else "kept"
        text.append(
            f"{labels.pairs:,} answers about segments of {labels.length} steps, {labels.ties} "
            f"of them equal; {labels.crossing} run across an episode's end and are {fate}."
        )
    tables: tuple[ReportTable, ...] = ()
    if learned.judged:
        named = {MEANING.get(name, name): report for name, report in learned.judged.items()}
        tables = (rewards_table(f"On {seen}", named, COLUMNS),)
        text.append(
            "Log loss is in nats, 0.693 where nothing is known. Calibration error is how far the "
            "predicted shares of answers are from those that were given."
        )
    return Section("How good the reward is", tuple(text), tables=tables, figures=figures)


def _spread(values: FloatArray) -> str:
    """Mean and, of several seeds, their deviation."""
    mean = _number(float(values.mean()))
    return f"{mean} ± {_number(float(values.std(ddof=1)))}" if len(values) > 1 else mean


def _list(items: Any) -> str:
    return ", ".join(map(str, items))
