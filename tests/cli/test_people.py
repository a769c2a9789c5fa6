"""Runs that people answer in a browser: what clips are drawn from, and runs from end to end."""

import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from helpers import gardens
from helpers.command_line import run
from helpers.somebody import Somebody
from preferl.cli.online import starting_point
from preferl.cli.people import (
    frames_per_second,
    labels_folder,
    older_run_in_words,
    page_port,
    prepared_for_people,
    project_of_run,
    signals_stop,
)
from preferl.errors import ConfigError, StorageError
from preferl.online import OnlineConfig
from preferl.runs import open_run
from preferl.store import Store

SHOWN = {
    "Pendulum-v1": ({"kind": "env", "env_id": "Pendulum-v1"}, False),
    "FrozenLake-v1": ({"kind": "recorded"}, True),
    gardens.Garden: ({"kind": "recorded"}, True),
    gardens.Lawn: ({"kind": "recorded"}, True),
    gardens.Screen: ({"kind": "pixels"}, False),
}


@pytest.mark.parametrize("env", SHOWN, ids=str)
def test_clips_are_drawn_from_what_the_environment_has(env):
    prepared, frames = prepared_for_people(OnlineConfig(env=env))
    assert (frames, prepared.states) == SHOWN[env]


def test_a_simulator_is_drawn_from_its_state():
    pytest.importorskip("mujoco")
    prepared, frames = prepared_for_people(OnlineConfig(env="HalfCheetah-v5"))
    assert prepared.states
    assert frames == {"kind": "env", "env_id": "HalfCheetah-v5"}


def test_a_wrapped_pendulum_is_drawn_from_its_state_since_its_observations_are_others():
    wrapped = OnlineConfig(env="Pendulum-v1", wrappers=(gardens.Shift,))
    prepared, _ = prepared_for_people(wrapped)
    assert prepared.states


@pytest.mark.parametrize(
    ("env", "text"),
    [
        (gardens.Unseen, r"its render_modes are \['ansi'\]"),
        (gardens.Undrawn, "cannot be drawn for people, since `render` is missing. Write a method"),
        (gardens.NoRender, "cannot be drawn for people, since `render` is missing. Write a method"),
        (gardens.NoMode, "a constructor that takes `render_mode`"),
        (gardens.Forgetful, r"a picture \[height, width, 3\] of bytes, got NoneType"),
    ],
)
def test_what_is_missing_where_nothing_can_be_drawn_is_named(env, text):
    with pytest.raises(ConfigError, match=text):
        prepared_for_people(OnlineConfig(env=env))


@pytest.mark.parametrize(
    ("env", "fps"),
    [(gardens.Quick, 20), ("helpers.gardens:Lawn", 7), ("Pendulum-v1", 15), (gardens.NoSpeed, 15)],
)
def test_clips_play_at_the_speed_of_ones_own_environment(env, fps):
    assert frames_per_second(OnlineConfig(env=env)) == fps


def test_a_function_draws_where_the_environment_does_not():
    unseen = OnlineConfig(env=gardens.Unseen)
    assert prepared_for_people(unseen, draw="helpers.gardens:nothing") == (unseen, None)
    with pytest.raises(ConfigError, match="frames: expected module:Name"):
        prepared_for_people(unseen, draw="helpers.gardens:absent")


def test_a_resumed_run_has_the_project_that_it_began_with(tmp_path):
    with open_run(tmp_path / "run", config=OnlineConfig(), seed=0):
        pass
    began = (tmp_path / "run/config.json").stat().st_mtime
    with Store.open(tmp_path / "labels") as store:
        with pytest.raises(StorageError, match="the answers that it was begun with, got none"):
            project_of_run(store, tmp_path / "run")
        for name in ("pendulum-1", "pendulum-2"):
            store.projects.create(name)
            time.sleep(0.002)  # the database's clock counts in milliseconds
        first, second = (project.created_at for project in store.projects.all())
        os.utime(tmp_path / "run/config.json", (began, (first + second) / 2))
        assert project_of_run(store, tmp_path / "run").slug == "pendulum-1"
        os.utime(tmp_path / "run/config.json", (began, second + 1))
        assert project_of_run(store, tmp_path / "run").slug == "pendulum-2"


def test_a_resumed_page_is_at_its_port_so_that_open_tabs_go_on(tmp_path, capsys):
    with Store.open(tmp_path) as store:
        before = page_port(store, resume=True)
        store.reports.add_event(None, "served", detail={"url": f"http://127.0.0.1:{before}"})
        assert page_port(store, resume=True) == before
        assert capsys.readouterr().out == ""
        with socket.create_server(("127.0.0.1", before)):
            assert page_port(store, resume=True) != before
    assert f"Port {before}, where the page of this run was, is taken" in capsys.readouterr().out


def test_an_older_run_moves_to_where_it_is_said_to_and_can_be_resumed_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = Path("runs/my run")
    assert older_run_in_words(out) == ""
    with open_run(out, config=OnlineConfig(), seed=0):
        pass
    labels_folder(out).mkdir()
    said = older_run_in_words(out)
    assert "--out 'runs/my run.1' --resume goes on with it" in said
    with open_run(out, config=OnlineConfig(), seed=1) as folder:
        folder.result({})
    assert starting_point(["--resume", "--out", "runs/my run.1"]).run == OnlineConfig()
    assert labels_folder(Path("runs/my run.1")) == labels_folder(out)
    assert "--warm-start.comparisons 'runs/my run.2'" in older_run_in_words(out)


