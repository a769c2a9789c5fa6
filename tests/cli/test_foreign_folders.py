"""Modules in the current folder run only if a person types their names, whatever data name."""

import re
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree

import gymnasium
import numpy as np
import pytest

from helpers.command_line import run
from helpers.waiting import SECONDS, wait_until
from preferl.cli import online
from preferl.data import save_episodes
from preferl.errors import ConfigError
from preferl.online import OnlineConfig, supervise
from preferl.online.algorithms import make_environments
from preferl.runs import open_run
from preferl.store.store import Store
from preferl.testing import make_episodes
from preferl.testing.feedback_contracts import example_segments

ENVIRONMENT = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

gymnasium.register("X-v0", entry_point=PendulumEnv, max_episode_steps=20)
"""


@dataclass
class Folder:
    """The current folder: modules that leave marks, and a store that names one of them."""

    path: Path
    marks: Path

    def ran(self):
        """Modules that were imported."""
        return sorted(mark.name for mark in self.marks.iterdir())

    def write(self, name, code):
        mark = f"open({str(self.marks / name)!r}, 'w').close()\n"
        (self.path / f"{name}.py").write_text(mark + code)

    def preferl(self, *words):
        """A command as somebody types it here."""
        command = [sys.executable, "-m", "preferl", *words]
        return subprocess.run(
            command, cwd=self.path, capture_output=True, text=True, timeout=SECONDS
        )


@pytest.fixture
def folder(tmp_path, empty_store, monkeypatch):
    (tmp_path / "marks").mkdir()
    made = Folder(tmp_path / "here", tmp_path / "marks")
    copytree(empty_store, made.path / "labels")
    for name in ("alembic", "uvicorn", "av"):
        made.write(name, "raise ImportError('not what was meant')\n")
    made.write("evilmod", ENVIRONMENT)
    monkeypatch.chdir(made.path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(made.path))])
    yield made
    sys.modules.pop("evilmod", None)
    gymnasium.registry.pop("X-v0", None)


@pytest.fixture
def with_project(folder):
    """Two clips to draw, in an environment of `evilmod`."""
    segments = example_segments()
    segments = replace(segments, states=np.zeros((segments.steps, 2)))
    with Store.open(folder.path / "labels") as store:
        frames = {"kind": "env", "env_id": "evilmod:X-v0"}
        project = store.projects.create("door", frames=frames)
        store.queries.ask(project.id, segments, np.array([[0, 1]]))
    return folder


@pytest.mark.slow
def test_what_draws_clips_imports_no_module_that_only_a_database_names(with_project):
    command = ("annotate", "render", "--once", "--store", "labels")
    done = with_project.preferl(*command)
    assert done.returncode == 0, done.stderr
    assert with_project.ran() == []
    printed = " ".join(done.stderr.split())
    assert "'evilmod:X-v0', which the `frames` of project door names" in printed
    assert "--trust evilmod" in printed
    done = with_project.preferl(*command, "--trust", "other", "--trust", "evilmod")
    assert "2 clips drawn." in done.stdout, done.stderr
    assert with_project.ran() == ["evilmod"], "nothing in the folder hides what is installed"


def test_a_function_that_is_typed_draws(with_project, capsys):
    with_project.write(
        "drawings",
        "import numpy as np\n\n\ndef draw(segments, row):\n"
        "    return np.zeros((segments.real[row], 16, 16), np.uint8)\n",
    )
    words = ("annotate", "render", "--once", "--store", "labels", "--function", "drawings:draw")
    try:
        assert run(*words) == 0
    finally:
        sys.modules.pop("drawings", None)
    assert "2 clips drawn." in capsys.readouterr().out
    assert with_project.ran() == ["drawings"]


@pytest.mark.slow
@pytest.mark.parametrize("trust", [(), ("--trust", "evilmod")])
def test_the_page_and_what_it_starts(with_project, trust):
    words = ("annotate", "serve", "--store", "labels", "--port", "0", "--no-browser", *trust)
    with subprocess.Popen(
        [sys.executable, "-m", "preferl", *words],
        cwd=with_project.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as page:
        try:
            if trust:
                wait_until(lambda: with_project.ran() or page.poll() is not None)
            else:
                assert "--trust evilmod" in page.stderr.readline()
            assert with_project.ran() == (["evilmod"] if trust else [])
        finally:
            page.send_signal(signal.SIGINT)
            out, err = page.communicate(timeout=SECONDS)
    assert "Answer here: http" in out, err
    assert page.returncode == 0, err


@pytest.mark.slow
@pytest.mark.parametrize("trust", [(), ("evilmod",)], ids=["untrusted", "trusted"])
def test_what_the_launcher_starts(with_project, trust, tmp_path):
    lines = []
    options = ("--port", "0")
    with supervise.launch(
        "labels",
        "door",
        tmp_path / "rewards",
        page_options=options,
        trust=trust,
        on_message=lines.append,
    ):
        log = tmp_path / "rewards" / "logs" / "page.log"
        wait_until(lambda: with_project.ran() or "--trust evilmod" in log.read_text())
    assert with_project.ran() == list(trust)


SMALL = (
    "--eval-every", "0",
    "--steps", "200", "--initial-steps", "100", "--iterations", "1", "--comparisons", "4",
    "--environments", "1", "--segment-length", "10", "--evaluation.episodes", "1",
    "--evaluation.queries", "5", "--evaluation.clip-steps", "0", "--evaluation.no-oracle",
)  # fmt: skip


@pytest.mark.parametrize("more", [(), ("--resume", "--out", "begun"), ("--trust", "evil")])
def test_a_file_of_settings_chooses_no_module(folder, more, capsys):
    with open_run("begun", config=OnlineConfig(env="evilmod:X-v0"), seed=0) as begun:
        pass
    before = sorted(path.name for path in folder.path.iterdir())
    assert run("online", "run", "--config", "begun/config.json", *more, *SMALL) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "'evilmod:X-v0', which begun/config.json names" in error
    assert "--trust evilmod" in error
    assert folder.ran() == []
    assert sorted(path.name for path in folder.path.iterdir()) == before
    assert not begun.finished


def test_a_module_that_is_typed_or_trusted_is_used(folder, monkeypatch):
    made = []

    def make(config, *_, **__):
        made.append(make_environments(config.run.env, 1, seed=0))

    monkeypatch.setattr(online, "run_with_progress", make)
    (folder.path / "settings.yaml").write_text("env: evilmod:X-v0\n")
    (folder.path / "others.yaml").write_text("env: othermod:Y-v0\n")
    for words in (
        ("--config", "settings.yaml", "--trust", "evilmod"),
        ("--config", "settings.yaml", "--trust=evilmod"),
        ("--config", "others.yaml", "--env", "evilmod:X-v0"),
        ("--env", "evilmod:X-v0"),
    ):
        assert run("online", "run", *words) == 0
    assert folder.ran() == ["evilmod"]
    assert [venv.envs[0].spec.id for venv in made] == ["X-v0"] * 4
    with pytest.raises(ConfigError, match="nowhere"):
        make_environments("nowhere:X-v0", 1, seed=0)


def test_a_project_in_an_environment_of_the_folder(folder, capsys):
    space = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-1, 1, (1,))
    episodes = make_episodes(np.random.default_rng(0), [40], *space)
    save_episodes(folder.path / "episodes", replace(episodes, states=np.zeros((40, 2))))
    what = ("--demonstrations", "episodes", "--queries", 2, "--length", 5, "--store", "labels")
    assert run("annotate", "create", *what, "--env", "evilmod:X-v0") == 0
    assert folder.ran() == ["evilmod"], "a person typed it"
    assert re.search(r"annotate serve .*--trust evilmod", capsys.readouterr().out)
