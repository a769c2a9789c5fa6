"""`preferl annotate` and `preferl reward fit --store`: from episodes to a reward of people."""

import json
from importlib import import_module

import pytest

from helpers.answering import answer_all
from helpers.command_line import run
from preferl.data import load_comparisons
from preferl.store.store import Store


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


@pytest.mark.slow
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


def test_a_table_of_other_columns_is_told_which_are_read(labels, tmp_path, capsys):
    (tmp_path / "a.csv").write_text("Winner;Loser\n1;2\n")
    assert run("annotate", "import", tmp_path / "a.csv", *labels) == 1
    error = capsys.readouterr().err
    assert "chosen_episode, chosen_start" in error
    assert "got winner, loser" in error


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("create",), "expected one of --demonstrations, --dataset, --run, --lerobot, got none"),
        (("create", "--run", "EPISODES"), "--env ID"),
        (("create", "--run", "EPISODES", "--env", "Pendulum-v1", "--length", "99"), "at most 50"),
        (("create", "--run", "EPISODES", "--pixels", "x", "--reward", "y"), "informative"),
        (("create", "--run", "."), "keeps its experience with --keep-experience"),
        (("create", "--run", "EPISODES", "--env", "Acrobot-v1", "--length", "9"), "--elsewhere"),
        (("report",), "Make one with `preferl annotate create`"),
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
