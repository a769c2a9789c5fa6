"""Thresholds between the levels of ratings and outcomes, fitted together with a reward."""

from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from preferl.data.ratings import Ratings
from preferl.functional.ordinal import ordered_thresholds, rating_loss
from preferl.shapes import IntArray
from preferl.training.fitted_numbers import FittedNumbers

RATING_THRESHOLDS: Final = 4
"""Number of thresholds between the ratings 1 to 5."""

FAILURE: Final = 6
"""Place of the lower bound of failure; the lower bound of success follows."""

BOUNDS: Final = 9
"""Number of bounds per person.

They are -inf, the four thresholds of ratings, inf; then -inf, the threshold of outcomes, inf. The
lower bound of a rating `r` has place `r - 1`, and the upper bound follows.
"""


def bound_places(ratings: Ratings, *, shared: bool) -> IntArray:
    """Return `[R]` the place of each row's lower bound, see `BOUNDS`.

    The places of each person follow those of the person before. If `shared`, all people have the
    thresholds of the first.
    """
    place = np.where(ratings.is_outcome, FAILURE + ratings.value, ratings.value - 1)
    person = 0 if shared else ratings.annotator
    return BOUNDS * person + place.astype(np.int64)


@final
class Thresholds:
    """Thresholds of ratings and outcomes: `[E, A, 5]` for each member and person.

    The first four are those of ratings, in rising order; the last is that of outcomes. If people
    share thresholds, there is one person.

    Attributes:
        numbers: the free numbers from which `ordered_thresholds` makes thresholds.
    """

    def __init__(self, device: torch.device) -> None:
        self.numbers = FittedNumbers(torch.zeros(0, 0, 5, device=device))

    def begin(self, level: Tensor, scores: Tensor) -> None:
        """Prepare for a fit to ratings at `level` `[Q]` of clips with `scores` `[E, Q]`.

        Thresholds of new people begin where they would be if all clips had the mean score. All
        levels are then as frequent as in all ratings, with half a rating of each level added.
        """
        people = int(level.max()) // BOUNDS + 1
        before = self.numbers.value.detach()
        missing = people - before.shape[1]
        if missing <= 0:
            return
        count = torch.bincount(level % BOUNDS, minlength=BOUNDS) + 0.5
        parts = []
        for counts in (count[:5], count[FAILURE:-1]):
            share = counts.cumsum(0)[:-1] / counts.sum()
            thresholds = scores.mean(1, keepdim=True) + torch.logit(share)
            gaps = torch.log(torch.expm1(thresholds.diff()))
            parts += [thresholds[:, :1], gaps]
        free = torch.cat(parts, dim=1)[:, None].expand(-1, missing, -1)  # [E, 5] to [E, A, 5]
        self.numbers.assign(free if people == missing else torch.cat([before, free], dim=1))

    def table(self) -> Tensor:
        """Return the thresholds `[E, A, 5]`."""
        of_ratings, of_outcomes = self.numbers.value.split([RATING_THRESHOLDS, 1], dim=-1)
        return torch.cat([ordered_thresholds(of_ratings), of_outcomes], dim=-1)

    def loss(self, scores: Tensor, level: Tensor, *, noise: float) -> Tensor:
        """Compute the loss `[E, B]` of ratings at `level` `[B]`; 0 where it is -1, a comparison."""
        of_ratings, of_outcomes = self.table().split([RATING_THRESHOLDS, 1], dim=-1)
        most = torch.full_like(of_outcomes, torch.inf)
        bounds = torch.cat([-most, of_ratings, most, -most, of_outcomes, most], dim=-1).flatten(1)
        place = level.clamp(min=0)
        levels = torch.where(place % BOUNDS < FAILURE, RATING_THRESHOLDS + 1, 2)
        losses = rating_loss(scores, bounds[:, place], bounds[:, place + 1], levels, noise=noise)
        return torch.where(level < 0, 0.0, losses)

    def expected(self, scores: Tensor, level: Tensor) -> Tensor:
        """Predict ratings from 0 to 4, and the probability of success for outcomes, `[E, B]`."""
        above = torch.sigmoid(scores[..., None] - self.table()[:, level // BOUNDS])  # [E, B, 5]
        is_outcome = level % BOUNDS >= FAILURE
        return torch.where(is_outcome, above[..., -1], above[..., :-1].sum(-1))
