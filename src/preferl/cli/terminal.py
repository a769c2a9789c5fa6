"""Clips in a terminal, drawn with characters."""

import time

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.live import Live
from rich.panel import Panel

from preferl.shapes import FloatArray

WIDTH, HEIGHT = 25, 11
FRAMES_PER_SECOND = 20


def play_pendulums(observations: FloatArray, console: Console | None = None) -> None:
    """Play two pendulums at once, and leave their last frames with their paths.

    Args:
        observations: `[2, L, 3]` cosine and sine of the angle (0 is upright) and speed.
        console: where to draw; standard output if None.
    """
    console = console or Console()
    frames = range(0, observations.shape[1], 1)
    if not console.is_terminal:
        console.print(_pair(observations, observations.shape[1] - 1))
        return
    with Live(console=console, refresh_per_second=FRAMES_PER_SECOND) as live:
        for frame in frames:
            live.update(_pair(observations, frame))
            time.sleep(1 / FRAMES_PER_SECOND)


def _pair(observations: FloatArray, frame: int) -> Columns:
    return Columns(
        [
            Panel(draw_pendulum(clip, frame), title=side, width=WIDTH + 4)
            for side, clip in zip(("left", "right"), observations, strict=True)
        ]
    )


def draw_pendulum(clip: FloatArray, frame: int) -> str:
    """One frame as text: the rod, and dots where its tip has been.

    >>> lines = draw_pendulum(np.array([[1.0, 0.0, 0.0]]), 0).splitlines()
    >>> "●" in lines[0], len(lines) == HEIGHT
    (True, True)
    """
    canvas = np.full((HEIGHT, WIDTH), " ")
    tips = clip[max(0, frame - 12) : frame, :2]
    canvas[_cells(tips)] = "·"
    rod = np.linspace(0.2, 0.9, 8)[:, None] * clip[frame, :2]
    canvas[_cells(rod)] = "•"
    canvas[_cells(np.zeros((1, 2)))] = "+"
    canvas[_cells(clip[frame : frame + 1, :2])] = "●"
    return "\n".join("".join(row) for row in canvas)


def _cells(points: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of `[n, 2]` points, cosine up and sine to the left as gymnasium draws."""
    row = np.rint((1 - points[:, 0]) / 2 * (HEIGHT - 1)).astype(int)
    column = np.rint((1 - points[:, 1]) / 2 * (WIDTH - 1)).astype(int)
    return row, column
