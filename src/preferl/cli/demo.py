"""`preferl demo`: the main job on embedded defaults, asking a script, the terminal or a browser."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.live import Live
from rich.panel import Panel

from preferl import store
from preferl.configs import from_json
from preferl.errors import ConfigError
from preferl.presets import load_preset
from preferl.runs import require_openable
from preferl.shapes import FloatArray

PEOPLE_COMPARISONS = 100  # what a person answers in about six minutes
PEOPLE_FPS = 15  # half the speed of the environment, since clips are half a second long

QUESTION = "Which pendulum does better?"
INSTRUCTIONS = """\
The pendulum should swing up, and then stand still on its end.

- Upright and still is best.
- Where neither stands, the clip that comes closer to standing is better.
- Where both stand, the calmer one is.
- Compare what you see in the clips alone, not what may come after them.

Choose "Can't tell" where you would have to guess. The agent continues to learn once all pairs of
a round are answered, so clips come in rounds, and get better."""

WIDTH, HEIGHT = 25, 11
FRAMES_PER_SECOND = 20


@dataclass(frozen=True)
class DemoConfig:
    """Teach a pendulum to stand from 200 comparisons, and write a report about it."""

    ask: bool = False  # ask you at the terminal instead of a script.
    people: bool = False  # ask you in your browser; the labels stay beside the run.
    browser: bool = True  # open the page; off prints its link only.
    comparisons: int | None = None  # number of queries; by default 200 to a script, 100 to people.
    out: Path = Path("runs/demo")  # folder of the run; an older run there moves aside.
    seed: int = 0  # of everything.
    smoke: bool = False  # a run of seconds that shows every step and learns nothing.


def demo(config: DemoConfig) -> None:
    """Learn, compare with random and true-reward agents, write the report."""
    if config.people and not config.ask:
        sys.stderr.write("preferl: Starting the page ...\n")  # what follows takes seconds
    from preferl.cli.online import run_with_progress
    from preferl.online import OnlineConfig
    from preferl.online.configs import EvaluationConfig

    if config.ask and config.people:
        raise ConfigError("Choose one of --ask, at the terminal, and --people, in a browser.")
    run = replace(from_json(OnlineConfig, load_preset("pendulum")), seed=config.seed)
    judge = EvaluationConfig()
    if config.people:
        run = replace(run, comparisons=PEOPLE_COMPARISONS)
    if config.smoke:
        run = replace(run, steps=8_192, initial_steps=2_000, iterations=2, comparisons=20)
        judge = replace(judge, episodes=4, questions=40, clip_steps=40)
    if config.comparisons is not None:
        run = replace(run, comparisons=config.comparisons)
    require_openable(config.out, resume=False)  # before people are asked
    with people_in_a_browser(config, run.comparisons) if config.people else nullcontext() as people:
        run_with_progress(
            run,
            judge,
            config.out,
            ask=config.ask,
            show=lambda clips, _: play_pendulums(np.asarray(clips.observations)),
            feedback=people,
            true_reward=pendulum_reward,
        )


def pendulum_reward(observations: Any, actions: Any, following: Any) -> Any:
    """Pendulum-v1's own reward of `[B, 3]` observations and `[B, 1]` torques, for the report alone.

    >>> pendulum_reward(np.array([[1.0, 0.0, 0.0]]), np.array([[0.0]]), None).tolist()
    [-0.0]
    """
    del following
    cosine, sine, speed = observations.T
    angle, torque = np.arctan2(sine, cosine), np.clip(actions[:, 0], -2, 2)
    return -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)


@contextmanager
def people_in_a_browser(config: DemoConfig, questions: int) -> "Iterator[store.StoredFeedback]":
    """Feedback of whoever answers on the page, which is open as long as the block runs.

    The labels are in a folder beside the run, where those of earlier runs stay; each run has a
    project of its own.
    """
    from preferl.online.service.supervisor import Supervisor, write_to_terminal
    from preferl.online.supervise import page_program

    folder = config.out.with_name(f"{config.out.name}-labels")
    with store.Store.open(folder) as labels:
        project = labels.projects.create(
            f"pendulum-{len(labels.projects.all()) + 1}",
            title="Pendulum",
            question=QUESTION,
            instructions=INSTRUCTIONS,
            fps=PEOPLE_FPS,
            budget=questions,
            repeat_share=0.0,  # every answer is one the agent waits for
            frames={"kind": "env", "env_id": "Pendulum-v1"},
        )
        shared = ("--store", str(folder), "--project", project.slug)
        options = ("--port", "0", "--browser" if config.browser else "--no-browser")
        page = page_program(shared, options, write_to_terminal)
        with Supervisor([page], folder / "logs", on_message=write_to_terminal):
            yield store.StoredFeedback(labels, project.id, patience=inf)


def play_pendulums(observations: FloatArray) -> None:
    """Play `[2, L, 3]` cosine and sine of the angle (0 is upright) and speed, side by side."""
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
    """One frame as text: the rod, and dots where its tip has been.

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
