"""What programs report is one record, which other versions write and read as well."""

import pytest

from preferl.annotate.progress import program_words, reward_words
from preferl.store import FitMetrics, Status, Store
from preferl.store.schema import RewardVersion, Service
from preferl.store.status import from_json, read_status, to_json, write_status


@pytest.mark.parametrize("record", [Status("fitting", first_at=20, problem="x"), FitMetrics(7)])
def test_what_is_written_is_read(record):
    assert from_json(type(record), to_json(record)) == record


def test_keys_of_other_versions_are_passed_over():
    assert from_json(Status, {"state": "waiting", "mood": "good"}) == Status("waiting")
    assert from_json(FitMetrics, {"answers": 3, "mood": "good"}) == FitMetrics(answers=3)


def test_a_store_of_an_earlier_version_is_shown_as_before(tmp_path):
    waiting = {
        "version": 2, "problem": None, "behind": 4, "looked_at": 30, "first_at": 20,
        "next_at": 35, "answers": 30, "accuracy": 0.8, "decided": 6, "seconds": 1.2, "idle": 0.4,
    }  # fmt: skip
    acting = {
        "asked": 40, "answered": 0, "dropped_episodes": 1, "dropped_segments": 2, "problem": None,
        "waiting_steps": 500, "steps": 12_400, "reward_version": 2, "idle": 0.1,
    }  # fmt: skip
    with Store.open(tmp_path) as store:
        project = store.projects.create("dots").id
        at = store.reports.clock()
        with store.database.write() as session:
            for name, state, detail in (
                ("reward", "waiting", waiting),
                ("agent", "healthy", acting),
                ("early", "at work", None),
            ):
                about = {"project_id": project, "name": name, "state": state}
                session.add(Service(**about, beat_at=at, every=600.0, detail=detail))
            session.add(
                RewardVersion(
                    project_id=project, version=2, accuracy=0.8, low=0.4, high=0.9, answers=30,
                    published_at=at, detail={"trained_on": 24, "decided": 6, "revision": 31},
                )
            )  # fmt: skip
        agent, _, service = store.reports.services(project)
        assert {"problem": None} | to_json(service.status) == {"state": "waiting"} | waiting
        assert {"problem": None} | to_json(agent.status) == {"state": "healthy"} | acting
        assert [each["words"] for each in program_words(store.reports.services(project))] == [
            "acts: 12,400 steps recorded, exploration included; reward version 2 in use",
            "at work",
            "waits for answers: 4 new since version 2",
        ]
        (reward,) = store.reports.rewards(project)
        assert reward.metrics.revision == 31
        assert reward_words(reward).startswith("learned from 24 answers; right on 80 % of 6")


def test_a_status_in_a_file_is_for_its_owner_and_whole_or_nothing(tmp_path):
    file = tmp_path / "page.status.json"
    assert read_status(file) is None
    write_status(file, Status("serving", link="http://localhost:1/join/a"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_status(file) == Status("serving", link="http://localhost:1/join/a")
    for half in ("", '{"state": "ser', "[]"):
        file.write_text(half)
        assert read_status(file) is None
