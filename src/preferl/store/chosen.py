"""Tables whose rows say which of two clips was chosen and which rejected."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import Segments, cut
from preferl.errors import DataError
from preferl.reading import parse_json
from preferl.shapes import Array, IntArray
from preferl.store.clips import clip_ids
from preferl.store.tables import cell, cell_of, read_table, wrong_cell

SIDES = ("chosen", "rejected")


class Clip(NamedTuple):
    """The steps of a clip that a cell spells out."""

    observations: Array
    actions: Array
    rewards: Array


class Reference(NamedTuple):
    """Where a clip lies that a cell refers to."""

    row: int
    length: int


def read_chosen(
    path: Path,
    episodes: Episodes | None = None,
    *,
    length: int | None = None,
    wanted: str | None = None,
) -> tuple[Comparisons, list[str | None]]:
    """The comparisons of a table and who gave each answer, where it says so.

    Which clip comes first is told by their content, so that it has nothing to do with the answer.

    Args:
        path: a table; `preferl.store.imports.import_table` says what of.
        episodes: what references count in.
        length: steps of clips that are referred to without one.
        wanted: format, if it is not the end of the file's name.

    Raises:
        DataError: a cell that is wrong, naming file, row and column; clips of different kinds.
    """
    cells: list[Clip | Reference] = []
    equal, people = [], []
    for number, raw in enumerate(read_table(path, wanted), 1):
        where = f"{path}, row {number}"
        cells += [_clip(raw, side, episodes, length, where) for side in SIDES]
        if len({type(found) for found in cells}) > 1:
            raise wrong_cell(where, "chosen", "what earlier rows hold: steps or references", "both")
        equal.append(bool(cell_of(raw, "equal", "flag", where)))
        people.append(cell_of(raw, "annotator", "text", where))
    if not cells:
        raise DataError.mismatch(f"{path}", expected="at least one row", got="none")
    segments = _segments(path, cells, episodes)
    return _comparisons(segments, np.array(equal, bool)), people


def _comparisons(segments: Segments, equal: Array) -> Comparisons:
    """Pairs of clips `2 p` (chosen) and `2 p + 1`, in the order of their names."""
    names = np.asarray(clip_ids(segments))
    kept, row = np.unique(names, return_index=True)
    place = np.searchsorted(kept, names).reshape(-1, 2)  # [P, 2] by rising name
    turned = place[:, 0] > place[:, 1]
    preference = np.where(equal, 0.5, np.where(turned, 0.0, 1.0))
    return Comparisons.of(segments.select(row), np.sort(place, axis=1), preference)


def _clip(
    raw: Mapping[str, Any], side: str, episodes: Episodes | None, length: int | None, where: str
) -> Clip | Reference:
    said = raw.get(side)
    if isinstance(said, str):
        try:
            said = parse_json(said)
        except ValueError as error:
            raise wrong_cell(where, side, "an object of JSON", error) from error
    if isinstance(said, dict) and said.get("episode") is not None:
        return _reference(said, side, episodes, length, where)
    if isinstance(said, dict) and said.get("observations") is not None:
        return _steps(said, side, where)
    expected = "an object with observations and actions, or with episode and start"
    raise wrong_cell(where, side, expected, repr(said)[:100])


def _reference(
    said: Mapping[str, Any], side: str, episodes: Episodes | None, length: int | None, where: str
) -> Reference:
    if episodes is None:
        raise wrong_cell(where, side, "steps, since no episodes were given", "a reference")
    try:
        episode, start, told = (cell("whole", said.get(k)) for k in ("episode", "start", "length"))
    except ValueError as error:
        raise wrong_cell(where, side, error, said) from error
    steps = length if told is None else told
    if steps is None:
        raise wrong_cell(where, side, "a length, here or for the whole import", said)
    if episode is None or not 0 <= episode < len(episodes):
        raise wrong_cell(where, side, f"an episode in 0 to {len(episodes) - 1}", episode)
    most = int(episodes.lengths[episode]) - steps
    if start is None or steps < 1 or not 0 <= start <= most:
        expected = f"{steps} steps inside the {episodes.lengths[episode]} of episode {episode}"
        raise wrong_cell(where, side, expected, f"start {start}")
    return Reference(int(episodes.starts[episode]) + start, steps)


def _steps(said: Mapping[str, Any], side: str, where: str) -> Clip:
    try:
        observations = np.asarray(said["observations"], np.float32)
        actions = np.asarray(said.get("actions"), np.float32)
        rewards = np.asarray(said.get("rewards") or np.zeros(len(observations)), np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong_cell(where, side, "numbers, alike in every step", error) from error
    steps = {array.shape[0] if array.ndim else 0 for array in (observations, actions, rewards)}
    finite = all(np.isfinite(array).all() for array in (observations, actions, rewards))
    if len(steps) != 1 or 0 in steps or rewards.ndim != 1 or not finite:
        got = f"shapes {observations.shape}, {actions.shape} and {rewards.shape}"
        expected = "as many finite observations, actions and rewards, at least one"
        raise wrong_cell(where, side, expected, got)
    return Clip(observations, actions, rewards)


def _segments(path: Path, cells: Sequence[Any], episodes: Episodes | None) -> Segments:
    """A window for each cell, in their order."""
    if episodes is not None and isinstance(cells[0], Reference):
        return _referred(path, cells, episodes)
    shapes = {(clip.observations.shape[1:], clip.actions.shape[1:]) for clip in cells}
    if len(shapes) > 1:
        got = f"shapes {sorted(shapes)}"
        raise DataError.mismatch(f"{path}", expected="steps of one kind", got=got)
    real = np.array([len(clip.rewards) for clip in cells], np.int64)
    return Segments(
        observations=np.concatenate([clip.observations for clip in cells]),
        actions=np.concatenate([clip.actions for clip in cells]),
        rewards=np.concatenate([clip.rewards for clip in cells]),
        start=np.cumsum(real) - real,
        real=real,
        length=int(real.max()),
    )


def _referred(path: Path, cells: Sequence[Reference], episodes: Episodes) -> Segments:
    rows: IntArray = np.array([reference.row for reference in cells], np.int64)
    lengths = {reference.length for reference in cells}
    if len(lengths) > 1:
        raise DataError.mismatch(f"{path}", expected="one length", got=sorted(lengths))
    return cut(episodes, rows, lengths.pop())
