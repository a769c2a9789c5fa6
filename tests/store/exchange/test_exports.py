import re
import time
from datetime import datetime

import numpy as np
import pytest
from sqlalchemy import func, select

from helpers.json_rows import rows_of, write
from helpers.numbered_videos import random_segments
from helpers.queue_steps import answer_next, invite, on_sqlite, show
from preferl.errors import DataError
from preferl.store.exchange.answer_table import COLUMNS
from preferl.store.exchange.exports import (
    export_answers,
    export_segments,
    import_answers,
    import_segments,
)
from preferl.store.schema import Annotator, Answer, Query
from preferl.store.store import Store
from preferl.testing.feedback_contracts import example_segments

SEGMENTS = example_segments(0)
FORMATS = ["jsonl", "csv", "parquet"]


@pytest.fixture
def lively(store):
    """A project in which people did everything that they can do."""
    settings = {"quorum": 2, "known_share": 0.0, "repeat_share": 0.0}
    project = store.projects.create("dots", **settings)
    asked = store.queries.ask(
        project.id,
        SEGMENTS,
        np.array([[0, 1], [2, 3], [4, 5]]),
        scores=np.array([0.25, 1 / 3, 3.0]),
        model_version=4,
        priority=0.5,
        details=[{"z": 1, "a": [1, 2.5]}, {"note": 'Zoë, "so"\n'}, {}],
    )
    store.queries.ask(
        project.id, SEGMENTS, np.array([[6, 7]]), purpose="known", known=np.array([1.0])
    )
    show(store, project.id)
    ann = invite(store, project.id, 'Ann, the "first"')
    bob = invite(store, project.id, "Zoë")
    details = {"response_ms": 1234.5, "strength": "clear", "detail": {"shown": {"b": 1, "a": 2}}}
    answer_next(store, project.id, ann, "left", **details)
    answer_next(store, project.id, bob, "right")
    answer_next(store, project.id, bob, "skip")
    store.queue.undo(ann, "undo-0001")
    answer_next(store, project.id, ann, "equal")
    answer_next(store, project.id, ann, "cannot_tell")
    with store.database.write() as session:  # a planned repeat, as the queue makes them
        first, second = store.queries.pairs(project.id, asked[:1])[0]
        repeat = Query(
            project_id=project.id, first_clip=first, second_clip=second, purpose="repeat",
            priority=0.0, repeat_of=asked[0], for_annotator=ann, swapped=True, quorum=0,
            needed=0, ready=True, asked_at=time.time(),
        )  # fmt: skip
        session.add(repeat)
        session.flush()
        session.add(
            Answer(
                project_id=project.id, query_id=repeat.id, annotator_id=ann, key="repeat-0001",
                kind="left", preference=0.0, swapped=True, answered_at=time.time(),
            )
        )  # fmt: skip
    return project


@pytest.fixture
def export(store, tmp_path):
    """Writes the answers of a project, and its clips beside them; the paths of both."""

    def write_both(project, name="answers.jsonl"):
        export_answers(store, project.id, tmp_path / name)
        export_segments(store, project.id, tmp_path / "clips")
        return tmp_path / name, tmp_path / "clips"

    return write_both


@pytest.fixture
def elsewhere(tmp_path):
    with Store.open(tmp_path / "elsewhere") as store:
        store.projects.create("taken").id  # noqa: B018
        store.queries.ask(1, SEGMENTS, np.array([[0, 7], [1, 7]]))  # other numbers than there
        yield store, store.projects.create("dots", quorum=2).id


