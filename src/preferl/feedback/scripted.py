"""Teachers that read the environment's reward: Boltzmann-rational, and B-Pref's imperfect ones.

Lee et al., "B-Pref: Benchmarking Preference-Based Reinforcement Learning" (2021), section 3;
Christiano et al., "Deep RL from human preferences" (2017), section 2.2.3.
"""

from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from typing import Literal, Self, final

import numpy as np

from preferl.configs import require_fields
from preferl.data.segments import Clips, Segments
from preferl.errors import ConfigError, FeedbackError, require_in
from preferl.feedback.pair_sampling import sigmoid
from preferl.shapes import BoolArray, FloatArray

Scale = Literal["deviation", "length"] | float | None


@final
@dataclass(frozen=True)
class ScriptedTeacher:
    """Prefers the clip with the higher return, as reliably as its settings say.

    A pair goes through B-Pref's stages. It is declined if neither clip returns enough. Then the
    weighted returns are compared, sharply or by a Boltzmann draw. The answer may be replaced by a
    guess, or be turned round by mistake. If plain returns are too close to distinguish, they are
    called equal, whatever the answer was. Last, a share of all pairs is declined by chance. Padded
    steps never count.

    Attributes:
        temperature: how much differences of returns are blurred, in units of `scale`. 0 always
            prefers the higher return and calls exact ties equal; infinity tosses coins. Its
            inverse is B-Pref's rationality.
        scale: number by which differences of returns are divided, so that one temperature means the
            same in every environment. Without it, returns in the hundreds would never lead to
            errors. `"deviation"` takes the root mean square of the differences over the pairs of
            one call: at temperature 1, a typical pair is then answered by the reward three times in
            four. If calls have few pairs, fix it once with `scaled_to`. `"length"` takes the number
            of steps of a segment. A number is in units of return. None divides by nothing.
        discount: factor in [0, 1] by which each step counts less than the one before it.
        recency: factor in [0, 1] by which each step counts less than the one after it, as for
            B-Pref's myopic teacher.
        sample: whether to draw answers (the default, as people give them), or to return their
            probabilities.
        guess_rate: share of answers given by tossing a coin; half of these are right by luck. DRLHP
            assumes 0.1 for people.
        error_rate: share of answers that are turned round, B-Pref's mistakes. If the teacher is
            sharp, every one of them is wrong.
        skip_below: decline a pair if both plain returns are at most this; None never declines.
        skip_rate: share of pairs that are declined for no reason in the returns, as by people who
            cannot tell.
        equal_within: call a pair equal if its plain returns differ by less than this.
        skip_margin: sets `skip_below` to `worst + skip_margin * (typical - worst)`, so that it
            follows the policy (see `adapted`); in [0, 1].
        equal_margin: sets `equal_within` to `equal_margin * (typical - worst)`, in the same way.
        typical: mean return of a segment of the policy. The loop renews it before each round of
            queries. None means that it is not known yet.
        worst: return of a segment that shows nothing of the task, below `typical`.
        largest_logit: bound on the Boltzmann logit, beyond which the exponential would overflow.

    Raises:
        ConfigError: when the teacher is made: a setting is out of its range.
        FeedbackError: when it is asked: clips are not pairs, or rewards are not numbers.

    >>> rewards = np.array([[[1.0, 1.0], [0.0, 5.0]], [[2.0, 0.0], [0.0, 2.0]]])
    >>> shown = Clips(rewards, rewards, np.ones((2, 2, 2), bool), rewards)
    >>> ScriptedTeacher.oracle()(shown, np.random.default_rng(0)).tolist()
    [0.0, 0.5]
    >>> ScriptedTeacher(temperature=0, recency=0.5)(shown, np.random.default_rng(0)).tolist()
    [0.0, 0.0]
    """

    temperature: float = 1.0
    scale: Scale = "deviation"
    discount: float = 1.0
    recency: float = 1.0
    sample: bool = True
    guess_rate: float = 0.0
    error_rate: float = 0.0
    skip_rate: float = 0.0
    skip_below: float | None = None
    equal_within: float = 0.0
    largest_logit: float = 50.0
    skip_margin: float | None = None
    equal_margin: float | None = None
    typical: float | None = None
    worst: float = 0.0

    def __post_init__(self) -> None:
        require_fields(self, temperature=0, equal_within=0, discount=(0, 1), recency=(0, 1))
        require_fields(self, guess_rate=(0, 1), error_rate=(0, 1), skip_rate=(0, 1))
        require_fields(self, skip_margin=(0, 1), equal_margin=(0, 1))
        scale = self.scale
        positive = isinstance(scale, int | float | np.floating) and 0 < scale < inf
        if not positive and scale not in (None, "deviation", "length"):
            raise ConfigError(
                f'scale: expected "deviation", "length", a positive number or None, got {scale!r}.'
            )
        if self.skip_below is not None and isnan(self.skip_below):
            raise ConfigError("skip_below: expected a return or None, got NaN.")
        if isnan(self.worst):
            raise ConfigError("worst: expected a return, got NaN.")
        bound = self.largest_logit
        if not 0 < bound < inf:
            raise ConfigError(f"largest_logit: expected a positive number, got {bound}.")

    @classmethod
    def oracle(cls) -> Self:
        """Return B-Pref's teacher that never errs."""
        return cls(temperature=0)

    @classmethod
    def mistake(cls, rate: float = 0.1) -> Self:
        """Return B-Pref's teacher that turns a share of its answers round."""
        return cls(temperature=0, error_rate=rate)

    @classmethod
    def noisy(cls, rationality: float = 1.0, scale: Scale = None) -> Self:
        """Return B-Pref's teacher that errs if returns are close.

        Args:
            rationality: inverse temperature, above 0.
            scale: None as in B-Pref, whose segments return at most 50; see `ScriptedTeacher`.
        """
        if not rationality > 0:
            raise ConfigError(f"rationality: expected above 0, got {rationality}.")
        return cls(temperature=1 / rationality, scale=scale)

    @classmethod
    def skip(cls, typical: float | None = None, margin: float = 0.1, worst: float = 0.0) -> Self:
        """Return B-Pref's teacher that declines pairs which show almost nothing of the task.

        Args:
            typical: mean return of a segment, for example `segments.returns().mean()`; the
                threshold is then fixed. With None, the threshold follows the policy, as in B-Pref;
                see `adapted`.
            margin: where the threshold is on the way from `worst` to `typical`, as a share in [0,
                1].
            worst: return of a segment that shows nothing; below `typical`. B-Pref has 0, which
                means that it never skips if returns are negative. If the threshold follows the
                policy, `adapted` lowers `worst` to the least return of a segment so far.
        """
        if typical is None:
            return cls(temperature=0, skip_margin=margin, worst=worst)
        return cls(temperature=0, skip_below=worst + _margin(typical, margin, worst))

    @classmethod
    def equal(cls, typical: float | None = None, margin: float = 0.1, worst: float = 0.0) -> Self:
        """Return B-Pref's teacher that calls returns equal within a margin; see `skip`."""
        if typical is None:
            return cls(temperature=0, equal_margin=margin, worst=worst)
        return cls(temperature=0, equal_within=_margin(typical, margin, worst))

    @classmethod
    def myopic(cls, recency: float = 0.9) -> Self:
        """Return B-Pref's teacher that remembers the end of a clip best."""
        return cls(temperature=0, recency=recency)

    @classmethod
    def person(cls, error_rate: float = 0.1, skip_rate: float = 0.05, margin: float = 0.1) -> Self:
        """Return a teacher that errs as people do: wrong answers, declined pairs, and ties.

        The shares of wrong answers and of ties are those of B-Pref's `mistake` and `equal`.
        Christiano et al. assume that a tenth of people's answers is random.

        Args:
            error_rate: share of answers turned round.
            skip_rate: share of pairs about which the person cannot tell.
            margin: how much two clips must differ not to be called equal, as a share in [0, 1] of
                what a segment of the policy returns; see `equal`.
        """
        return cls(temperature=0, error_rate=error_rate, skip_rate=skip_rate, equal_margin=margin)

    def adapted(self, typical: float, worst: float = 0.0) -> Self:
        """Return this teacher with thresholds from what the policy's segments return now.

        The loop calls this before each round of queries. `typical` is the mean return of the last
        ten whole episodes times the share of an episode in a segment. `worst` is the least return
        of any segment so far, but at most 0. If no reward is negative, the thresholds are therefore
        B-Pref's: the margin times the mean. While `typical` is not above `worst`, nothing is
        skipped or called equal.
        """
        if self.skip_margin is None and self.equal_margin is None:
            return self
        return replace(self, typical=typical, worst=min(self.worst, worst))

    def scaled_to(self, segments: Segments) -> Self:
        """Return this teacher with one `scale` for all later pairs, from these segments' returns.

        The scale is what `"deviation"` would give for pairs drawn independently from `segments`.
        """
        mask = segments.mask()
        rewards = np.asarray(segments.rewards, np.float64)[segments.rows()]
        returns = (rewards * self._weights(mask)).sum(-1)
        deviation = float(np.sqrt(2) * returns.std()) if len(returns) else 0.0
        return replace(self, scale=deviation or 1.0)

    def __call__(self, shown: Clips, rng: np.random.Generator) -> FloatArray:
        """Answer clips `[P, 2, L]` with preferences `[P]`; NaN means declined."""
        answers, settled = self._answers(shown)
        if self.sample:
            drawn_answers = (rng.random(len(answers)) < answers).astype(np.float64)
            answers = np.where(settled, answers, drawn_answers)
        if self.skip_rate:
            answers = np.where(rng.random(len(answers)) < self.skip_rate, np.nan, answers)
        return answers

    def probabilities(self, shown: Clips) -> FloatArray:
        """Return the probability `[P]` that the first is preferred; 0.5 is equal, NaN declined."""
        return self._answers(shown)[0]

    def _answers(self, shown: Clips) -> tuple[FloatArray, BoolArray]:
        """Return probabilities `[P]`, and `[P]` where they are the answer: ties, declines."""
        rewards = _rewards(shown)
        returns = (rewards * shown.mask).sum(-1)  # [P, 2]
        weighted = (rewards * self._weights(shown.mask)).sum(-1)  # [P, 2]
        difference = weighted[:, 0] - weighted[:, 1]
        skip_below, equal_within = self._thresholds()
        equal = np.abs(returns[:, 0] - returns[:, 1]) < equal_within
        if self.temperature == 0:
            equal |= difference == 0
            probability = 0.5 * (1 + np.sign(difference))
        else:
            scale = _scale(self.scale, difference, weighted, rewards.shape[-1])
            with np.errstate(over="ignore"):  # infinite logits are bounded below
                logits = difference / scale / self.temperature
            probability = sigmoid(np.clip(logits, -self.largest_logit, self.largest_logit))
        probability = (1 - self.guess_rate) * probability + self.guess_rate / 2
        probability = (1 - self.error_rate) * probability + self.error_rate * (1 - probability)
        probability = np.where(equal, 0.5, probability)
        if skip_below is None:
            return probability, equal
        declined = returns.max(-1) <= skip_below
        return np.where(declined, np.nan, probability), equal | declined

    def _thresholds(self) -> tuple[float | None, float]:
        """Return `skip_below` and `equal_within`; margins are applied to the policy's returns."""
        if self.skip_margin is None and self.equal_margin is None:
            return self.skip_below, self.equal_within
        if self.typical is None:
            raise FeedbackError(
                "typical: expected a number, since thresholds follow the policy, got None. Pass "
                "typical, the mean return of a segment, or use `adapted(typical)`."
            )
        way = max(self.typical - self.worst, 0.0)
        skip_below = self.skip_below
        equal_within = self.equal_within
        if self.skip_margin is not None:
            skip_below = self.worst + self.skip_margin * way if way else None
        if self.equal_margin is not None:
            equal_within = self.equal_margin * way
        return skip_below, equal_within

    def _weights(self, mask: BoolArray) -> FloatArray:
        """Return how much each step counts, `[..., L]`; 0 where padded."""
        steps_before = np.maximum(np.cumsum(mask, axis=-1) - 1, 0)  # real steps come last
        after = np.arange(mask.shape[-1])[::-1]
        return np.asarray(mask * self.discount**steps_before * self.recency**after)


