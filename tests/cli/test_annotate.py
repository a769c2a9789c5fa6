"""`preferl annotate` and `preferl reward fit --store`: from episodes to a reward of people."""

import json
import os
from http.server import ThreadingHTTPServer
from importlib import import_module
from threading import Thread

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import lerobot_maker
from examples.model_server import Compare

from helpers.answering import answer_all
from helpers.command_line import run
from preferl.cli.annotate import episodes_of_run
from preferl.data import load_comparisons
from preferl.data.arrays import load_arrays
from preferl.errors import DataError, MissingExtraError
from preferl.models import MLPReward, MLPRewardConfig, infer_spaces
from preferl.store.status import FitMetrics, to_json
from preferl.store.store import Store
from preferl.training import RewardFunction, save_reward
from preferl.video import encode


@pytest.mark.slow
def test_from_episodes_to_a_reward(labels, tmp_path, capsys):
    answer_all(labels)
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.json") == 0
    out = capsys.readouterr().out
    assert "24 of 24 wanted" in out
    assert "Bob" in out
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["agreement"]["raw"] == 1.0
    assert report["progress"]["answered"] == 24
    assert [person["name"] for person in report["people"]] == ["Ann", "Bob"]
    fit = ("--out", tmp_path / "reward", "--epochs", 2, "--hidden", 8, "--combine", "majority")
    assert run("reward", "fit", *labels, *fit) == 0
    with Store.open(labels[1]) as store:
        assert store.reports.rewards(store.projects.only().id) == [], "people see no stray fit"
    fit = ("--out", tmp_path / "published", *fit[2:])
    assert run("reward", "fit", *labels, *fit, "--publish") == 0
    assert (tmp_path / "reward/report.html").is_file()
    with Store.open(labels[1]) as store:
        (published,) = store.reports.rewards(store.projects.only().id)
        assert published.version == 1
        assert published.low < published.accuracy < published.high
    assert " out-of-bag answers (" in capsys.readouterr().out
    assert "answers about 24 clips" in (tmp_path / "reward/report.html").read_text()
    export = ("--clips", tmp_path / "clips", "--anonymous")
    assert run("annotate", "export", tmp_path / "a.jsonl", *labels, *export) == 0
    assert len(load_comparisons(tmp_path / "clips")) == 12
    assert "Ann" not in (tmp_path / "a.jsonl").read_text()
    moved = ("--store", tmp_path / "other", "--clips", tmp_path / "clips")
    assert run("annotate", "import", tmp_path / "a.jsonl", *moved, "--new") == 0
    assert "0 were there already" in capsys.readouterr().out
    assert run("annotate", "import", tmp_path / "a.jsonl", *moved) == 0
    assert "0 answers are new" in capsys.readouterr().out


def test_invitations(labels, capsys):
    capsys.readouterr()
    assert run("annotate", "invite", "Zoë", *labels, "--public-url", "https://example.org/") == 0
    printed = capsys.readouterr().out
    link = printed.split()[-1]
    assert link.startswith("https://example.org/join/")
    assert "this machine" not in printed
    with Store.open(labels[1]) as store:
        assert store.people.by_secret(link.rpartition("/")[2]).name == "Zoë"
        for url in ("http://localhost:1", "http://localhost:9000"):  # where the page was served
            store.reports.add_event(None, "served", detail={"url": url})
    assert run("annotate", "invite", " Zoë ", *labels, "--role", "spectator") == 0
    first, link, *more = capsys.readouterr().out.splitlines()
    assert first.startswith("Zoë (spectator) looks on here")
    assert link.startswith("http://localhost:9000/join/")
    assert more[0] == "The link that Zoë had before has ended."
    assert more[1].startswith("It opens on this machine only.")
    assert run("annotate", "invite", *labels) == 2
    assert "NAME" in capsys.readouterr().err
    assert run("annotate", "invite", "Owner", *labels) == 1
    assert "annotate serve" in capsys.readouterr().err


def test_links_that_expire_open_once_or_no_more(labels, capsys):
    capsys.readouterr()
    assert run("annotate", "invite", "Ann", *labels, "--expires", "48", "--once") == 0
    printed = capsys.readouterr().out
    assert "It opens once within 48 hours." in printed
    secret = printed.splitlines()[1].rpartition("/")[2]
    with Store.open(labels[1]) as store:
        person = store.people.by_secret(secret)
        assert person.link_uses == 1
        assert 47 * 3600 < person.link_expires_at - store.reports.clock() < 49 * 3600
        assert run("annotate", "invite", "Ann", *labels, "--revoke") == 0
        assert "The link of Ann has ended" in capsys.readouterr().out
        assert store.people.by_secret(secret) is None
    for wrong in (("Bob", "--revoke"), ("Bob", "--expires", "0"), ("\uff2fwner",)):
        assert run("annotate", "invite", *wrong, *labels) == 1


