"""Charts of runs and rewards, as SVG for a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import MaxNLocator, PercentFormatter

from preferl.errors import DataError
from preferl.evaluation.drawing import (
    HALF,
    INK,
    MUTED,
    SERIES,
    STYLE,
    WIDE,
    canvas,
    colours,
    counted,
    legend,
    thousands,
    to_svg,
)
from preferl.evaluation.reward_report import Calibration
from preferl.shapes import Array, FloatArray
from preferl.statistics import bootstrap_interval, wilson_interval


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """One line of learning curves, of one run or several.

    Attributes:
        label: what it is called in the legend.
        steps: `[n]` environment steps.
        values: `[n]`, or `[runs, n]` of which the mean is drawn over the thin lines of the runs.
            NaN leaves a gap.
    """

    label: str
    steps: Array
    values: FloatArray


@final
@dataclass(frozen=True)
class Share:
    """A share in [0, 1] and the interval around it."""

    label: str
    value: float
    interval: tuple[float, float]


def learning_curves(
    curves: Sequence[Curve],
    *,
    references: Mapping[str, float] | None = None,
    x_label: str = "environment steps",
    y_label: str = "return",
) -> str:
    """Returns over steps, with dashed lines for what bounds them, such as random and oracle.

    Args:
        curves: at least one.
        references: names to heights of dashed lines.
        x_label: with the unit.
        y_label: with the unit.

    Raises:
        DataError: no curve, or steps and values of different length.
    """
    _require_some("curves", curves)
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(WIDE, 300)
        for curve, colour in zip(curves, colours(len(curves)), strict=True):
            _draw_curve(axes, curve, colour)
        axes.margins(x=0.01)
        steps = np.unique(np.concatenate([curve.steps for curve in curves]))
        if len(steps) == 1:  # there is no width to divide
            axes.set_xlim(steps[0] - 1, steps[0] + 1)
        _references(axes, references or {})
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.xaxis.set_major_formatter(counted)
        # There is no epoch 2.5, but a return asked for may lie anywhere.
        whole = all(np.equal(np.rint(curve.steps), curve.steps).all() for curve in curves)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=whole))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(thousands)
        if len(curves) > 1:
            legend(axes)
        return to_svg(figure)


def reward_over_clip(learned: FloatArray, true: FloatArray | None = None) -> str:
    """The reward of each step of a clip, the members' range around it, and the true reward.

    A learned reward has no unit, so the true one is moved and stretched to its mean and deviation.

    Args:
        learned: `[L]`, or `[E, L]` of which the mean is drawn.
        true: `[L]` or None.

    Raises:
        DataError: lengths that do not agree.
    """
    members = np.atleast_2d(np.asarray(learned, np.float64))
    mean, steps = members.mean(0), np.arange(members.shape[1])
    if true is not None and np.shape(true) != mean.shape:
        raise DataError.mismatch("true reward", expected=mean.shape, got=np.shape(true))
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(WIDE, 250)
        if len(members) > 1:
            low, high = members.min(0), members.max(0)
            axes.fill_between(steps, low, high, color=SERIES[0], alpha=0.18, linewidth=0)
        several = f" (range of {len(members)} members)" if len(members) > 1 else ""
        axes.plot(steps, mean, color=SERIES[0], label=f"learned{several}")
        if true is not None:
            scaled = _like(np.asarray(true, np.float64), mean)
            axes.plot(steps, scaled, color=SERIES[1], linewidth=1.75, label="true (scaled)")
        axes.margins(x=0.01)
        axes.set(xlabel="step of the clip", ylabel="reward")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        legend(axes)
        return to_svg(figure)


def calibration_diagram(calibration: Calibration) -> str:
    """What was predicted against what was observed; larger dots stand for more answers.

    On the dashed line, clips said to be preferred with 80 % are preferred eight times in ten.
    """
    predicted, observed = np.array(calibration.predicted), np.array(calibration.observed)
    count = np.array(calibration.count, float)
    intervals = [wilson_interval(o * n, int(n)) for o, n in zip(observed, count, strict=True)]
    low, high = np.array(intervals).reshape(-1, 2).T
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(HALF, 380)
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1.25, linestyle=(0, (4, 4)))
        axes.vlines(predicted, low, high, color=SERIES[0], alpha=0.45, linewidth=2)
        area = 30 + 170 * count / max(1.0, count.max(initial=0))
        axes.scatter(predicted, observed, area, color=SERIES[0], linewidths=0, zorder=3)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        axes.set(xlabel="predicted preference for the first clip", ylabel="observed")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1, symbol=" %"))
            axis.set_major_locator(MaxNLocator(4, steps=[2.5, 5, 10]))
        return to_svg(figure)


def accuracy_bars(shares: Sequence[Share], *, chance: float | None = 0.5) -> str:
    """Accuracies as bars with their intervals; the first is what the figure is about.

    Args:
        shares: at least one, drawn from top to bottom.
        chance: where the dashed line is; None for none.

    Raises:
        DataError: nothing to draw.
    """
    _require_some("accuracies", shares)
    rows = np.arange(len(shares))
    values = np.array([share.value for share in shares])
    low, high = np.array([share.interval for share in shares]).T
    with matplotlib.rc_context(STYLE):
        places = max(4, len(shares))
        figure, axes = canvas(HALF, max(380, 78 + 48 * places))
        colours = [SERIES[0], *[MUTED] * (len(shares) - 1)]
        axes.barh(rows, values, height=0.42, color=colours, alpha=0.32, linewidth=0)
        axes.hlines(rows, low, high, color=colours, linewidth=2)
        axes.scatter(values, rows, 42, color=colours, linewidths=0, zorder=3)
        for row, share in enumerate(shares):
            place, text = share.interval[1] + 0.03, f"{100 * share.value:.0f} %"
            axes.text(place, row, text, va="center", ha="left", color=INK, fontsize=13)
        if chance is not None:
            axes.axvline(chance, color=MUTED, linewidth=1.25, linestyle=(0, (4, 4)), zorder=1)
        axes.set(xlim=(0, 1.2), ylim=(places - 0.5, -0.5))
        axes.set_yticks(rows, [share.label for share in shares], color=INK)
        axes.spines.bottom.set_visible(False)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        axes.grid(visible=False, axis="y")
        return to_svg(figure)


def episode_returns(
    returns: Mapping[str, FloatArray], *, emphasis: str | None = None, x_label: str = "return"
) -> str:
    """Each episode a dot, with the mean of each policy and its 95 % interval.

    Args:
        returns: names of policies to `[K]` returns, drawn from top to bottom.
        emphasis: the policy that the figure is about; the others are grey.
        x_label: with the unit.

    Raises:
        DataError: nothing to draw.
    """
    _require_some("returns", returns)
    rng = np.random.default_rng(0)

    def draw(axes: Axes, row: int, values: FloatArray, colour: str) -> None:
        scatter = row + rng.uniform(-0.2, 0.2, len(values))
        axes.scatter(values, scatter, 26, color=colour, alpha=0.4, linewidths=0)
        axes.hlines(row, *bootstrap_interval(values, rng), color=colour, linewidth=7, alpha=0.35)

    return _rows(returns, draw, 54, emphasis, x_label)


def arm_scores(
    scores: Mapping[str, FloatArray], *, emphasis: str | None = None, x_label: str = "return"
) -> str:
    """Each seed a dot, with the mean of each arm of an experiment.

    Args:
        scores: names of arms to `[S]` scores, drawn from top to bottom.
        emphasis: the arm that the figure is about; the others are grey.
        x_label: with the unit.

    Raises:
        DataError: nothing to draw.
    """
    _require_some("scores", scores)

    def draw(axes: Axes, row: int, values: FloatArray, colour: str) -> None:
        axes.hlines(row, values.min(), values.max(), color=colour, linewidth=7, alpha=0.2)
        axes.scatter(values, np.full(len(values), row), 40, color=colour, alpha=0.6, lw=0)

    return _rows(scores, draw, 40, emphasis, x_label)


def _rows(
    named: Mapping[str, FloatArray],
    draw: Callable[[Axes, int, FloatArray, str], None],
    height: int,
    emphasis: str | None,
    x_label: str,
) -> str:
    """A row of `height` pixels for each name, with a mark at the mean of its values."""
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(WIDE, 76 + height * len(named))
        for row, (name, values) in enumerate(named.items()):
            colour = SERIES[0] if name == emphasis else MUTED
            draw(axes, row, values, colour)
            axes.vlines(values.mean(), row - 0.3, row + 0.3, color=colour, linewidth=3)
        axes.set_yticks(np.arange(len(named)), list(named), color=INK)
        axes.set_ylim(len(named) - 0.5, -0.5)
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(thousands)
        axes.grid(visible=False, axis="y")
        return to_svg(figure)


def attention_map(attention: FloatArray) -> str:
    """Where each step of a segment looks: rows that ask, columns that are seen, darker for more.

    Args:
        attention: `[L, L]` shares, each row of which sums to 1.

    Raises:
        DataError: not a square.
    """
    shares = _shares("attention", attention, 2)
    if shares.shape[0] != shares.shape[1]:
        raise DataError.mismatch("attention", expected="a square [L, L]", got=shares.shape)
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(HALF, 380)
        picture = np.empty((*shares.shape, 4))  # none is transparent
        picture[..., :3], picture[..., 3] = to_rgb(SERIES[0]), shares / (shares.max() or 1.0)
        axes.imshow(picture, interpolation="nearest", aspect="equal", origin="upper")
        axes.set(xlabel="step that is looked at", ylabel="step that looks")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(visible=False)
        return to_svg(figure)


def importance_bar(weights: FloatArray, *, offset: int = 0) -> str:
    """What share of a segment's score each step has, as a bar to put under its clip.

    Args:
        weights: `[L]` shares that sum to 1; the dashed line is an equal share.
        offset: number of the first step.

    Raises:
        DataError: no axis of steps, or no steps.
    """
    shares = _shares("importance weights", weights, 1)
    steps = offset + np.arange(len(shares))
    with matplotlib.rc_context(STYLE):
        figure, axes = canvas(WIDE, 170)
        axes.bar(steps, shares, width=1.0, color=SERIES[0], alpha=0.7, linewidth=0)
        axes.axhline(1 / len(shares), color=MUTED, linewidth=1.25, linestyle=(0, (4, 4)))
        axes.set(xlabel="step of the clip", ylabel="importance")
        axes.set_xlim(steps[0] - 0.5, steps[-1] + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1, symbol=" %"))
        axes.grid(visible=False, axis="x")
        return to_svg(figure)


def _shares(name: str, values: FloatArray, axes: int) -> FloatArray:
    shares = np.asarray(values, np.float64)
    if shares.ndim != axes or not shares.size:
        raise DataError.mismatch(name, expected=f"{axes} axes with steps", got=shares.shape)
    return shares


def _draw_curve(axes: Axes, curve: Curve, colour: str) -> None:
    runs = np.atleast_2d(np.asarray(curve.values, np.float64))
    if runs.shape[1] != len(curve.steps):
        raise DataError.mismatch(
            f"curve {curve.label!r}",
            expected=f"{len(curve.steps)} values, one per step",
            got=runs.shape[1],
        )
    mark = "o" if len(curve.steps) == 1 else None  # a line through one point is not seen
    if len(runs) > 1:
        axes.plot(curve.steps, runs.T, color=colour, linewidth=1, alpha=0.4, marker=mark, ms=3)
    axes.plot(curve.steps, runs.mean(0), color=colour, label=curve.label, marker=mark)


def _references(axes: Axes, references: Mapping[str, float]) -> None:
    """Dashed lines with their names to the right, moved apart where they would overlap."""
    for height in references.values():
        axes.axhline(height, color=MUTED, linewidth=1.25, linestyle=(0, (4, 4)))
    low, high = axes.get_ylim()
    place = -np.inf
    for name, height in sorted(references.items(), key=lambda item: item[1]):
        place = max((height - low) / (high - low), place + 0.065)
        axes.annotate(
            name,
            (1, place),
            xycoords="axes fraction",
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=MUTED,
        )
    axes.set_ylim(low, high)


def _require_some(what: str, things: Sequence[object] | Mapping[str, object]) -> None:
    if not things:
        raise DataError(f"There are no {what} to draw. Pass at least one.")


def _like(values: FloatArray, model: FloatArray) -> FloatArray:
    deviation = values.std() or 1.0
    return np.asarray((values - values.mean()) / deviation * model.std() + model.mean())
