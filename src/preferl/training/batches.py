"""Comparisons on a device: windows gathered by index for each minibatch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.data.comparisons import Comparisons
from preferl.data.segments import Segments
from preferl.models.base import RewardModel
from preferl.models.spaces import check_spaces
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    Observations,
    leaves,
    map_observations,
)


def to_tensor(array: Array, device: torch.device | str, *, exact: bool = False) -> Tensor:
    """Copy an array to a device: floats as float32, other types unchanged.

    Memory-mapped arrays are read. If `exact`, floats of 64 bits keep their precision.
    """
    dtype = array.dtype
    if dtype.kind == "f":
        dtype = np.dtype(np.float64 if exact and dtype.itemsize >= 8 else np.float32)
    array = np.asarray(array, dtype, order="C")
    if not array.flags.writeable:  # torch warns of arrays that cannot be written to
        array = array.copy()
    return torch.from_numpy(array).to(device)


def to_tensors(
    observations: Observations, device: torch.device | str, *, exact: bool = False
) -> Any:
    """Copy each array of an observation to a device; see `to_tensor`."""
    return map_observations(lambda array: to_tensor(array, device, exact=exact), observations)


def steps_for(
    encoder: Any, observations: Observations, actions: Array, device: torch.device | str
) -> tuple[Any, Tensor]:
    """Return observations and actions as tensors, with the precision that an encoder wants."""
    exact = getattr(encoder, "exact", False)
    return (
        to_tensors(observations, device, exact=exact),
        to_tensor(actions, device, exact=exact),
    )


Crop = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Shortens windows: maps their starts and lengths, `[B]` each, to new ones."""

MINIBATCH_BYTES = 2**26
"""Bytes of observations that are gathered at once for a forward pass without gradients."""


def gather_windows(
    model: RewardModel, segments: Segments, *, observe: bool
) -> "Windows | LateWindows":
    """Encode segments on a model's device, and return windows from which rows are gathered.

    If `observe` is true, the encoder first sets its statistics from these steps.
    """
    steps = segments.observations, segments.actions
    check_spaces(model.observation_space, model.action_space, *steps, what="comparisons")
    if getattr(model.encoder, "late", False):
        return LateWindows(model, segments)
    return Windows(model, segments, observe=observe)


