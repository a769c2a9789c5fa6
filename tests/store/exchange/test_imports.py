import json
import time

import numpy as np
import pytest
from sqlalchemy import select

from helpers.queue_steps import on_sqlite
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import cut
from preferl.data.sources import load_labels, load_source
from preferl.errors import DataError
from preferl.store.exchange.exports import export_answers
from preferl.store.exchange.imports import import_comparisons, import_labels, import_table
from preferl.store.exchange.tables import writing_table
from preferl.store.feedback import StoredFeedback
from preferl.store.quality.agreement import agreement_report
from preferl.store.schema import Answer, Query
from preferl.store.store import Store


@pytest.fixture
def one(tmp_path):
    with Store.open(tmp_path / "store") as store:
        yield store, store.projects.create("dots", quorum=3).id


@pytest.fixture(scope="module")
def episodes():
    rng = np.random.default_rng(0)
    return Episodes(
        rng.normal(size=(20, 3)), rng.normal(size=(20, 2)), rng.normal(size=20),
        np.zeros(20, bool), np.zeros((2, 3)), np.array([12, 8]),
    )  # fmt: skip


def ref(episode, start, **more):
    return {"episode": episode, "start": start} | more


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@on_sqlite
def test_labels_of_people_about_a_door(shared, store, tmp_path):
    door = shared / "data/adroit-door-human"
    demonstrations = load_source(door / "door-v0_demos.pickle")
    folder = door / "door-human-v1_human_labels"
    project = store.projects.create("door", quorum=3).id
    began = time.process_time()
    report = import_labels(store, project, folder, demonstrations)
    seconds = time.process_time() - began
    assert (report.new, report.known) == (1600, 0)
    assert report.annotators == ("door-human-v1_human_labels",)
    assert seconds < 60  # of the processor; seconds on an idle machine
    assert store.progress(project).open == 0
    assert store.clips.without_video(project, 10) == [], "nobody has to see them"
    there = load_labels(folder, demonstrations).comparisons
    here = StoredFeedback(store).comparisons()
    np.testing.assert_array_equal(here.preference, there.preference)
    some = np.arange(0, 1600, 40)
    np.testing.assert_array_equal(
        here.segments[here.pairs[some]].observations, there.segments[there.pairs[some]].observations
    )
    again = import_labels(store, project, folder, demonstrations)
    assert (again.new, again.known) == (0, 1600)
    export_answers(store, project, tmp_path / "a.jsonl")
    row = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[7])
    assert row["detail"] == {"imported": "door-human-v1_human_labels", "row": 7}
    assert row["first_episode"] == there.segments.origin[there.pairs[7, 0], 0]


def test_a_table_of_references(one, episodes, tmp_path):
    store, project = one
    path = jsonl(
        tmp_path / "a.jsonl",
        {"chosen": ref(0, 2), "rejected": ref(1, 0), "annotator": "Ann"},
        {"chosen": ref(1, 0), "rejected": ref(0, 2), "annotator": "Bob"},
        {"chosen": ref(0, 2), "rejected": ref(1, 0), "annotator": "Ann"},
        {"chosen": ref(0, 5), "rejected": ref(1, 4), "equal": True},
    )
    report = import_table(store, project, path, episodes, length=4)
    assert (report.new, report.clips, report.annotators) == (4, 4, ("Ann", "Bob", "a"))
    queries = store.database.all(select(Answer.query_id).order_by(Answer.id))
    preferences = store.database.all(select(Answer.preference).order_by(Answer.id))
    assert queries[0] == queries[1], "two people about one pair are answers to one query"
    assert queries[2] not in queries[:2], "a person's second answer counts for itself"
    assert preferences[0] == preferences[2] == 1 - preferences[1]
    assert preferences[3] == 0.5
    comparisons = StoredFeedback(store).comparisons()
    clips = comparisons.segments[comparisons.pairs]
    best = clips.observations[1, 0 if comparisons.preference[1] == 1 else 1]
    np.testing.assert_array_equal(best, episodes.observations[2:6])


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_table_of_steps(one, tmp_path, ending):
    store, project = one
    better = {"observations": [[1.0], [2.0]], "actions": [[0.5], [0.25]]}
    worse = {"observations": [[3.0]], "actions": [[0.0]], "rewards": [7.0]}
    path = tmp_path / f"a.{ending}"
    with writing_table(path, {"chosen": "json", "rejected": "json"}) as write:
        write([(better, worse)])
    assert import_table(store, project, path, name="Zoë").annotators == ("Zoë",)
    comparisons = StoredFeedback(store).comparisons()
    place = comparisons.pairs[0, 0 if comparisons.preference[0] == 1 else 1]
    np.testing.assert_array_equal(comparisons.segments[place].observations, [[1.0], [2.0]])
    np.testing.assert_array_equal(comparisons.segments.returns().sum(), 7.0)


