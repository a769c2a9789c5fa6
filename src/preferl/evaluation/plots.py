"""Charts of runs and rewards, as SVG inside a page, with the page's colours and font.

Every colour is written as `var(--plot-..., fallback)`. By itself, a figure looks right on white. On
a page that defines the variables, it follows the light or dark theme. The series have the colours
of Okabe and Ito (2008), which people with any colour vision can tell apart. At full size, each
figure is as wide as its number of pixels, and its text is 13 px high.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast, final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from preferl.errors import DataError
from preferl.evaluation.reward_report import Calibration
from preferl.shapes import Array, FloatArray
from preferl.statistics import bootstrap_interval, wilson_interval

INK = "#24292f"
MUTED = "#667080"
GRID = "#e3e6ea"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Blue, vermilion, green, pink, sky blue, orange. A seventh series is blue again, but dotted."""

VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid"} | {
    colour: f"series-{number}" for number, colour in enumerate(SERIES, start=1)
}

WIDE = 620
HALF = 400
"""Widths in pixels, for one figure or two in a row."""

DASHED: Final[Mapping[str, Any]] = {
    "color": MUTED, "linewidth": 1.25, "linestyle": (0, (4, 4)),
}  # fmt: skip

DOTTED: Final[tuple[float, tuple[float, float]]] = (0, (1.2, 1.2))

STYLE: Any = {
    "font.family": "sans-serif", "font.size": 13, "text.color": INK, "text.parse_math": False,
    "axes.labelcolor": MUTED, "axes.edgecolor": GRID, "axes.facecolor": "none",
    "axes.linewidth": 1, "axes.grid": True, "axes.axisbelow": True, "axes.labelpad": 7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "grid.color": GRID, "grid.linewidth": 1,
    "xtick.color": MUTED, "xtick.major.size": 0, "xtick.major.pad": 7,
    "ytick.color": MUTED, "ytick.major.size": 0, "ytick.major.pad": 7,
    "lines.linewidth": 2.25, "lines.solid_capstyle": "round",
    "legend.frameon": False, "legend.handlelength": 1.2,
    "legend.borderaxespad": 0, "legend.columnspacing": 1.6,
    "svg.fonttype": "none", "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.04, "figure.constrained_layout.w_pad": 0.04,
}  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """One line of learning curves, of one run or several.

    Attributes:
        label: name in the legend.
        steps: `[n]` environment steps.
        values: `[n]`, or `[runs, n]` for thin lines below their mean. NaN leaves a gap.
        interval: `[2, n]` ends of a band around the mean, such as a 95 % interval; None for no
            band.
    """

    label: str
    steps: Array
    values: FloatArray
    interval: FloatArray | None = None


def learning_curves(
    curves: Sequence[Curve],
    *,
    references: Mapping[str, float] | None = None,
    x_label: str = "environment steps",
    y_label: str = "return",
) -> str:
    """Draw returns over steps, with dashed lines at `references`, such as random and oracle.

    The band of two or three runs may be much wider than their distance. It is then cut off, so that
    the lines stay distinct.
    """
    _require_some("curves", curves)
    with _canvas(WIDE, 300, x_label, y_label) as axes:
        for number, curve in enumerate(curves):
            again, colour = divmod(number, len(SERIES))
            _draw_curve(axes, curve, SERIES[colour], DOTTED if again else "-")
        axes.margins(x=0.01)
        if any(curve.interval is not None for curve in curves):
            seen = np.concatenate([*map(_in_view, curves), [*(references or {}).values()]])
            axes.update_datalim([(curves[0].steps[0], height) for height in seen])
            axes.autoscale_view()
        steps = np.unique(np.concatenate([curve.steps for curve in curves]))
        if len(steps) == 1:  # there is no width to divide
            axes.set_xlim(steps[0] - 1, steps[0] + 1)
        _draw_references(axes, references or {})
        # There is no epoch 2.5, but a target return may be any number.
        _ticks(axes.xaxis, 6, _counted, integer=bool(np.equal(np.rint(steps), steps).all()))
        _ticks(axes.yaxis, 5, _thousands)
        if len(curves) > 1:
            _legend(axes)
        return _svg(axes)


