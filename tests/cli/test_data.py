"""`preferl data inspect` shows what is there and lets errors rise."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from preferl.cli.data import InspectConfig, data_inspect
from preferl.data import (
    Comparisons,
    Episodes,
    load_episodes,
    sample_segments,
    save_comparisons,
    save_episodes,
)
from preferl.data.arrays import save_arrays
from preferl.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def _episodes() -> Episodes:
    steps = np.arange(30.0)
    ended = np.zeros(30, bool)
    ended[9] = True
    observations = {"arm": steps[:, None], "eye/left": np.zeros((30, 4, 4), np.uint8)}
    final = {"arm": np.zeros((2, 1)), "eye/left": np.zeros((2, 4, 4), np.uint8)}
    return Episodes(observations, steps[:, None], steps, ended, final, np.array([10, 20]))


def _rows(text: str) -> dict[str, str]:
    """Names and values of the tables that were printed."""
    cells = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[1] for row in cells if len(row) == 2}


def _demonstrations(folder: Path) -> Path:
    one = {"observations": np.zeros((41, 3)), "actions": np.zeros((41, 2)), "rewards": np.ones(41)}
    (folder / "demos.pickle").write_bytes(pickle.dumps([one]))
    return folder / "demos.pickle"


def _labels(folder: Path, second: int = 30) -> Path:
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


def test_empty_episodes(tmp_path, capsys):
    save_episodes(tmp_path / "it", _episodes()[:0])
    data_inspect(InspectConfig(str(tmp_path / "it")))
    assert _rows(capsys.readouterr().out)["return, min / median / max"] == "none"
    assert len(load_episodes(tmp_path / "it")) == 0


def test_minari_ids(tmp_path, monkeypatch):
    pytest.importorskip("minari", reason="the extra preferl[minari] is not installed")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(DataError, match="Minari data set 'D4RL/absent/human-v2'"):
        data_inspect(InspectConfig("D4RL/absent/human-v2"))


def test_errors_rise(tmp_path, rng):
    with pytest.raises(DataError, match="a file, a folder, or the id"):
        data_inspect(InspectConfig(str(tmp_path / "absent")))
    save_arrays(tmp_path / "other", {}, {"kind": "clips"})
    with pytest.raises(DataError, match="expected episodes, got clips"):
        data_inspect(InspectConfig(str(tmp_path / "other")))
    segments = sample_segments(_episodes(), 2, 5, rng)
    one = Comparisons.of(segments, np.array([[0, 1]]), np.ones(1))
    save_comparisons(tmp_path / "it", one)
    with pytest.raises(ConfigError, match="expected episodes, got comparisons"):
        data_inspect(InspectConfig(str(tmp_path / "it"), tmp_path))


def test_d4rl_files_and_their_tasks(tmp_path, capsys):
    h5py = pytest.importorskip("h5py", reason="the extra preferl[d4rl] is not installed")
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        file["observations"] = file["actions"] = np.zeros((250, 1))
        file["rewards"], file["terminals"] = np.ones(250), np.zeros(250, bool)
    with pytest.raises(DataError, match="timeouts"):
        data_inspect(InspectConfig(str(tmp_path / "data.hdf5")))
    data_inspect(InspectConfig(str(tmp_path / "data.hdf5"), task="pen-human-v1"))
    rows = _rows(capsys.readouterr().out)
    assert rows["length, min / median / max"] == "49 / 99 / 99"


def test_importing_is_light():
    code = "import sys, preferl.cli.data; print({'numpy', 'rich', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
