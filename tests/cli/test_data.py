"""`preferl data inspect` shows what is there and lets errors rise."""

import pickle
import re

import numpy as np
import pytest

from helpers.command_line import run
from helpers.folder_contents import contents
from preferl.cli.data import (
    DataRecordConfig,
    InspectConfig,
    LabelConfig,
    data_inspect,
    data_label,
    data_record,
)
from preferl.data import (
    Comparisons,
    Episodes,
    load_comparisons,
    load_episodes,
    sample_segments,
    save_comparisons,
    save_episodes,
)
from preferl.data.sources import load_labels
from preferl.errors import ConfigError, DataError, StorageError
from preferl.online import DatasetConfig, PPOConfig, make_environments, save_policy
from preferl.online.algorithms import build_algorithm


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def _episodes():
    steps = np.arange(30.0)
    ended = np.zeros(30, bool)
    ended[9] = True
    observations = {"arm": steps[:, None], "eye/left": np.zeros((30, 4, 4), np.uint8)}
    final = {"arm": np.zeros((2, 1)), "eye/left": np.zeros((2, 4, 4), np.uint8)}
    return Episodes(observations, steps[:, None], steps, ended, final, np.array([10, 20]))


def _rows(text):
    """Names and values of the tables that were printed."""
    cells = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[1] for row in cells if len(row) == 2}


def _demonstrations(folder):
    one = {"observations": np.zeros((41, 3)), "actions": np.zeros((41, 2)), "rewards": np.ones(41)}
    (folder / "demos.pickle").write_bytes(pickle.dumps([one]))
    return folder / "demos.pickle"


def _labels(folder, second=30):
    folder.mkdir()
    for name, content in {
        "label_human": [0, 1, -1],
        "indices_num3_q5": np.array([0, 10, 20]),
        "indices_2_num3_q5": np.array([5, 15, second]),
    }.items():
        (folder / name).write_bytes(pickle.dumps(content))
    return folder


def test_episodes(tmp_path, capsys):
    save_episodes(tmp_path / "it", _episodes())
    data_inspect(InspectConfig(str(tmp_path / "it")))
    rows = _rows(capsys.readouterr().out)
    assert rows["episodes"] == "2"
    assert rows["steps"] == "30"
    assert rows["length, min / median / max"] == "10 / 15 / 20"
    assert rows["observations, eye/left"] == "uint8 [4, 4]"
    assert rows["actions"] == "float64 [1]"
    assert rows["return, min / median / max"] == "45 / 217.5 / 390"
    assert (rows["terminated"], rows["truncated"], rows["states"]) == ("1", "1", "none")


def test_demonstrations_and_labels(tmp_path, capsys):
    config = InspectConfig(str(_demonstrations(tmp_path)), _labels(tmp_path / "labels [1]"))
    data_inspect(config)
    out = capsys.readouterr().out
    rows = _rows(out)
    assert (rows["episodes"], rows["steps"]) == ("1", "40")
    assert (rows["first preferred"], rows["second preferred"]) == ("1 (33.3%)", "1 (33.3%)")
    assert (rows["ties"], rows["across an episode's end"]) == ("1 (33.3%)", "0 (0.0%)")
    assert rows["steps per segment"] == "5"
    assert "labels[1]" in "".join(out.split())  # the title wraps where paths are long


def test_crossing_labels_are_counted(tmp_path, capsys):
    save_episodes(tmp_path / "it", _episodes())
    labels = _labels(tmp_path / "labels", second=7)
    for crossing, left_out in (("keep", "0 (0.0%)"), ("drop", "1 (33.3%)")):
        data_inspect(InspectConfig(str(tmp_path / "it"), labels, crossing=crossing))
        rows = _rows(capsys.readouterr().out)
        assert (rows["across an episode's end"], rows["left out"]) == ("1 (33.3%)", left_out)


def test_comparisons(tmp_path, capsys, rng):
    segments = sample_segments(_episodes(), 4, 5, rng)
    answers = np.array([1.0, 0.5, np.nan])
    pairs = np.array([[0, 1], [2, 3], [1, 3]])
    save_comparisons(tmp_path / "it", Comparisons.of(segments, pairs, answers))
    data_inspect(InspectConfig(str(tmp_path / "it")))
    rows = _rows(capsys.readouterr().out)
    assert (rows["pairs"], rows["first preferred"], rows["ties"]) == ("3", "1 (33.3%)", "1 (33.3%)")
    assert (rows["declined"], rows["segments"]) == ("1 (33.3%)", "4 of 5 steps")
    save_comparisons(tmp_path / "collected", Comparisons.of(segments, pairs[:2], answers[:2]))
    data_inspect(InspectConfig(str(tmp_path / "collected")))
    assert "declined" not in capsys.readouterr().out, "collected answers hold none, whatever was"


