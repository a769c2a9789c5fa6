import errno
import io
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from preferl.errors import ConfigError, DataError, MissingExtraError, StorageError
from preferl.reporting import JsonlSink, Sinks, TensorBoardSink, WandbSink, open_sinks, read_jsonl


class Memory:
    def __init__(self, *, fails=False):
        self.lines = []
        self.closed = False
        self.fails = fails

    def log(self, values, step):
        self.lines.append((dict(values), step))

    def close(self):
        self.closed = True
        if self.fails:
            raise RuntimeError("full disk")


def test_lines_become_columns(tmp_path):
    path = tmp_path / "deep" / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.log({"loss": np.float32(0.5)}, step=10)
    sink.log({"loss": math.nan, "return": -3.0}, step=20)
    columns = read_jsonl(path)  # before close: each line is flushed
    sink.close()
    np.testing.assert_array_equal(columns["step"], [10, 20])
    np.testing.assert_array_equal(columns["loss"], [0.5, np.nan])
    np.testing.assert_array_equal(columns["return"], [np.nan, -3.0])
    assert path.read_text().splitlines()[1] == '{"loss": null, "return": -3.0, "step": 20}'


def test_a_resumed_run_drops_the_line_a_crash_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"loss": 1.0, "step": 1}\n{"loss": 0.')
    assert read_jsonl(path)["loss"].tolist() == [1.0]
    sink = JsonlSink(path)
    sink.log({"loss": 2.0}, step=2)
    sink.close()
    assert read_jsonl(path)["loss"].tolist() == [1.0, 2.0]


def test_damaged_and_missing_files_are_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"loss": 1.0}\nnonsense\n')
    with pytest.raises(DataError, match="line 2"):
        read_jsonl(path)
    with pytest.raises(StorageError):
        read_jsonl(tmp_path / "none")
    with pytest.raises(StorageError):
        JsonlSink(path / "below-a-file")


def test_columns_take_no_more_than_the_file_explains(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {row}, "m{row}": 1}}\n' for row in range(14_000)))
    started = time.process_time()
    with pytest.raises(DataError, match=r"metrics.jsonl: expected at most .* bytes in memory"):
        read_jsonl(path)
    assert time.process_time() - started < 2


class ReadOnly(io.StringIO):
    """A file whose disk has become read-only."""

    def flush(self):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def close(self):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_disk_that_becomes_read_only_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "open", lambda *_, **__: ReadOnly())
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    expected = r"metrics.jsonl: expected a place that can be written to, got Read-only file system"
    with pytest.raises(StorageError, match=expected):
        sink.log({"loss": 0.5}, step=1)
    with pytest.raises(StorageError, match=expected):
        sink.close()


def test_fan_out():
    first = Memory()
    second = Memory()
    Sinks(first, second).log({"loss": 1.0}, step=3)
    assert first.lines == second.lines == [({"loss": 1.0}, 3)]


def test_all_sinks_close_even_if_one_fails():
    sinks = Memory(), Memory(fails=True), Memory()
    with pytest.raises(RuntimeError, match="full disk"):
        Sinks(*sinks).close()
    assert all(sink.closed for sink in sinks)


def test_tensorboard_holds_what_was_logged(tmp_path):
    sink = TensorBoardSink(tmp_path)
    sink.log({"loss": 0.25}, step=7)
    sink.close()
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = tmp_path.iterdir()
    events = [e for e in EventFileLoader(str(file)).Load() if e.HasField("summary")]
    assert events[0].step == 7
    assert events[0].summary.value[0].tag == "loss"


def test_wandb_missing_names_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(MissingExtraError, match="wandb"):
        WandbSink("project")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["offline", "online"])
def test_wandb_itself(tmp_path, mode):
    """In a program of its own, since wandb leaves another one running."""
    pytest.importorskip("wandb", reason="wandb is not installed; the extra wandb brings it")
    program = (
        "import sys\n"
        "from preferl.errors import ConfigError\n"
        "from preferl.reporting import WandbSink\n"
        "try:\n"
        "    sink = WandbSink(folder=sys.argv[1])\n"
        "except ConfigError as error:\n"
        "    sys.exit(str(error))\n"
        "import wandb\n"
        "print(wandb.run.settings.mode, wandb.run.project, wandb.run.entity)\n"
        "sink.log({'loss': 0.5}, 1)\n"
        "sink.close()\n"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    env |= {"WANDB_MODE": mode, "WANDB_PROJECT": "mine", "WANDB_ENTITY": "team"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=env | {"HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if mode == "offline":
        assert "offline mine team" in done.stdout
        assert list(tmp_path.glob("wandb/offline-run-*"))
    else:
        assert done.returncode == 1
        assert "wandb login" in done.stderr


def test_places_are_opened_by_name(tmp_path):
    sink = open_sinks(("jsonl", "tensorboard"), tmp_path)
    sink.log({"loss": 0.5}, step=1)
    sink.close()
    assert read_jsonl(tmp_path / "metrics.jsonl")["loss"].tolist() == [0.5]
    assert list((tmp_path / "tensorboard").glob("events*"))
    open_sinks((), tmp_path).log({"loss": 1.0}, step=2)


@pytest.mark.parametrize("places", [("pigeon",), ("jsonl", "jsonl")])
def test_unknown_places_are_refused(places, tmp_path):
    with pytest.raises(ConfigError, match="jsonl, tensorboard, wandb"):
        open_sinks(places, tmp_path)
