"""Import labels of other programs into a store: label folders, and tables of chosen and rejected.

Imported answers are like any other. People can continue where others ended and see how far they
agree, and rewards can be fitted to all answers together.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import cut
from preferl.data.segments import Segments
from preferl.data.sources.drlhp import load_drlhp_preferences
from preferl.data.sources.labels import Crossing, load_labels
from preferl.errors import DataError
from preferl.printing import get_logger
from preferl.shapes import Array, FloatArray
from preferl.store.clips import CLIPS_AT_ONCE, clip_ids, known_clips
from preferl.store.database import clock, rows_among
from preferl.store.exchange.answer_table import (
    ImportReport,
    add_answers,
    known_answers,
    people_named,
)
from preferl.store.exchange.tables import cell, cell_of, read_table, wrong_cell
from preferl.store.people import require_name
from preferl.store.schema import PREFERENCE, Annotator, Answer, Query
from preferl.store.store import Store

KINDS: Final = {None: "cannot_tell"} | {value: kind for kind, value in PREFERENCE.items()}
"""Kinds of answers by their preference."""

LOGGER = get_logger(__name__)


class PairAnswer(NamedTuple):
    """The preference for the first of two clips, by name; None if somebody could not tell."""

    first_clip: str
    second_clip: str
    preference: float | None

    @property
    def pair(self) -> tuple[str, str]:
        """Both clips; their order does not depend on the order in which they were listed."""
        return _pair(self.first_clip, self.second_clip)

    def preference_for(self, clip: str) -> float | None:
        """Return the preference for this one of the two clips."""
        if self.preference is None or clip == self.first_clip:
            return self.preference
        return 1 - self.preference


def _pair(*clips: str) -> tuple[str, str]:
    return min(clips), max(clips)


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

    They are about `episodes`, which need `states` if people are to see the clips. The annotator is
    `name`, or else the folder's name. For `length` and `crossing`, see `load_labels`. The errors
    are those of `load_labels` and `import_comparisons`.
    """
    folder = Path(folder)
    labels = load_labels(folder, episodes, length=length, crossing=crossing).comparisons
    people = [name] * len(labels)
    return import_comparisons(store, project_id, labels, people, source=folder.name)


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

    There are two ways to give a clip. One gives its steps, `{"observations": [[...], ...],
    "actions": [[...], ...]}`, with `rewards` if they are known. The other gives its place in
    `episodes`, `{"episode": 3, "start": 20}`, with `length` if it differs from that of the import.
    CSV has such objects as text. Instead of objects with places, their numbers may be in the
    columns `chosen_episode`, `chosen_start`, `rejected_episode` and `rejected_start`, and
    `chosen_length` and `rejected_length`. Two more columns are possible: `equal`, true if neither
    was better, and `annotator`. Without `annotator`, it is `name` or else the file's name. The
    ending of the file's name decides between JSON lines, CSV and Parquet. The errors are those of
    `read_chosen` and `import_comparisons`.
    """
    path = Path(path)
    comparisons, annotator_names = read_chosen(path, episodes, length=length)
    people = [person or name for person in annotator_names]
    return import_comparisons(
        store, project_id, comparisons, people, source=path.name, unnamed=path.stem
    )


def import_drlhp(
    store: Store, project_id: int, path: Path | str, *, name: str | None = None
) -> ImportReport:
    """Import a `train.pkl.gz` or `val.pkl.gz` of learning-from-human-preferences, with its clips.

    `load_drlhp_preferences` reads it, and executes nothing in it. `import_comparisons` stores it.
    The errors are those of both. The file does not name the annotator. The name is `name`, or else
    that of the file.
    """
    path = Path(path)
    comparisons = load_drlhp_preferences(path)
    people = [name] * len(comparisons)
    stem = path.name.removesuffix(".pkl.gz")
    return import_comparisons(
        store, project_id, comparisons, people, source=path.name, unnamed=stem
    )


def import_comparisons(
    store: Store,
    project_id: int,
    comparisons: Comparisons,
    annotators: Sequence[str | None],
    *,
    source: str,
    unnamed: str | None = None,
) -> ImportReport:
    """Import comparisons as answers of their annotators, with the `source` in their detail.

    Preferences are 1, 0, 0.5, or NaN if somebody could not tell. Annotators without a name are
    called `unnamed`, or else have the name of the source.

    All answers about a pair of clips, in either order, are answers to one query, whether they come
    from another import or from the page. If a person answers a pair several times, further queries
    are added, so that all these answers count. Two answers are the same if their person, their pair
    and their preference are the same. A repeated import therefore adds nothing, even from a copy of
    the file. If a copy names nobody, its answers belong to the person for whom the first one was
    imported.

    Raises:
        ConfigError: there is no such project.
        DataError: there are other preferences, a clip is compared with itself, or a name is empty
            or the owner's.
        StorageError: the store cannot be written to.
    """
    store.projects.get(project_id)
    segments = comparisons.segments
    clip_names = clip_ids(segments)
    clips = np.asarray(clip_names, np.str_)[comparisons.pairs]  # [P, 2]
    names = [(unnamed or source) if name is None else name for name in annotators]
    _check(comparisons.preference, clips, names)
    if not len(comparisons):
        return ImportReport(0, 0, 0, ())
    answers = [
        PairAnswer(first, second, None if preference != preference else preference)
        for (first, second), preference in zip(
            clips.tolist(), comparisons.preference.tolist(), strict=True
        )
    ]
    if all(name is None for name in annotators):
        with store.database.read() as session:
            earlier = _who_gave_the_same(session, project_id, answers, names[0])
        if earlier != names[0]:
            message = (
                "%s names nobody, and %s gave the same %d answers: they are not added again. If "
                "somebody else gave these, name that person."
            )
            LOGGER.warning(message, source, earlier, len(answers))
            names = [earlier] * len(answers)
    for start in range(0, len(segments), CLIPS_AT_ONCE):
        store.clips.put(project_id, segments.select(slice(start, start + CLIPS_AT_ONCE)))
    new = _record(store, project_id, answers, names, source)
    people = tuple(sorted(set(names)))
    return ImportReport(new, len(answers) - new, len(set(clip_names)), people)


def _record(
    store: Store,
    project_id: int,
    answers: Sequence[PairAnswer],
    names: Sequence[str],
    source: str,
) -> int:
    """Add the answers that are new, with queries and people; return how many."""
    keys = _keys(project_id, answers, names)
    with store.database.write() as session:
        recorded_at = clock(session)
        stored_keys = known_answers(session, keys)
        rows = [row for row, key in enumerate(keys) if key not in stored_keys]
        numbers = people_named(session, project_id, sorted(set(names)))
        new_answers = [answers[row] for row in rows]
        annotator_ids = [numbers[names[row]] for row in rows]
        queries = _queries_for(
            session, project_id, new_answers, annotator_ids, source=source, at=recorded_at
        )
        recorded = []
        for row, annotator_id, query in zip(rows, annotator_ids, queries, strict=True):
            preference = answers[row].preference_for(query.first_clip)
            recorded.append(
                {
                    "project_id": project_id,
                    "query_id": query.id,
                    "annotator_id": annotator_id,
                    "key": keys[row],
                    "kind": KINDS[preference],
                    "preference": preference,
                    "swapped": False,
                    "answered_at": recorded_at,
                    "detail": {"imported": source, "row": row},
                }
            )
        add_answers(session, recorded)
    return len(rows)


def _keys(project_id: int, answers: Sequence[PairAnswer], names: Sequence[str]) -> list[str]:
    """Return the key of each answer: its person, its pair, its preference, and a count of repeats.

    The key depends on nothing else, so neither the file nor the order of its rows matters.
    """
    earlier = Counter[tuple[object, ...]]()
    keys = []
    for answer, name in zip(answers, names, strict=True):
        pair = answer.pair
        content = (*pair, answer.preference_for(pair[0]), name)
        keys.append(_digest(project_id, *content, earlier[content]))
        earlier[content] += 1
    return keys


def _who_gave_the_same(
    session: Session, project_id: int, answers: Sequence[PairAnswer], name: str
) -> str:
    """Return for whom these answers were imported before; `name` if for nobody."""
    candidates = session.scalars(select(Annotator.name).where(Annotator.project_id == project_id))
    people: list[str] = [name, *candidates]
    for person in people:
        for compared in (
            answers[:1],
            answers,
        ):  # the first answer is often enough to rule a person out
            keys = _keys(project_id, compared, [person] * len(compared))
            if len(known_answers(session, keys)) < len(keys):
                break
        else:
            return person
    return name


def _queries_for(
    session: Session,
    project_id: int,
    answers: Sequence[PairAnswer],
    whose: Sequence[int],
    *,
    source: str,
    at: float,
) -> list[Query]:
    """Return the query of each answer: the first about its pair that its person has not answered.

    Missing queries are added in the order of the answers. They have their answers already. Nobody
    is asked about them, and their clips need no videos.
    """
    clips = sorted({clip for answer in answers for clip in answer.pair})
    videos = known_clips(session, project_id, clips)
    of_pair = _queries_of_pairs(session, project_id, clips)
    answered_queries = select(Answer.query_id, Answer.annotator_id).distinct()
    numbers = [query.id for queries in of_pair.values() for query in queries]
    answered = {
        tuple(row) for row in rows_among(session, answered_queries, Answer.query_id, numbers)
    }
    query_counts = Counter[
        tuple[tuple[str, str], int]
    ]()  # queries of a pair that a person has answered
    taken_queries: list[Query] = []
    for answer, person in zip(answers, whose, strict=True):
        candidates = of_pair.setdefault(answer.pair, [])
        position = query_counts[answer.pair, person]
        while position < len(candidates) and (candidates[position].id, person) in answered:
            position += 1
        if position == len(candidates):
            query = Query(
                project_id=project_id,
                first_clip=answer.first_clip,
                second_clip=answer.second_clip,
                purpose="ask",
                asked_at=at,
                cancelled_at=at,
                ready=videos[answer.first_clip] and videos[answer.second_clip],
                detail={"imported": source},
            )
            candidates.append(query)
        query_counts[answer.pair, person] = position + 1
        taken_queries.append(candidates[position])
    session.add_all(taken_queries)
    session.flush()
    return taken_queries


def _queries_of_pairs(
    session: Session, project_id: int, clips: Sequence[str]
) -> dict[tuple[str, str], list[Query]]:
    """Return queries to learn from whose first clip is one of these, by pair, oldest first."""
    project_queries = select(Query).where(Query.project_id == project_id, Query.purpose == "ask")
    queries = [query for (query,) in rows_among(session, project_queries, Query.first_clip, clips)]
    of_pair: dict[tuple[str, str], list[Query]] = {}
    for query in sorted(queries, key=lambda query: query.id):
        of_pair.setdefault(_pair(query.first_clip, query.second_clip), []).append(query)
    return of_pair


def _digest(*about: object) -> str:
    return blake2b(repr([*about]).encode(), digest_size=16).hexdigest()


def _check(preference: FloatArray, clips: Array, annotators: Sequence[str]) -> None:
    count = len(preference)
    if len(annotators) != count:
        raise DataError(f"annotators: expected {count}, one per answer, got {len(annotators)}.")
    wrong = np.flatnonzero(~np.isnan(preference) & ~np.isin(preference, (0.0, 0.5, 1.0)))
    if len(wrong):
        raise DataError(
            f"preference of answer {wrong[0]}: expected 1, 0, 0.5 or NaN, since a person's answer "
            f"has no shares, got {preference[wrong[0]]}."
        )
    identical = np.flatnonzero(clips[:, 0] == clips[:, 1])
    if len(identical):
        raise DataError(
            f"pair {identical[0]}: expected two different clips, got a clip beside itself."
        )
    for name in set(annotators):
        require_name(name)


def read_chosen(
    path: Path, episodes: Episodes | None = None, *, length: int | None = None
) -> tuple[Comparisons, list[str | None]]:
    """Read the comparisons of a table for `import_table`, and the annotators that it names.

    The order of the clips in a pair follows their content, and does not depend on the answer.

    Raises:
        DataError: a cell is wrong, and the message names file, row and column; or clips are of
            different kinds. For further errors, see `read_table`.
    """
    clips: list[tuple[int, int] | tuple[Array, ...]] = []
    equal = []
    people = []
    for number, raw in enumerate(read_table(path), 1):
        where = f"{path}, row {number}"
        clips += [_clip(raw, side, episodes, length, where) for side in ("chosen", "rejected")]
        if any(len(clip) != len(clips[0]) for clip in clips[-2:]):
            raise wrong_cell(where, "chosen", "steps or references, as in earlier rows", "both")
        equal.append(bool(cell_of(raw, "equal", "flag", where)))
        people.append(cell_of(raw, "annotator", "text", where))
    if not clips:
        raise DataError(f"{path}: expected at least one row, got none.")
    segments = _segments(path, clips, episodes)
    names = np.asarray(clip_ids(segments))
    distinct_names, row = np.unique(names, return_index=True)
    pair_rows = np.searchsorted(distinct_names, names).reshape(
        -1, 2
    )  # [P, 2] chosen and rejected, by name
    preference = np.where(equal, 0.5, np.where(pair_rows[:, 0] > pair_rows[:, 1], 0.0, 1.0))
    return Comparisons.of(segments.select(row), np.sort(pair_rows, axis=1), preference), people


def _clip(
    raw: Mapping[str, Any], side: str, episodes: Episodes | None, length: int | None, where: str
) -> tuple[int, int] | tuple[Array, ...]:
    """Return row and length of a clip that a cell refers to, or three columns of its steps."""
    if f"{side}_episode" in raw:
        value = {name: raw.get(f"{side}_{name}") for name in ("episode", "start", "length")}
    else:
        value = cell_of(raw, side, "json", where) or {}
    if value.get("episode") is not None:
        return _reference(value, side, episodes, length, where)
    if value.get("observations") is not None:
        return _steps(value, side, where)
    expected = "an object with observations and actions, or with episode and start"
    fix = f"Columns {side}_episode and {side}_start may hold the numbers instead."
    raise wrong_cell(where, side, expected, repr(value)[:100], fix)


def _reference(
    value: Mapping[str, Any], side: str, episodes: Episodes | None, length: int | None, where: str
) -> tuple[int, int]:
    if episodes is None:
        raise wrong_cell(where, side, "steps, since no episodes were given", "a reference")
    try:
        episode = cell("whole", value.get("episode"))
        start = cell("whole", value.get("start"))
        steps = cell("whole", value.get("length"))
    except ValueError as error:
        raise wrong_cell(where, side, error, value) from error
    if steps is None:
        steps = length
    if steps is None:
        raise wrong_cell(where, side, "a length, here or for the whole import", value)
    if episode is None or not 0 <= episode < len(episodes):
        raise wrong_cell(where, side, f"an episode in 0 to {len(episodes) - 1}", episode)
    episode_length = episodes.lengths[episode]
    if start is None or steps < 1 or not 0 <= start <= episode_length - steps:
        expected = f"{steps} steps inside the {episode_length} of episode {episode}"
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
        actual = f"shapes {observations.shape}, {actions.shape} and {rewards.shape}"
        expected = "as many finite observations, actions and rewards, at least one"
        raise wrong_cell(where, side, expected, actual)
    return columns


def _segments(path: Path, clips: Sequence[Any], episodes: Episodes | None) -> Segments:
    """Return a window for each clip, in order."""
    if episodes is not None and len(clips[0]) == 2:
        rows, lengths = np.array(clips, np.int64).T
        if (lengths != lengths[0]).any():
            raise DataError(f"{path}: expected one length, got {sorted(set(lengths.tolist()))}.")
        return cut(episodes, rows, int(lengths[0]))
    observations, actions, rewards = zip(*clips, strict=True)
    shapes = {(o.shape[1:], a.shape[1:]) for o, a in zip(observations, actions, strict=True)}
    if len(shapes) != 1:
        raise DataError(f"{path}: expected steps of one kind, got shapes {sorted(shapes)}.")
    real = np.array([len(column) for column in rewards], np.int64)
    return Segments(
        observations=np.concatenate(observations),
        actions=np.concatenate(actions),
        rewards=np.concatenate(rewards),
        start=np.cumsum(real) - real,
        real=real,
        length=int(real.max()),
    )