def test_every_answer_with_all_that_is_known_of_it(store, lively, tmp_path):
    out = tmp_path / "answers.jsonl"
    assert export_answers(store, lively.id, out) == 7
    rows = rows_of(out)
    assert all(list(row) == list(COLUMNS) for row in rows)
    assert [row["kind"] for row in rows] == [
        "left", "right", "skip", "retract", "equal", "cannot_tell", "left",
    ]  # fmt: skip
    assert [row["counts"] for row in rows] == [False, True, False, False, True, True, True]
    first = rows[0]
    assert first["annotator"] == 'Ann, the "first"'
    assert (first["strength"], first["response_ms"]) == ("clear", 1234.5)
    assert (first["score"], first["model_version"], first["priority"]) == (0.25, 4, 0.5)
    assert first["detail"] == {"shown": {"a": 2, "b": 1}}
    assert first["query_detail"] == {"z": 1, "a": [1, 2.5]}
    assert re.fullmatch(r"\d+-[0-9a-f]{8}", first["query"])
    assert first["repeat_of"] is None
    for clip, name in enumerate(("first", "second")):
        place = [first[f"{name}_{part}"] for part in ("episode", "step")]
        assert place == SEGMENTS.origin[clip, :2].tolist()
    assert rows[-1]["repeat_of"] == first["query"]
    for row in rows:
        sides = [row["first_clip"], row["second_clip"]]
        assert [row["left_clip"], row["right_clip"]] == (sides[::-1] if row["swapped"] else sides)
    assert first["preference"] == (first["left_clip"] == first["first_clip"])
    answered = datetime.fromisoformat(first["answered"])
    assert answered.timestamp() == pytest.approx(first["answered_at"], abs=1)


@pytest.mark.parametrize("ending", FORMATS)
def test_there_and_back_is_the_same_byte_for_byte(lively, export, elsewhere, tmp_path, ending):
    there, project = elsewhere
    two = tmp_path / "2.jsonl"
    one, _ = export(lively)
    table, clips = export(lively, f"table.{ending}")
    assert import_answers(there, project, table, clips=clips)[:2] == (7, 0)
    export_answers(there, project, two)
    assert one.read_bytes() == two.read_bytes()
    assert import_answers(there, project, table)[:2] == (0, 7)
    export_answers(there, project, two)
    assert one.read_bytes() == two.read_bytes()


@on_sqlite
def test_import_is_all_or_nothing(lively, export, elsewhere):
    there, project = elsewhere
    path, clips = export(lively)
    rows = rows_of(path)
    rows[-1]["repeat_of"] = "99-00000000"
    with pytest.raises(DataError, match=r"row 7, column repeat_of"):
        import_answers(there, project, write(path, rows), clips=clips)
    for table, count in ((Answer, 0), (Annotator, 0), (Query, 2)):
        assert there.database.first(select(func.count(table.id))) == count


def with_one_answer(store, kind="equal"):
    """A project with one answer, by its own table: the path of the query is returned with it."""
    project = store.projects.create("dots", quorum=2, repeat_share=0.0)
    asked = store.queries.ask(project.id, SEGMENTS, np.array([[0, 1]]))
    show(store, project.id)
    ann = invite(store, project.id)
    answer_next(store, project.id, ann, kind)
    return project, asked[0]


@on_sqlite
@pytest.mark.parametrize("kind", ["left", "equal"])
def test_a_clip_beside_itself_is_refused(store, export, elsewhere, kind):
    project, asked = with_one_answer(store, kind)
    with store.database.write() as session:  # which the store does not ask
        query = session.get_one(Query, asked)
        query.second_clip = query.first_clip
    out, clips = export(project)
    there, copy = elsewhere
    with pytest.raises(DataError, match=r"row 1, column second_clip.*another clip than first"):
        import_answers(there, copy, out, clips=clips)
    assert there.reports.open(copy) == 0


@on_sqlite
def test_answers_in_the_owners_name_are_refused_unless_somebody_is_named(store, export, elsewhere):
    out, clips = export(with_one_answer(store)[0])
    there, copy = elsewhere
    for name in ("owner", "Ｏｗｎｅｒ", "оwnеr"):
        write(out, [row | {"annotator": name} for row in rows_of(out)])
        with pytest.raises(DataError, match=r"row 1, column annotator.*--owner NAME"):
            import_answers(there, copy, out, clips=clips)
        with pytest.raises(DataError, match="not the owner's"):
            import_answers(there, copy, out, clips=clips, owner=name)
    assert import_answers(there, copy, out, clips=clips, owner="Olga")[:2] == (1, 0)
    assert {person.name for person in there.people.all(copy)} >= {"Olga"}


