"""Units are done once, each in a process of its own, whatever fails or is killed on the way."""

import os
import signal
import subprocess
import sys

import pytest

from helpers.unit_works import stop_first, unit
from helpers.waiting import wait_until
from preferl.errors import ConfigError
from preferl.runs.executor import DONE, LOG, Unit, run_units

WAITING = """
from pathlib import Path
import sys
from preferl.runs.executor import Unit, run_units
if __name__ == "__main__":
    run_units([Unit("waits", "helpers.unit_works:wait", {}, Path(sys.argv[1]))])
"""


def results(units, **options):
    found = {}
    failed = run_units(units, lambda one, result: found.update({one.name: result}), **options)
    return found, failed


def test_each_unit_is_done_once_in_any_order_and_number_of_processes(tmp_path):
    units = [unit(tmp_path, number) for number in (2, 3)]
    expected = {"square 2": 4, "square 3": 9}
    assert results(units, processes=2) == (expected, {})
    assert results(units[::-1], processes=1) == (expected, {})  # they are done
    elsewhere = [unit(tmp_path / "elsewhere", number) for number in (3, 2)]
    assert results(elsewhere, processes=1) == (expected, {})
    assert {(one.folder / "calls").read_text() for one in units} == {"called\n"}


def test_a_unit_that_was_killed_is_run_again_and_goes_on(tmp_path):
    units = [unit(tmp_path, 5, "killed_once")]
    found, failed = results(units)
    assert found == {}
    assert failed == {"killed_once 5": "ended by SIGKILL"}
    assert results(units) == ({"killed_once 5": 25}, {})
    assert results(units) == ({"killed_once 5": 25}, {})


def test_failed_units_are_named_with_their_last_lines_and_the_others_go_on(tmp_path, caplog):
    units = [unit(tmp_path, 1, "fail"), unit(tmp_path, 2)]
    found, failed = results(units, processes=1)
    assert found == {"square 2": 4}
    assert [*failed] == ["fail 1"]
    assert failed["fail 1"].endswith("ValueError: number 1 cannot be done")
    assert "fail 1 failed" in caplog.text


def test_a_unit_has_one_thread_and_prints_into_its_log(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    one = unit(tmp_path, 1, "threads")
    assert results([one]) == ({"threads 1": "1"}, {})
    assert (one.folder / LOG).read_text() == "printed into the log\n"
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_ctrl_c_interrupts_units_under_way(tmp_path):
    units = [unit(tmp_path, 1, "wait"), unit(tmp_path, 2)]

    with pytest.raises(KeyboardInterrupt):
        run_units(units, stop_first(units), processes=2)
    assert (units[0].folder / "interrupted").exists()
    assert not (units[0].folder / DONE).exists()
    assert not runs(int((units[0].folder / "begun").read_text()))


def test_units_end_with_the_program_that_started_them(tmp_path):
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, str(script), str(tmp_path / "unit")]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}) as program:
        begun = tmp_path / "unit/begun"
        process = int(wait_until(lambda: begun.exists() and begun.read_text()))
        program.send_signal(signal.SIGKILL)
    wait_until(lambda: not runs(process), "the end of the unit's process")


def runs(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_other_settings_in_the_folder_of_a_unit_are_refused_before_anything_runs(tmp_path):
    one = unit(tmp_path, 1)
    other = unit(tmp_path, 2)
    run_units([one])
    changed = Unit(one.name, one.work, {"number": 3}, one.folder)
    with pytest.raises(ConfigError, match=r"settings of square 1 .*'number': 1.*'number': 3"):
        run_units([other, changed])
    assert not (other.folder / "calls").exists()


def test_units_have_names_and_folders_of_their_own(tmp_path):
    one = unit(tmp_path, 1)
    with pytest.raises(ConfigError, match="names of units: expected different ones"):
        run_units([one, Unit(one.name, one.work, {}, tmp_path / "other")])
    with pytest.raises(ConfigError, match="folders of units: expected different ones"):
        run_units([one, Unit("other", one.work, {}, one.folder)])
