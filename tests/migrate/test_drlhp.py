"""Databases of learning-from-human-preferences become rewards, and answers of a store."""

import gzip
import json
import pickle
import sys
import zlib
from types import ModuleType

import numpy as np
import pytest

from helpers.command_line import run
from preferl.training import load_reward

MODULE = "drlhp.pref_db"
"""Where the newer version of the project has its classes."""

SIDE = 16
BRIGHT = 200


@pytest.fixture
def databases(tmp_path, monkeypatch):
    """Both files of a log folder: brighter clips were preferred."""
    kind = type("PrefDB", (), {"__module__": MODULE})
    compressed = type("CompressedDict", (), {"__module__": MODULE})
    module = ModuleType(MODULE)
    module.PrefDB = kind
    module.CompressedDict = compressed
    monkeypatch.setitem(sys.modules, "drlhp", ModuleType("drlhp"))
    monkeypatch.setitem(sys.modules, MODULE, module)
    rng = np.random.default_rng(0)
    for name, count in (("train", 40), ("val", 10)):
        brightness = rng.permutation(np.linspace(0, BRIGHT, 2 * count)).astype(np.uint8)
        database = kind()
        database.maxlen = 100
        database.segments = compressed()
        database.segments.store = {
            key: zlib.compress(pickle.dumps([_frame(rng, level) for _ in range(5)]))
            for key, level in enumerate(brightness)
        }
        database.prefs = [
            (key, key + count, (1.0, 0.0) if level > brightness[key + count] else (0.0, 1.0))
            for key, level in enumerate(brightness[:count])
        ]
        with gzip.open(tmp_path / f"{name}.pkl.gz", "wb") as file:
            pickle.dump(database, file)
    return tmp_path


def _frame(rng, level):
    """A stack of two pictures of about so bright pixels."""
    return level + rng.integers(0, 20, (SIDE, SIDE, 2), np.uint8)


def test_a_reward_is_fitted_and_evaluated(databases, capsys):
    fitted = databases / "run"
    options = ("--model", "cnn", "--epochs", 8, "--report-to", "jsonl", "--out", fitted)
    assert run("reward", "fit", "--comparisons", databases / "train.pkl.gz", *options) == 0
    assert load_reward(fitted / "reward").observation_space.shape == (SIDE, SIDE, 2)
    numbers = databases / "numbers.json"
    held_out = ("--comparisons", databases / "val.pkl.gz", "--json", numbers)
    assert run("reward", "evaluate", fitted, *held_out) == 0
    assert json.loads(numbers.read_text())["accuracy"] > 0.8


def test_answers_enter_a_store(databases, capsys):
    options = ("--store", databases / "labels", "--new", "--name", "me")
    assert run("annotate", "import", databases / "train.pkl.gz", *options) == 0
    assert "40 answers" in capsys.readouterr().out
    assert run("annotate", "import", databases / "train.pkl.gz", *options[:2], "--name", "me") == 0
    assert "0 answers" in capsys.readouterr().out


def test_another_file_is_refused_by_name(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("no answers")
    out = ("--out", tmp_path / "run")
    assert run("reward", "fit", "--comparisons", tmp_path / "notes.txt", *out) == 1
    assert "notes.txt" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
