"""Policies on the way to an expert, and which of them stand for a quality of behaviour."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from preferl.errors import ConfigError, StorageError
from preferl.evaluation.policy import PolicyReport
from preferl.reading import read_object, reading

MEDIUM = 1 / 3
"""How far a medium policy is on the way from random returns to those of the expert."""


@final
@dataclass(frozen=True)
class Checkpoint:
    """A policy on the way to the expert.

    Attributes:
        step: environment steps before it.
        mean: return of its judged episodes, with its most likely actions.
        policy: its folder, for `load_policy`.
    """

    step: int
    mean: float
    policy: Path


def judged(folder: Path) -> tuple[Checkpoint, ...]:
    """The checkpoints of a run that were judged, in their order.

    Raises:
        StorageError: a damaged file.
    """
    return tuple(
        Checkpoint(int(file.stem), _mean(file), folder / "checkpoints" / file.stem)
        for file in sorted((folder / "judged").glob("*.json"))
    )


def expert(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """The one that was judged best, the earlier one of equals."""
    return max(checkpoints, key=lambda checkpoint: checkpoint.mean)


def medium(checkpoints: Sequence[Checkpoint], random: float) -> Checkpoint:
    """The one nearest to a third of the way from random returns to the expert's, before it.

    Args:
        checkpoints: in the order of training.
        random: mean return of random actions.

    Raises:
        ConfigError: none before the expert.

    >>> ways = [Checkpoint(n, mean, Path()) for n, mean in enumerate((-50.0, 80.0, 120.0, 300.0))]
    >>> medium(ways, random=0.0).mean
    80.0
    """
    best = expert(checkpoints)
    before = [checkpoint for checkpoint in checkpoints if checkpoint.step < best.step]
    if not before:
        raise ConfigError.mismatch(
            "medium policy",
            expected="a checkpoint before the expert's",
            got=f"the best one at the first, after {best.step:,} steps",
            fix="Keep more of them (checkpoint_every), train longer, or leave medium out.",
        )
    wanted = random + MEDIUM * (best.mean - random)
    return min(before, key=lambda checkpoint: abs(checkpoint.mean - wanted))


def _mean(file: Path) -> float:
    with reading(file, expected="the judgement of a checkpoint", error=StorageError):
        return PolicyReport.from_json(read_object(file)).mean
