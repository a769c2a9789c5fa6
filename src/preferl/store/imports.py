"""Labels made elsewhere into a store: published label folders, and tables of chosen and rejected.

They are answers like any other then: people may go on where others ended, see how far they agree,
and learn from all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, final

import numpy as np
from sqlalchemy import select

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.sources.drlhp import load_drlhp_preferences
from preferl.data.sources.labels import Crossing, load_labels
from preferl.errors import DataError
from preferl.shapes import BoolArray, IntArray
from preferl.store.bulk import (
    add_answers,
    add_queries,
    known_answers,
    known_clips,
    people_named,
)
from preferl.store.chosen import read_chosen
from preferl.store.clips import clip_ids
from preferl.store.database import now
from preferl.store.names import require_name
from preferl.store.schema import Project
from preferl.store.store import Store

CLIPS_AT_ONCE = 2_000
"""Clips that go into one shard."""


@final
@dataclass(frozen=True)
class ImportReport:
    """What an import found and did.

    Attributes:
        new: answers that were added.
        known: answers that an earlier import had added.
        clips: different clips that they are about.
        annotators: names of those who are said to have answered.
    """

    new: int
    known: int
    clips: int
    annotators: tuple[str, ...]


def import_labels(
    store: Store,
    project_id: int,
    folder: Path | str,
    episodes: Episodes,
    *,
    name: str | None = None,
    length: int | None = None,
    crossing: Crossing | None = None,
) -> ImportReport:
    """Answers from a folder of Uni-RLHF or of the Preference Transformer.

    Args:
        store: where to.
        project_id: which project.
        folder: holds one file of labels and two of rows.
        episodes: the data set that the labels were made for, with `states` if people are to see
            its clips.
        name: who is said to have answered; the folder's name by default.
        length: steps per segment, where the file names do not say.
        crossing: what becomes of segments across an episode's end, as `load_labels` has it.

    Raises:
        ConfigError: no such project.
        DataError: labels that `load_labels` refuses, or that are neither for a side nor equal.
        StorageError: the folder cannot be read, or the store not written to.
    """
    folder = Path(folder)
    labelled = load_labels(folder, episodes, length=length, crossing=crossing)
    who = name or folder.name
    people = [who] * len(labelled.comparisons)
    return import_comparisons(store, project_id, labelled.comparisons, people, source=folder.name)


def import_table(
    store: Store,
    project_id: int,
    path: Path | str,
    episodes: Episodes | None = None,
    *,
    name: str | None = None,
    length: int | None = None,
    format: str | None = None,  # noqa: A002 (what everybody calls it)
) -> ImportReport:
    """Answers from a table with a row for each, and the columns `chosen` and `rejected`.

    Both hold either the steps of a clip, `{"observations": [[...], ...], "actions": [[...], ...]}`
    with `rewards` if they are known, or where it lies in `episodes`: `{"episode": 3, "start": 20}`,
    with `length` if it is not that of the import. CSV has such objects as text. Further columns
    may say `annotator`, and `equal`, true where neither was better. `preferl.store.chosen` reads
    them.

    Args:
        store: where to.
        project_id: which project.
        path: a file of JSON lines, CSV or Parquet.
        episodes: what references count in.
        name: who is said to have answered where the table does not; the file's name by default.
        length: steps per referenced clip.
        format: if it is not the end of the file's name.

    Raises:
        ConfigError: no such project, or an unknown format.
        DataError: a cell that is wrong, naming file, row and column.
        MissingExtraError: Parquet without the extra `parquet`.
        StorageError: a file cannot be read, or the store not written to.
    """
    path = Path(path)
    comparisons, told = read_chosen(path, episodes, length=length, wanted=format)
    people = [person or name or path.stem for person in told]
    return import_comparisons(store, project_id, comparisons, people, source=path.name)


def import_drlhp(
    store: Store, project_id: int, path: Path | str, *, name: str | None = None
) -> ImportReport:
    """Answers and clips from a `train.pkl.gz` or `val.pkl.gz` of learning-from-human-preferences.

    Args:
        store: where to.
        project_id: which project.
        path: the file; nothing in it is executed, see `load_drlhp_preferences`.
        name: who is said to have answered, which it does not tell; the file's name by default.

    Raises:
        ConfigError: no such project.
        DataError: the file is cut, holds something else, or asks for code to run.
        StorageError: the store cannot be written to.
    """
    path = Path(path)
    comparisons = load_drlhp_preferences(path)
    people = [name or path.name.removesuffix(".pkl.gz")] * len(comparisons)
    return import_comparisons(store, project_id, comparisons, people, source=path.name)


def import_comparisons(
    store: Store,
    project_id: int,
    comparisons: Comparisons,
    annotators: Sequence[str],
    *,
    source: str,
) -> ImportReport:
    """Comparisons as answers, each with `imported` and the name of its source in its detail.

    A person's answers to one pair of clips, if there are several, go to queries of their own, so
    that all of them count; those of several people about it are answers to one query. An import
    that is repeated adds nothing.

    Args:
        store: where to.
        project_id: which project.
        comparisons: with preferences 1, 0, 0.5, or NaN where somebody could not tell.
        annotators: who answered each.
        source: told in the detail of queries and answers.

    Raises:
        ConfigError: no such project.
        DataError: other preferences, a clip beside itself, or a name that is none or the owner's.
        StorageError: the store cannot be written to.
    """
    project = store.projects.get(project_id)
    _check(comparisons, annotators)
    if not len(comparisons):
        return ImportReport(0, 0, 0, ())
    clips = _put(store, project_id, comparisons)
    first, second = (clips[comparisons.pairs[:, side]] for side in (0, 1))
    people, person = np.unique(np.asarray(annotators, np.str_), return_inverse=True)
    again = occurrence(np.stack([comparisons.pairs[:, 0], comparisons.pairs[:, 1], person], axis=1))
    identity = [
        _digest(project, source, *about)
        for about in zip(first.tolist(), second.tolist(), again.tolist(), strict=True)
    ]
    keys = [
        _digest(*about)
        for about in zip(
            identity, people[person].tolist(), comparisons.preference.tolist(), strict=True
        )
    ]
    with store.database.write() as session:
        at = float(session.scalar(select(now())) or 0.0)
        held = known_answers(session, keys)
        fresh = np.array([key not in held for key in keys], bool)
        videos = known_clips(session, project_id, clips.tolist())
        numbers = people_named(session, project_id, people.tolist())
        asked, row, query = np.unique(
            np.asarray(identity)[fresh], return_index=True, return_inverse=True
        )
        rows = np.flatnonzero(fresh)
        in_order = np.argsort(row)  # queries are numbered as the source lists them
        ids = np.empty(len(asked), np.int64)
        ids[in_order] = add_queries(
            session,
            [
                _query(project_id, str(first[n]), str(second[n]), videos, at, source)
                for n in rows[row[in_order]].tolist()
            ],
        )
        add_answers(
            session,
            [
                _answer(project_id, number, numbers[annotators[n]], keys[n], said, at, source, n)
                for n, number, said in zip(
                    rows.tolist(),
                    ids[query].tolist(),
                    comparisons.preference[fresh].tolist(),
                    strict=True,
                )
            ],
        )
    new = int(fresh.sum())
    return ImportReport(new, len(keys) - new, len(set(clips.tolist())), tuple(people.tolist()))


def occurrence(rows: IntArray) -> IntArray:
    """`[R]` how often each row of `[R, C]` was there before.

    >>> occurrence(np.array([[1, 2], [3, 4], [1, 2]])).tolist()
    [0, 0, 1]
    """
    group = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(group, kind="stable")
    sorted_group = group[order]
    begins = np.searchsorted(sorted_group, sorted_group)
    count = np.empty(len(rows), np.int64)
    count[order] = np.arange(len(rows)) - begins
    return count


def _put(store: Store, project_id: int, comparisons: Comparisons) -> Any:
    """`[N]` names of the clips."""
    segments = comparisons.segments
    names: list[str] = []
    for start in range(0, len(segments), CLIPS_AT_ONCE):
        some = segments.select(slice(start, start + CLIPS_AT_ONCE))
        names += store.clips.put(project_id, some)
    return np.asarray(names, np.str_)


def _query(
    project_id: int, first: str, second: str, videos: Mapping[str, bool], at: float, source: str
) -> dict[str, Any]:
    """A query that is answered: nobody is asked about it, and its clips need no videos."""
    return {
        "project_id": project_id,
        "first_clip": first,
        "second_clip": second,
        "purpose": "ask",
        "priority": 0.0,
        "score": None,
        "model_version": None,
        "known": None,
        "repeat_of": None,
        "for_annotator": None,
        "swapped": None,
        "quorum": 0,
        "needed": 0,
        "ready": videos[first] and videos[second],
        "asked_at": at,
        "cancelled_at": at,
        "detail": {"imported": source},
    }


def _answer(
    project_id: int,
    query: int,
    annotator: int,
    key: str,
    preference: float,
    at: float,
    source: str,
    row: int,
) -> dict[str, Any]:
    declined = preference != preference
    kind = "cannot_tell" if declined else {1.0: "left", 0.0: "right", 0.5: "equal"}[preference]
    return {
        "project_id": project_id,
        "query_id": query,
        "annotator_id": annotator,
        "key": key,
        "kind": kind,
        "preference": None if declined else preference,
        "strength": None,
        "swapped": False,
        "response_ms": None,
        "granted_at": None,
        "answered_at": at,
        "detail": {"imported": source, "row": row},
    }


def _digest(*about: object) -> str:
    told = [item.id if isinstance(item, Project) else item for item in about]
    return blake2b(repr(told).encode(), digest_size=16).hexdigest()


def _check(comparisons: Comparisons, annotators: Sequence[str]) -> None:
    if len(annotators) != len(comparisons):
        expected = f"{len(comparisons)}, one per answer"
        raise DataError.mismatch("annotators", expected=expected, got=len(annotators))
    wrong: BoolArray = ~np.isnan(comparisons.preference) & ~np.isin(
        comparisons.preference, (0.0, 0.5, 1.0)
    )
    if wrong.any():
        raise DataError.mismatch(
            f"preference of answer {int(wrong.argmax())}",
            expected="1, 0, 0.5 or NaN, since a person's answer has no shares",
            got=comparisons.preference[wrong][0],
        )
    used, place = np.unique(comparisons.pairs, return_inverse=True)
    names = np.asarray(clip_ids(comparisons.segments.select(used)), np.str_)
    first, second = names[place.reshape(comparisons.pairs.shape)].T
    same = np.asarray(first == second)
    if same.any():
        got = "a clip beside itself"
        raise DataError.mismatch(
            f"pair {int(same.argmax())}", expected="two different clips", got=got
        )
    for name in set(annotators):
        require_name(name)
