"""`preferl annotate` and `preferl reward fit --store`: from episodes to a reward of people."""

import json
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

from preferl.cli.annotate_create import episodes_of_run
from preferl.cli.annotate_report import people_table
from preferl.cli.console import print_table
from preferl.cli.main import main
from preferl.data import load_comparisons, save_episodes
from preferl.data.episodes import Episodes, join
from preferl.errors import DataError, MissingExtraError
from preferl.store.questions import known_pairs
from preferl.store.store import Store


def run(*words):
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return stopped.value.code


@pytest.fixture
def episodes():
    rng = np.random.default_rng(0)
    angle = rng.uniform(-3, 3, size=120)
    seen = np.stack([np.cos(angle), np.sin(angle), rng.normal(size=120)], axis=1)
    ends = np.zeros((3, 3))
    return Episodes(
        seen.astype(np.float32), rng.normal(size=(120, 1)).astype(np.float32), np.cos(angle),
        np.zeros(120, bool), ends, np.array([40, 50, 30]),
    )  # fmt: skip


@pytest.fixture
def recorded(episodes, tmp_path):
    save_episodes(tmp_path / "run/episodes", episodes)
    return tmp_path / "run"


@pytest.fixture
def labels(recorded, tmp_path):
    """A project with twelve questions and two known pairs."""
    where = ("--store", tmp_path / "labels")
    more = ("--queries", 12, "--length", 10, "--known", 2, "--env", "Pendulum-v1")
    assert run("annotate", "create", "--run", recorded, *where, *more, "--quorum", 2) == 0
    return where


def answer_all(where, names=("Ann", "Bob")):
    with Store.open(where[1]) as store:
        project = store.projects.only()
        store.clips.video_ready(project.id, store.clips.without_video(project.id, 1000))
        for name in names:
            person = store.people.invite(project.id, name).annotator.id
            while questions := store.queue.claim(project.id, person, 8).questions:
                for question in questions:
                    pair = store.clips.segments(project.id, [question.left, question.right])
                    left, right = pair.returns()
                    kind = "left" if left > right else "right"
                    key = f"person-{person}-{question.query_id}"
                    store.queue.answer(person, question.token, key, kind, response_ms=900.0)


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
    assert (tmp_path / "reward/report.html").is_file()
    with Store.open(labels[1]) as store:
        (published,) = store.reports.rewards(store.projects.only().id)
        assert published.version == 1
        assert published.low < published.accuracy < published.high
    assert "(95 % interval " in capsys.readouterr().out
    assert "answers about 24 clips" in (tmp_path / "reward/report.html").read_text()
    export = ("--clips", tmp_path / "clips", "--anonymous")
    assert run("annotate", "export", tmp_path / "a.jsonl", *labels, *export) == 0
    assert len(load_comparisons(tmp_path / "clips")) == 12
    assert "Ann" not in (tmp_path / "a.jsonl").read_text()
    moved = ("--store", tmp_path / "other", "--clips", tmp_path / "clips")
    assert run("annotate", "import", tmp_path / "a.jsonl", *moved) == 1
    assert run("annotate", "import", tmp_path / "a.jsonl", *moved, "--new") == 0
    assert "0 were there already" in capsys.readouterr().out
    assert run("annotate", "import", tmp_path / "a.jsonl", *moved) == 0
    assert "0 answers are new" in capsys.readouterr().out
    back = tmp_path / "b.jsonl"
    assert run("annotate", "export", back, "--store", tmp_path / "other") == 0
    assert back.read_bytes() == (tmp_path / "a.jsonl").read_bytes()


def test_an_html_report(labels, tmp_path, capsys):
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text()
    assert page.count("How people agree</") == 1
    assert page.count('<table class="named">') == page.count("<table") - page.count("<thead>") == 2
    assert "no pair has two answers" in page
    assert run("annotate", "report", *labels, "--out", tmp_path / "r.pdf") == 1
    assert ".html or .json" in capsys.readouterr().err


