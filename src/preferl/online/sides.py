"""Which answers a reward learns from and which judge it; no later question changes that."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

TRAIN: Final = 0
JUDGE: Final = 1
NEITHER: Final = -1


def sides(pairs: Iterable[tuple[str, str]], share: float) -> list[int]:
    """`TRAIN`, `JUDGE` or `NEITHER` for each question, so that no clip is on both sides.

    Chance is drawn from the names of clips, which are digests of what they hold, so that every
    program on every machine comes to the same. A pair of clips that were never asked about is
    drawn as one. A clip that was keeps its side: a new one beside a training clip joins it, and
    beside a judging clip it is drawn for itself, so that clips which are asked about again and
    again do not draw all others after them. What then has a clip on either side is for neither.

    Args:
        pairs: the clips of everything that was ever asked, oldest first, whether or not it was
            answered; more of them never change the sides of those before.
        share: to judge by, in [0, 1).

    >>> sides([("a", "b"), ("b", "a"), ("b", "c"), ("d", "e")], 0.0)
    [0, 0, 0, 0]
    """
    of_clip: dict[str, int] = {}
    chosen = []
    for pair in pairs:
        known = {of_clip[clip] for clip in pair if clip in of_clip}
        fresh = [clip for clip in pair if clip not in of_clip]
        if len(fresh) == 2:
            drawn = _drawn(*sorted(pair), share=share)
        elif known == {JUDGE}:
            drawn = _drawn(*fresh, share=share)
        else:
            drawn = TRAIN
        of_clip |= dict.fromkeys(fresh, drawn)
        first, second = (of_clip[clip] for clip in pair)
        chosen.append(first if first == second else NEITHER)
    return chosen


def _drawn(*names: str, share: float) -> int:
    digest = blake2b("\n".join(names).encode(), digest_size=7).digest()
    return JUDGE if int.from_bytes(digest, "big") / 2**56 < share else TRAIN
