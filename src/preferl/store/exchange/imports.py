"""Import labels made elsewhere into a store: label folders, and tables of chosen and rejected.

They are answers like any other then: people may continue where others ended, see how far they
agree, and learn from all of it.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from preferl.data.columns import check
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Segments, cut
from preferl.data.sources.drlhp import load_drlhp_preferences
from preferl.data.sources.labels import Crossing, load_labels
from preferl.errors import DataError
from preferl.shapes import Array, FloatArray, IntArray
from preferl.store.clips import CLIPS_AT_ONCE, clip_ids, known_clips
from preferl.store.database import clock
from preferl.store.exchange.answer_table import (
    ImportReport,
    add_answers,
    add_queries,
    known_answers,
    people_named,
)
from preferl.store.exchange.tables import cell, cell_of, read_table, wrong_cell
from preferl.store.people import require_name
from preferl.store.schema import PREFERENCE
from preferl.store.store import Store

KINDS: Final = {None: "cannot_tell"} | {value: kind for kind, value in PREFERENCE.items()}
"""Kinds of answers by the preference that they come to."""


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
    """Import the answers of a folder of Uni-RLHF or of the Preference Transformer.

    They are about `episodes`, with `states` if people are to see the clips. The annotator is `name`
    or else the folder's; `length` and `crossing` are those of `load_labels`, whose errors are
    raised, beside those of `import_comparisons`.
    """
    folder = Path(folder)
    found = load_labels(folder, episodes, length=length, crossing=crossing).comparisons
    people = [name or folder.name] * len(found)
    return import_comparisons(store, project_id, found, people, source=folder.name)


def import_table(
    store: Store,
    project_id: int,
    path: Path | str,
    episodes: Episodes | None = None,
    *,
    name: str | None = None,
    length: int | None = None,
) -> ImportReport:
    """Import a table with a row for each answer, and the columns `chosen` and `rejected`.

    Both hold either the steps of a clip, `{"observations": [[...], ...], "actions": [[...], ...]}`
    with `rewards` if they are known, or where it lies in `episodes`: `{"episode": 3, "start": 20}`,
    with `length` if it is not that of the import. CSV has such objects as text. Further columns
    may be `equal`, true where neither was better, and `annotator`, otherwise `name` or else the
    file's. Its name decides between JSON lines, CSV and Parquet. The errors of `read_chosen` and
    `import_comparisons` are raised.
    """
    path = Path(path)
    comparisons, named = read_chosen(path, episodes, length=length)
    people = [person or name or path.stem for person in named]
    return import_comparisons(store, project_id, comparisons, people, source=path.name)


def import_drlhp(
    store: Store, project_id: int, path: Path | str, *, name: str | None = None
) -> ImportReport:
    """Import a `train.pkl.gz` or `val.pkl.gz` of learning-from-human-preferences, with its clips.

    `load_drlhp_preferences` reads it and executes nothing in it, and `import_comparisons` stores
    it; the errors of both are raised. The annotator, whom the file does not name, is `name` or
    else the file's.
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
    """Import comparisons as answers of their annotators, with the `source` in their detail.

    Preferences are 1, 0, 0.5, or NaN where somebody could not tell. Several answers of one person
    to one pair of clips go to queries of their own, so that all of them count; those of several
    people about it are answers to one query. An import that is repeated adds nothing.

    Raises:
        ConfigError: no such project.
        DataError: other preferences, a clip beside itself, or a name that is empty or the owner's.
        StorageError: the store cannot be written to.
    """
    project, segments = store.projects.get(project_id), comparisons.segments
    names = clip_ids(segments)
    clips = np.asarray(names, np.str_)[comparisons.pairs]  # [P, 2]
    _check(comparisons.preference, clips, annotators)
    if not len(comparisons):
        return ImportReport(0, 0, 0, ())
    for start in range(0, len(segments), CLIPS_AT_ONCE):
        store.clips.put(project_id, segments.select(slice(start, start + CLIPS_AT_ONCE)))
    people, person = np.unique(np.asarray(annotators, np.str_), return_inverse=True)
    again = occurrence(np.column_stack([comparisons.pairs, person]))
    identity = [
        _digest(project.id, source, *pair, count)
        for pair, count in zip(clips.tolist(), again.tolist(), strict=True)
    ]
    given = comparisons.preference.tolist()
    keys = list(map(_digest, identity, people[person].tolist(), given))
    preferences = [None if p != p else p for p in given]  # no NaN in SQL
    with store.database.write() as session:
        at = clock(session)
        held = known_answers(session, keys)
        rows = np.flatnonzero([key not in held for key in keys])
        videos = known_clips(session, project_id, names)
        numbers = people_named(session, project_id, people.tolist())
        _, first, query = np.unique(
            np.asarray(identity)[rows], return_index=True, return_inverse=True
        )
        in_order = np.argsort(first)  # queries are numbered as the source lists them
        # They are answered: nobody is asked about them, and their clips need no videos.
        settled = {
            "project_id": project_id,
            "purpose": "ask",
            "asked_at": at,
            "cancelled_at": at,
            "detail": {"imported": source},
        }
        queries = [
            settled | {"first_clip": a, "second_clip": b, "ready": videos[a] and videos[b]}
            for a, b in clips[rows[first[in_order]]].tolist()
        ]
        ids = np.empty(len(first), np.int64)
        ids[in_order] = add_queries(session, queries)
        alike = {"project_id": project_id, "swapped": False, "answered_at": at}
        answers = [
            alike
            | {"query_id": number, "annotator_id": numbers[annotators[n]], "key": keys[n]}
            | {"kind": KINDS[preferences[n]], "preference": preferences[n]}
            | {"detail": {"imported": source, "row": n}}
            for n, number in zip(rows.tolist(), ids[query].tolist(), strict=True)
        ]
        add_answers(session, answers)
    return ImportReport(len(rows), len(keys) - len(rows), len(set(names)), tuple(people.tolist()))


