"""The demo with people: the real page and its programs, and somebody who answers at the store."""

import json
import signal
import subprocess
import sys

import pytest

from helpers.somebody import Somebody
from helpers.waiting import SECONDS, wait_until
from preferl.cli.demo import DemoConfig, demo
from preferl.errors import ConfigError
from preferl.store import Store


def test_one_way_of_asking(tmp_path):
    with pytest.raises(ConfigError, match="one of"):
        demo(DemoConfig(ask=True, people=True, out=tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.nightly  # interrupted online runs are resumed in every check
def test_an_interrupted_demo_goes_on_with_its_labels(tmp_path):
    labels = tmp_path / "run-labels"
    out = tmp_path / "run"
    words = ["demo", "--people", "--no-browser", "--smoke", "--comparisons", "8", "--out", str(out)]
    command = [sys.executable, "-m", "preferl", *words]
    with (
        Somebody(labels, most=3) as person,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program,
    ):
        wait_until(person.had_enough.is_set, "nothing was asked")
        program.send_signal(signal.SIGTERM)  # as Ctrl-C
        printed, _ = program.communicate(timeout=SECONDS)
    assert program.returncode == 130
    assert "--resume" in printed
    assert not list((labels / "logs").glob("*.process.json")), "a program was left behind"
    config = DemoConfig(people=True, browser=False, smoke=True, comparisons=8, out=out, resume=True)
    with Somebody(labels) as other:
        demo(config)
    result = json.loads((out / "result.json").read_text())
    assert result["comparisons"] == 8
    assert person.given + other.given == 8, "nobody was asked twice"
    with Store.open(labels) as store:
        assert len(store.projects.all()) == 1
