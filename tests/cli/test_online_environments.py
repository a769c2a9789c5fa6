"""Environments of one's own on the command line, and what is wrong with them in one line."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from helpers import gardens
from helpers.command_line import run
from preferl.registry import TEACHERS
from preferl.store import Store

TINY = [
    "--eval-every", "0",
    "--steps", "400", "--initial-steps", "200", "--iterations", "1", "--comparisons", "4",
    "--environments", "2", "--segment-length", "5", "--initial-epochs", "1",
    "--evaluation.episodes", "2", "--evaluation.queries", "4", "--evaluation.clip-steps", "2",
    "--evaluation.no-oracle", "--algorithm", "ppo", "--algorithm.n-steps", "50",
    "--algorithm.batch-size", "50",
]  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder that holds `garden.py`."""
    shutil.copy(gardens.__file__, tmp_path / "garden.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("garden", None)


def online(*words):
    return run("online", "run", "--out", "run", *words, *TINY)


def test_a_class_of_the_current_folder_is_taught(here, capsys):
    made = ("--env", "garden:Garden", "--env-kwargs", "{speed: 0.3}", "--max-episode-steps", "15")
    assert online(*made, "--wrappers", "garden:Shift", "garden:Shift: {by: 0.5}") == 0
    saved = json.loads(Path("run/config.json").read_text())["config"]
    assert (saved["env"], saved["env_kwargs"]) == ("garden:Garden", {"speed": 0.3})
    assert saved["max_episode_steps"] == 15
    assert saved["wrappers"] == ["garden:Shift", "garden:Shift: {by: 0.5}"]
    result = json.loads(Path("run/result.json").read_text())
    assert result["env"] == "garden:Garden"
    assert Path("run/report.html").is_file()
    capsys.readouterr()
    again = ("--config", "run/config.json", "--out", "again")
    assert online(*again) == 1
    assert "--trust garden" in capsys.readouterr().err
    assert not Path("again").exists()
    assert online(*again, "--trust", "garden") == 0


HIDDEN = """
from dataclasses import dataclass

import gymnasium
import numpy as np

from preferl.registry import TEACHERS


class Hidden(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.at = 0, self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.at, {}

    def step(self, action):
        self.steps += 1
        self.at = np.clip(self.at + 0.1 * action, -1, 1).astype(np.float32)
        return self.at, 0.0, False, self.steps == 20, {"success": True}


@dataclass(frozen=True)
class Rightmost:
    def __call__(self, shown, rng):
        ends = shown.observations[..., -1, 0]
        return (ends[:, 0] > ends[:, 1]).astype(float)


TEACHERS.register("rightmost", Rightmost, Rightmost)
"""


def test_a_run_without_rewards_shows_success_and_the_accuracy_of_its_fits(here, capsys):
    Path("hidden.py").write_text(HIDDEN)
    asked = ("--comparisons", "20", "--evaluation.clip-steps", "0", "--report-to", "jsonl")
    taught = ("--env", "hidden:Hidden", "--teacher", "rightmost", "--trust", "hidden")
    try:
        assert run("online", "run", "--out", "run", *TINY, *taught, *asked) == 0
    finally:
        TEACHERS.remove("rightmost")
        sys.modules.pop("hidden", None)
    output = capsys.readouterr()
    assert "20 comparisons answered by the teacher rightmost" in output.out + output.err
    rows = [line for line in output.out.splitlines() if "taught by 20" in line]
    assert rows[-1].rstrip().endswith("100 %")
    of_result = json.loads(Path("run/result.json").read_text())["reward"]
    assert (of_result["log_loss"], of_result["calibration"]["error"]) == (None, None)
    page = Path("run/report.html").read_text()
    assert "Held-out accuracy" not in page
    assert re.search(r"<dd class=\"note\">of \d+ out-of-bag answers \(95", page)
    assert "answers by the teacher rightmost to the question" in page
    assert "Success" in page
    assert run("runs", "show", "run") == 0
    shown = capsys.readouterr().out
    assert "out-of-bag answers" in shown
    assert "success, random" in shown
    assert "log loss" not in shown
    assert "calibration" not in shown


def test_wrappers_that_a_file_names_are_trusted_or_typed(here, capsys):
    Path("it.yaml").write_text("wrappers:\n- garden:Shift: {by: 2}\n")
    assert online("--config", "it.yaml") == 1
    assert "'garden:Shift', which it.yaml names" in capsys.readouterr().err
    assert "garden" not in sys.modules
    assert online("--config", "it.yaml", "--trust", "garden") == 0
    assert (
        online("--config", "it.yaml", "--wrappers", "garden:Shift", "--env", "garden:Garden") == 0
    )


WRONG = {
    ("--env", ""): "environment ''",
    ("--env", "Pendulum-v2"): "Pendulum-v1",
    ("--env", "Pendulumm"): "Did you mean Pendulum-v1",
    ("--env", "nowhere:Garden"): "module that can be imported",
    ("--env", "garden:Gardn"): "Did you mean garden:Garden?",
    ("--env", "garden.py:Garden"): "Did you mean garden:Garden?",
    ("--env", "./garden.py:Garden"): "Did you mean garden:Garden?",
    ("--env", "./garden:Garden"): "Did you mean garden:Garden?",
    ("--env", "garden.Garden"): "Did you mean garden:Garden?",
    ("--env", "./garden.py"): "Name the class or function in it, too: garden:Garden.",
    ("--env", "garden.py"): "Name the class or function in it, too: garden:Garden.",
    ("--wrappers", "garden.py:Shift"): "Did you mean garden:Shift?",
    ("--trust", "garden.py"): "Did you mean garden?",
    ("--device", "nowhere"): "device 'nowhere': expected one that torch has here",
    ("--env", "garden:nothing"): "has to return what it makes",
    ("--env", "garden:OldStep"): "shimmy",
    ("--env", "garden:OldReset"): "`reset` as gymnasium defines it",
    ("--env", "garden:NoSpaces"): "a space as `observation_space`",
    ("--env", "garden:WideView"): "as its space, got (3,)",
    ("--env", "garden:Garden", "--env-kwargs", "{sped: 1}"): "(render_mode, speed, hides)",
    ("--env-kwargs", "{gravity: 1}"): "environment 'Pendulum-v1': expected arguments",
    ("--wrappers", "garden:Absent"): "wrappers: expected module:Name",
    ("--wrappers", "Shift"): "wrappers: expected module:Name",
    ("--max-episode-steps", "0"): "max_episode_steps: expected at least 1",
}


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # gymnasium's own, of old interfaces
@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_environments_are_one_line_and_move_nothing(here, capsys, words):
    Path("run").mkdir()
    Path("run/config.json").write_text("{}")
    assert online(*words) == 1
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("preferl online run:")]
    assert len(lines) == 1
    assert WRONG[words] in lines[0]
    assert "Traceback" not in out + err
    assert "Teaching" not in out + err
    assert [path.name for path in here.glob("run*")] == ["run"]
    assert Path("run/config.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("option", "most"),
    [("comparisons", "1e+06"), ("iterations", "1e+06"), ("steps", "9.22337e+18")],
)
def test_numbers_that_nothing_can_count_are_refused(here, capsys, option, most):
    assert run("online", "run", "--out", "run", *TINY, f"--{option}", "9" * 20) == 1
    assert re.search(rf"{option}: expected in \[\d, {re.escape(most)}\]", capsys.readouterr().err)
    assert not Path("run").exists()