def test_a_person_to_look_at_fits_into_eighty_columns(monkeypatch, capsys):
    person = {
        "name": "Somebody with a long name", "answers": 1234, "median_ms": 3400.0,
        "tie_rate": 0.05, "left_rate": 0.9, "agreement": 0.8, "overlap": 120,
        "known_accuracy": 0.5, "known": 10, "consistency": 0.7, "repeats": 12,
        "reasons": ["known pairs", "one side"],
    }  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    print_table(*people_table({"people": [person]}))
    shown = capsys.readouterr().out
    assert shown.splitlines()[2].split()[-4:] == ["others", "known", "repeats", "check"]
    assert {"Somebody", "pairs,", "120", "12"} <= set(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_informative_pairs_come_from_a_reward(labels, recorded, tmp_path, capsys):
    answer_all(labels)
    fitted = ("--out", tmp_path / "reward", "--epochs", 1, "--hidden", 8)
    assert run("reward", "fit", *labels, *fitted) == 0
    more = ("--queries", 5, "--length", 10, "--env", "Pendulum-v1", "--project", "second")
    chosen = ("--sampler", "informative", "--reward", tmp_path / "reward")
    assert run("annotate", "create", "--run", recorded, *labels, *more, *chosen) == 0
    assert run("annotate", "report", *labels) == 1
    printed = capsys.readouterr()
    assert f"annotate serve --store {labels[1]} --project second" in printed.out.replace("\n", "")
    assert "one of labels, second, got none named. Name it" in printed.err


def test_invitations(labels, capsys):
    capsys.readouterr()
    assert run("annotate", "invite", "Zoë", *labels, "--public-url", "https://example.org/") == 0
    printed = capsys.readouterr().out
    link = printed.split()[-1]
    assert link.startswith("https://example.org/join/")
    assert "this machine" not in printed
    with Store.open(labels[1]) as store:
        assert store.people.by_secret(link.rpartition("/")[2]).name == "Zoë"
    assert run("annotate", "invite", " Zoë ", *labels, "--role", "spectator") == 0
    first, _, *more = capsys.readouterr().out.splitlines()
    assert first.startswith("Zoë (spectator) looks on here")
    assert more[0] == "The link that Zoë had before has ended."
    assert more[1].startswith("It opens on this machine only.")
    assert run("annotate", "invite", *labels) == 2
    assert "NAME" in capsys.readouterr().err
    assert run("annotate", "invite", "Owner", *labels) == 1
    assert "annotate serve" in capsys.readouterr().err


def test_invitations_lead_to_where_the_page_is_served(labels, capsys):
    with Store.open(labels[1]) as store:
        project = store.projects.only()
        for url in ("http://localhost:1", "http://localhost:9000"):
            store.reports.add_event(None, "served", detail={"url": url})
        store.reports.add_event(project.id, "served", detail={"url": "http://of.another.kind"})
    capsys.readouterr()
    assert run("annotate", "invite", "Ann", *labels) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].startswith("http://localhost:9000/join/")
    assert "not served yet" not in printed


def test_links_that_expire_open_once_or_no_more(labels, capsys):
    capsys.readouterr()
    assert run("annotate", "invite", "Ann", *labels, "--expires", "48", "--once") == 0
    printed = capsys.readouterr().out
    assert "It opens once within 48 hours." in printed
    assert "The page was not served yet" in printed
    secret = printed.splitlines()[1].rpartition("/")[2]
    with Store.open(labels[1]) as store:
        person = store.people.by_secret(secret)
        assert person.link_uses == 1
        assert 47 * 3600 < person.link_expires_at - store.reports.clock() < 49 * 3600
    assert run("annotate", "invite", "Ann", *labels, "--revoke") == 0
    assert "The link of Ann has ended" in capsys.readouterr().out
    with Store.open(labels[1]) as store:
        assert store.people.by_secret(secret) is None
        kinds = [event.kind for event in store.reports.latest_events(store.projects.only().id)]
        assert kinds == ["revoked", "invited"]
    for wrong in (("Bob", "--revoke"), ("Bob", "--expires", "0"), ("\uff2fwner",)):
        assert run("annotate", "invite", *wrong, *labels) == 1