def test_people_are_asked_little_unless_something_else_is_chosen(tmp_path):
    plain = starting_point(["--people"])
    assert 30 <= plain.run.comparisons <= 40
    assert plain.run.initial_steps <= 1_000, "the first query is there within seconds"
    assert not plain.evaluation.oracle
    preset = starting_point(["--people", "--preset", "pendulum"]).run
    assert (preset.comparisons, preset.segment_length) == (plain.run.comparisons, 15)
    file = tmp_path / "settings.yaml"
    file.write_text("comparisons: 70\nsteps: 9000\n")
    chosen = starting_point(["--people", "--config", str(file)]).run
    assert (chosen.comparisons, chosen.steps, chosen.segment_length) == (70, 9_000, 25)
    assert starting_point([]).run == OnlineConfig()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM is not heard there")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_stops_as_ctrl_c_does_so_that_what_was_started_ends(name):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # which `nohup` may have told to ignore it
    try:
        with pytest.raises(KeyboardInterrupt), signals_stop():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_resumed_run_has_its_settings_unless_others_are_typed(tmp_path):
    begun = OnlineConfig(comparisons=30, steps=500, initial_steps=200)
    with open_run(tmp_path / "run", config=begun, seed=0):
        pass
    words = ["--people", "--out", str(tmp_path / "run")]
    assert starting_point([*words, "--resume"]).run == begun
    assert starting_point(words).run.comparisons == 40
    preset = starting_point([*words, "--resume", "--preset", "pendulum"]).run
    assert preset.env == "Pendulum-v1"


@pytest.mark.parametrize("command", [("online", "run", "--seed", "3"), ("demo", "--smoke")])
def test_other_settings_are_refused_before_people_get_a_link(command, tmp_path, capsys):
    out = tmp_path / "run"
    with open_run(out, config=OnlineConfig(env="Pendulum-v1"), seed=0):
        pass
    words = ("--people", "--resume", "--no-browser", "--out", out)
    assert run(*command, *words) == 1
    printed = capsys.readouterr().err
    assert "settings to resume the run in" in printed
    assert "Answer here" not in printed
    assert not (tmp_path / "run-labels").exists()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder that holds `lawns.py`."""
    shutil.copy(gardens.__file__, tmp_path / "lawns.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("lawns", "drawings"):
        sys.modules.pop(name, None)


SMALL = [
    "--no-browser", "--eval-every", "0", "--comparisons", "8", "--segment-length", "5",
    "--steps", "500", "--initial-steps", "200", "--iterations", "2", "--initial-epochs", "1",
    "--environments", "2", "--evaluation.episodes", "2", "--evaluation.queries", "4",
    "--evaluation.clip-steps", "0", "--report-to", "jsonl",
    "--algorithm", "ppo", "--algorithm.n-steps", "50", "--algorithm.batch-size", "50",
]  # fmt: skip


@pytest.mark.slow
def test_people_teach_an_environment_of_the_current_folder(here, capsys):
    question = ("--question", "Which point gets closer?")
    with Somebody(Path("runs/online-labels"), rests_after=2) as person:
        words = ("--env", "lawns:Lawn", "--people", *question)
        assert run("online", "run", *words, *SMALL) == 0
    output = capsys.readouterr()
    assert "runs/online-labels" in output.out
    assert "--resume" in output.out
    assert "waiting for your answers: 0 of 8, http" in output.out
    assert "8 of 8 answers are there; the run goes on." in output.out
    assert output.out.splitlines()[-5] == "Report: runs/online/report.html"
    assert "preferl annotate report --store runs/online-labels --project lawns-lawn-1" in output.out
    assert "Answer here: http" in output.err
    resolved = json.loads(Path("runs/online/config.json").read_text())["resolved"]
    assert resolved["answered_by"] == "people"
    assert resolved["question"] == "Which point gets closer?"
    report = Path("runs/online/report.html").read_text()
    assert "answers of people to the question" in report
    assert "Which point gets closer?" in report
    result = json.loads(Path("runs/online/result.json").read_text())
    assert (result["comparisons"], person.given) == (8, 8)
    assert person.open_after_reward[0] > 0, "there is something to answer while the agent learns"
    assert len(list(Path("runs/online-labels/videos").rglob("*.mp4"))) == 16
    with Store.open("runs/online-labels") as store:
        (project,) = store.projects.all()
        (agent,) = [s for s in store.reports.services(project.id) if s.name == "agent"]
    assert project.question == "Which point gets closer?"
    assert (project.slug, project.fps, project.budget) == ("lawns-lawn-1", 7, 8)
    assert agent.status.steps == result["env_steps"]


DRAWINGS = """
import numpy as np


def draw(segments, row):
    start = int(segments.start[row])
    for step in range(start, start + int(segments.real[row])):
        picture = np.full((40, 40, 3), 255, np.uint8)
        x, y = (18 + 18 * segments.observations["place"][step]).astype(int)
        picture[y : y + 4, x : x + 4] = 0
        yield picture
"""


@pytest.mark.slow
def test_a_function_of_the_current_folder_draws_what_people_see(here):
    Path("drawings.py").write_text(DRAWINGS)
    with Somebody(Path("drawn-labels")):
        words = ("--env", "lawns:Unseen", "--people", "--draw", "drawings:draw", "--out", "drawn")
        assert run("online", "run", *words, *SMALL) == 0
    assert len(list(Path("drawn-labels/videos").rglob("*.mp4"))) == 16