@final
class LateWindows:
    """Windows that are encoded when they are gathered, so that few steps are on the device.

    The observations of `at_once` windows fit into `MINIBATCH_BYTES`.
    """

    def __init__(self, model: RewardModel, segments: Segments) -> None:
        step = sum(int(np.prod(leaf.shape[1:])) for leaf in leaves(segments.observations))
        self.at_once = max(1, MINIBATCH_BYTES // max(1, step * segments.length))
        self._segments = segments
        self._encoder = model.encoder
        self._device = model.device

    def __len__(self) -> int:
        return len(self._segments)

    @torch.no_grad()
    def __call__(self, rows: Tensor, crop: Crop | None = None) -> tuple[Any, Tensor]:
        """Return features `[B, L, ...]` and mask `[B, L]` of segments `rows` `[B]`.

        `crop` cuts them.
        """
        segments = self._segments
        numbers = rows.cpu().numpy()
        device = self._device
        if crop is not None:
            full_windows = segments.start[numbers], segments.real[numbers]
            start, real = crop(*map(torch.from_numpy, full_windows))
            segments = replace(segments, start=start.numpy(), real=real.numpy(), origin=None)
        clips = segments[numbers if crop is None else slice(None)]
        steps = steps_for(self._encoder, clips.observations, clips.actions, device)
        return self._encoder(*steps), to_tensor(clips.mask, device)


@final
class Windows:
    """Windows whose features are computed once, for all steps together, and stay on the device."""

    at_once = 512
    """Windows per forward pass without gradients."""

    def __init__(self, model: RewardModel, segments: Segments, *, observe: bool) -> None:
        device = model.device
        steps = steps_for(model.encoder, segments.observations, segments.actions, device)
        self.length = segments.length
        with torch.no_grad():
            if observe:
                model.encoder.observe(*steps)
            self._features = model.encoder(*steps)
        self._start, self._real = (to_tensor(a, device) for a in (segments.start, segments.real))
        self._offset = torch.arange(self.length, device=device)
        self._all = torch.ones(1, self.length, dtype=torch.bool, device=device)
        # A view of every window that begins in the block, `[T - L + 1, L, ...]`. A window taken
        # from it is one block of memory to copy, not `L` rows to look up.
        self._windows = None
        if len(segments) and bool((segments.real == self.length).all()):
            self._windows = map_observations(
                lambda f: f.contiguous().unfold(0, self.length, 1).movedim(-1, 1), self._features
            )

    def __len__(self) -> int:
        return len(self._start)

    def __call__(self, rows: Tensor, crop: Crop | None = None) -> tuple[Any, Tensor]:
        """Return features `[B, L, ...]` and mask `[B, L]` of segments `rows` `[B]`.

        `crop` cuts them.
        """
        start = self._start[rows]
        if crop is None and self._windows is not None:
            mask = self._all.expand(len(rows), self.length)
            return map_observations(lambda w: w.index_select(0, start), self._windows), mask
        real = self._real[rows]
        if crop is not None:
            start, real = crop(start, real)
        missing = (self.length - real)[:, None]
        index = torch.maximum(start[:, None] + self._offset - missing, start[:, None])
        mask = self._offset >= missing
        return map_observations(lambda features: features[index], self._features), mask


@final
class JoinedWindows:
    """Windows of compared clips, followed by those of rated clips, which may differ in length.

    One call gathers only compared or only rated clips, so that neither are padded to the length of
    the others.
    """

    def __init__(self, compared: Windows | LateWindows, rated: Windows | LateWindows) -> None:
        self.at_once = min(compared.at_once, rated.at_once)
        self._compared = compared
        self._rated = rated

    def __call__(self, rows: Tensor, crop: Crop | None = None) -> tuple[Any, Tensor]:
        """Return features `[B, L, ...]` and mask `[B, L]` of segments `rows` `[B]`.

        `crop` cuts them.
        """
        compared = len(self._compared)
        if rows[0] < compared:
            return self._compared(rows, crop)
        return self._rated(rows - compared, crop)


AnyWindows = Windows | LateWindows | JoinedWindows


def draw_crops(pairs: int, *, most: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw the crops of pairs for `crop_pairs`, with a generator on the CPU.

    Returns:
        `(cut, place)`. `cut` `[P, 1]` is how many steps each pair loses, at most `most`. `place`
        `[P, 2]` is where the remaining steps begin in each window: 0 is the earliest place, and
        numbers towards 1 the latest.
    """
    cut = torch.randint(most + 1, (pairs, 1), generator=generator)
    return cut, torch.rand((pairs, 2), generator=generator)


def crop_pairs(cut: Tensor, place: Tensor, start: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Shorten both windows of each pair by the same number of steps, each at its own place.

    Park et al., "SURF" (2022), section 4.2. At least one step of each window remains.

    Args:
        cut: `[P, 1]` from `draw_crops`.
        place: `[P, 2]` from `draw_crops`.
        start: `[2 * P]` first rows of windows; neighbours are a pair.
        real: `[2 * P]` steps of each window.

    Returns:
        Starts and real steps of the shorter windows.
    """
    steps = real.view(-1, 2)
    cut = torch.minimum(cut.to(real.device), steps.amin(1, keepdim=True) - 1)
    skipped = torch.minimum((place.to(real.device) * (cut + 1)).long(), cut)  # [P, 2]
    return start + skipped.flatten(), (steps - cut).flatten()


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """Pairs `[P, 2]`, preferences `[P]` and weights `[E, P]` on a device.

    A weight is the answer's weight times the member's bootstrap count. `annotator` holds `[P]` rows
    of a table of people, or None if they are unknown. `soft` is `[P]` true for soft labels, which
    are fitted without noise (`Comparisons.soft`), or None if there are none. `level` is None unless
    ratings follow the comparisons: then its `[P]` numbers are -1 for comparisons, and places of
    `bound_places` for ratings. The preference of a rating is NaN; its pair names its clip twice.
    """

    pairs: Tensor
    preference: Tensor
    weight: Tensor
    annotator: Tensor | None = None
    soft: Tensor | None = None
    level: Tensor | None = None

    @classmethod
    def of(
        cls,
        comparisons: Comparisons,
        bootstrap: Array,
        device: torch.device | str,
        soft: BoolArray | None = None,
    ) -> Self:
        """Make answers from comparisons, with bootstrap counts `[E, P]`.

        `soft` is `comparisons.soft` by default. If you have changed weights, pass `soft` from
        before.
        """
        annotator = comparisons.annotator
        soft = comparisons.soft if soft is None else soft
        return cls(
            to_tensor(comparisons.pairs, device),
            to_tensor(comparisons.preference, device),
            to_tensor(bootstrap * comparisons.weight, device),
            None if annotator is None else to_tensor(np.asarray(annotator, np.int64), device),
            to_tensor(soft, device) if soft.any() else None,
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        columns = {
            name: column[rows]
            for name, column in vars(self).items()
            if name != "weight" and column is not None
        }
        return type(self)(weight=self.weight[:, rows], **columns)

    def with_ratings(self, clip: IntArray, level: IntArray, weight: FloatArray) -> Self:
        """Append ratings of clips `[R]`: levels `[R]`, weights `[E, R]`, and unknown annotators."""
        added = len(clip)
        device = self.pairs.device
        annotator = self.annotator
        soft = self.soft
        return type(self)(
            torch.cat([self.pairs, to_tensor(clip, device)[:, None].expand(-1, 2)]),
            F.pad(self.preference, (0, added), value=torch.nan),
            torch.cat([self.weight, to_tensor(weight, device)], dim=1),
            None if annotator is None else F.pad(annotator, (0, added), value=-1),
            None if soft is None else F.pad(soft, (0, added)),
            F.pad(to_tensor(level, device), (len(self), 0), value=-1),
        )

    def repeated(self, times: int) -> Self:
        """Return each answer `times` times in a row."""
        if times == 1:
            return self
        return self[torch.arange(len(self), device=self.pairs.device).repeat_interleave(times)]

    def split(self, size: int) -> Iterator[Self]:
        """Yield parts of at most `size` answers in order, without copies."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def split_by_kind(self, size: int) -> Iterator[Self]:
        """Yield parts of at most `size` comparisons, then of ratings, which have one clip each."""
        if self.level is None:
            yield from self.split(size)
            return
        compared = int((self.level < 0).sum())
        yield from replace(self[:compared], level=None).split(size)
        ratings = self[compared:]
        yield from replace(ratings, pairs=ratings.pairs[:, :1]).split(size)


def validation_batch(model: RewardModel, comparisons: Comparisons) -> tuple[AnyWindows, Answers]:
    """Return the windows and answers of comparisons that a model is validated on."""
    ones = np.ones((1, len(comparisons)))
    windows = gather_windows(model, comparisons.segments, observe=False)
    return windows, Answers.of(comparisons, ones, model.device)