@pytest.mark.parametrize("place", ["new", "labels"])
def test_an_import_that_fails_leaves_no_new_project(labels, recorded, tmp_path, capsys, place):
    wrong = {"chosen": {"episode": 0, "start": 2}, "rejected": {"episode": 9, "start": 3}}
    table = tmp_path / "a.jsonl"
    table.write_text(json.dumps(wrong) + "\n")
    where = ("--store", tmp_path / place, "--project", "pilot", "--new")
    options = (*where, "--demonstrations", recorded / "episodes", "--length", 10)
    assert run("annotate", "import", table, *options) == 1
    assert run("annotate", "export", tmp_path / "b.jsonl", *labels) == 0, "there is one project"
    assert run("annotate", "import", tmp_path / "none.jsonl", *options) == 1
    assert (tmp_path / "new").exists() is False
    table.write_text(json.dumps(wrong | {"rejected": {"episode": 1, "start": 3}}) + "\n")
    assert run("annotate", "import", table, *options) == 0
    assert run("annotate", "import", table, *options) == 1
    assert "pilot, which exists" in capsys.readouterr().err
    assert run("annotate", "report", *where[:-1]) == 0, "a project that exists stays"
    assert "1 of 1 wanted" in capsys.readouterr().out


def test_a_project_asks_about_the_experience_of_an_online_run(recorded, tmp_path, capsys):
    (recorded / "episodes").rename(recorded / "experience")
    where = ("--store", tmp_path / "labels", "--queries", 3, "--length", 10, "--env", "Pendulum-v1")
    assert run("annotate", "create", "--run", recorded, *where) == 0
    printed = capsys.readouterr().out
    assert "3 pairs of 10 steps" in printed
    assert "known answer" not in printed
    assert run("annotate", "report", *where[:2]) == 0
    assert "known pairs" not in capsys.readouterr().out


def test_serving_draws_beside_it(labels, monkeypatch, capsys):
    served = []

    def serve(store, project, settings, **more):
        served.append((project.slug, settings.port, more["open_browser"], more["render"][:4]))

    monkeypatch.setattr(import_module("preferl.annotate.serve"), "serve", serve)
    words = ("annotate", "serve", *labels, "--port", 0, "--no-browser")
    assert run(*words) == 0
    assert capsys.readouterr().out.startswith("Starting the page ...")
    assert run(*words, "--no-render") == 0
    draws = ("annotate", "render", "--store", str(labels[1]))
    assert served == [("labels", 0, False, render) for render in (draws, ())]


def test_clips_may_be_drawn_elsewhere(recorded, tmp_path, capsys):
    options = ("--run", recorded, "--env", "Elsewhere-v1", "--length", 10, "--queries", 2)
    assert run("annotate", "create", *options, "--elsewhere", "--store", tmp_path / "far") == 0
    assert run("annotate", "render", "--store", tmp_path / "far", "--once") == 0
    assert "0 clips drawn, 4 could not be." in capsys.readouterr().out


def test_a_program_that_drew_nothing_beside_a_page_says_nothing(tmp_path, capsys):
    with Store.open(tmp_path / "labels") as store:
        store.projects.create("door")
    command = ("annotate", "render", "--store", tmp_path / "labels", "--once")
    assert run(*command) == 0
    assert capsys.readouterr().out == "There were no clips to draw.\n"
    assert run(*command, "--parent", os.getppid()) == 0
    assert capsys.readouterr().out == ""


def test_episodes_of_an_offline_run(recorded, tmp_path):
    file = tmp_path / "offline/config.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"config": {"config": {"demonstrations": f"{recorded}/episodes"}}}))
    assert episodes_of_run(file.parent).steps == 120
    for damaged in ({"config": []}, {"config": {"config": {"demonstrations": None}}}, None):
        file.write_text(json.dumps(damaged))
        with pytest.raises(DataError, match="save_episodes"):
            episodes_of_run(file.parent)
    absent = {"demonstrations": None, "dataset": "none/such-v0"}
    file.write_text(json.dumps({"config": {"config": absent}}))
    with pytest.raises((DataError, MissingExtraError), match=r"such|minari"):
        episodes_of_run(file.parent)


