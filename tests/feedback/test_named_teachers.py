"""Settings, files and commands name a teacher, one of B-Pref's or one of somebody's own."""

import json
import re
import sys

import numpy as np
import pytest

from helpers.command_line import run
from preferl.configs import from_json, to_json
from preferl.data import load_comparisons
from preferl.errors import ConfigError
from preferl.feedback import ScriptedTeacher
from preferl.online import OnlineConfig
from preferl.registry import SAMPLERS, TEACHERS

MODULE = "somebodys_teacher"
SOURCE = """
from dataclasses import dataclass

import numpy as np

from preferl.feedback import UniformPairs
from preferl.registry import SAMPLERS, TEACHERS


@dataclass(frozen=True)
class Constant:
    answer: float = 0.5

    def __call__(self, shown, rng):
        return np.full(len(shown), self.answer)


class Twice:
    def __call__(self, segments, count, rng):
        return UniformPairs()(segments, count, rng)


def halves(shown, rng):
    return np.full(len(shown), 0.5)


TEACHERS.register("constant", Constant, Constant)
SAMPLERS.register("twice", Twice)
"""
SHORT = ("--steps", 400, "--initial-steps", 200, "--iterations", 1, "--comparisons", 6)
SHORT += ("--eval-every", 0, "--algorithm", "ppo")
SHORT += ("--environments", 1, "--segment-length", 10, "--evaluation.episodes", 1)
SHORT += ("--evaluation.queries", 5, "--evaluation.clip-steps", 0, "--evaluation.no-oracle")


@pytest.fixture
def somebodys(tmp_path, monkeypatch):
    (tmp_path / f"{MODULE}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield MODULE
    sys.modules.pop(MODULE, None)
    TEACHERS.remove("constant")
    SAMPLERS.remove("twice")


def teacher_of(settings):
    return from_json(OnlineConfig, {"teacher": settings}).teacher


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ScriptedTeacher()),
        ({"kind": "scripted", "temperature": 0.2}, ScriptedTeacher(temperature=0.2)),
        ({"kind": "ScriptedTeacher"}, ScriptedTeacher()),
        ("oracle", ScriptedTeacher.oracle()),
        ({"kind": "mistake", "rate": 0.3}, ScriptedTeacher.mistake(0.3)),
        ({"kind": "noisy", "scale": "length"}, ScriptedTeacher.noisy(scale="length")),
        ("skip", ScriptedTeacher.skip()),
        ({"kind": "equal", "typical": 20, "margin": 0.2}, ScriptedTeacher.equal(20, 0.2)),
        ("myopic", ScriptedTeacher.myopic()),
        ({"kind": "person", "skip_rate": 0.2}, ScriptedTeacher.person(skip_rate=0.2)),
    ],
)
def test_files_name_them_with_their_settings(settings, expected):
    assert teacher_of(settings) == expected
    written = to_json(OnlineConfig(teacher=expected))["teacher"]
    assert "kind" not in written  # as files of older runs have it
    assert teacher_of(json.loads(json.dumps(written))) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("nobody", "teacher: expected one of scripted, oracle.*got 'nobody'"),
        (7, "teacher: expected a name or settings, got 7"),
        ({"kind": "skip", "margin": 2}, "skip_margin: expected in"),
        ({"kind": "mistake", "rat": 1}, r"keys of teacher: expected some of \['rate'\]"),
        ({"kind": "mistake", "rate": "often"}, "teacher.rate: expected float"),
        ({"kind": "mistake", "rate": 2}, "error_rate: expected in"),
        ({"temper": 1}, "keys of teacher: expected those that .* The nearest is temperature"),
        ("unknown:halves", "got 'unknown:halves'.*pass --trust unknown"),
        ("__main__:halves", "move it to a module of its own"),
    ],
)
def test_others_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        teacher_of(settings)


def test_one_of_somebodys_own_is_written_and_read(somebodys):
    __import__(somebodys)
    own = teacher_of({"kind": "constant", "answer": 0.75})
    assert own(np.zeros(3), np.random.default_rng(0)).tolist() == [0.75] * 3
    written = to_json(OnlineConfig(teacher=own))
    assert written["teacher"] == {"kind": "Constant", "answer": 0.75}
    assert from_json(OnlineConfig, written).teacher == own


def test_a_command_names_one_and_its_module(somebodys, tmp_path, capsys):
    words = ("online", "run", *SHORT, "--out", tmp_path / "run", "--teacher", "constant")
    words += ("--teacher.answer", 0.25, "--sampler", "twice")
    assert run(*words) == 2
    assert re.search("--teacher: expected one of .*--trust", capsys.readouterr().err)
    assert run(*words, "--trust", somebodys) == 0
    saved = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert saved["teacher"] == {"kind": "Constant", "answer": 0.25}
    assert saved["sampler"] == "twice"


def test_a_run_of_a_function_starts_again_from_its_settings(somebodys, tmp_path, capsys):
    function = __import__(somebodys).halves
    file = tmp_path / "config.json"
    file.write_text(json.dumps(to_json(OnlineConfig(teacher=function))), encoding="utf-8")
    words = ("online", "run", *SHORT, "--config", file, "--out", tmp_path / "run")
    assert run(*words, "--trust", somebodys) == 0
    assert f"{somebodys}:halves" in (tmp_path / "run/config.json").read_text()
    comparisons = load_comparisons(tmp_path / "run/comparisons")
    assert set(comparisons.preference.tolist()) == {0.5}
    assert run(*words, "--teacher", "oracle") == 0  # in place of the function
