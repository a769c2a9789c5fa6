"""Environments of one's own on the command line, and what is wrong with them in one line."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from helpers import gardens
from helpers.command_line import run
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    ("--max-episode-steps", "0"): "--max-episode-steps: expected at least 1",
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


def test_data_sets_are_recorded_in_them(here):
    words = ("--env", "garden:Garden", "--env-kwargs", "{speed: 0.3}", "--mix", "random:3")
    assert run("data", "record", *words, "--out", "data", "--max-episode-steps", "9") == 0
    result = json.loads(Path("data/result.json").read_text())
    assert (result["env"], result["tiers"][0]["steps"]) == ("garden:Garden", 27)
    assert run("data", "record", "--env", "garden:OldStep", "--out", "old") == 1
    assert not Path("old").exists()


@pytest.mark.slow
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