def _scale(scale: Scale, difference: FloatArray, returns: FloatArray, length: int) -> float:
    if scale == "length":
        return float(length)
    if scale != "deviation":
        return 1.0 if scale is None else float(scale)
    if not len(difference):
        return 1.0
    # Returns that differ only by rounding must not become certain preferences.
    rounding = 1e-9 * float(np.abs(returns).max())
    return max(float(np.sqrt(np.mean(difference**2))), rounding) or 1.0


def _margin(typical: float, margin: float, worst: float) -> float:
    require_in("margin", margin, 0, 1)
    if not (isfinite(typical) and isfinite(worst) and typical > worst):
        raise ConfigError(
            f"typical: expected a mean return of segments above worst = {worst:g}, got {typical}. "
            "Where returns are negative, pass the least return of any segment as `worst`."
        )
    return margin * (typical - worst)


def _rewards(shown: Clips) -> FloatArray:
    rewards = np.asarray(shown.rewards, np.float64)
    if rewards.ndim != 3 or rewards.shape[1] != 2 or shown.mask.shape != rewards.shape:
        raise FeedbackError(
            "clips shown to a scripted teacher: expected rewards and mask of shape [P, 2, L], got "
            f"shapes {rewards.shape} and {shown.mask.shape}. Show segments[pairs], with pairs [P, "
            "2]."
        )
    if not np.isfinite(rewards[shown.mask]).all():
        raise FeedbackError(
            "rewards shown to a scripted teacher: expected finite numbers, got NaN or infinity. "
            "Data without the environment's rewards need a person to answer."
        )
    return np.where(shown.mask, rewards, 0.0)
