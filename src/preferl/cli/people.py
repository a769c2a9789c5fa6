"""Runs that people answer in a browser: the page, its project, and the source of its clips."""

import os
import re
import shlex
import signal
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import inf, isnan
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import gymnasium

from preferl.cli.console import echo, note
from preferl.envs.checks import require_usable
from preferl.envs.factory import draws, env_factory, playing_rate
from preferl.envs.simulators import Environment, is_mujoco
from preferl.errors import ConfigError, StorageError
from preferl.online import OnlineConfig
from preferl.online.loop import OnIteration
from preferl.online.reports import IterationReport
from preferl.online.service.heartbeat import Heartbeat
from preferl.online.service.supervisor import (
    Program,
    RunningProgram,
    SuperviseConfig,
    Supervisor,
    write_to_terminal,
)
from preferl.online.supervise import page_program
from preferl.online.wrappers.feedback_env import RecordsStates
from preferl.online.wrappers.recording import zeros_of
from preferl.runs import require_openable
from preferl.runs.folder import RunFolder, place_aside
from preferl.store import Store, StoredFeedback
from preferl.store.projects import ProjectSettings
from preferl.store.rendering.frames import POSES, function_frames, holds_pixels
from preferl.store.schema import Project
from preferl.store.stages import holds_pictures
from preferl.store.status import AGENT, PAGE
from preferl.training.configs import usable_device
from preferl.trust import ALLOWED, preferl_program, trust_options

AHEAD: Final = 6  # pairs that are open while the agent learns: 20 s of work for most people
# most frames per second for environments of simulators, whose clips would be too short otherwise
MOST_FPS: Final = 15

INSTRUCTIONS: Final = "The agent learns while you answer, so clips get better."


def prepared_for_people(
    run: OnlineConfig, *, draw: str | None = None
) -> tuple[OnlineConfig, dict[str, Any] | None]:
    """Make a run record the states from which its clips are drawn.

    Args:
        run: the run. Its environment is tried here, for a step.
        draw: `module:function` that draws clips of everything that the run records.

    Returns:
        The run, and the `frames` of a project about its clips; None if `draw` draws them.

    Raises:
        ConfigError: the environment or device cannot be used, or nothing can draw clips.
    """
    usable_device(run.device)
    make = env_factory(run)
    require_usable(make, f"environment {run.env_name}")
    if draw is not None:
        function_frames(draw)
        return run, None
    if run.env in POSES and not run.wrappers:
        return run, {"kind": "env", "env_id": run.env}
    with closing(make()) as env:
        if holds_pixels(zeros_of(env.observation_space, (1,))):
            return run, {"kind": "pixels"}
        if not (draws(make) or is_mujoco(env)):
            raise _no_pictures(env, run.env_name)
    options = {"render_mode": "rgb_array"} if draws(make) else {}
    with closing(RecordsStates(make(**options))) as env:
        try:
            _, info = env.reset(seed=run.seed)
        except NotImplementedError as error:
            raise _no_pictures(env, run.env_name, is_missing=True) from error
    if holds_pictures(info["state"][None]):
        return replace(run, states=True), {"kind": "recorded"}
    return replace(run, states=True), {"kind": "env", "env_id": run.env_name}


def _no_pictures(env: Environment, name: str, *, is_missing: bool = False) -> ConfigError:
    """Return the error for a run without pictures for people, such as without `render`."""
    modes = list(env.metadata.get("render_modes") or ())
    renders = type(env.unwrapped).render is not gymnasium.Env.render
    if "rgb_array" in modes and (is_missing or not renders):
        return ConfigError(
            f"environment {name}: its clips cannot be drawn for people, since `render` is missing. "
            "Write a method `render` that returns a picture [height, width, 3] of bytes. Or name "
            "a function of yours that draws clips, as in --draw my_drawings:draw."
        )
    return ConfigError(
        f"environment {name}: its clips cannot be drawn for people. Expected one that draws "
        'pictures: "rgb_array" in metadata["render_modes"], a constructor that takes `render_mode` '
        "and keeps it as `self.render_mode`, and a `render` that returns a picture [height, width, "
        f"3] of bytes; its render_modes are {modes}. Or name a function of yours that draws clips, "
        "as in --draw my_drawings:draw."
    )


def frames_per_second(run: OnlineConfig) -> int:
    """Return the frames per second at which clips play, unless people choose another speed.

    Clips of your own environment play at its `render_fps`. Clips of environments from gymnasium and
    similar packages play at `MOST_FPS` at most.
    """
    with closing(env_factory(run)()) as env:
        rate = playing_rate(env.metadata, MOST_FPS)
        package = type(env.unwrapped).__module__.partition(".")[0]
    return min(rate, MOST_FPS) if package in ALLOWED else rate