def reward_over_clip(learned: FloatArray, true: FloatArray | None = None) -> str:
    """Draw the reward of each step of a clip, the range of the members, and the true reward.

    The line is the mean of the `[E, L]` learned rewards. Since these have no unit, the true reward
    `[L]` is shifted and scaled to their mean and deviation.
    """
    members = np.atleast_2d(np.asarray(learned, np.float64))
    mean = members.mean(0)
    steps = np.arange(members.shape[1])
    with _canvas(WIDE, 250, "step", "reward") as axes:
        label = "learned"
        if len(members) > 1:
            low = members.min(0)
            high = members.max(0)
            axes.fill_between(steps, low, high, color=SERIES[0], alpha=0.18, linewidth=0)
            label = f"learned (range of {len(members)} members)"
        axes.plot(steps, mean, color=SERIES[0], label=label)
        if true is not None:
            values = np.asarray(true, np.float64)
            if values.shape != mean.shape:
                raise DataError(f"true reward: expected {mean.shape}, got {values.shape}.")
            scaled = (values - values.mean()) / (values.std() or 1.0) * mean.std() + mean.mean()
            axes.plot(steps, scaled, color=SERIES[1], linewidth=1.75, label="true reward (scaled)")
        axes.margins(x=0.01)
        _ticks(axes.xaxis, 6, integer=True)
        _ticks(axes.yaxis, 4)
        _legend(axes)
        return _svg(axes)


def calibration_diagram(calibration: Calibration) -> str:
    """Draw observed against predicted preferences; larger dots stand for more answers.

    On the dashed line, a clip that is predicted to be preferred with 80 % is preferred in 80 % of
    answers.
    """
    predicted = np.array(calibration.predicted)
    observed = np.array(calibration.observed)
    count = np.array(calibration.count, float)
    intervals = [wilson_interval(o * n, int(n)) for o, n in zip(observed, count, strict=True)]
    low, high = np.array(intervals).reshape(-1, 2).T
    with _canvas(HALF, 380, "predicted preference for the first clip", "observed") as axes:
        axes.plot([0, 1], [0, 1], **DASHED)
        axes.vlines(predicted, low, high, color=SERIES[0], alpha=0.45, linewidth=2)
        area = 30 + 170 * count / max(1.0, count.max(initial=0))
        axes.scatter(predicted, observed, area, color=SERIES[0], linewidths=0, zorder=3)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        for axis in (axes.xaxis, axes.yaxis):
            _ticks(axis, 4, PercentFormatter(1, symbol=" %"), steps=[2.5, 5, 10])
        return _svg(axes)


def accuracy_bars(
    shares: Mapping[str, tuple[float, tuple[float, float]]], *, alone: bool = False
) -> str:
    """Draw accuracies as bars with intervals. The first bar is emphasised, and chance is dashed.

    The drawing is as high as the calibration diagram, unless it is the only one (`alone`).
    """
    _require_some("accuracies", shares)
    places = len(shares) if alone else max(4, len(shares))
    with _canvas(HALF, max(0 if alone else 380, 78 + 48 * places)) as axes:
        for row, (value, (low, high)) in enumerate(shares.values()):
            colour = MUTED if row else SERIES[0]
            axes.barh(row, value, height=0.42, color=colour, alpha=0.32, linewidth=0)
            axes.hlines(row, low, high, color=colour, linewidth=2)
            axes.scatter(value, row, 42, color=colour, linewidths=0, zorder=3)
            text = f"{100 * value:.0f} %"
            axes.text(1.19, row, text, va="center", ha="right", color=INK, fontsize=13)
        axes.axvline(0.5, **DASHED, zorder=1)
        axes.set(xlim=(0, 1.2), ylim=(places - 0.5, -0.5))
        axes.set_yticks(np.arange(len(shares)), list(shares), color=INK)
        axes.spines.bottom.set_visible(False)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        axes.grid(visible=False, axis="y")
        return _svg(axes)


def episode_returns(returns: Mapping[str, FloatArray], *, emphasis: str | None = None) -> str:
    """Draw the `[K]` episodes of each policy as dots, with their mean and its 95 % interval."""
    rng = np.random.default_rng(0)

    def draw(axes: Axes, row: int, values: FloatArray, colour: str) -> None:
        scatter = row + rng.uniform(-0.2, 0.2, len(values))
        axes.scatter(values, scatter, 26, color=colour, alpha=0.4, linewidths=0)
        axes.hlines(row, *bootstrap_interval(values, rng), color=colour, linewidth=7, alpha=0.35)

    return _draw_rows("returns", returns, draw, 54, emphasis)


