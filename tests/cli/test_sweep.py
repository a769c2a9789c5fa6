"""`preferl sweep`: runs of a file, each in a folder of its own, done once."""

import csv
import json
import re

import pytest

from helpers.command_line import run
from preferl.runs.executor import pending_units

SMALL = {
    "env": "CartPole-v1", "steps": 800, "initial_steps": 400, "iterations": 1, "comparisons": 6,
    "environments": 2, "segment_length": 10, "evaluation.episodes": 2, "evaluation.queries": 10,
    "evaluation.clip_steps": 0, "evaluation.oracle": False, "eval_every": 0, "report_to": ["jsonl"],
    "algorithm": {"kind": "ppo", "n_steps": 100, "batch_size": 50},
}  # fmt: skip


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of two small runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.json"
    path.write_text(
        json.dumps({"command": "online run", "options": SMALL, "grid": {"seed": [0, 1]}})
    )
    return path


def change(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def rows(folder):
    with (folder / "results.csv").open(newline="") as table:
        return {row["run"]: row for row in csv.DictReader(table)}


@pytest.mark.slow
def test_each_run_is_done_once_and_laid_beside_the_others(file, tmp_path, capsys):
    assert run("sweep", file, "--processes", "2") == 0
    out = tmp_path / "runs/small"
    printed = capsys.readouterr().out
    assert "Means over seeds" in printed
    assert (out / "comparison.html").is_file()
    before = rows(out)
    assert [*before] == ["seed=0", "seed=1"]
    assert {row["state"] for row in before.values()} == {"finished"}
    times = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    (out / "seed=1/done.json").unlink()  # as if killed between the run's end and the unit's
    change(file, grid={"seed": [0, 1, 2]})
    assert run("sweep", file, "--processes", "2") == 0
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert [*rows(out)] == ["seed=0", "seed=1", "seed=2"]
    assert run("runs", "compare", out, "--json", "--out", tmp_path / "page.html") == 0
    found = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert len(found["runs"]) == 3


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"options": {"stepz": 3}}, 2, "run seed=0 of .*small.json: --stepz: .* --steps"),
        ({"grid": {"steps": [800, "x"]}}, 2, "run steps=x of .*--steps: expected"),
        ({"runs": [{"env": "somebodys:Env-v0"}]}, 1, "pass --trust somebodys"),
        ({"command": "demo"}, 1, "command of .*small.json: expected one of online run"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(
    file, tmp_path, capsys, changes, status, words
):
    change(file, **changes)
    assert run("sweep", file) == status
    assert re.search(words, capsys.readouterr().err)
    assert not (tmp_path / "runs").exists()


EVIL = [
    {"env": "somebodys:Env-v0"},
    {"env": "somebodys:0"},  # gymnasium imports the module of each of these
    {"env": "somebodys://x"},
    {"wrappers": "somebodys.module:Shift: {by: 2}"},
    {"wrappers": " somebodys:Shift"},
    {"wrappers": "'somebodys:Shift'"},
    {"wrappers": '"somebodys:Shift": {}'},
    {"wrappers": "# said\n{? somebodys:Shift : {}}"},
    {"wrappers": "!!str somebodys:Shift"},
    {"wrappers": ["gymnasium.wrappers:FlattenObservation", "\n somebodys:Shift "]},
    {"wrappers": [{"somebodys:Shift": {}}]},
    {"env": "GymV26Environment-v0", "env_kwargs": {"env_id": "somebodys:Env-v0"}},
    {"env_kwargs": "{env_id: 'somebodys:Env-v0'}"},
]


@pytest.mark.parametrize("options", EVIL)
def test_a_module_in_a_file_needs_trust_however_it_is_written(file, tmp_path, capsys, options):
    (tmp_path / "somebodys.py").write_text("open('imported', 'w').close()\n")
    change(file, options={**SMALL, **options}, grid={})
    assert run("sweep", file, "--dry-run") == 1
    assert "small.json names: expected a module that may be imported" in capsys.readouterr().err
    assert not (tmp_path / "imported").exists()


def test_no_file_of_a_sweep_holds_a_password(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stores = [f"postgresql://me:secret{n}@127.0.0.1:1/a?sslpassword=secret@{n}" for n in (1, 2)]
    sweep = {"command": "reward fit", "grid": {"store": stores}, "options": {"files": stores[0]}}
    (tmp_path / "fits.json").write_text(json.dumps(sweep))

    def begin_and_fail(units, on_done):
        return {unit.name: f"no {stores[0]}" for unit in pending_units(units, on_done)}

    monkeypatch.setattr("preferl.cli.sweep.executor_of", lambda *_: begin_and_fail)
    assert run("sweep", "fits.json", "--dry-run") == 0
    assert run("sweep", "fits.json") == 1
    printed = capsys.readouterr().out
    assert "--store 'postgresql://me:***@127.0.0.1:1/a?sslpassword=***" in printed
    assert "secret" not in printed
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"sweep.json", "unit.json", "results.csv"}
    assert not [path for path in files if "secret" in path.read_text()]
    assert not [path for path in (tmp_path / "runs").rglob("*") if "secret" in path.name]