@contextmanager
def people_in_a_browser(
    run: OnlineConfig,
    out: Path,
    *,
    title: str | None = None,
    question: str | None = None,
    instructions: str | None = None,
    browser: bool = True,
    resume: bool = False,
    draw: str | None = None,
    trust: Collection[str] = (),
) -> Iterator[tuple[OnlineConfig, StoredFeedback, OnIteration]]:
    """Serve the page while a block runs, and yield the feedback of the people who answer on it.

    Also yield the run, which now records the states from which clips are drawn, and a function that
    shows people the agent's progress after each iteration.

    The labels are in a folder beside the run, with the labels of earlier runs. Each run has its own
    project.

    Args:
        run: the run. Its `comparisons` are asked.
        out: folder of the run.
        title: title of the project; by default the environment.
        question: the question shown with every pair; by default the usual one of the store.
        instructions: what counts as better; `INSTRUCTIONS` by default.
        browser: whether the page opens by itself.
        resume: whether to continue with the answers of the run in `out`.
        draw: `module:function` that draws the clips.
        trust: modules that may be imported to draw them.
    """
    require_openable(out, resume=resume)  # before people are asked
    run, frames = prepared_for_people(run, draw=draw)
    require_openable(out, resume=resume, config=run)
    folder = labels_folder(out)
    with Store.open(folder) as labels:
        if resume:
            project = project_of_run(labels, out)
        else:
            if older_run := older_run_in_words(out):
                note(older_run)
            settings = ProjectSettings(
                title=title or run.env_name,
                question=question or ProjectSettings.question,
                instructions=instructions or INSTRUCTIONS,
                fps=frames_per_second(run),
                budget=run.comparisons,
                repeat_share=0.0,  # the agent waits for every answer
                frames=frames,
            )
            name = _project_name(run, len(labels.projects.all()) + 1)
            project = labels.projects.create(name, settings)
        feedback = StoredFeedback(
            labels, project.id, patience=inf, open_queries=min(AHEAD, run.comparisons // 4)
        )
        with _page(feedback, folder, browser=browser, resume=resume, draw=draw, trust=trust) as on:
            yield run, feedback, on
        echo("The run is finished, and its page is closed. To see the run, answers or page again:")
        for command in commands_after(out, folder, project.slug):
            echo(f"  {command}")


@contextmanager
def _page(
    feedback: StoredFeedback,
    folder: Path,
    *,
    browser: bool,
    resume: bool,
    draw: str | None,
    trust: Collection[str],
) -> Iterator[OnIteration]:
    """Run the page, and the program that draws its clips, during a block.

    Yield a function that shows people the agent's progress.
    """
    labels = feedback.store
    project = feedback.project
    logs = folder / "logs"
    if RunningProgram(Program(PAGE, ()), logs).end_leftover(SuperviseConfig.stop_seconds):
        note("The page of a run that was killed is ended.")  # otherwise it would keep the port
    port = page_port(labels, resume=resume)
    options = ["--port", str(port), "--browser" if browser else "--no-browser"]
    options += trust_options(trust)
    programs = []
    if draw is not None:
        options.append("--no-render")
        programs.append(_drawing_program(folder, draw, trust))
    shared = ("--store", str(folder), "--project", project.slug)
    programs.append(page_program(shared, options, write_to_terminal))
    beats = Heartbeat(labels, project.id, AGENT, stuck_after=inf)  # people may take a break
    with signals_stop(), Supervisor(programs, logs, on_message=write_to_terminal), beats:
        beats.report("healthy", steps=0, reward_version=0)
        note(
            f"Answer on the page; your answers are kept in {folder}. Stop with Ctrl-C: the "
            "same command with --resume goes on."
        )
        yield partial(_show_agent, labels, project.id, beats)


def _project_name(run: OnlineConfig, number: int) -> str:
    name = "-".join(re.findall("[a-z0-9]+", run.env_name.lower()))[:50].strip("-")
    return f"{name or 'run'}-{number}"


@contextmanager
def signals_stop() -> Iterator[None]:
    """Let SIGTERM and a closed terminal stop a block as Ctrl-C does.

    By default, they would end this program at once, while the programs that it started would
    continue.
    """
    numbers = [signal.SIGTERM]
    if hasattr(signal, "SIGHUP"):  # Windows does not have it
        numbers.append(signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # Python lets no other thread choose
    heard = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def labels_folder(out: Path) -> Path:
    """Return the folder of a run's answers, beside it; a run that was moved away keeps its own."""
    folder = out.absolute().with_name(f"{out.absolute().name}-labels")
    first_name, _, number = out.absolute().name.rpartition(".")
    if first_name and number.isdecimal() and not folder.exists():
        folder = folder.with_name(f"{first_name}-labels")
    return folder if out.is_absolute() else Path(os.path.relpath(folder))


def older_run_in_words(out: Path) -> str:
    """Say what happens to an older run in the folder of a new one; "" if there is none."""
    if not (out / "config.json").is_file():
        return ""
    aside = place_aside(out)
    moves = f"An older run is in {out}; it moves to {aside}, and its answers stay."
    finished = False
    with suppress(StorageError):  # a damaged result must not prevent a new run
        finished = RunFolder(out).finished
    if not finished:
        words = shlex.join(("--out", str(aside), "--resume"))
        return f"{moves} It is unfinished: the same command with {words} goes on with it."
    words = shlex.join(("--warm-start.comparisons", str(aside)))
    return (
        f"{moves} This run asks all of its queries anew. To learn from the older answers, too, add "
        f"{words} to `preferl online run`, and another --seed for other pairs."
    )


def awaited_answers(feedback: StoredFeedback, comparisons: int) -> str:
    """Say how many answers a waiting run has, of how many, and where to answer."""
    store = feedback.store
    served = store.reports.last_event("served")
    words = f"waiting for your answers: {_given(feedback)} of {comparisons}"
    if served is None:
        return words
    return f"{words}, {served['url']}/join/{store.people.owner(feedback.project.id).secret}"


def answers_there(feedback: StoredFeedback, comparisons: int) -> str:
    """Say how many answers a run has, of how many, when it waits no longer."""
    return f"{_given(feedback)} of {comparisons} answers are there; the run goes on."


def _given(feedback: StoredFeedback) -> int:
    return feedback.store.reports.totals(feedback.project.id).given


def commands_after(out: Path, labels: Path, project: str) -> list[str]:
    """Return the commands that show a finished run, its answers, and its annotation page again."""
    shared = ("--store", str(labels), "--project", project)
    return [
        shlex.join(("preferl", "runs", "show", str(out))),
        shlex.join(("preferl", "annotate", "report", *shared)),
        shlex.join(("preferl", "annotate", "serve", *shared)),
    ]


def page_port(labels: Store, *, resume: bool) -> int:
    """Return the port of a run's page: any free one, or for a resumed run the former one.

    A tab that is still open then reconnects by itself.
    """
    served = labels.reports.last_event("served") if resume else None
    before = None if served is None else urlsplit(served["url"]).port
    if before is not None:
        try:
            return _free_port(before)
        except OSError:
            note(
                f"Port {before}, where the page of this run was, is taken by another program. "
                "Close its older tabs: the page has another link now."
            )
    return _free_port(0)


def _free_port(port: int) -> int:
    """Return a free port of this machine, any if 0 is passed; raise `OSError` if it is taken.

    If the page is started again after a crash, it keeps the port.
    """
    with socket.create_server(("127.0.0.1", port)) as listening:
        number: int = listening.getsockname()[1]
        return number


def _drawing_program(folder: Path, draw: str, trust: Collection[str]) -> Program:
    """Return the program that draws clips of a store with a function."""
    words = ("--store", str(folder), "--function", draw, "--parent", str(os.getpid()))
    return Program("drawing", preferl_program("annotate", "render", *words, *trust_options(trust)))


def project_of_run(labels: Store, run: Path) -> Project:
    """Return the newest project that is older than the run; later ones are of failed starts.

    Raises:
        StorageError: there is no project, for example since a script answered the run.
    """
    began = (run / "config.json").stat().st_mtime
    earlier = [project for project in labels.projects.all() if project.created_at <= began]
    if not earlier:
        raise StorageError(
            f"labels of {run}: expected the answers that it was begun with, got none. Resume it "
            "with the options that it was begun with, or begin another without --resume."
        )
    return earlier[-1]


def _show_agent(labels: Store, project: int, beats: Heartbeat, report: IterationReport) -> None:
    """Show the reward of an iteration and the agent's progress on the page."""
    published = labels.reports.rewards(project)
    version = published[-1].version if published else 0
    if (fit := report.fit) is not None:
        version += 1
        labels.reports.announce_reward(
            project,
            version,
            answers=fit.pairs,
            accuracy=fit.held_out_accuracy,
            interval=fit.held_out_interval,
            detail={"decided": fit.decided},
        )
    evaluated = report.evaluation
    mean = report.mean_return if evaluated is None else evaluated.report.mean
    shown_return = None if isnan(mean) or not report.has_true_reward else round(mean, 1)
    beats.report(
        "healthy", steps=report.env_steps, reward_version=version, mean_return=shown_return
    )
