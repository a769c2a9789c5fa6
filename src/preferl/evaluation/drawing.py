"""How figures look, and figures as SVG that sits inside a page and takes on its colours and font.

Every colour is written as `var(--plot-..., fallback)`: alone a figure looks right on white, and on
a page that defines the variables it follows light and dark. The series colours are those of Okabe
and Ito (2008), which people with any colour vision can tell apart. Each figure is as wide as its
number of pixels at full size, so that text is read at 13 px.
"""

import io
import re
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, GRID = "#24292f", "#667080", "#e3e6ea"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Blue, vermilion, green, pink, sky blue, orange; a seventh series begins again."""

VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid"} | {
    colour: f"series-{number}" for number, colour in enumerate(SERIES, start=1)
}

WIDE, HALF = 620, 400
"""Widths in pixels: one figure to a row, or two."""

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 13,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.linewidth": 1,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.labelpad": 7,
    "grid.color": GRID,
    "grid.linewidth": 1,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 7,
    "ytick.major.pad": 7,
    "lines.linewidth": 2.25,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.handlelength": 1.2,
    "legend.borderaxespad": 0,
    "legend.columnspacing": 1.6,
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.04,
    "figure.constrained_layout.w_pad": 0.04,
}


def canvas(width: int, height: int) -> tuple[Figure, Axes]:
    """A figure of so many pixels, and what is drawn on."""
    figure = Figure(figsize=(width / 72, height / 72), facecolor="none")
    axes = figure.subplots()
    axes.set_facecolor("none")
    return figure, axes


def colours(count: int) -> list[str]:
    """So many colours, in order."""
    return [SERIES[i % len(SERIES)] for i in range(count)]


def thousands(value: float, position: float | None = None) -> str:
    """Numbers on an axis, with a true minus sign."""
    del position
    return f"{value:,g}".replace("-", "−")


def counted(value: float, position: float | None = None) -> str:
    """Counts on an axis: thousands as k, millions as M.

    >>> counted(0.5), counted(20_000), counted(-1_500_000)
    ('0.5', '20k', '−1.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return thousands(value / size, position) + letter
    return thousands(value, position)


def legend(axes: Axes) -> None:
    """The legend, above the figure."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.03), ncols=4, labelcolor=INK)


def to_svg(figure: Figure) -> str:
    """The figure without what only a file of its own needs, and with names for its colours."""
    file = io.StringIO()
    # Marks are named by a hash of their drawing, so equal names on one page are equal marks.
    with matplotlib.rc_context({"svg.hashsalt": "preferl"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    svg = re.sub(r'width="([\d.]+)pt" height="[\d.]+pt"', _root_attributes, svg, count=1)
    for colour, name in VARIABLES.items():
        svg = svg.replace(colour, f"var(--plot-{name}, {colour})")
    return svg.strip()


def _root_attributes(match: re.Match[str]) -> str:
    width = float(match[1])
    return (
        f'style="width: 100%; max-width: {1.2 * width:g}px; height: auto; font-family: system-ui, '
        'sans-serif" stroke-linejoin="round" aria-hidden="true"'
    )
