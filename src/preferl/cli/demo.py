"""`preferl demo`: the main job on embedded defaults, asking a script, the terminal or a browser."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.live import Live
from rich.panel import Panel

from preferl import store
from preferl.cli.console import note
from preferl.configs import from_json
from preferl.errors import ConfigError, StorageError
from preferl.presets import load_preset
from preferl.runs import require_openable
from preferl.shapes import FloatArray
from preferl.store.status import AGENT

if TYPE_CHECKING:
    from preferl.online.loop import OnIteration
    from preferl.online.reports import IterationReport
    from preferl.online.service.heartbeat import Heartbeat
    from preferl.store.schema import Project

PEOPLE_COMPARISONS = 100  # what a person answers in about six minutes
PEOPLE_ITERATIONS = 25  # short ones, since whoever answers faster than anybody waits for one
PEOPLE_AHEAD = 6  # pairs that are open while the agent learns: 20 s of work for most people
PEOPLE_FPS = 15  # half the speed of the environment, since clips are half a second long

QUESTION = "Which pendulum does better?"
INSTRUCTIONS = """\
The pendulum should swing up, and then stand still on its end.

- Upright and still is best.
- Where neither stands, the clip that comes closer to standing is better.
- Where both stand, the calmer one is.
- Compare what you see in the clips alone, not what may come after them.

Choose "Can't tell" where you would have to guess. The agent learns while you answer, so clips get
better."""

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
    resume: bool = False  # continue the interrupted demo in `out`, with its labels.
    smoke: bool = False  # a run of seconds that shows every step and learns nothing.


def demo(config: DemoConfig) -> None:
    """Learn, compare with random and true-reward agents, write the report."""
    if config.people and not config.ask:
        note("Starting the page ...")  # what follows takes seconds
    from preferl.cli.online import run_with_progress
    from preferl.online import OnlineConfig
    from preferl.online.configs import EvaluationConfig

    if config.ask and config.people:
        raise ConfigError("Choose one of --ask, at the terminal, and --people, in a browser.")
    run = replace(from_json(OnlineConfig, load_preset("pendulum")), seed=config.seed)
    judge = EvaluationConfig()
    if config.people:
        run = replace(run, comparisons=PEOPLE_COMPARISONS, iterations=PEOPLE_ITERATIONS)
    if config.smoke:
        run = replace(run, steps=3_000, initial_steps=2_000, iterations=2, comparisons=20)
        judge = replace(judge, episodes=4, questions=40, clip_steps=40)
    if config.comparisons is not None:
        run = replace(run, comparisons=config.comparisons)
    require_openable(config.out, resume=config.resume)  # before people are asked
    with people_in_a_browser(config, run.comparisons) if config.people else nullcontext() as people:
        feedback, on_iteration = people or (None, None)
        run_with_progress(
            run,
            judge,
            config.out,
            ask=config.ask,
            show=lambda clips, _: play_pendulums(np.asarray(clips.observations)),
            feedback=feedback,
            true_reward=pendulum_reward,
            on_iteration=on_iteration,
            resume=config.resume,
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
def people_in_a_browser(
    config: DemoConfig, questions: int
) -> "Iterator[tuple[store.StoredFeedback, OnIteration]]":
    """Feedback of whoever answers on the page, which is open as long as the block runs.

    The labels are in a folder beside the run, where those of earlier runs stay; each run has a
    project of its own. The function that comes with the feedback shows people where the agent is
    after each iteration.
    """
    from preferl.online.service.heartbeat import Heartbeat
    from preferl.online.service.supervisor import Supervisor, write_to_terminal
    from preferl.online.supervise import page_program

    folder = config.out.with_name(f"{config.out.name}-labels")
    with store.Store.open(folder) as labels:
        if config.resume:
            project = _project_of_run(labels, config.out)
        else:
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
        beats = Heartbeat(labels, project.id, AGENT, stuck_after=inf)  # while people have a break
        with Supervisor([page], folder / "logs", on_message=write_to_terminal), beats:
            beats.report("healthy", steps=0, reward_version=0)
            ahead = min(PEOPLE_AHEAD, questions // 4)
            feedback = store.StoredFeedback(
                *(labels, project.id),
                patience=inf,
                ahead=ahead,
                on_wait=lambda _: None,  # the page is open
            )
            yield feedback, partial(_show_agent, labels, project.id, beats)


def _project_of_run(labels: "store.Store", run: Path) -> "Project":
    """The newest project from before the run began: later ones are of demos that never began.

    Raises:
        StorageError: there is none, as beside a run that a script answers.
    """
    began = (run / "config.json").stat().st_mtime
    earlier = [one for one in labels.projects.all() if one.created_at <= began]
    expected, fix = "the answers that it was begun with", "Begin another without --resume."
    StorageError.check(earlier, f"labels of {run}", expected, "none", fix)
    return earlier[-1]


def _show_agent(
    labels: "store.Store", project: int, beats: "Heartbeat", report: "IterationReport"
) -> None:
    """Show on the page the reward of an iteration, and how far the agent is."""
    published = labels.reports.rewards(project)
    version = published[-1].version if published else 0
    if (fit := report.fit) is not None:
        version += 1
        labels.reports.publish_reward(
            project,
            version,
            answers=fit.pairs,
            accuracy=fit.held_out_accuracy,
            interval=fit.held_out_interval,
            detail={"judged": fit.judged},
        )
    evaluated = report.evaluation
    mean = report.mean_return if evaluated is None else evaluated.report.mean
    known = None if isnan(mean) else round(mean, 1)
    where = {"steps": report.env_steps, "reward_version": version, "mean_return": known}
    beats.report("healthy", **where)


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