def condition_scores(
    scores: Mapping[str, FloatArray], *, emphasis: str | None = None, x_label: str = "return"
) -> str:
    """Draw each of the `[S]` seeds of a condition as a dot, with their mean."""

    def draw(axes: Axes, row: int, values: FloatArray, colour: str) -> None:
        axes.hlines(row, values.min(), values.max(), color=colour, linewidth=7, alpha=0.2)
        axes.scatter(values, np.full(len(values), row), 40, color=colour, alpha=0.6, lw=0)

    return _draw_rows("scores", scores, draw, 40, emphasis, x_label)


def _draw_rows(
    what: str,
    named: Mapping[str, FloatArray],
    draw: Callable[[Axes, int, FloatArray, str], None],
    height: int,
    emphasis: str | None,
    x_label: str = "return",
) -> str:
    """Draw rows of `height` pixels with a mark at each mean; all except `emphasis` are grey."""
    _require_some(what, named)
    with _canvas(HALF, 76 + height * len(named), x_label) as axes:  # a phone shows all of it
        for row, (name, values) in enumerate(named.items()):
            colour = SERIES[0] if name == emphasis else MUTED
            draw(axes, row, values, colour)
            axes.vlines(values.mean(), row - 0.3, row + 0.3, color=colour, linewidth=3)
        axes.set_yticks(np.arange(len(named)), list(named), color=INK)
        axes.set_ylim(len(named) - 0.5, -0.5)
        _ticks(axes.xaxis, 4, _thousands)
        axes.grid(visible=False, axis="y")
        return _svg(axes)


def attention_map(attention: FloatArray) -> str:
    """Draw the `[L, L]` shares of attention from steps (rows) to steps (columns); dark is more."""
    shares = np.asarray(attention, np.float64)
    if shares.ndim != 2 or shares.shape[0] != shares.shape[1] or not shares.size:
        raise DataError(f"attention: expected a square [L, L], got {shares.shape}.")
    with _canvas(HALF, 380, "step that is looked at", "step that looks") as axes:
        picture = np.empty((*shares.shape, 4))  # none is transparent
        picture[..., :3] = to_rgb(SERIES[0])
        picture[..., 3] = shares / (shares.max() or 1.0)
        axes.imshow(picture, interpolation="nearest", aspect="equal", origin="upper")
        _ticks(axes.xaxis, 5, integer=True)
        _ticks(axes.yaxis, 5, integer=True)
        axes.grid(visible=False)
        return _svg(axes)


def importance_bar(weights: FloatArray, *, offset: int = 0) -> str:
    """Draw the `[L]` shares of steps in a segment's score as bars. An equal share is dashed."""
    shares = np.asarray(weights, np.float64)
    if shares.ndim != 1 or not shares.size:
        raise DataError(f"importance weights: expected [L], got {shares.shape}.")
    steps = offset + np.arange(len(shares))
    with _canvas(WIDE, 170, "step of the clip", "importance") as axes:
        axes.bar(steps, shares, width=1.0, color=SERIES[0], alpha=0.7, linewidth=0)
        axes.axhline(1 / len(shares), **DASHED)
        axes.set_xlim(steps[0] - 0.5, steps[-1] + 0.5)
        _ticks(axes.xaxis, 6, integer=True)
        _ticks(axes.yaxis, 3, PercentFormatter(1, decimals=1, symbol=" %"))
        axes.grid(visible=False, axis="x")
        return _svg(axes)


def _draw_curve(axes: Axes, curve: Curve, colour: str, line: Any) -> None:
    runs = np.atleast_2d(np.asarray(curve.values, np.float64))
    if runs.shape[1] != len(curve.steps):
        raise DataError(
            f"curve {curve.label!r}: expected {len(curve.steps)} values, one per step, got "
            f"{runs.shape[1]}."
        )
    mark = "o" if len(curve.steps) == 1 else None  # otherwise a single point would not be seen
    if len(runs) > 1:
        axes.plot(curve.steps, runs.T, color=colour, linewidth=1, alpha=0.4, marker=mark, ms=3)
    if curve.interval is not None:
        before = axes.dataLim.frozen()
        axes.fill_between(curve.steps, *curve.interval, color=colour, alpha=0.18, linewidth=0)
        axes.dataLim.set(before)  # `_in_view` decides how much of the band is visible
    mean = runs.mean(0)
    # matplotlib leaves names that begin with a low line out of legends.
    label = f"\u200b{curve.label}" if curve.label.startswith("_") else curve.label
    axes.plot(curve.steps, mean, color=colour, linestyle=line, label=label, marker=mark)


