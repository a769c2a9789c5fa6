"""`preferl runs`: real runs of every kind, listed, shown and compared."""

import json
import subprocess
import sys

import pytest

from helpers import written_runs
from helpers.command_line import run


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def runs(tmp_path):
    """A folder with an online run, an offline run and a data set."""
    written_runs.online(tmp_path / "online")
    written_runs.offline(tmp_path / "offline", {0: 1.0, 7: 2.0})
    written_runs.data(tmp_path / "recorded")
    return tmp_path


def test_every_kind_of_run_is_listed(runs, capsys):
    assert run("runs", "list", runs) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split()[1] for line in lines if "finished" in line}
    assert rows == {"online": "online", "offline": "offline", "recorded": "data"}
    assert run("runs", "list", runs, "--json") == 0
    found = {one["kind"]: one for one in json.loads(capsys.readouterr().out)}
    assert (found["online"]["score"]["mean"], found["online"]["answers"]) == (-150, 60)
    assert found["online"]["accuracy"]["mean"] == 0.8
    assert found["offline"]["score"]["mean"] == 1.5


def test_a_narrow_terminal_leaves_columns_out(tmp_path, capsys, monkeypatch):
    written_runs.online(tmp_path / "online")
    monkeypatch.setenv("COLUMNS", "80")
    assert run("runs", "list", tmp_path) == 0
    out = capsys.readouterr().out
    assert "A wider terminal shows more columns" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "score" in out
    assert "took" not in out


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("online", ["algorithm.gamma", "environment steps", "random", "accuracy of the reward"]),
        ("offline", ["demonstrations", "updates", "seeds"]),
        ("recorded", ["Pendulum-v1", "recorded steps", "random"]),
    ],
)
def test_a_run_is_shown(runs, kind, words, capsys):
    assert run("runs", "show", runs / kind) == 0
    out = capsys.readouterr().out
    assert [word for word in [*words, "numpy", "result.json"] if word not in out] == []


def with_findings(path, findings):
    file = path / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"findings": findings}))
    return path


def test_what_is_wrong_with_a_run_is_shown(tmp_path, capsys):
    found = [{"name": "stuck", "text": "It stays.", "tries": ["explore more", "go on"]}]
    path = with_findings(written_runs.online(tmp_path / "run"), found)
    assert run("runs", "show", path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["findings"] == found
    assert run("runs", "show", path) == 0
    out = capsys.readouterr().out
    assert "What to look at" in out
    assert all(words in out for words in ("stuck", "It stays.", "- explore more", "- go on"))
    assert run("runs", "show", written_runs.online(tmp_path / "before")) == 0
    assert "What to look at" not in capsys.readouterr().out


def test_runs_are_compared(runs, tmp_path, capsys):
    other = written_runs.online(tmp_path / "other", -140.0, comparisons=9)
    page = tmp_path / "comparison.html"
    words = ("runs", "compare", runs / "online", other, runs / "offline", "--out", page)
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert f"Page: {page}" in out
    assert "Scores compare only within one environment" in out
    assert "3 runs side by side" in page.read_text()
    assert run(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["runs"]) == {"online", "other", "offline"}
    assert found["differing"]["comparisons"]["other"] == "9"


def test_a_page_does_not_go_into_a_run(tmp_path, capsys):
    one, other = (written_runs.online(tmp_path / name) for name in ("one", "other"))
    before = (other / "result.json").read_bytes()
    for out in (other / "report.html", other / "deep/page.html", tmp_path / "page.json"):
        assert run("runs", "compare", one, other, "--out", out) == 1
        assert "--out" in capsys.readouterr().err
        assert not out.exists()
    assert (other / "result.json").read_bytes() == before


def test_what_is_no_run_is_named_and_skipped(tmp_path, capsys):
    assert run("runs", "list", tmp_path / "none") == 1
    assert run("runs", "list", tmp_path) == 0
    assert "There are no runs" in capsys.readouterr().out
    (tmp_path / "config.json").write_text("{}")
    written_runs.online(tmp_path / "deep/run")
    assert run("runs", "list", tmp_path) == 0
    out, err = capsys.readouterr()
    assert "deep/run" in out
    assert "preferl: skipped" in err
    assert "something else, which is left alone" in err
    assert run("runs", "show", tmp_path) == 1


def test_torch_is_not_loaded(runs, tmp_path):
    words = [
        ["list", str(runs)],
        ["show", str(runs / "online")],
        ["compare", str(runs / "online"), str(runs / "offline"), "--out", str(tmp_path / "c.html")],
    ]
    code = f"""
import sys
from preferl.cli.main import main
for words in {words!r}:
    try:
        main(["runs", *words])
    except SystemExit as end:
        assert end.code == 0
assert not {{"torch", "stable_baselines3"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