def test_arguments_that_are_no_mapping_are_wrong_usage(here, capsys):
    for text in ("7", "[1]", "{1: 2}", "{", "{speed:1}"):
        assert online("--env-kwargs", text) == 2
        assert "--env-kwargs: expected {NAME: VALUE, ...}, got" in capsys.readouterr().err


def test_help_explains_the_settings(capsys):
    assert run("online", "run", "--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    for option in (
        "--env STR",
        "--env-kwargs {NAME: VALUE, ...}",
        "--max-episode-steps INT",
        "--wrappers",
    ):
        assert option in shown
    assert "--vec-env {dummy,subproc}" in shown
    assert "as YAML or JSON" in shown


def test_data_sets_are_recorded_in_them(here):
    words = ("--env", "garden:Garden", "--env-kwargs", "{speed: 0.3}", "--mix", "random:3")
    assert run("data", "record", *words, "--out", "data", "--max-episode-steps", "9") == 0
    result = json.loads(Path("data/result.json").read_text())
    assert (result["env"], result["tiers"][0]["steps"]) == ("garden:Garden", 27)
    assert run("data", "record", "--env", "garden:OldStep", "--out", "old") == 1
    assert not Path("old").exists()


def test_people_see_recorded_pictures_of_a_data_set(here, capsys):
    words = ("--env", "garden:Garden", "--pictures", "--mix", "random:4", "--out", "data")
    assert run("data", "record", *words) == 0
    where = ("--run", "data", "--store", "labels", "--queries", 3, "--length", 5)
    assert run("annotate", "create", *where) == 0
    assert run("annotate", "render", "--store", "labels", "--once") == 0
    with Store.open("labels") as store:
        (project,) = store.projects.all()
        assert project.frames == {"kind": "recorded"}
        assert store.clips.without_video(project.id, 9) == []
    capsys.readouterr()
    assert run("data", "record", "--env", "garden:small_garden", *words[2:-1], "other") == 1
    assert "expected one that draws pictures" in capsys.readouterr().err
    assert not Path("other").exists()


def test_offline_policies_are_evaluated_in_them(here):
    made = ("--env", "garden:Garden", "--env-kwargs", "{speed: 0.3}", "--max-episode-steps", "9")
    assert run("data", "record", *made, "--mix", "random:8", "--out", "data") == 0
    trained = ("--steps", 20, "--episodes", 2, "--seeds", 0, "--processes", 1, "--no-controls")
    where = ("--demonstrations", "data/episodes", "--policy", "bc", "--out", "cloned")
    assert run("offline", "run", *where, *made, *trained, "--report-to", "jsonl") == 0
    result = json.loads(Path("cloned/result.json").read_text())
    assert result["env"] == "garden:Garden"
    settings = json.loads(Path("cloned/config.json").read_text())["config"]["config"]
    assert settings["env_kwargs"] == {"speed": 0.3}
