"""Labels made elsewhere into a store: published label folders, and tables of chosen and rejected.

They are answers like any other then: people may go on where others ended, see how far they agree,
and learn from all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.sources.drlhp import load_drlhp_preferences
from preferl.data.sources.labels import Crossing, load_labels
from preferl.errors import DataError
from preferl.shapes import IntArray
from preferl.store.answer_table import add_answers, add_queries, known_answers, people_named
from preferl.store.chosen import read_chosen
from preferl.store.clips import clip_ids, known_clips
from preferl.store.database import clock
from preferl.store.people import require_name
from preferl.store.schema import PREFERENCE
from preferl.store.store import Store

CLIPS_AT_ONCE = 2_000
"""Clips that go into one shard."""

KINDS: Final = {None: "cannot_tell"} | {value: kind for kind, value in PREFERENCE.items()}
"""What people say, by the preference that it comes to."""


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
    segments, names = comparisons.segments, list[str]()
    for start in range(0, len(segments), CLIPS_AT_ONCE):
        names += store.clips.put(project_id, segments.select(slice(start, start + CLIPS_AT_ONCE)))
    clips = np.asarray(names, np.str_)  # [N]
    first, second = (clips[comparisons.pairs[:, side]] for side in (0, 1))
    people, person = np.unique(np.asarray(annotators, np.str_), return_inverse=True)
    again = occurrence(np.stack([comparisons.pairs[:, 0], comparisons.pairs[:, 1], person], axis=1))
    pairs = zip(first.tolist(), second.tolist(), again.tolist(), strict=True)
    identity = [_digest(project.id, source, *pair) for pair in pairs]
    said = zip(identity, people[person].tolist(), comparisons.preference.tolist(), strict=True)
    keys = [_digest(*about) for about in said]
    preferences = [None if p != p else p for p in comparisons.preference.tolist()]  # no NaN in SQL
    with store.database.write() as session:
        at = clock(session)
        held = known_answers(session, keys)
        fresh = np.array([key not in held for key in keys], bool)
        videos = known_clips(session, project_id, clips.tolist())
        numbers = people_named(session, project_id, people.tolist())
        asked, row, query = np.unique(
            np.asarray(identity)[fresh], return_index=True, return_inverse=True
        )
        rows = np.flatnonzero(fresh)
        in_order = np.argsort(row)  # queries are numbered as the source lists them
        # They are answered: nobody is asked about them, and their clips need no videos.
        settled = {"project_id": project_id, "purpose": "ask", "asked_at": at, "cancelled_at": at}
        settled |= {"priority": 0.0, "quorum": 0, "needed": 0, "detail": {"imported": source}}
        sides = [(str(first[n]), str(second[n])) for n in rows[row[in_order]].tolist()]
        ids = np.empty(len(asked), np.int64)
        ids[in_order] = add_queries(
            session,
            [
                settled | {"first_clip": a, "second_clip": b, "ready": videos[a] and videos[b]}
                for a, b in sides
            ],
        )
        alike = {"project_id": project_id, "swapped": False, "answered_at": at}
        add_answers(
            session,
            [
                alike
                | {"query_id": number, "annotator_id": numbers[annotators[n]], "key": keys[n]}
                | {"kind": KINDS[preferences[n]], "preference": preferences[n]}
                | {"detail": {"imported": source, "row": n}}
                for n, number in zip(rows.tolist(), ids[query].tolist(), strict=True)
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


def _digest(*about: object) -> str:
    return blake2b(repr([*about]).encode(), digest_size=16).hexdigest()


def _check(comparisons: Comparisons, annotators: Sequence[str]) -> None:
    if len(annotators) != len(comparisons):
        expected = f"{len(comparisons)}, one per answer"
        raise DataError.mismatch("annotators", expected=expected, got=len(annotators))
    given = comparisons.preference
    wrong = ~np.isnan(given) & ~np.isin(given, (0.0, 0.5, 1.0))
    if wrong.any():
        raise DataError.mismatch(
            f"preference of answer {int(wrong.argmax())}",
            expected="1, 0, 0.5 or NaN, since a person's answer has no shares",
            got=given[wrong][0],
        )
    used, place = np.unique(comparisons.pairs, return_inverse=True)
    names = np.asarray(clip_ids(comparisons.segments.select(used)), np.str_)
    first, second = names[place.reshape(comparisons.pairs.shape)].T
    same = np.asarray(first == second)
    if same.any():
        pair, got = f"pair {int(same.argmax())}", "a clip beside itself"
        raise DataError.mismatch(pair, expected="two different clips", got=got)
    for name in set(annotators):
        require_name(name)
