"""Blocks that reports share, and the usual report of a run that acted while it learned.

The attention of a preference transformer to the steps of a segment is that of Kim et al. 2023,
"Preference Transformer", section 4.2: importance weights.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from preferl.data.columns import check
from preferl.data.episodes import Episodes
from preferl.evaluation import plots
from preferl.evaluation.policy import PolicyReport
from preferl.evaluation.report import Fact, Figure, Report, ReportTable, Section, Video
from preferl.evaluation.reward_report import RewardReport
from preferl.models.ensemble import Ensemble
from preferl.models.transformer import PreferenceTransformer
from preferl.shapes import FloatArray, take
from preferl.training.batches import to_tensor, to_tensors
from preferl.training.reward_function import RewardFunction

MISSING = "–"


def run_report(
    title: str,
    *,
    policies: Mapping[str, PolicyReport],
    taught: str,
    reward: RewardReport,
    controls: Mapping[str, RewardReport] | None = None,
    curves: Sequence[plots.Curve] = (),
    clips: Sequence[Video] = (),
    reward_figures: Sequence[Figure] = (),
    lead: str = "",
    facts: Sequence[Fact] = (),
    details: Mapping[str, Mapping[str, Any]] | None = None,
) -> Report:
    """Put the report of a run together, ready for `write_report`.

    It shows the `policies` in their order, such as random, taught, oracle, and is about the
    `taught` one. The learned `reward` and the `controls` were evaluated on the same held-out
    answers; `reward_figures` are more drawings of it. The `curves` are returns over environment
    steps. The `facts` stand beside return and accuracy, and `details` are settings, folded away.

    Raises:
        DataError: `taught` is not one of the policies.
    """
    check(taught in policies, "taught policy", f"one of {list(policies)}", taught)
    others = {name: report.mean for name, report in policies.items() if name != taught}
    sections = [_behaviour(policies, taught)]
    sections += [Section("How it behaves", clips=tuple(clips))] if clips else []
    sections += [_learning(others, curves)] if curves else []
    sections += [_reward({"learned": reward, **(controls or {})}, reward_figures)]
    beside = " · ".join(f"{name}\u00a0{number(mean)}" for name, mean in others.items())
    decided = f"{_percent_range(reward.interval)} with 95 % confidence"
    known = (
        Fact("Return", number(policies[taught].mean), beside),
        Fact("Held-out accuracy", percent(reward.accuracy), decided),
    )
    return Report(title, lead, (*known, *facts), tuple(sections), details or {})


def number(value: float, digits: int | None = None) -> str:
    """A number with a true minus sign; three digits or more, or `digits` after the point.

    >>> number(-1234.5), number(12.34), number(0.5), number(0.5, 1)
    ('−1,234', '12.3', '0.50', '0.5')
    """
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}".replace("-", "−")


def decimal(value: float | None) -> str:
    """Three digits after the point, or `MISSING`."""
    return MISSING if value is None else number(value, 3)


def percent(value: float | None, digits: int = 0) -> str:
    """A share in [0, 1] as percent, or `MISSING`."""
    return MISSING if value is None else f"{100 * value:.{digits}f} %"


def _percent_range(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f} %"


def reward_figure(reward: RewardFunction, episode: Episodes, alt: str, caption: str) -> Figure:
    """Draw the scaled learned reward of each step of a single episode beside the true one."""
    rewards = reward.member_rewards(episode)
    scaled = rewards if reward.scaler is None else reward.scaler(rewards)
    return Figure(plots.reward_over_clip(scaled, episode.rewards), alt, caption)


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


def rewards_table(
    caption: str,
    rewards: Mapping[str, RewardReport],
    columns: Mapping[str, Callable[[RewardReport], str]],
) -> ReportTable:
    """A row for each reward, the learned one first; `columns` are heads to formats of cells."""
    rows = ((name, *(cell(one) for cell in columns.values())) for name, one in rewards.items())
    return ReportTable(caption, ("reward", *columns), tuple(rows), 0)


def _behaviour(policies: Mapping[str, PolicyReport], taught: str) -> Section:
    rows = tuple(
        (
            name,
            number(report.mean),
            f"{number(report.interval[0])} to {number(report.interval[1])}",
            *(number(value) for value in (report.median, report.std, report.lengths.mean())),
            str(report.episodes),
        )
        for name, report in policies.items()
    )
    heads = ("policy", "mean", "95 % interval", "median", "deviation", "steps", "episodes")
    means = ", ".join(f"{name} {number(report.mean)}" for name, report in policies.items())
    returns = {name: report.returns for name, report in policies.items()}
    drawing = Figure(
        plots.episode_returns(returns, emphasis=taught),
        f"Returns of single episodes by policy. Means: {means}.",
        "Each dot is an episode; the upright mark is the mean, the bar its 95 % interval.",
    )
    caption, text = "Returns of whole episodes", "Evaluated by the environment's own reward."
    table = ReportTable(caption, heads, rows, list(policies).index(taught))
    return Section("What the policy earns", (text,), tables=(table,), figures=(drawing,))


def _learning(references: Mapping[str, float], curves: Sequence[plots.Curve]) -> Section:
    names = " and ".join(curve.label for curve in curves)
    lines = ", ".join(f"{name} at {number(height)}" for name, height in references.items())
    drawing = Figure(
        plots.learning_curves(curves, references=references),
        f"Return over environment steps of {names}; dashed lines: {lines or 'none'}.",
        "Return while learning; dashed lines are the other policies' means.",
    )
    return Section("How it learned", figures=(drawing,))


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
    known = {name: r for name, r in reports.items() if r.accuracy is not None}
    if not known:
        return ()
    shares = {name: (report.accuracy or 0.0, report.interval) for name, report in known.items()}
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


@torch.inference_mode()
def preference_attention(
    reward: RewardFunction, episodes: Episodes, rows: slice
) -> FloatArray | None:
    """Preference attention of a reward in the segment at `rows`, at most as long as its context.

    It is `[L, L]`, the share of each step (row) that goes to each (column), as a mean over members.
    The means of its columns are the shares of steps in the score. None unless the reward is a
    `PreferenceTransformer` with that head, or an ensemble of such.
    """
    model = reward.model.eval()
    parts = [
        part
        for part in (model.models if isinstance(model, Ensemble) else [model])
        if isinstance(part, PreferenceTransformer) and part.config.head == "preference"
    ]
    if not parts:
        return None
    features = model.encoder(
        to_tensors(take(episodes.observations, rows), model.device),
        to_tensor(episodes.actions[rows], model.device),
    )[None]
    mask = torch.ones(features.shape[:2], dtype=torch.bool, device=model.device)
    maps = [part.attention(features, mask).preference for part in parts]
    return np.asarray(torch.cat([one for one in maps if one is not None]).mean(0).cpu().numpy())


def best_window(rewards: FloatArray, length: int) -> slice:
    """The `length` steps in a row with the highest sum; all steps if there are no more."""
    windows = np.lib.stride_tricks.sliding_window_view(rewards, min(length, len(rewards)))
    first = int(windows.sum(1, dtype=np.float64).argmax())
    return slice(first, first + windows.shape[1])