def test_a_project_holds_what_was_given(recorded, tmp_path, capsys):
    (tmp_path / "it").write_text("Watch the tür.", encoding="utf-8")
    store = tmp_path / "my labels"
    where = ("--store", store, "--instructions", tmp_path / "it", "--title", "Doors")
    more = ("--queries", 7, "--length", 10, "--env", "Pendulum-v1", "--elsewhere", "--fps", 20)
    assert run("annotate", "create", "--run", recorded, *where, *more) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("7 pairs of 10 steps from 3 episodes wait in ")
    assert f"preferl annotate serve --store '{store}'" in printed, "it can be typed as it is"
    with Store.open(store) as store:
        project = store.projects.only()
        assert (project.slug, project.title, project.fps) == ("labels", "Doors", 20)
        assert project.instructions == "Watch the tür."
        assert project.question == "Which clip is better?"
        asked = store.queries.query_clips(project.id)
    assert len(asked) == 7
    again = ("--store", tmp_path / "again")
    for seed, same in ((0, True), (1, False)):
        words = (*again, "--project", f"p{seed}", "--seed", seed, *more)
        assert run("annotate", "create", "--run", recorded, *words) == 0
        with Store.open(tmp_path / "again") as store:
            others = store.queries.query_clips(store.projects.get(f"p{seed}").id)
        assert ([pair[1:] for pair in others] == [pair[1:] for pair in asked]) == same
    assert run("annotate", "create", "--run", recorded, *where, *more) == 1, "the name is taken"


def test_a_model_behind_a_url_answers_beside_people(labels, tmp_path, capsys, monkeypatch):
    with Store.open(labels[1]) as store:
        project = store.projects.only().id
        frames = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), np.uint8)
        for row, clip in enumerate(store.clips.without_video(project, 99)):
            store.clips.put_video(project, clip, encode(frames[: 2 + row % 3], 10, smallest=16))
    answer_all(labels, names=["Ann"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Compare)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("COMPARE_KEY", "not-printed")
    url = ("--url", f"http://127.0.0.1:{server.server_port}/", "--key-variable", "COMPARE_KEY")
    for limit in ("5", "99"):
        assert run("annotate", "ask", "motion", *labels, *url, "--limit", limit) == 0
    server.shutdown()
    server.server_close()
    printed = capsys.readouterr().out
    assert "5 answers by motion, version motion-1: 0 declined" in printed
    assert "not-printed" not in printed
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.json") == 0
    assert "motion (model)" in capsys.readouterr().out
    (motion,) = json.loads((tmp_path / "r.json").read_text())["models"]
    assert motion["name"] == "motion"
    assert motion["queries"] >= 12
    for wrong in ((), ("--model", "a:b", *url), ("--model", "nowhere:compare")):
        assert run("annotate", "ask", "motion", *labels, *wrong) == 1
    monkeypatch.delenv("COMPARE_KEY")
    assert run("annotate", "ask", "motion", *labels, *url) == 1
    assert "key of a model" in capsys.readouterr().err


def test_an_html_report(labels, tmp_path, capsys):
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text()
    assert page.count("How people agree</") == 1
    assert page.count('<table class="named">') == page.count("<table") - page.count("<thead>") == 2
    assert "no pair has two answers" in page


def test_trust_is_that_of_the_newest_reward(labels, tmp_path, capsys):
    about = {"value": -1.234, "low": -1.634, "high": -0.834, "answers": 12}
    with Store.open(labels[1]) as store:
        project = store.projects.only().id
        for name in ("Ann", "Bo"):
            store.people.invite(project, name)
        for version, trust in enumerate((None, {"Ann": about}), start=1):
            detail = to_json(FitMetrics(12, trust=trust))
            store.reports.announce_reward(project, version, answers=12, detail=detail)
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.json") == 0
    people = json.loads((tmp_path / "r.json").read_text())["people"]
    assert {one["name"]: one["trust"] for one in people} == {"Ann": about, "Bo": None}
    assert "-1.23 ± 0.40" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["left", "equal"])
