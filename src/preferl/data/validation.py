"""Which comparisons a reward is fitted to and which are held out to validate it.

`split` draws once. `validation_split` is for queries that keep arriving: it assigns each clip to a
set, and the clip stays in that set.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.content import compared_ids, pair_ids
from preferl.data.implied import linked
from preferl.errors import ConfigError, DataError
from preferl.shapes import BoolArray, IntArray

TRAIN = 0
VALIDATION = 1
UNUSED = -1


def split(
    comparisons: Comparisons,
    rng: np.random.Generator,
    *,
    validation: float = 0.2,
    by: Literal["pair", "clip", "episode"] = "pair",
) -> tuple[Comparisons, Comparisons]:
    """Split comparisons into `(train, validation)` with nothing in both.

    Args:
        comparisons: the answers. Pairs of the same two segments, in either order, stay together.
        rng: draws the pairs or episodes that are held out.
        validation: share held out, in (0, 1); 0.2 as the DRLHP re-implementations do.
        by: what is drawn. `"pair"` holds out pairs. Their segments may share steps with training
            pairs. `"clip"` holds out groups of pairs: two pairs that share a clip are in one group,
            as in a ranked list. `"episode"` holds out episodes, so that no step is in both parts.
            Pairs wholly in held-out episodes are for validation. Pairs without any step of a
            held-out episode are for training. All other pairs are left out. `"episode"` needs
            segments whose `origin` is known.

    Raises:
        ConfigError: a share outside (0, 1).
        DataError: there are too few pairs or episodes to have both parts.
    """
    if not 0 < validation < 1:
        raise ConfigError(f"validation share: expected in (0, 1), got {validation}.")
    if by == "episode":
        episodes = np.unique(np.concatenate(_episode_span(comparisons), axis=None))
        held = max(1, round(len(episodes) * validation))
        return split_off_episodes(comparisons, rng.permutation(episodes)[:held])
    group, groups = (_linked_pairs if by == "clip" else _equal_pairs)(comparisons)
    # groups are few, and one is held out at least
    held = max(int(by == "clip"), round(groups * validation))
    if not 0 < held < groups:
        raise DataError(
            f"comparisons to split: expected enough for a validation share of {validation:g} and "
            f"for training, got {groups} different pairs. Send more queries or change the share."
        )
    inside = np.isin(group, rng.permutation(groups)[:held])
    return comparisons[~inside], comparisons[inside]


def folds(comparisons: Comparisons, count: int, rng: np.random.Generator) -> IntArray:
    """Draw a fold `[P]`, from 0 to `count` - 1, for each comparison; equal pairs share a fold.

    Raises:
        DataError: fewer different pairs than folds.
    """
    group, groups = _equal_pairs(comparisons)
    if not 2 <= count <= groups:
        raise DataError(f"folds: expected 2 to {groups} (pairs), got {count}.")
    return rng.permutation(np.arange(groups) % count)[group]


def _linked_pairs(comparisons: Comparisons) -> tuple[IntArray, int]:
    """Number the groups of pairs that share clips, directly or through other pairs.

    Return the number `[P]` of each pair's group, and how many groups there are.

    A clip that was asked about in two rounds is stored twice, but it still links its pairs.
    """
    distinct_clips, clip = np.unique(compared_ids(comparisons), return_inverse=True)
    pairs = clip.reshape(comparisons.pairs.shape)
    group = linked(pairs, len(distinct_clips))[pairs[:, 0]]
    return group, int(group.max(initial=-1)) + 1


def _equal_pairs(comparisons: Comparisons) -> tuple[IntArray, int]:
    """Number the different pairs; two pairs of the same contents, in either order, are equal.

    Return the number `[P]` of each pair, and how many numbers there are.
    """
    distinct_pairs, group = np.unique(pair_ids(comparisons), return_inverse=True)
    return group, len(distinct_pairs)


def split_off_episodes(
    comparisons: Comparisons, held_out: IntArray
) -> tuple[Comparisons, Comparisons]:
    """Split comparisons into `(train, validation)` by the episodes held out.

    Pairs without any step of a held-out episode are for training, pairs wholly in held-out episodes
    for validation. Episodes are numbered as in `origin`.

    Raises:
        DataError: one of the parts would be empty.
    """
    first_episode, last_episode = _episode_span(comparisons)
    episodes = int(last_episode.max(initial=-1)) + 1
    held_out_before = np.append(0, np.cumsum(np.isin(np.arange(episodes), held_out)))
    # A window over short episodes may also hold whole episodes between its first and last one.
    touched = (
        held_out_before[last_episode + 1] - held_out_before[first_episode]
    )  # [P, 2] held episodes in each window
    train: BoolArray = (touched == 0).all(axis=1)
    validate: BoolArray = (touched == last_episode - first_episode + 1).all(axis=1)
    if not train.any() or not validate.any():
        raise DataError(
            "comparisons to split by episode: expected pairs wholly inside and wholly outside the "
            f"held episodes, got {int(train.sum())} outside and {int(validate.sum())} inside. Hold "
            "out more or fewer episodes, or split by pair."
        )
    return comparisons[train], comparisons[validate]


def _episode_span(comparisons: Comparisons) -> tuple[IntArray, IntArray]:
    """Return two arrays `[P, 2]`: the episodes in which each pair's segments begin and end."""
    origin = comparisons.segments.origin
    if origin is None:
        raise DataError(
            "These segments do not know which episode they come from, so they cannot be split by "
            "episode. Cut them with `cut` or `sample_segments`, or split by pair."
        )
    return origin[comparisons.pairs, 0], origin[comparisons.pairs, 2]


def validation_split(
    pairs: Iterable[tuple[str, str]], share: float, of_clip: dict[str, int] | None = None
) -> list[int]:
    """Assign `TRAIN`, `VALIDATION` or `UNUSED` to each query, so that no clip is in both sets.

    A clip's set is drawn from its name, which is a digest of its content. So every program on every
    machine draws the same. A clip keeps its set in later queries. If both clips of a query are new,
    they are drawn together. A new clip beside a training clip joins the training set. A new clip
    beside a validation clip is drawn on its own, so that a clip with many queries does not draw all
    others into its set. A query with a clip from each set is unused.

    `pairs` are the clips' names of all queries ever asked, oldest first, answered or not. Later
    pairs never change the sets of earlier ones. `of_clip` keeps the set of each clip between calls,
    so that a caller may leave out pairs of earlier calls.
    """
    of_clip = {} if of_clip is None else of_clip
    sets = []
    for pair in pairs:
        drawn_sets = {of_clip[clip] for clip in pair if clip in of_clip}
        new_clips = sorted(clip for clip in pair if clip not in of_clip)
        clip_set = TRAIN
        if len(new_clips) == 2 or drawn_sets == {VALIDATION}:
            digest = blake2b("\n".join(new_clips).encode(), digest_size=7).digest()
            clip_set = VALIDATION if int.from_bytes(digest, "big") / 2**56 < share else TRAIN
        of_clip |= dict.fromkeys(new_clips, clip_set)
        first, second = (of_clip[clip] for clip in pair)
        sets.append(first if first == second else UNUSED)
    return sets
