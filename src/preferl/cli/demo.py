"""`preferl demo`: a short run, answered by a script, at the terminal or in a browser."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.live import Live
from rich.panel import Panel

from preferl.cli.online import OnlineRunConfig, learn
from preferl.configs import from_json
from preferl.online import OnlineConfig
from preferl.online.configs import EvaluationConfig
from preferl.presets import load_preset
from preferl.shapes import FloatArray

PEOPLE_ITERATIONS = 25  # short ones, since whoever is faster than usual waits for the end of one

QUESTION = "Which pendulum does better?"
INSTRUCTIONS = """\
The pendulum should swing up, and then stand still on its end.

- Upright and still is best.
- Where neither stands, the clip that comes closer to standing is better.
- Where both stand, the calmer one is.
- Compare what you see in the clips alone, not what may come after them.

Choose "Can't tell" where you would have to guess. The agent learns while you answer, so clips get
better."""

WIDTH = 25
HEIGHT = 11
FRAMES_PER_SECOND = 20


@dataclass(frozen=True)
class DemoConfig:
    """Teach a pendulum to stand from 40 comparisons, and write a report about it.

    Attributes:
        ask: ask you at the terminal instead of a script.
        people: ask you in your browser; the labels stay beside the run.
        browser: open the page; if off, only print its link.
        comparisons: number of queries; by default 40, which take a person three minutes.
        out: folder of the run; an older run there is moved away.
        seed: seed of everything.
        resume: continue the interrupted demo in `out`, with its labels.
        smoke: make a run of seconds, which shows every step and learns nothing.
    """

    ask: bool = False
    people: bool = False
    browser: bool = True
    comparisons: int | None = None
    out: Path = Path("runs/demo")
    seed: int = 0
    resume: bool = False
    smoke: bool = False


def demo(config: DemoConfig) -> None:
    """Teach the pendulum, compare it with random and true-reward agents, and write the report."""
    run = replace(from_json(OnlineConfig, load_preset("pendulum")), seed=config.seed)
    evaluation = EvaluationConfig()
    if config.people:
        run = replace(run, iterations=PEOPLE_ITERATIONS)
    if config.smoke:
        run = replace(run, steps=3_000, initial_steps=2_000, iterations=2, comparisons=20)
        evaluation = replace(evaluation, episodes=4, queries=40, clip_steps=40)
    if config.comparisons is not None:
        run = replace(run, comparisons=config.comparisons)
    settings = OnlineRunConfig(
        run=run,
        evaluation=evaluation,
        out=config.out,
        resume=config.resume,
        ask=config.ask,
        people=config.people,
        question=QUESTION,
        browser=config.browser,
    )
    learn(
        settings,
        title="Pendulum",
        instructions=INSTRUCTIONS,
        show=lambda clips, _: play_pendulums(np.asarray(clips.observations)),
        true_reward=pendulum_reward,
    )


def pendulum_reward(observations: Any, actions: Any, following: Any) -> Any:
    """Compute Pendulum-v1's own reward for `[B, 3]` observations and `[B, 1]` torques.

    >>> pendulum_reward(np.array([[1.0, 0.0, 0.0]]), np.array([[0.0]]), None).tolist()
    [-0.0]
    """
    del following
    cosine, sine, speed = observations.T
    angle = np.arctan2(sine, cosine)
    torque = np.clip(actions[:, 0], -2, 2)
    return -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)


def play_pendulums(observations: FloatArray) -> None:
    """Play two clips side by side.

    Their `[2, L, 3]` values are cosine and sine of the angle, and speed.
    """
    console = Console()

    def pair(frame: int) -> Columns:
        clips = zip(("left", "right"), observations, strict=True)
        return Columns(
            [Panel(draw_pendulum(clip, frame), title=side, width=WIDTH + 4) for side, clip in clips]
        )

    if not console.is_terminal:
        console.print(pair(observations.shape[1] - 1))
        return
    with Live(console=console, refresh_per_second=FRAMES_PER_SECOND) as live:
        for frame in range(observations.shape[1]):
            live.update(pair(frame))
            time.sleep(1 / FRAMES_PER_SECOND)


def draw_pendulum(clip: FloatArray, frame: int) -> str:
    """Draw one frame as text: the rod, and dots where its tip has been.

    >>> lines = draw_pendulum(np.array([[1.0, 0.0, 0.0]]), 0).splitlines()
    >>> "●" in lines[0], len(lines) == HEIGHT
    (True, True)
    """
    tip = clip[frame, :2]  # cosine up and sine to the left, as gymnasium draws
    marks = {
        "·": clip[max(0, frame - 12) : frame, :2],
        "•": np.linspace(0.2, 0.9, 8)[:, None] * tip,
        "+": np.zeros((1, 2)),
        "●": tip[None],
    }
    canvas = np.full((HEIGHT, WIDTH), " ")
    for mark, points in marks.items():
        rows, columns = np.rint((1 - points) / 2 * (HEIGHT - 1, WIDTH - 1)).astype(int).T
        canvas[rows, columns] = mark
    return "\n".join("".join(row) for row in canvas)