def occurrence(rows: IntArray) -> IntArray:
    """`[R]` how often each row of `[R, C]` was there before."""
    group = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(group, kind="stable")
    count = np.empty(len(rows), np.int64)
    count[order] = np.arange(len(rows)) - np.searchsorted(group[order], group[order])
    return count


def _digest(*about: object) -> str:
    return blake2b(repr([*about]).encode(), digest_size=16).hexdigest()


def _check(preference: FloatArray, clips: Array, annotators: Sequence[str]) -> None:
    count = len(preference)
    check(len(annotators) == count, "annotators", f"{count}, one per answer", len(annotators))
    wrong = np.flatnonzero(~np.isnan(preference) & ~np.isin(preference, (0.0, 0.5, 1.0)))
    if len(wrong):
        what, got = f"preference of answer {wrong[0]}", preference[wrong[0]]
        expected = "1, 0, 0.5 or NaN, since a person's answer has no shares"
        raise DataError.mismatch(what, expected=expected, got=got)
    same, expected = np.flatnonzero(clips[:, 0] == clips[:, 1]), "two different clips"
    if len(same):
        raise DataError.mismatch(f"pair {same[0]}", expected=expected, got="a clip beside itself")
    for name in set(annotators):
        require_name(name)


def read_chosen(
    path: Path, episodes: Episodes | None = None, *, length: int | None = None
) -> tuple[Comparisons, list[str | None]]:
    """Read the comparisons of a table for `import_table`, and the annotators that it names.

    The order of the clips in a pair follows their content and is independent of the answer.

    Raises:
        DataError: a cell that is wrong, naming file, row and column; clips of different kinds.
            Further errors are those of `read_table`.
    """
    clips: list[tuple[int, int] | tuple[Array, ...]] = []
    equal, people = [], []
    for number, raw in enumerate(read_table(path), 1):
        where = f"{path}, row {number}"
        clips += [_clip(raw, side, episodes, length, where) for side in ("chosen", "rejected")]
        if any(len(clip) != len(clips[0]) for clip in clips[-2:]):
            raise wrong_cell(where, "chosen", "what earlier rows hold: steps or references", "both")
        equal.append(bool(cell_of(raw, "equal", "flag", where)))
        people.append(cell_of(raw, "annotator", "text", where))
    check(clips, path, "at least one row", "none")
    segments = _segments(path, clips, episodes)
    names = np.asarray(clip_ids(segments))
    kept, row = np.unique(names, return_index=True)
    place = np.searchsorted(kept, names).reshape(-1, 2)  # [P, 2] chosen and rejected, by name
    preference = np.where(equal, 0.5, np.where(place[:, 0] > place[:, 1], 0.0, 1.0))
    return Comparisons.of(segments.select(row), np.sort(place, axis=1), preference), people


