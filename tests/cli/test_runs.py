"""`preferl runs`: real runs of every kind, listed, shown and compared."""

import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from helpers import offline_runs, written_runs
from helpers.command_line import run
from preferl.data import save_episodes
from preferl.testing import PointWorld

SHORT = (
    "--steps", "800", "--initial-steps", "400", "--iterations", "1", "--comparisons", "6",
    "--environments", "2", "--segment-length", "10", "--evaluation.episodes", "2",
    "--evaluation.queries", "10", "--evaluation.clip-steps", "0", "--evaluation.no-oracle",
    "--eval-every", "200", "--eval-episodes", "2", "--algorithm", "ppo",
)  # fmt: skip


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with an online run, an offline run, a fit of a reward and a data set."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    episodes = offline_runs.recorded(rng)
    save_episodes(folder / "data/episodes", episodes)
    labels = offline_runs.write_labels(folder / "data/labels", episodes, rng)
    gymnasium.register(offline_runs.ENV, PointWorld, order_enforce=False, disable_env_checker=True)
    try:
        config = offline_runs.config_of(folder / "data")
        offline_runs.run(config, folder / "offline")
    finally:
        del gymnasium.registry[offline_runs.ENV]
    fit = ("--demonstrations", folder / "data/episodes", "--labels", labels, "--epochs", "2")
    assert run("reward", "fit", *fit, "--hidden", "8", "--out", folder / "reward") == 0
    mix = ("--env", "Pendulum-v1", "--mix", "random:2", "--out", folder / "recorded")
    assert run("data", "record", *mix) == 0
    assert run("online", "run", *SHORT, "--out", folder / "online") == 0
    return folder


@pytest.mark.slow
def test_every_kind_of_run_is_listed(runs, capsys):
    assert run("runs", "list", runs) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if "finished" in line}
    assert set(rows) == {"online", "offline", "reward", "recorded"}
    assert rows["online"][1:4] == ["online", "finished", "Pendulum-v1"]
    assert rows["reward"][1] == "reward"
    assert rows["recorded"][1] == "data"


@pytest.mark.slow
def test_the_list_as_json_agrees_with_the_results(runs, capsys):
    assert run("runs", "list", runs, "--json") == 0
    found = {one["kind"]: one for one in json.loads(capsys.readouterr().out)}
    result = json.loads((runs / "online/result.json").read_text())
    assert found["online"]["score"]["mean"] == result["policies"]["taught"]["mean"]
    assert found["online"]["answers"] == 6
    result = json.loads((runs / "offline/result.json").read_text())
    assert found["offline"]["score"]["mean"] == result["conditions"]["learned"]["return"]["mean"]
    fit = json.loads((runs / "reward/result.json").read_text())["fit"]
    best = fit["validation_accuracy"][fit["best_epoch"] - 1]
    assert found["reward"]["accuracy"]["mean"] == pytest.approx(best, abs=1e-6)


def test_a_narrow_terminal_leaves_columns_out(tmp_path, capsys, monkeypatch):
    written_runs.online(tmp_path / "online")
    monkeypatch.setenv("COLUMNS", "80")
    assert run("runs", "list", tmp_path) == 0
    out = capsys.readouterr().out
    assert "A wider terminal shows more columns" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "score" in out
    assert "took" not in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("online", ["steps", "800", "environment steps", "comparisons", "random"]),
        ("offline", ["iql.hidden", "16", "updates", "negated"]),
        ("reward", ["reward.epochs", "accuracy of the reward", "95 % interval"]),
        ("recorded", ["mix", "random:2", "recorded steps"]),
    ],
)
def test_a_run_is_shown(runs, kind, words, capsys):
    assert run("runs", "show", runs / kind) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in [*words, "stable-baselines3", "result.json"])


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


@pytest.mark.parametrize("findings", [3, [3], [{"name": "stuck"}]], ids=["3", "[3]", "no text"])
def test_findings_that_are_damaged_are_one_error(tmp_path, capsys, findings):
    path = with_findings(written_runs.online(tmp_path / "run"), findings)
    assert run("runs", "show", path) == 1
    err = capsys.readouterr().err
    assert "expected the folder of a run" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_runs_are_compared(runs, tmp_path, capsys):
    other = written_runs.online(tmp_path / "other", -150.0)
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
    assert found["differing"]["comparisons"]["online"] == "6"


def test_a_page_does_not_go_into_a_run(tmp_path, capsys):
    one, other = (written_runs.online(tmp_path / name) for name in ("one", "other"))
    before = (other / "result.json").read_bytes()
    for out in (other / "report.html", other / "deep/page.html", tmp_path / "page.json"):
        assert run("runs", "compare", one, other, "--out", out) == 1
        assert "--out" in capsys.readouterr().err
        assert not out.exists()
    assert (other / "result.json").read_bytes() == before


def test_what_is_no_run_is_named_and_skipped(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    written_runs.online(tmp_path / "deep/run")
    assert run("runs", "list", tmp_path) == 0
    out, err = capsys.readouterr()
    assert "deep/run" in out
    assert "preferl: skipped" in err
    assert "something else, which is left alone" in err
    assert run("runs", "show", tmp_path) == 1


def test_no_runs_and_no_folder(tmp_path, capsys):
    assert run("runs", "list", tmp_path) == 0
    assert "There are no runs" in capsys.readouterr().out
    assert run("runs", "list", tmp_path / "none") == 1


@pytest.mark.slow
def test_torch_is_not_loaded(runs, tmp_path):
    words = [
        ["list", str(runs)],
        ["show", str(runs / "reward")],
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