def test_a_table_of_choices(labels, recorded, tmp_path, capsys):
    row = {"chosen": {"episode": 0, "start": 2}, "rejected": {"episode": 1, "start": 3}}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    options = ("--demonstrations", recorded / "episodes", "--length", 10, "--name", "Pilot")
    assert run("annotate", "import", tmp_path / "a.jsonl", *labels, *options) == 0
    assert "1 answers by Pilot" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("create",), "expected one of --demonstrations, --dataset, --run, got none"),
        (("create", "--run", "EPISODES"), "--env ID"),
        (("create", "--run", "EPISODES", "--env", "Pendulum-v1", "--length", "99"), "at most 50"),
        (("create", "--run", "EPISODES", "--pixels", "x", "--reward", "y"), "informative"),
        (("create", "--run", "EPISODES", "--queries", "0"), "queries"),
        (("create", "--run", "EPISODES", "--env", "Pendulm-v1", "--length", "9"), "Pendulum-v1"),
        (("create", "--run", "EPISODES", "--env", "Acrobot-v1", "--length", "9"), "--elsewhere"),
        (("report",), "Make one with `preferl annotate create`"),
        (("export", "a.xlsx"), "Make one with"),
        (("render", "--once"), "Make one with"),
        (("serve", "--no-browser"), "Make one with"),
    ],
)
def test_errors_name_what_to_do(recorded, tmp_path, capsys, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    typed = [recorded if word == "EPISODES" else word for word in words]
    assert run("annotate", *typed) == 1
    error = capsys.readouterr().err
    assert expected in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs/labels/labels.db").exists()


def test_episodes_that_repeat_themselves_are_not_compared_with_themselves(episodes, tmp_path):
    still = join([episodes[:1]] * 5)
    save_episodes(tmp_path / "still", still)
    more = ("--env", "Pendulum-v1", "--length", 10, "--queries", 60, "--elsewhere")
    where = tmp_path / "labels"
    assert run("annotate", "create", "--run", tmp_path / "still", *more, "--store", where) == 0
    with Store.open(where) as store:
        asked = store.questions.asked(store.projects.only().id)
    assert len(asked) == 60
    assert all(first != second for _, first, second in asked)


def test_clips_may_be_drawn_elsewhere(recorded, tmp_path, capsys):
    options = ("--run", recorded, "--env", "Elsewhere-v1", "--length", 10, "--queries", 2)
    assert run("annotate", "create", *options, "--elsewhere", "--store", tmp_path / "far") == 0
    assert run("annotate", "render", "--store", tmp_path / "far", "--once") == 0
    assert "0 clips drawn, 4 could not be." in capsys.readouterr().out


def test_reward_fit_needs_one_source(capsys):
    assert run("reward", "fit") == 1
    assert "--store, or --labels" in capsys.readouterr().err
    assert run("reward", "fit", "--labels", "x") == 1
    assert "--demonstrations" in capsys.readouterr().err


def test_serving_draws_beside_it(labels, monkeypatch, capsys):
    serving = import_module("preferl.annotate.serve")
    served = {}

    def serve(store, project, settings, **more):
        served.update(project=project.slug, port=settings.port, **more)

    monkeypatch.setattr(serving, "serve", serve)
    assert run("annotate", "serve", *labels, "--port", 0, "--no-browser") == 0
    assert (served["project"], served["port"], served["open_browser"]) == ("labels", 0, False)
    assert capsys.readouterr().out.startswith("Starting the page ...")
    assert served["render"][:4] == ("annotate", "render", "--store", str(labels[1]))
    assert run("annotate", "serve", *labels, "--no-render") == 0
    assert served["render"] == ()


def test_episodes_of_an_offline_run(recorded, tmp_path):
    about = {"config": {"config": {"demonstrations": str(recorded / "episodes"), "task": None}}}
    (tmp_path / "offline").mkdir()
    (tmp_path / "offline/config.json").write_text(json.dumps(about))
    assert episodes_of_run(tmp_path / "offline").steps == 120
    with pytest.raises(DataError, match="save_episodes"):
        episodes_of_run(tmp_path)
    for damaged in ({"config": []}, {"config": {"config": {"demonstrations": None}}}):
        (tmp_path / "offline/config.json").write_text(json.dumps(damaged))
        with pytest.raises(DataError, match="save_episodes"):
            episodes_of_run(tmp_path / "offline")
    about["config"]["config"] = {"demonstrations": None, "dataset": "none/such-v0"}
    (tmp_path / "offline/config.json").write_text(json.dumps(about))
    with pytest.raises((DataError, MissingExtraError), match=r"such|minari"):
        episodes_of_run(tmp_path / "offline")


def test_help_loads_no_torch():
    code = (
        "import sys\nfrom preferl.cli.main import main\n"
        "try:\n    main(['annotate', 'create', '--help'])\n"
        "except SystemExit:\n    assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_known_pairs_differ_clearly(episodes):
    segments, pairs, known = known_pairs(episodes, 5, 10, np.random.default_rng(0))
    returns = segments.returns(pairs)
    better = np.where(known == 1, returns[:, 0], returns[:, 1])
    worse = np.where(known == 1, returns[:, 1], returns[:, 0])
    assert better.min() > np.median(segments.returns()) > worse.max()
    assert len(np.unique(pairs)) == 10
    flat = Episodes(
        episodes.observations, episodes.actions, np.zeros(120), episodes.terminated,
        episodes.final_observations, episodes.lengths,
    )  # fmt: skip
    with pytest.raises(DataError, match="clearly different"):
        known_pairs(flat, 5, 10, np.random.default_rng(0))
