"""Ratings leave a store as a table and as arrays, and come back the same."""

import json

import numpy as np
import pytest

from helpers.numbered_videos import random_segments
from helpers.queue_steps import answer_next
from preferl.data import load_comparisons, load_ratings
from preferl.errors import DataError
from preferl.store.exchange.exports import export_answers, export_segments, import_answers
from preferl.store.exchange.ratings import export_ratings, import_ratings


@pytest.fixture
def rated(store):
    project = store.projects.create("dots", ratings=True).id
    store.queries.ask(project, random_segments(4, 6, seed=1), np.arange(4).reshape(2, 2))
    ann, bo = (store.people.invite(project, name).annotator.id for name in ("Ann", "Bo"))
    clip, other, *_ = [name for pair in store.queries.pairs(project, [1, 2]) for name in pair]
    answer_next(store, project, ann, undrawn=True)
    store.ratings.rate(project, ann, clip, "key-00001", rating=2)
    store.ratings.rate(project, ann, clip, "key-00002", rating=4, outcome="success")
    store.ratings.rate(project, bo, other, "key-00003", outcome="failure")
    store.ratings.rate(project, bo, clip, "key-00004", rating=1)
    store.ratings.undo(project, bo, "undo-0001")
    return project, clip, other


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_table_comes_back_the_same(store, rated, tmp_path, ending):
    project, clip, _ = rated
    table = tmp_path / f"ratings.{ending}"
    assert export_ratings(store, project, table) == 5
    answers = tmp_path / f"answers.{ending}"
    export_answers(store, project, answers)
    export_segments(store, project, tmp_path / "clips")
    copy = store.projects.create("copy").id
    with pytest.raises(DataError, match="key: expected one of this project"):
        import_ratings(store, copy, table, clips=tmp_path / "clips")
    assert import_ratings(store, project, table).new == 0, "all are there"
    again = tmp_path / "again.jsonl"
    export_ratings(store, project, again)
    rows = lines(again)
    assert [row["counts"] for row in rows] == [False, True, True, False, False]
    assert [row["undo"] for row in rows] == [False, False, False, False, True]
    assert rows[1]["annotator"] == "Ann"
    for row in rows:
        row["key"] = f"new-{row['key']}"
    table.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, rows)))
    imported = import_ratings(store, copy, table.with_suffix(".jsonl"))
    assert (imported.new, imported.clips, imported.annotators) == (5, 2, ("Ann", "Bo"))
    said = [(row.clip_id == clip, row.rating, row.outcome) for row in store.ratings.current(copy)]
    assert said == [(True, 4, "success"), (False, None, "failure")]


def test_they_are_loaded_beside_comparisons(store, rated, tmp_path):
    project, clip, other = rated
    export_segments(store, project, tmp_path / "clips")
    ratings = load_ratings(tmp_path / "clips")
    assert ratings.value.tolist() == [4, 1, 0]
    assert ratings.is_outcome.tolist() == [False, True, True]
    assert ratings.annotator.tolist() == [0, 0, 1]
    shown = ratings.segments[ratings.clip].actions
    steps = store.clips.segments(project, [clip, clip, other])
    np.testing.assert_array_equal(shown, steps[:].actions)
    assert len(load_comparisons(tmp_path / "clips")) == 1
    plain = store.projects.create("plain").id
    assert store.ratings.table(plain) is None
    store.queries.ask(plain, random_segments(2, 6, seed=3), np.array([[0, 1]]))
    export_segments(store, plain, tmp_path / "plain")
    assert load_ratings(tmp_path / "plain") is None


WRONG = (
    ({"rating": 6}, "rating: expected 1 to 5"),
    ({"rating": "much"}, "rating"),
    ({"outcome": "fair"}, "outcome: expected one of"),
    ({"clip": "abc"}, "clip: expected 32 digits"),
    ({"clip": "0" * 32}, "a clip of this project"),
    ({"annotator": ""}, "annotator"),
    ({"annotator": "owner"}, "--owner NAME"),
    ({"key": "short"}, "key: expected 8"),
    ({"undo": None}, "undo: expected a value"),
    ({"rated_at": -1}, "rated_at"),
)


def test_a_wrong_cell_is_named_and_nothing_is_read(store, rated, tmp_path):
    project, *_ = rated
    table = tmp_path / "ratings.jsonl"
    export_ratings(store, project, table)
    first, *_ = lines(table)
    before = len(store.ratings.current(project))
    for change, message in WRONG:
        table.write_text(json.dumps(first | {"key": "another-1"} | change))
        with pytest.raises(DataError, match=message):
            import_ratings(store, project, table)
    assert len(store.ratings.current(project)) == before


def test_anonymous_tables_have_the_same_digests(store, rated, tmp_path):
    project, *_ = rated
    export_answers(store, project, tmp_path / "a.jsonl", anonymous=True)
    export_ratings(store, project, tmp_path / "r.jsonl", anonymous=True)
    names = {row["annotator"] for row in lines(tmp_path / "r.jsonl")}
    assert all(name.startswith("person-") for name in names)
    assert {row["annotator"] for row in lines(tmp_path / "a.jsonl")} <= names
    assert import_answers(store, project, tmp_path / "a.jsonl").new == 0
