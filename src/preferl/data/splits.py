"""Disjoint training and validation halves of comparisons, by pair or by episode."""

from typing import Literal

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.errors import ConfigError, DataError
from preferl.shapes import Array, BoolArray, IntArray, leaves


def split(
    comparisons: Comparisons,
    rng: np.random.Generator,
    *,
    validation: float = 0.2,
    by: Literal["pair", "episode"] = "pair",
) -> tuple[Comparisons, Comparisons]:
    """Part comparisons into `(train, validation)` with nothing in both.

    Args:
        comparisons: what to part. Pairs that hold the same two segments, in either order, stay
            together.
        rng: which pairs or episodes are held out.
        validation: share held out, in (0, 1); 0.2 as the DRLHP re-implementations do.
        by: `"pair"` holds out pairs, whose segments may share steps with training pairs;
            `"episode"` holds out episodes, trains on pairs without a step of them and validates
            on pairs wholly in them, so that no step is in both. Pairs between the two are left
            out. Needs segments whose `origin` is known.

    Raises:
        ConfigError: a share outside (0, 1).
        DataError: too few pairs or episodes to have both halves.
    """
    if not 0 < validation < 1:
        raise ConfigError.mismatch("validation share", expected="in (0, 1)", got=validation)
    if by == "episode":
        return _by_episode(comparisons, rng, validation)
    group = _same_question(comparisons)
    groups = int(group.max()) + 1 if len(group) else 0
    held = round(groups * validation)
    if held == 0 or held == groups:
        raise DataError.mismatch(
            "comparisons to split",
            expected=f"enough for a validation share of {validation:g} and the rest",
            got=f"{groups} different pairs",
            fix="Ask more questions or change the share.",
        )
    inside = np.isin(group, rng.permutation(groups)[:held])
    return comparisons[~inside], comparisons[inside]


def folds(comparisons: Comparisons, count: int, rng: np.random.Generator) -> IntArray:
    """`[P]` the fold in 0...count-1 of each comparison; equal pairs share a fold.

    Raises:
        DataError: fewer different pairs than folds.
    """
    group = _same_question(comparisons)
    groups = int(group.max()) + 1 if len(group) else 0
    if not 2 <= count <= groups:
        raise DataError.mismatch("folds", expected=f"2 to {groups} (pairs)", got=count)
    return rng.permutation(np.arange(groups) % count)[group]


def _same_question(comparisons: Comparisons) -> IntArray:
    """`[P]` a number per pair of windows, the same for either order.

    Windows are told apart by what they hold, not by where it is stored: the same clip may have
    been asked about in two rounds.
    """
    segments = comparisons.segments
    ends = np.stack([segments.start, segments.start + segments.real - 1], axis=1)
    columns = [*leaves(segments.observations), segments.actions]
    held = [_bytes(column[ends]) for column in columns]
    key = np.concatenate([*held, _bytes(segments.real[:, None])], axis=1)
    window = np.unique(key, axis=0, return_inverse=True)[1].reshape(-1)
    pairs = np.sort(window[comparisons.pairs], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def _bytes(rows: Array) -> Array:
    """`[N, ...]` numbers as `[N, bytes]`."""
    return np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)


def _by_episode(
    comparisons: Comparisons, rng: np.random.Generator, validation: float
) -> tuple[Comparisons, Comparisons]:
    first, last = episode_span(comparisons)
    episodes = np.unique(np.concatenate([first.ravel(), last.ravel()]))
    held = rng.permutation(episodes)[: max(1, round(len(episodes) * validation))]
    return split_off_episodes(comparisons, held)


def split_off_episodes(comparisons: Comparisons, held: IntArray) -> tuple[Comparisons, Comparisons]:
    """Train on pairs without a step of the held episodes; validate on pairs wholly in them.

    Args:
        comparisons: what to part.
        held: numbers of episodes, as `origin` counts them.

    Raises:
        DataError: one of the halves would be empty.
    """
    first, last = episode_span(comparisons)
    episodes = int(last.max(initial=-1)) + 1
    held_before = np.append(0, np.cumsum(np.isin(np.arange(episodes), held)))
    # A window over short episodes may also hold whole ones between its first and its last.
    touched = held_before[last + 1] - held_before[first]  # [P, 2] held episodes in each window
    train: BoolArray = (touched == 0).all(axis=1)
    validate: BoolArray = (touched == last - first + 1).all(axis=1)
    if not train.any() or not validate.any():
        raise DataError.mismatch(
            "comparisons to split by episode",
            expected="pairs wholly inside and wholly outside the held episodes",
            got=f"{int(train.sum())} outside and {int(validate.sum())} inside",
            fix="Hold out more or fewer episodes, or split by pair.",
        )
    return comparisons[train], comparisons[validate]


def episode_span(comparisons: Comparisons) -> tuple[IntArray, IntArray]:
    """`[P, 2]` twice: the episodes in which each segment of each pair begins and ends.

    Raises:
        DataError: segments whose origin is unknown.
    """
    segments = comparisons.segments
    if segments.origin is None:
        raise DataError(
            "These segments do not know which episode they come from, so they cannot be split by "
            "episode. Cut them with `cut` or `sample_segments`, or split by pair."
        )
    return segments.origin[comparisons.pairs, 0], segments.origin[comparisons.pairs, 2]