def withdrawn(store):
    """A project in which the admin Olga withdrew the answer of Ann, and its row of that."""
    project, _ = with_one_answer(store)
    olga = invite(store, project.id, "Olga", "admin")
    (given,) = store.answers.page(project.id).answers
    store.answers.withdraw(project.id, given.answer.id, by=olga, key="withdrawn-by-olga")
    return project, given.answer.key


@on_sqlite
def test_who_withdrew_an_answer_has_a_name_in_every_store(store, export, elsewhere, tmp_path):
    project, key = withdrawn(store)
    one, clips = export(project)
    two = tmp_path / "2.jsonl"
    assert rows_of(one)[-1]["detail"] == {"by": "Olga", "withdraws": key}
    there, copy = elsewhere
    for name in ("Cleo", "Dan", "Eve"):
        there.people.invite(copy, name)  # so that numbers of people are others
    import_answers(there, copy, one, clips=clips)
    (olga,) = (person.id for person in there.people.all(copy) if person.name == "Olga")
    assert there.answers.page(copy).answers[0].answer.detail["by"] == olga
    export_answers(there, copy, two)
    assert one.read_bytes() == two.read_bytes()
    export_answers(there, copy, two, anonymous=True)
    assert not {"Olga", "Ann"} & {row["annotator"] for row in rows_of(two)}
    assert rows_of(two)[-1]["detail"]["by"].startswith("person-")


@on_sqlite
def test_who_withdrew_an_answer_is_checked_as_who_answered(store, export, elsewhere, tmp_path):
    out, clips = export(withdrawn(store)[0])
    there, copy = elsewhere
    given, gone = rows_of(out)

    def import_by(name, **more):
        write(out, [given, gone | {"detail": gone["detail"] | {"by": name}}])
        return import_answers(there, copy, out, clips=clips, **more)

    with pytest.raises(DataError, match="row 2, column detail: expected the name of a person"):
        import_by(" ")
    with pytest.raises(DataError, match=r"row 2, column detail.*--owner NAME"):
        import_by("owner")
    assert import_by("owner", owner="Mia").new == 2
    assert {person.name for person in there.people.all(copy)} >= {"Mia"}
    write(out, [given, gone | {"detail": gone["detail"] | {"by": 3}}])  # as earlier versions wrote
    with Store.open(tmp_path / "another") as another:
        project = another.projects.create("dots").id
        import_answers(another, project, out, clips=clips)
        assert "by" not in another.answers.page(project).answers[0].answer.detail


@on_sqlite
def test_clips_that_were_tampered_with_are_refused(store, lively, elsewhere, tmp_path):
    there, project = elsewhere
    export_segments(store, lively.id, tmp_path / "clips")
    rewards = np.load(tmp_path / "clips/rewards.npy")
    np.save(tmp_path / "clips/rewards.npy", rewards + 1)
    with pytest.raises(DataError, match="clips of these names"):
        import_segments(there, project, tmp_path / "clips")


@pytest.mark.slow
@pytest.mark.nightly
def test_a_hundred_thousand_answers_in_bounded_memory(rng, tmp_path):
    import resource

    from preferl.store.exchange import answer_table

    with Store.open(tmp_path / "store") as store:
        project = store.projects.create("dots").id
        pairs = rng.permuted(np.tile(np.arange(500), (40, 1)), axis=1).reshape(-1, 2)
        asked = store.queries.ask(project, random_segments(500, 10), pairs)
        with store.database.write() as session:
            people = answer_table.people_named(session, project, [f"p{n}" for n in range(10)])
            answer_table.add_answers(
                session,
                [
                    {
                        "project_id": project, "query_id": query, "annotator_id": person,
                        "key": f"key-{query:06d}-{person}", "kind": "left", "preference": 1.0,
                        "strength": None, "swapped": False, "response_ms": 1.0,
                        "granted_at": 1e9, "answered_at": 1e9 + query, "detail": {"a": 1},
                    }
                    for query in asked
                    for person in people.values()
                ],
            )  # fmt: skip
        for ending in FORMATS:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert export_answers(store, project, tmp_path / f"a.{ending}") == 100_000
            more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert more < 150_000, "kilobytes"
