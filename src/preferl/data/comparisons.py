"""Comparisons: pairs of segments and how likely the first of each is preferred; their splits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, final

import numpy as np

from preferl.data.columns import check, require_shape
from preferl.data.episodes import join_columns, take_columns
from preferl.data.segments import Segments, join_segments
from preferl.errors import ConfigError, DataError
from preferl.shapes import Array, BoolArray, FloatArray, IntArray, leaves

_ANSWERS: Final = ("preference", "weight", "annotator")


@final
@dataclass(frozen=True, eq=False)
class Comparisons:
    """Answered queries; each clip is stored once, however often it was compared.

    Attributes:
        segments: the clips.
        pairs: `[P, 2]` rows of `segments`, in the order shown.
        preference: `[P]` in [0, 1], the probability that the first is preferred; 0.5 is a tie,
            NaN an answer that was declined.
        weight: `[P]` how much each answer counts, at least 0; `of` fills in ones.
        annotator: `[P]` row of a table of people, or None for one teacher.

    Raises:
        DataError: shapes that do not agree, preferences outside [0, 1], negative weights, pairs
            that name no segment.
    """

    segments: Segments
    pairs: IntArray
    preference: FloatArray
    weight: FloatArray
    annotator: IntArray | None = None

    def __post_init__(self) -> None:
        count = len(self.pairs)
        require_shape("Comparisons.pairs", self.pairs, (count, 2))
        check_preference(self.preference, count)
        for name in ("weight", "annotator"):
            if (column := getattr(self, name)) is not None:
                require_shape(f"Comparisons.{name}", column, (count,))
        least = self.weight.min(initial=0)
        check(least >= 0, "Comparisons.weight", "numbers of at least 0", least)
        _require_rows(self.pairs, len(self.segments))

    @classmethod
    def of(
        cls,
        segments: Segments,
        pairs: IntArray,
        preference: FloatArray,
        weight: FloatArray | None = None,
        annotator: IntArray | None = None,
    ) -> Self:
        """Comparisons that keep just the segments and steps their pairs need; weights default to 1.

        Raises:
            DataError: pairs that name no segment, or what `Comparisons` refuses.
        """
        pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        _require_rows(pairs, len(segments))
        used, renumbered = np.unique(pairs, return_inverse=True)
        return cls(
            segments.select(used),
            renumbered.reshape(pairs.shape),
            np.asarray(preference, np.float64),
            np.ones(len(pairs)) if weight is None else np.asarray(weight, np.float64),
            annotator,
        )

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def decided(self) -> BoolArray:
        """`[P]` true where one of the two was preferred: neither a tie nor declined."""
        return np.asarray((self.preference != 0.5) & ~np.isnan(self.preference))

    @property
    def answered(self) -> BoolArray:
        """`[P]` true where there is an answer, ties included."""
        return ~np.isnan(self.preference)

    def __iter__(self) -> Iterator[Self]:
        """Each comparison by itself, as a table of one."""
        return (self[row : row + 1] for row in range(len(self)))

    def __getitem__(self, rows: int | IntArray | BoolArray | slice) -> Self:
        """Some comparisons, over the same segments; nothing large is copied.

        A number gives a table of that one, counted from the end where it is negative.

        Raises:
            IndexError: a number beyond the last comparison.
        """
        if not isinstance(rows, slice):
            rows = np.atleast_1d(np.arange(len(self))[rows])
        return replace(self, **take_columns(self, rows, ("pairs", *_ANSWERS)))

    def compact(self) -> Self:
        """The same with only the segments and steps that are still compared."""
        return self.of(self.segments, self.pairs, self.preference, self.weight, self.annotator)

    def swapped(self) -> Self:
        """The same answers with first and second of every pair exchanged."""
        return replace(self, pairs=self.pairs[:, ::-1], preference=1 - self.preference)


def concatenate(parts: Sequence[Comparisons]) -> Comparisons:
    """All comparisons of all parts, oldest first.

    Raises:
        DataError: nothing to concatenate, or parts of different shapes or keys.
    """
    if not parts:
        raise DataError("There are no comparisons to concatenate. Send at least one query.")
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0] + [len(part.segments) for part in parts[:-1]])
    return Comparisons(
        join_segments([part.segments for part in parts]),
        np.concatenate([part.pairs + o for part, o in zip(parts, offsets, strict=True)]),
        **join_columns(parts, "{} to concatenate", _ANSWERS),
    )


def _require_rows(pairs: IntArray, segments: int) -> None:
    least, most = pairs.min(initial=0), pairs.max(initial=-1)
    inside, expected = least >= 0 and most < segments, f"rows of {segments} segments"
    check(inside, "Comparisons.pairs", expected, f"rows {least} to {most}")


def check_preference(preference: FloatArray, count: int) -> None:
    """Raise `DataError` unless there are `count` preferences in [0, 1] or NaN."""
    require_shape("preference, one number per pair", preference, (count,))
    for pair in np.flatnonzero((preference < 0) | (preference > 1)):
        expected = "the probability in [0, 1] that the first is preferred, NaN if declined"
        fix = "Labels of other projects are converted by preferl.data.sources.labels."
        check(False, "preference", expected, f"{preference[pair]:g} for pair {pair}", fix)


def split(
    comparisons: Comparisons,
    rng: np.random.Generator,
    *,
    validation: float = 0.2,
    by: Literal["pair", "episode"] = "pair",
) -> tuple[Comparisons, Comparisons]:
    """Split comparisons into `(train, validation)` with nothing in both.

    Args:
        comparisons: pairs that hold the same two segments, in either order, stay together.
        rng: which pairs or episodes are held out.
        validation: share held out, in (0, 1); 0.2 as the DRLHP re-implementations do.
        by: `"pair"` holds out pairs, whose segments may share steps with training pairs;
            `"episode"` holds out episodes, trains on pairs without a step of them and validates
            on pairs wholly in them, so that no step is in both. Pairs between the two are left
            out. Needs segments whose `origin` is known.

    Raises:
        ConfigError: a share outside (0, 1).
        DataError: too few pairs or episodes to have both parts.
    """
    ConfigError.check(0 < validation < 1, "validation share", "in (0, 1)", validation)
    if by == "episode":
        episodes = np.unique(np.concatenate(_episode_span(comparisons), axis=None))
        held = max(1, round(len(episodes) * validation))
        return split_off_episodes(comparisons, rng.permutation(episodes)[:held])
    group, groups = _equal_pairs(comparisons)
    held = round(groups * validation)
    expected = f"enough for a validation share of {validation:g} and the rest"
    fix = "Send more queries or change the share."
    check(0 < held < groups, "comparisons to split", expected, f"{groups} different pairs", fix)
    inside = np.isin(group, rng.permutation(groups)[:held])
    return comparisons[~inside], comparisons[inside]


def folds(comparisons: Comparisons, count: int, rng: np.random.Generator) -> IntArray:
    """`[P]` the fold in 0...count-1 of each comparison; equal pairs share a fold.

    Raises:
        DataError: fewer different pairs than folds.
    """
    group, groups = _equal_pairs(comparisons)
    check(2 <= count <= groups, "folds", f"2 to {groups} (pairs)", count)
    return rng.permutation(np.arange(groups) % count)[group]


def _equal_pairs(comparisons: Comparisons) -> tuple[IntArray, int]:
    """`[P]` a number for each pair of windows, the same for either order; and how many there are.

    The same clip, asked about in two rounds, is stored twice.
    """

    def content(rows: Array) -> Array:  # [N, ...] numbers to [N, bytes]
        return np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)

    segments = comparisons.segments
    ends = np.stack([segments.start, segments.start + segments.real - 1], axis=1)
    held = [content(column[ends]) for column in [*leaves(segments.observations), segments.actions]]
    key = np.concatenate([*held, content(segments.real[:, None])], axis=1)
    window = np.unique(key, axis=0, return_inverse=True)[1].reshape(-1)
    pairs = np.sort(window[comparisons.pairs], axis=1)
    different, group = np.unique(pairs, axis=0, return_inverse=True)
    return group.reshape(-1), len(different)


def split_off_episodes(comparisons: Comparisons, held: IntArray) -> tuple[Comparisons, Comparisons]:
    """Train on pairs without a step of the held episodes; validate on pairs wholly in them.

    Episodes are numbered as `origin` counts them.

    Raises:
        DataError: one of the parts would be empty.
    """
    first, last = _episode_span(comparisons)
    episodes = int(last.max(initial=-1)) + 1
    held_before = np.append(0, np.cumsum(np.isin(np.arange(episodes), held)))
    # A window over short episodes may also hold whole ones between its first and its last.
    touched = held_before[last + 1] - held_before[first]  # [P, 2] held episodes in each window
    train: BoolArray = (touched == 0).all(axis=1)
    validate: BoolArray = (touched == last - first + 1).all(axis=1)
    expected = "pairs wholly inside and wholly outside the held episodes"
    got = f"{int(train.sum())} outside and {int(validate.sum())} inside"
    fix = "Hold out more or fewer episodes, or split by pair."
    there = train.any() and validate.any()
    check(there, "comparisons to split by episode", expected, got, fix)
    return comparisons[train], comparisons[validate]


def _episode_span(comparisons: Comparisons) -> tuple[IntArray, IntArray]:
    """`[P, 2]` twice: the episodes in which each segment of each pair begins and ends."""
    origin = comparisons.segments.origin
    if origin is None:
        raise DataError(
            "These segments do not know which episode they come from, so they cannot be split by "
            "episode. Cut them with `cut` or `sample_segments`, or split by pair."
        )
    return origin[comparisons.pairs, 0], origin[comparisons.pairs, 2]
