"""`preferl annotate report`: the tables, and the files that hold the same numbers."""

import json

from helpers.answering import answer_all
from helpers.command_line import run
from preferl.cli.annotate import people_table
from preferl.store.status import FitMetrics, to_json
from preferl.store.store import Store


def test_an_html_report(labels, tmp_path, capsys):
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text()
    assert page.count("How people agree</") == 1
    assert page.count('<table class="named">') == page.count("<table") - page.count("<thead>") == 2
    assert "no pair has two answers" in page
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.pdf") == 1
    assert ".html or .json" in capsys.readouterr().err


def test_shares_are_shown_with_what_they_are_of():
    person = {
        "name": "Ann", "answers": 1234, "median_ms": 3450.0, "tie_rate": 0.25, "left_rate": 0.5,
        "agreement": 0.75, "overlap": 4, "known_accuracy": 1.0, "known": 1200, "consistency": 0.0,
        "repeats": 3, "reasons": ["one side", "fast"],
        "trust": {"value": -1.234, "low": -1.634, "high": -0.834, "answers": 30.0},
    }  # fmt: skip
    ((*cells, trust, check),) = people_table({"people": [person]})[1]
    assert trust == "-1.23 ± 0.40"
    assert cells[:2] == ["Ann", "1,234"]
    assert cells[3:] == ["25%", "50%", "75% of 4", "100% of 1,200", "0% of 3"]
    assert check == "one side, fast"


def test_trust_is_that_of_the_newest_reward(labels, tmp_path):
    about = {"value": 0.5, "low": 0.25, "high": 0.75, "answers": 12}
    with Store.open(labels[1]) as store:
        project = store.projects.only()
        for name in ("Ann", "Bo"):
            store.people.invite(project.id, name)
        for version, trust in ((1, None), (2, {"Ann": about})):
            store.reports.publish_reward(
                project.id, version, answers=12, detail=to_json(FitMetrics(12, trust=trust))
            )
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.json") == 0
    people = json.loads((tmp_path / "r.json").read_text())["people"]
    assert {one["name"]: one["trust"] for one in people} == {"Ann": about, "Bo": None}


def test_sides_are_those_of_the_page_whichever_clip_was_shown_there(labels, tmp_path, capsys):
    answer_all(labels, ["Ann"], "left")
    with Store.open(labels[1]) as store:
        assert store.queries.votes(store.projects.only().id).swapped.any()
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.json") == 0
    assert json.loads((tmp_path / "r.json").read_text())["answers"]["A"] == 12
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["of", "these,", "A", "(left)", "is", "better", "12"] in printed
    assert ["B", "(right)", "is", "better", "0"] in printed


def test_numbers_of_a_file_are_those_of_the_answers(labels, tmp_path):
    answer_all(labels, ["Ann"], "equal")
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.json") == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["answers"] == {"A": 0, "B": 0, "equal": 12, "cannot tell": 0}
    assert report["people"][0]["answers"] == 12 + report["checks"], "all that she was asked"
    assert (report["progress"]["answered"], report["progress"]["wanted"]) == (12, 24)
    ((name, rate),) = [(person["name"], person["tie_rate"]) for person in report["people"]]
    assert (name, rate) == ("Ann", 1.0)
    assert report["agreement"]["raw"] is None, "nobody else answered"
    assert report["rewards"] == []
