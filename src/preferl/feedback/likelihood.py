"""The likelihood with which a reward is fitted: it turns logits into probabilities of answers.

Bradley and Terry (1952) with the random answers of Christiano et al., "Deep RL from human
preferences" (2017), section 2.2.3, and a scale as in Guo et al., "On calibration of modern neural
networks" (2017), section 4.2.
"""

import math
from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from preferl.errors import ConfigError, require_share
from preferl.shapes import FloatArray


@final
@dataclass(frozen=True)
class Likelihood:
    """`P(first preferred) = noise / 2 + (1 - noise) sigmoid(scale * logit)`.

    It changes only probabilities, not rewards or scores.

    Attributes:
        noise: share of answers taken to be random, in [0, 1). At 0, the model may be certain.
        scale: factor of logits, above 0. A scale below 1 means that the model is surer than the
            answers justify, a scale above 1 that it is not sure enough.

    Raises:
        ConfigError: a number is out of its range.

    >>> Likelihood(noise=0.2).probability(np.array([0.0, 1000.0])).tolist()
    [0.5, 0.9]
    """

    noise: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_share("noise", self.noise)
        if not 0 < self.scale < math.inf:
            raise ConfigError(f"scale: expected above 0 and finite, got {self.scale}.")

    def probability(self, logits: FloatArray) -> FloatArray:
        """Return the probability that the first is preferred, for logits of any shape."""
        return np.asarray(np.exp(self.log_probability(logits)))

    def log_probability(self, logits: FloatArray) -> FloatArray:
        """Return the logarithm of `probability`; it stays exact even if the model is very sure."""
        scaled = self.scale * np.asarray(logits, np.float64)
        floor = math.log(self.noise / 2) if self.noise else -math.inf
        return np.asarray(np.logaddexp(floor, math.log1p(-self.noise) - np.logaddexp(0, -scaled)))

    def log_odds(self, logits: FloatArray) -> FloatArray:
        """Return the log-odds of `probability`: the logits of an equivalent model without noise.

        >>> Likelihood(scale=0.5).log_odds(np.array([3.0])).tolist()
        [1.5]
        """
        logits = np.asarray(logits, np.float64)
        if not self.noise:
            return np.asarray(self.scale * logits)
        return np.asarray(self.log_probability(logits) - self.log_probability(-logits))

    def to_json(self) -> dict[str, float]:
        """Return noise and scale, for files."""
        return asdict(self)


def likelihood_of(reward: object) -> Likelihood:
    """Return a reward's `likelihood`; if it has none, one without noise and scale."""
    found: Likelihood = getattr(reward, "likelihood", Likelihood())
    return found
