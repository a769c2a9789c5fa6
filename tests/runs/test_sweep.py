"""What a sweep's file says, as runs by name and as words of a command line."""

import csv
import time
from datetime import date

import pytest

from helpers import written_runs
from preferl.errors import ConfigError
from preferl.runs import read_run
from preferl.runs.sweep import LONGEST, Sweep, over_seeds, words_of, write_results

FILE = "sweep.yaml"


def made(**settings):
    return Sweep.from_json({"command": "online run", **settings}, FILE)


def test_each_entry_of_runs_meets_each_combination_of_the_grid():
    sweep = made(
        options={"env": "A-v1", "steps": 10},
        grid={"seed": [0, 1], "teacher.temperature": [0, 0.5]},
        runs=[{"comparisons": 5}, {"comparisons": 9, "steps": 20}],
    )
    found = sweep.by_name()
    assert len(found) == 8
    assert made(options={"seed": 3}).by_name() == {"run": {"seed": 3}}
    assert found["comparisons=9,steps=20,seed=1,teacher.temperature=0.5"] == {
        "env": "A-v1", "steps": 20, "comparisons": 9, "seed": 1, "teacher.temperature": 0.5,
    }  # fmt: skip


def test_names_are_those_of_folders_and_differ():
    long = {"note": "x" * 300}
    slash = {"env": "dm_control/walker-walk", "teacher": {"rate": 0.2}}
    first, second, third, *_ = names = made(
        runs=[long, {"note": "x" * 301}, slash, {"teacher": {"rate": 0.2}}, {"teacher": [0.2]}]
    ).by_name()
    assert len(set(names)) == 5
    assert len(first) == len(second) < LONGEST + 10
    assert third == "env=dm_control_walker-walk,teacher=0.2"
    with pytest.raises(ConfigError, match=r"runs: expected different ones, got seed=1-.* twice"):
        made(runs=[{"seed": 1}, {"seed": 1}, {"seed": 1}]).by_name()


def test_options_become_words():
    options = {"model.hidden": [8, 8], "resumable": True, "a.b_c": False, "wrappers": [{"m": {}}]}
    assert words_of(options | {"patience": None}) == [
        "--model.hidden", "8", "8", "--resumable", "--a.no-b-c", "--wrappers", '{"m": {}}',
        "--patience", "None",
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["--trust", ["jsonl", "--trust", "mine"], ["--trust=mine"]])
def test_a_value_is_no_option(value):
    with pytest.raises(ConfigError, match=r"report_to: expected values, got '--trust.*an option"):
        words_of({"report_to": value})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"options": {"note": date(2001, 1, 1)}}, "expected settings that JSON can hold"),
        ({"grids": {}}, "keys of sweep.yaml: .* got 'grids'. The nearest is grid."),
        ({"steps": 5}, "keys of sweep.yaml: .* got 'steps'. Options of the command go below"),
        ({"command": "online runs"}, "command of sweep.yaml: .* The nearest is online run."),
        ({"command": "annotate serve"}, "command of sweep.yaml: expected one of online run"),
        ({"grid": {"seed": 3}}, "grid: seed of sweep.yaml: expected a list of values"),
        ({"grid": {"seed": []}}, "grid: seed of sweep.yaml: expected a list of values"),
        ({"runs": {"seed": 3}}, "runs of sweep.yaml: expected a list of options"),
        ({"options": [1]}, "options of sweep.yaml: expected options by name"),
        ({"options": {"out": "x"}}, "options of sweep.yaml: .* got 'out'. Drop it."),
        ({"options": {"trust=mine": "x"}}, "options of sweep.yaml: .* got 'trust=mine'"),
        ({"runs": [{"trust": "mine"}]}, "got 'trust'. Set it on the command line"),
        (
            {"grid": {n: list(range(30)) for n in "abc"}},
            "runs of sweep.yaml: expected at most 10,000, got 27000",
        ),
    ],
)
def test_a_file_that_is_wrong_is_named(settings, words):
    with pytest.raises(ConfigError, match=words):
        made(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"grid": {f"a{n}": [*range(10)] for n in range(9)}},
        {"grid": {f"a{n}": [1, 2] for n in range(3000)}},
        {"grid": {"seed": [*range(9000)], **{f"a{n}": [1] for n in range(3000)}}},
        {"grid": {"seed": [*range(9000)]}, "options": {f"a{n}": 1 for n in range(3000)}},
        {"runs": [{"seed": n} for n in range(5000)], "options": {"env": "x" * 30_000}},
    ],
    ids=["runs", "many", "grid", "options", "letters"],
)
def test_too_many_options_are_refused_before_runs_are_made(settings):
    started = time.process_time()
    with pytest.raises(ConfigError, match=r"of sweep.yaml: expected at most"):
        made(**settings)
    assert time.process_time() - started < 1


def test_results_have_a_row_for_each_run_that_was_begun(tmp_path):
    sweep = made(options={"steps": 5}, runs=[{"seed": 0}, {"seed": 1, "comparisons": 7}])
    record = read_run(written_runs.online(tmp_path / "run", -150.0))
    write_results(tmp_path / "results.csv", sweep, {"seed=1,comparisons=7": record, "seed=0": None})
    with (tmp_path / "results.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["run"], row["seed"], row["comparisons"]) == ("seed=1,comparisons=7", "1", "7")
    assert (row["state"], row["answers"], row["score"]) == ("finished", "60", "-150.0")
    assert float(row["low"]) < -150 < float(row["high"])


def test_seeds_are_put_together(tmp_path):
    sweep = made(grid={"seed": [0, 1, 2], "steps": [5, 6]}, runs=[{}])
    scores = {"seed=0,steps=5": -1.0, "seed=1,steps=5": -3.0, "seed=2,steps=6": -5.0}
    records = {
        name: read_run(written_runs.online(tmp_path / name, score))
        for name, score in scores.items()
    }
    assert over_seeds(sweep, records | {"seed=0,steps=6": None}) == {"steps=5": [-1.0, -3.0]}


def test_settings_that_look_alike_as_names_stay_apart(tmp_path):
    kinds = [{"kind": "scripted", "error_rate": 0.1}, {"kind": "scripted", "skip_below": 0.1}]
    sweep = made(options={"env": "A-v1"}, grid={"teacher": kinds, "seed": [0, 1]})
    records = {
        name: read_run(written_runs.online(tmp_path / name, float(score)))
        for score, name in enumerate(sweep.by_name())
    }
    assert sorted(over_seeds(sweep, records).values()) == [[0.0, 1.0], [2.0, 3.0]]
