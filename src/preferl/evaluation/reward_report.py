"""Evaluate a reward on answers it was not fitted to, and compare it with the true reward."""

import math
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from preferl.configs import to_json
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.errors import require_in
from preferl.evaluation.epic import TransitionReward, epic_distance
from preferl.feedback.likelihood import Likelihood, likelihood_of
from preferl.feedback.step_rewards import AnyReward, Reward, as_reward, step_rewards
from preferl.shapes import FloatArray
from preferl.statistics import spearman, wilson_interval


@final
@dataclass(frozen=True)
class Calibration:
    """Whether a probability of 0.8 comes true eight times in ten; one entry per bin in use.

    Attributes:
        predicted: mean probability that the first is preferred.
        observed: share of answers that preferred the first; a tie counts half.
        count: answers in the bin.
        error: expected calibration error (Naeini et al. 2015), the mean distance of the two in
            [0, 1]. With few answers it is above 0 even for a perfect model. None without answers.
    """

    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    count: tuple[int, ...]
    error: float | None


@final
@dataclass(frozen=True)
class RewardReport:
    """The evaluation of a reward; `notes` give the reason of each number that is None.

    Attributes:
        accuracy: share of decided answers on the side the reward expects, in [0, 1]; 0.5 is
            chance, and an undecided reward gets half.
        decided: answers that preferred one side.
        ties: answers that preferred neither; they do not count for `accuracy`.
        declined: questions that were not answered.
        interval: 95 % interval of `accuracy` (Wilson 1927).
        log_loss: mean of `-log p(answer)` in nats, ties included; `log 2` = 0.693 is chance.
        calibration: of the probability that the first is preferred.
        spearman: rank correlation of the reward of single steps with the true one, in [-1, 1].
        epic: EPIC distance from the true reward (Gleave et al. 2021): 0 same, 0.71 unrelated,
            1 opposite.
        notes: why numbers are missing.
        likelihood: noise and scale by which `log_loss` and `calibration` were computed.
    """

    accuracy: float | None
    decided: int
    ties: int
    declined: int
    interval: tuple[float, float]
    log_loss: float | None
    calibration: Calibration
    spearman: float | None = None
    epic: float | None = None
    notes: tuple[str, ...] = ()
    likelihood: Likelihood = field(default_factory=Likelihood)

    def to_json(self) -> dict[str, Any]:
        """All fields as plain numbers, lists and text."""
        return to_json(self)


def evaluate_reward(
    reward: AnyReward,
    comparisons: Comparisons,
    *,
    episodes: Episodes | None = None,
    true_reward: TransitionReward | AnyReward | None = None,
    likelihood: Likelihood | None = None,
    discount: float = 0.99,
    bins: int = 10,
    seed: int = 0,
) -> RewardReport:
    """Evaluate a reward on answers it has not seen and, where it is known, by the true reward.

    An ensemble answers with the mean of its members' probabilities under the likelihood that the
    reward was fitted with. Each answer counts once: weights belong to fitting.

    Args:
        reward: learned, a control, or a plain function of observations and actions.
        comparisons: held out.
        episodes: steps with their true rewards, for `spearman` and `epic`.
        true_reward: the true reward as a function of transitions or of steps, for `epic`: recorded
            rewards do not include those of other actions.
        likelihood: instead of the reward's own. A reward without one, such as a control, has no
            noise.
        discount: of the policies in mind, for `epic`.
        bins: of equal width in [0, 1], for `calibration`.
        seed: which transitions `epic` compares.

    Raises:
        ConfigError: less than one bin.
    """
    require_in("bins", bins, 1, math.inf)
    reward = as_reward(reward)
    likelihood = likelihood_of(reward) if likelihood is None else likelihood
    scores = np.asarray(reward.scores(comparisons.segments), np.float64)
    logits = scores[:, comparisons.pairs[:, 0]] - scores[:, comparisons.pairs[:, 1]]  # [E, P]
    first, second = (_log_mean(likelihood.log_probability(sign * logits)) for sign in (1, -1))
    answered = comparisons.answered
    target = comparisons.preference[answered]
    losses = -(target * first[answered] + (1 - target) * second[answered])
    decided = int(comparisons.decided.sum())
    accuracy = _accuracy(first - second, comparisons)
    ranks, distance, notes = _against_truth(reward, episodes, true_reward, discount, seed)
    return RewardReport(
        accuracy=accuracy,
        decided=decided,
        ties=int((comparisons.preference == 0.5).sum()),
        declined=int((~answered).sum()),
        interval=wilson_interval((accuracy or 0.0) * decided, decided),
        log_loss=float(losses.mean()) if len(losses) else None,
        calibration=calibration(np.exp(first), comparisons.preference, bins=bins),
        likelihood=likelihood,
        spearman=ranks,
        epic=distance,
        notes=notes,
    )


def calibration(first: FloatArray, preference: FloatArray, *, bins: int = 10) -> Calibration:
    """Whether predicted probabilities come true.

    Args:
        first: `[P]` predicted probability that the first is preferred.
        preference: `[P]` answers; NaN (declined) counts for nothing.
        bins: of equal width in [0, 1].

    >>> calibration(np.array([0.9, 0.9]), np.array([1.0, 0.0])).error
    0.4
    """
    answered = ~np.isnan(preference)
    predicted, observed = first[answered], preference[answered]
    inside = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    count = np.bincount(inside, minlength=bins)
    used = count > 0
    mean = np.bincount(inside, predicted, bins)[used] / count[used]
    share = np.bincount(inside, observed, bins)[used] / count[used]
    distance = float(np.abs(mean - share) @ count[used]) / max(1, len(observed))
    return Calibration(
        tuple(mean.tolist()),
        tuple(share.tolist()),
        tuple(count[used].tolist()),
        distance if len(observed) else None,
    )


def _log_mean(each: FloatArray) -> FloatArray:
    """`[E, P]` logarithms to `[P]`, the logarithm of the mean, exact however small that is."""
    return np.asarray(np.logaddexp.reduce(each, axis=0) - math.log(len(each)))


def _accuracy(lead: FloatArray, comparisons: Comparisons) -> float | None:
    decided = comparisons.decided
    if not decided.any():
        return None
    # Exact zero is no opinion; rounding of a mean over members must not be one either.
    side = np.sign(np.where(np.abs(lead) < 1e-12, 0, lead))[decided]
    wanted = np.sign(comparisons.preference[decided] - 0.5)
    return float((1 + side * wanted).mean() / 2)


def _against_truth(
    reward: Reward,
    episodes: Episodes | None,
    true_reward: TransitionReward | AnyReward | None,
    discount: float,
    seed: int,
) -> tuple[float | None, float | None, tuple[str, ...]]:
    """`(spearman, epic, notes)`."""
    if episodes is None or not episodes.steps:
        return None, None, ("spearman and epic: no episodes with true rewards were given.",)
    notes = []
    ranks: float | None = spearman(step_rewards(reward, episodes), np.asarray(episodes.rewards))
    if ranks != ranks:
        ranks = None
        notes.append("spearman: the learned or the true reward is the same at every step.")
    distance: float | None = None
    if true_reward is None:
        notes.append("epic: the true reward was not given as a function of transitions.")
    elif reward.context != 1:
        notes.append(
            f"epic: compares single transitions, and this reward looks at {reward.context} steps."
        )
    else:
        rng = np.random.default_rng(seed)
        distance = epic_distance(reward, true_reward, episodes, discount=discount, rng=rng)
        if distance != distance:
            distance = None
            notes.append("epic: one of the rewards is constant up to shaping.")
    return ranks, distance, tuple(notes)