WRONG = (
    ({"chosen": ref(2, 0), "rejected": ref(1, 0)}, "chosen", "an episode in 0 to 1"),
    ({"chosen": ref(0, 0), "rejected": ref(1, 5)}, "rejected", "4 steps inside the 8"),
    ({"chosen": ref(0, 0), "rejected": ref(1, "x")}, "rejected", "a whole number"),
    ({"chosen": ref(0, 0)}, "rejected", "an object with"),
    ({"chosen": "{", "rejected": ref(1, 0)}, "chosen", "an object of JSON"),
    ({"chosen": {"observations": [[1], [2]], "actions": [[1]]}}, "chosen", "as many finite"),
    ({"chosen": {"observations": [[1], [2, 3]], "actions": [[1]]}}, "chosen", "numbers"),
    ({"chosen": {"observations": [[10**400]], "actions": [[1]]}}, "chosen", "numbers"),
    ({"chosen": ref(0, 0), "rejected": ref(1, 0), "equal": "yes"}, "equal", "true or false"),
)


def test_a_wrong_cell_is_named(one, episodes, tmp_path):
    store, project = one
    fine = {"chosen": ref(0, 0), "rejected": ref(1, 0)}
    for row, column, expected in WRONG:
        path = jsonl(tmp_path / "a.jsonl", fine, row)
        with pytest.raises(DataError, match=rf"row 2, column {column}: expected {expected}"):
            import_table(store, project, path, episodes, length=4)
    assert store.reports.revision(project) == 0


def test_references_need_episodes_and_one_length(one, episodes, tmp_path):
    store, project = one
    path = jsonl(tmp_path / "a.jsonl", {"chosen": ref(0, 0, length=3), "rejected": ref(1, 0)})
    with pytest.raises(DataError, match="no episodes were given"):
        import_table(store, project, path)
    with pytest.raises(DataError, match="a length, here or for the whole import"):
        import_table(store, project, path, episodes)
    with pytest.raises(DataError, match="one length"):
        import_table(store, project, path, episodes, length=4)


def test_shares_are_no_answers_of_people(one, episodes):
    store, project = one
    segments = cut(episodes, np.array([0, 4]), 4)
    shares = Comparisons.of(segments, np.array([[0, 1]]), np.array([0.7]))
    with pytest.raises(DataError, match="a person's answer has no shares"):
        import_comparisons(store, project, shares, ["Ann"], source="made up")
    assert store.database.all(select(Query)) == []


@pytest.mark.parametrize("lengths", [False, True])
def test_places_of_clips_may_have_columns_of_their_own(one, episodes, tmp_path, lengths):
    store, project = one
    heads = ["Chosen episode", "Chosen start", "rejected_episode", "rejected_start", "Annotator"]
    row = [0, 2, 1, 3, "Ann"]
    if lengths:
        heads += ["chosen_length", "rejected_length"]
        row += [4, 4]
    path = tmp_path / "a.csv"
    path.write_text(";".join(heads) + "\n" + ";".join(map(str, row)) + "\n")
    import_table(store, project, path, episodes, length=None if lengths else 4)
    again = jsonl(tmp_path / "a.jsonl", {"chosen": ref(0, 2), "rejected": ref(1, 3)})
    assert import_table(store, project, again, episodes, name="Ann", length=4).known == 1
    path.write_text("chosen_episode,chosen_start,rejected_episode\n0,2,1\n")
    with pytest.raises(DataError, match="row 1, column rejected: expected 4 steps inside the 8"):
        import_table(store, project, path, episodes, length=4)