def test_numbers_of_a_file_are_those_of_the_answers(labels, tmp_path, capsys, kind):
    answer_all(labels, ["Ann"], kind)
    with Store.open(labels[1]) as store:
        assert store.queries.votes(store.projects.only().id).swapped.any()
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.json") == 0
    report = json.loads((tmp_path / "r.json").read_text())
    counts = {"A": 0, "B": 0, "equal": 0, "cannot tell": 0, "A" if kind == "left" else kind: 12}
    assert report["answers"] == counts, "sides are those of the page"
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["of", "these,", "A", "(left)", "is", "better", str(counts["A"])] in printed
    (ann,) = report["people"]
    assert (ann["name"], ann["tie_rate"]) == ("Ann", float(kind == "equal"))
    assert ann["answers"] == 12 + report["checks"], "all that she was asked"
    assert (report["progress"]["answered"], report["progress"]["wanted"]) == (12, 24)
    assert report["agreement"]["raw"] is None, "nobody else answered"
    assert report["rewards"] == []


@pytest.fixture
def robot(tmp_path):
    """A LeRobot data set of two tasks."""
    lerobot_maker.make(tmp_path / "robot", [12, 30, 7, 20, 9], side=64)
    table = tmp_path / "robot/meta/episodes/chunk-000/file-000.parquet"
    episodes = pq.read_table(table)
    tasks = pa.array([["push"], ["push"], ["pull"], ["push"], ["pull"]])
    place = episodes.column_names.index("tasks")
    pq.write_table(episodes.set_column(place, "tasks", tasks), table)
    return tmp_path / "robot"


@pytest.mark.parametrize("whole", [False, True])
def test_only_clips_of_one_task_are_compared(robot, tmp_path, whole, capsys):
    labels = tmp_path / "labels"
    kind = ["--whole-episodes"] if whole else ["--length", 5]
    options = (*kind, "--queries", 30, "--ratings", "--speed", 1.5, "--store", labels)
    assert run("annotate", "create", "--lerobot", robot, *options) == 0
    output = capsys.readouterr().out
    assert ("Episodes differ in length (7 to 30 steps)" in output) == whole
    with Store.open(labels) as store:
        project = store.projects.only()
        assert (project.ratings, project.fps) == (True, 15)
        asked = store.queries.query_clips(project.id)
        names = sorted({clip for _, *pair in asked for clip in pair})
        clips = store.clips.segments(project.id, names)
        ann = store.people.invite(project.id, "Ann").annotator.id
        first = store.queue.claim(project.id, ann, 1, undrawn=True).queries[0]
    episode = clips.states[clips.start, 0]
    tasks = ["push", "push", "pull", "push", "pull"]
    task_of = {name: tasks[int(number)] for name, number in zip(names, episode, strict=True)}
    compared = [{task_of[clip] for clip in pair} for _, *pair in asked]
    assert len(compared) == 30
    assert {frozenset(tasks) for tasks in compared} == {frozenset(["push"]), frozenset(["pull"])}
    assert first.task == task_of[first.left] == task_of[first.right]
    if whole:
        assert sorted(clips.real.tolist()) == [7, 9, 12, 20, 30]
    exported = tmp_path / "clips"
    words = ("annotate", "export", tmp_path / "a.jsonl", "--clips", exported, "--store", labels)
    assert run(*words) == 0
    np.testing.assert_array_equal(load_arrays(exported)[0]["cut"][:, 0], episode)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--known", 2), "known: expected clips of one task"),
        (("--lists", 2), "lists: expected clips of one task"),
        (("--length", 31), "expected at most 30, the longest of 5 episodes, and two clips"),
        (("--cameras", "nose"), "expected some of observation.images.front, got nose"),
        (("--env", "Pendulum-v1"), "expected cameras as pictures"),
        (("--speed", 100), "fps times speed"),
    ],
)
def test_what_does_not_go_with_a_robot_is_refused(robot, tmp_path, options, message, capsys):
    where = ("--store", tmp_path / "labels")
    assert run("annotate", "create", "--lerobot", robot, "--length", 5, *options, *where) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "labels").exists()


def test_informative_pairs_come_from_a_reward(episodes, recorded, tmp_path, capsys):
    seen = infer_spaces(episodes.observations, episodes.actions)
    model = MLPReward(*seen, MLPRewardConfig(members=2), seed=0)
    save_reward(tmp_path / "fit/reward", RewardFunction(model))
    words = ("annotate", "create", "--run", recorded, "--store", tmp_path / "labels")
    words += ("--queries", 5, "--length", 10, "--env", "Pendulum-v1", "--sampler", "informative")
    assert run(*words) == 1
    assert "Give --reward" in capsys.readouterr().err
    assert run(*words, "--reward", tmp_path / "fit") == 0
    assert "5 pairs of 10 steps" in capsys.readouterr().out
