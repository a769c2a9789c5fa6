"""What `VecNormalize` has learned about observations, as numbers in files, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from preferl.data.sources.pickles import Fields, load_pickle
from preferl.errors import DataError
from preferl.shapes import Array

PARTS: Final = ("mean", "var", "count")
"""Of running statistics, as SB3 names them."""

UNUSED: Final = (
    *("Box", "Dict", "Discrete", "MultiBinary", "MultiDiscrete", "OrderedDict"),
    *("__generator_ctor", "__bit_generator_ctor", "__pyx_unpickle_SeedSequence", "SeedSequence"),
    *("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"),
)
"""What a saved `VecNormalize` holds beside numbers: spaces, and what they draw from."""


@final
@dataclass(frozen=True, eq=False)
class Normalisation:
    """How observations become those that a policy learned from.

    Attributes:
        clip: largest size of a normalised number.
        epsilon: added to variances.
        keys: of a dictionary that are normalised; None where observations are one array.
        statistics: `mean` `[*obs]`, `var` `[*obs]` and `count` `[]`, behind `KEY/` for each key.
    """

    clip: float
    epsilon: float
    keys: tuple[str, ...] | None
    statistics: Mapping[str, Array]

    @classmethod
    def of(cls, normaliser: Any) -> Self | None:
        """That of a `VecNormalize`, or of its fields in a file; None if it leaves observations."""
        if not normaliser.norm_obs:
            return None
        keys = None if normaliser.norm_obs_keys is None else tuple(normaliser.norm_obs_keys)
        statistics = {
            f"{prefix}{part}": np.array(getattr(running, part), np.float64)
            for prefix, running in _running(normaliser.obs_rms, keys)
            for part in PARTS
        }
        return cls(float(normaliser.clip_obs), float(normaliser.epsilon), keys, statistics)

    @classmethod
    def from_json(cls, about: Mapping[str, Any], statistics: Mapping[str, Array]) -> Self:
        """What `to_json` wrote, with the arrays."""
        keys = about["keys"]
        return cls(
            float(about["clip"]),
            float(about["epsilon"]),
            None if keys is None else tuple(keys),
            statistics,
        )

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        keys = None if self.keys is None else list(self.keys)
        return {"clip": self.clip, "epsilon": self.epsilon, "keys": keys}

    def around(self, env: VecEnv, *, training: bool = False) -> VecNormalize:
        """An environment whose observations are normalised in this way; rewards are left alone.

        Args:
            env: of the observations that were normalised.
            training: whether the statistics go on changing.

        Raises:
            ValueError: statistics of other observations, or none that can be.
        """
        if not (self.clip > 0 and 0 <= self.epsilon < np.inf):
            raise ValueError(f"clip {self.clip} and epsilon {self.epsilon}")
        wrapped = VecNormalize(
            env,
            training=training,
            norm_reward=False,
            clip_obs=self.clip,
            epsilon=self.epsilon,
            norm_obs_keys=None if self.keys is None else list(self.keys),
        )
        for prefix, running in _running(wrapped.obs_rms, self.keys):
            mean, var, count = (np.asarray(self.statistics[prefix + part]) for part in PARTS)
            if {mean.shape, var.shape} != {running.mean.shape} or count.shape != ():
                raise ValueError(f"statistics {prefix or 'of shape'} {mean.shape} for {env}")
            if not (np.isfinite(mean).all() and np.isfinite(var).all() and (var >= 0).all()):
                raise ValueError(f"statistics {prefix} that are not finite")
            running.mean, running.var = mean.astype(np.float64), var.astype(np.float64)
            running.count = float(count)
        return wrapped


def read_vecnormalize(path: Path) -> Normalisation | None:
    """What `VecNormalize.save` wrote: its numbers, and nothing that could run.

    Returns:
        None where it normalises rewards alone.

    Raises:
        DataError: no such file, something else, or one that asks to run something.
    """
    saved = load_pickle(path, objects=("VecNormalize", "RunningMeanStd"), left_out=UNUSED)
    try:
        if not isinstance(saved, Fields):
            raise TypeError(type(saved).__name__)
        # Those saved before version 1.6 have no names of what they normalise: all.
        running = vars(saved).get("obs_rms")
        vars(saved).setdefault(
            "norm_obs_keys", list(running) if isinstance(running, dict) else None
        )
        return Normalisation.of(saved)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError.mismatch(
            f"{path}", expected="what VecNormalize.save wrote", got=error
        ) from error


def _running(statistics: Any, keys: tuple[str, ...] | None) -> list[tuple[str, RunningMeanStd]]:
    """Running statistics behind the names of their keys."""
    return [("", statistics)] if keys is None else [(f"{key}/", statistics[key]) for key in keys]