def pairs_of_starts(count, **more):
    """Rows about `count` pairs; the first episode's clip is the chosen one."""
    return [{"chosen": ref(0, n), "rejected": ref(1, n % 5)} | more for n in range(count)]


def test_people_meet_on_the_pairs_of_their_own_files(one, episodes, tmp_path):
    store, project = one
    ann = jsonl(tmp_path / "ann.jsonl", *pairs_of_starts(8))
    turned = [{"chosen": row["rejected"], "rejected": row["chosen"]} for row in pairs_of_starts(8)]
    bob = jsonl(tmp_path / "second.jsonl", *turned[:3], *pairs_of_starts(8)[3:])
    for path, name in ((ann, "Ann"), (bob, "Bob")):
        assert import_table(store, project, path, episodes, name=name, length=4).new == 8
    votes = store.queries.votes(project)
    agreement = agreement_report(votes, np.random.default_rng(0))
    assert (agreement.queries, agreement.raw) == (8, 5 / 8)
    progress = store.progress(project)
    assert (progress.answered, progress.wanted, progress.open) == (16, 16, 0)


@pytest.mark.parametrize("named", ["by a column", "by the import", "not at all"])
def test_a_copy_of_a_file_does_not_count_twice(one, episodes, tmp_path, caplog, named):
    store, project = one
    rows = pairs_of_starts(6, **({"annotator": "Ann"} if named == "by a column" else {}))
    name = "Ann" if named == "by the import" else None
    first = jsonl(tmp_path / "answers.jsonl", *rows)
    assert import_table(store, project, first, episodes, name=name, length=4).new == 6
    with writing_table(tmp_path / "copy.csv", dict.fromkeys(rows[0], "text")) as write:
        texts = (
            {k: v if isinstance(v, str) else json.dumps(v) for k, v in r.items()} for r in rows
        )
        write([[*row.values()] for row in list(texts)[::-1]])
    copied = import_table(store, project, tmp_path / "copy.csv", episodes, name=name, length=4)
    assert (copied.new, copied.known) == (0, 6)
    assert store.progress(project).answered == 6
    assert ("name that person" in caplog.text) == (named == "not at all")


def test_a_longer_file_of_a_person_adds_what_is_new(one, episodes, tmp_path):
    store, project = one
    few = pairs_of_starts(2)
    more = pairs_of_starts(4)
    again = [*few, more[0], {"chosen": more[1]["rejected"], "rejected": more[1]["chosen"]}]
    for name, rows, new in (("a", few, 2), ("b", more, 2), ("c", again, 2)):
        path = jsonl(tmp_path / f"{name}.jsonl", *rows)
        assert import_table(store, project, path, episodes, name="Ann", length=4).new == new
    assert len(np.unique(store.queries.votes(project).query)) == 6, "all answers of Ann count"


def test_imported_answers_meet_the_queries_of_the_page(one, episodes):
    store, project = one
    segments = cut(episodes, np.array([0, 4]), 4)
    (number,) = store.queries.ask(project, segments, np.array([[0, 1]]))
    given = Comparisons.of(segments, np.array([[1, 0]]), np.array([1.0]))
    import_comparisons(store, project, given, ["Ann"], source="pilot")
    votes = store.queries.votes(project)
    assert (votes.query.tolist(), votes.preference.tolist()) == ([number], [0.0])
    assert (store.progress(project).answered, store.progress(project).wanted) == (1, 3)