def _in_view(curve: Curve) -> FloatArray:
    """Return the heights of a curve to show: of its lines, and of its band if not too wide."""
    runs = np.atleast_2d(np.asarray(curve.values, np.float64))
    lines = runs[np.isfinite(runs)]
    if curve.interval is None or not len(lines):
        return lines
    band = curve.interval[np.isfinite(curve.interval)]
    room = np.ptp(lines) if len(runs) > 1 else np.inf
    return np.append(lines, band.clip(lines.min() - room, lines.max() + room))


def _draw_references(axes: Axes, references: Mapping[str, float]) -> None:
    """Draw dashed lines with names on the right, which are moved apart if they would overlap."""
    for height in references.values():
        axes.axhline(height, **DASHED)
    low, high = axes.get_ylim()
    place = -np.inf
    offset = {"xytext": (8, 0), "textcoords": "offset points"}
    for name, height in sorted(references.items(), key=lambda item: item[1]):
        place = max((height - low) / (high - low), place + 0.065)
        where: dict[str, Any] = offset | {"xycoords": "axes fraction", "va": "center"}
        axes.annotate(name, (1, place), color=MUTED, **where)
    axes.set_ylim(low, high)


def _require_some(what: str, things: Sequence[object] | Mapping[str, object]) -> None:
    if not things:
        raise DataError(f"There are no {what} to draw. Pass at least one.")


def _ticks(axis: Axis, most: int, formatter: Any = None, **settings: Any) -> None:
    axis.set_major_locator(MaxNLocator(most, **settings))
    if formatter is not None:
        axis.set_major_formatter(formatter)


def _thousands(value: float, _position: float | None = None) -> str:
    """Format a number on an axis, with a true minus sign."""
    return f"{value:,g}".replace("-", "−")


def _counted(value: float, _position: float | None = None) -> str:
    """Format a count on an axis: thousands as k, millions as M.

    >>> _counted(0.5), _counted(20_000), _counted(-1_500_000)
    ('0.5', '20k', '−1.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return _thousands(value / size) + letter
    return _thousands(value)


def _legend(axes: Axes) -> None:
    """Draw the legend above the axes, in as many columns as fit, at most four."""
    for columns in (4, 3, 2, 1):
        placement: dict[str, Any] = {
            "bbox_to_anchor": (0, 1.03),
            "ncols": columns,
            "labelcolor": INK,
        }
        legend = axes.legend(loc="lower left", **placement)
        if legend.get_window_extent().x1 <= axes.figure.bbox.x1:
            return


@contextmanager
def _canvas(width: int, height: int, x_label: str = "", y_label: str = "") -> Iterator[Axes]:
    """Yield axes on a figure of `width` by `height` pixels, in our style for the block."""
    with matplotlib.rc_context(STYLE):
        axes = Figure(figsize=(width / 72, height / 72), facecolor="none").subplots()
        axes.set(xlabel=x_label, ylabel=y_label)
        yield axes


def _svg(axes: Axes) -> str:
    """Return the figure as SVG for a page, without a file header, and with variable colours."""
    file = io.StringIO()
    figure = cast("Figure", axes.figure)
    # The id of a mark is a hash of its drawing, so marks with equal ids on a page are the same.
    with matplotlib.rc_context({"svg.hashsalt": "preferl"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    unwanted = r"<metadata>.*?</metadata>\s*|<style.*?</style>"
    svg = re.sub(unwanted, "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    root = (
        f'style="width: 100%; max-width: {1.2 * 72 * figure.get_figwidth():g}px; height: auto; '
        'font-family: system-ui, sans-serif" stroke-linejoin="round" aria-hidden="true"'
    )
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', root, svg, count=1)
    for colour, name in VARIABLES.items():
        svg = svg.replace(colour, f"var(--plot-{name}, {colour})")
    return svg.strip()