def _clip(
    raw: Mapping[str, Any], side: str, episodes: Episodes | None, length: int | None, where: str
) -> tuple[int, int] | tuple[Array, ...]:
    """Row and length of a clip that a cell refers to, or the three columns of its steps."""
    value = cell_of(raw, side, "json", where) or {}
    if value.get("episode") is not None:
        return _reference(value, side, episodes, length, where)
    if value.get("observations") is not None:
        return _steps(value, side, where)
    expected = "an object with observations and actions, or with episode and start"
    raise wrong_cell(where, side, expected, repr(value)[:100])


def _reference(
    value: Mapping[str, Any], side: str, episodes: Episodes | None, length: int | None, where: str
) -> tuple[int, int]:
    if episodes is None:
        raise wrong_cell(where, side, "steps, since no episodes were given", "a reference")
    try:
        episode, start, own = (cell("whole", value.get(k)) for k in ("episode", "start", "length"))
    except ValueError as error:
        raise wrong_cell(where, side, error, value) from error
    steps = length if own is None else own
    if steps is None:
        raise wrong_cell(where, side, "a length, here or for the whole import", value)
    if episode is None or not 0 <= episode < len(episodes):
        raise wrong_cell(where, side, f"an episode in 0 to {len(episodes) - 1}", episode)
    whole = episodes.lengths[episode]
    if start is None or steps < 1 or not 0 <= start <= whole - steps:
        expected = f"{steps} steps inside the {whole} of episode {episode}"
        raise wrong_cell(where, side, expected, f"start {start}")
    return int(episodes.starts[episode]) + start, steps


def _steps(value: Mapping[str, Any], side: str, where: str) -> tuple[Array, ...]:
    try:
        observations = np.asarray(value["observations"], np.float32)
        actions = np.asarray(value.get("actions"), np.float32)
        rewards = np.asarray(value.get("rewards") or np.zeros(len(observations)), np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong_cell(where, side, "numbers, alike in every step", error) from error
    columns = observations, actions, rewards
    steps = {len(column) if column.ndim else 0 for column in columns}
    finite = all(np.isfinite(column).all() for column in columns)
    if len(steps) != 1 or 0 in steps or rewards.ndim != 1 or not finite:
        got = f"shapes {observations.shape}, {actions.shape} and {rewards.shape}"
        expected = "as many finite observations, actions and rewards, at least one"
        raise wrong_cell(where, side, expected, got)
    return columns


def _segments(path: Path, clips: Sequence[Any], episodes: Episodes | None) -> Segments:
    """A window for each clip, in their order."""
    if episodes is not None and len(clips[0]) == 2:
        rows, lengths = np.array(clips, np.int64).T
        found = sorted(set(lengths.tolist()))
        check(len(found) == 1, path, "one length", found)
        return cut(episodes, rows, int(lengths[0]))
    observations, actions, rewards = zip(*clips, strict=True)
    shapes = {(o.shape[1:], a.shape[1:]) for o, a in zip(observations, actions, strict=True)}
    check(len(shapes) == 1, path, "steps of one kind", f"shapes {sorted(shapes)}")
    real = np.array([len(column) for column in rewards], np.int64)
    return Segments(
        observations=np.concatenate(observations),
        actions=np.concatenate(actions),
        rewards=np.concatenate(rewards),
        start=np.cumsum(real) - real,
        real=real,
        length=int(real.max()),
    )