def _label(folder, **settings):
    save_episodes(folder / "it", _episodes())
    config = LabelConfig(f"{folder / 'it'}", folder / "answers", length=4, **settings)
    data_label(config)
    return folder / "answers"


def test_a_scripted_teacher_answers_about_episodes(tmp_path, capsys):
    found = load_comparisons(_label(tmp_path, queries=30))
    first, second = found.segments.returns(found.pairs).T
    np.testing.assert_array_equal(found.preference, (np.sign(first - second) + 1) / 2)
    out = capsys.readouterr().out
    assert (_rows(out)["pairs"], _rows(out)["segments"][-10:]) == ("30", "of 4 steps")
    assert f"preferl reward fit --comparisons {tmp_path / 'answers'}" in "".join(out.splitlines())


def test_answers_follow_the_seed_and_the_teacher(tmp_path):
    same, again, other = (
        load_comparisons(_label(tmp_path / name, queries=30, seed=seed), memory_map=False)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    np.testing.assert_array_equal(same.segments.start, again.segments.start)
    assert not np.array_equal(same.segments.origin, other.segments.origin)
    wrong = load_comparisons(_label(tmp_path / "d", queries=30, teacher="{kind: mistake, rate: 1}"))
    first, second = wrong.segments.returns(wrong.pairs).T
    decided = wrong.decided
    np.testing.assert_array_equal(wrong.preference[decided], (first < second)[decided])
    within = "{kind: scripted, temperature: 0, equal_within: 1000}"
    ties = load_comparisons(_label(tmp_path / "e", queries=30, teacher=within))
    assert (ties.preference == 0.5).all()


def test_answers_in_the_preference_transformer_s_files(tmp_path):
    folder = _label(tmp_path, queries=30, format="pt")
    files = {"indices_num30_q4", "indices_2_num30_q4", "label_human"}
    assert {path.name for path in folder.iterdir()} == files
    found = load_labels(folder, _episodes()).comparisons
    own = load_comparisons(_label(tmp_path / "own", queries=30))
    shown = [one.segments[one.pairs].observations["arm"] for one in (found, own)]
    np.testing.assert_array_equal(*shown)
    np.testing.assert_array_equal(found.preference, own.preference)
    for path in folder.iterdir():  # numpy 1 knows its module by this name alone
        assert b"numpy._core" not in path.read_bytes()


def test_labels_that_cannot_be_made_leave_what_is_there(tmp_path):
    folder = _label(tmp_path, queries=10, format="pt")
    before = contents(folder)
    soft = "{kind: scripted, temperature: 1, sample: false}"
    with pytest.raises(DataError, match=r"expected 0, 0\.5 or 1"):
        _label(tmp_path, queries=10, format="pt", teacher=soft)
    with pytest.raises(StorageError, match="a folder that holds something else"):
        _label(tmp_path, queries=10)
    assert contents(folder) == before
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match="a folder of something else"):
        _label(tmp_path, queries=10, format="pt")
    for wrong in ({"queries": 0}, {"lists": 0}, {"queries": 3, "lists": 4}, {"teacher": "orakle"}):
        with pytest.raises(ConfigError):
            _label(tmp_path / "wrong", **wrong)
    assert not (tmp_path / "wrong/answers").exists()


def test_the_table_and_the_folder(tmp_path, capsys):
    out = tmp_path / "data"
    assert run("data", "record", "--env", "Pendulum-v1", "--mix", "random:2", "--out", out) == 0
    printed = capsys.readouterr().out
    assert "recording random ..." in printed
    assert f"Episodes: {out / 'episodes'}" in printed
    assert "random" in printed
    data_inspect(InspectConfig(str(out / "episodes")))
    assert "float64 [2]" in capsys.readouterr().out  # states


def test_a_saved_policy_acts(tmp_path):
    config = PPOConfig(hidden=(8,))
    made = build_algorithm(config, make_environments("Pendulum-v1", 1, seed=0), seed=0)
    save_policy(tmp_path / "policy", made, config)
    run = DatasetConfig(
        "Pendulum-v1", mix="expert:1", policy=tmp_path / "policy", deterministic=True
    )
    data_record(DataRecordConfig(run, tmp_path / "data"))
    episodes = load_episodes(tmp_path / "data" / "episodes")
    expected, _ = made.predict(episodes.observations, deterministic=True)
    assert episodes.actions == pytest.approx(expected, abs=1e-5)
