"""Evaluate a reward on answers it was not fitted to, and compare it with the true reward.

EPIC is a distance between rewards that no policy has to be trained for (Gleave et al. 2021).
Rewards that differ by a positive factor, a constant or potential shaping have the same optimal
policies, and distance 0. The distance is `sqrt((1 - r) / 2)`, where `r` is the correlation of the
two *canonically shaped* rewards over transitions:

    C(R)(s, a, s') = R(s, a, s') + E[g R(s', A, S') - R(s, A, S') - g R(S, A, S')]

with discount `g` and `S`, `A`, `S'` drawn independently of each other. Opposite rewards have
distance 1, unrelated ones about 0.71.

A learned reward sees `(s, a)` and not `s'`. Its canonical form `R(s, a) + g E[R(s', A)] - E[R(s,
A)]`, up to a constant, compares an action with the average action in the same state. Such a reward
cannot express `g F(s') - F(s)` except through the dynamics. If the true reward depends on `s'`, a
distance above 0 may therefore come from the inputs of the learned reward, not from its training.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast, final

import numpy as np

from preferl.configs import to_json
from preferl.data.comparisons import Comparisons
from preferl.data.content import pair_numbers
from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, ModelError, require_in
from preferl.feedback.likelihood import Likelihood, likelihood_of
from preferl.feedback.step_rewards import (
    AnyReward,
    Reward,
    as_reward,
    one_per_step,
    step_rewards,
)
from preferl.runs.summary import Estimate
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    Observations,
    leaves,
    map_observations,
    take,
)
from preferl.statistics import pearson, spearman, wilson_interval

TransitionReward = Callable[[Observations, Array, Observations], FloatArray]
"""Maps `[B, *obs]`, `[B, *act]` and the next `[B, *obs]` to `[B]` rewards."""

CHUNK = 4096
"""Rows in a call of a reward, so that memory does not grow with the data."""


@final
@dataclass(frozen=True)
class Calibration:
    """How well predicted probabilities agree with answers, with one entry per bin that has answers.

    A calibrated probability of 0.8 comes true eight times in ten.

    Attributes:
        predicted: mean probability that the first is preferred.
        observed: share of answers that preferred the first; a tie counts half.
        count: answers in the bin.
        error: expected calibration error (Naeini et al. 2015), which is the mean distance between
            `predicted` and `observed`, in [0, 1]. With few answers, it is above 0 even for a
            perfect model. None if there are no answers.
    """

    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    count: tuple[int, ...]
    error: float | None


@final
@dataclass(frozen=True)
class RewardReport:
    """The evaluation of a reward.

    Attributes:
        accuracy: share of decided answers that the reward predicts, in [0, 1]; 0.5 is chance. Equal
            scores count half.
        decided: answers that preferred one side.
        ties: answers that preferred neither; they do not count for `accuracy`.
        declined: queries that were not answered.
        interval: 95 % interval of `accuracy` (Wilson 1927).
        log_loss: mean of `-log p(answer)` in nats, including ties; `log 2` = 0.693 is chance. None
            if there are no decided answers, since ties by themselves, such as those of clips
            without rewards, say nothing about a reward.
        calibration: calibration of the probability that the first is preferred; empty if there are
            no decided answers.
        spearman: rank correlation between learned and true rewards of single steps, in [-1, 1].
        epic: EPIC distance from the true reward (Gleave et al. 2021): 0 same, 0.71 unrelated, 1
            opposite.
        notes: why a number is None, and what to keep in mind about the others.
        likelihood: noise and scale with which `log_loss` and `calibration` were computed.
        seen: number of pairs that the reward was fitted to; accuracy on other pairs may be lower.
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
    seen: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return all fields as plain numbers, lists and text."""
        return to_json(self)

    @property
    def estimate(self) -> Estimate | None:
        """The accuracy, for the summary of a run; None if there are no decided answers."""
        if self.accuracy is None:
            return None
        return Estimate(self.accuracy, self.decided, "answers", self.interval)

    @property
    def numbers(self) -> dict[str, float]:
        """The other numbers that are known, by name, for the summary of a run."""
        numbers = {
            "log_loss": self.log_loss,
            "calibration": self.calibration.error,
            "spearman": self.spearman,
            "epic": self.epic,
        }
        return {name: value for name, value in numbers.items() if value is not None}


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
    """Evaluate a reward on answers and, if it is known, by the true reward.

    An ensemble predicts the mean of its members' probabilities, under the likelihood with which the
    reward was fitted. Each answer counts once, since weights are only for fitting. The report
    counts the pairs that the reward was fitted to. `seen_pairs` finds them, so that you can leave
    them out.

    Args:
        reward: a learned reward, a control, or a plain function of observations and actions.
        comparisons: answers that were held out of the fit, so that the accuracy is that on new
            answers.
        episodes: steps with their true rewards, for `spearman` and `epic`.
        true_reward: the true reward as a function of transitions or of steps, for `epic`. Recorded
            rewards are not enough, since they lack those of other actions.
        likelihood: replaces the reward's own likelihood. A reward without one, such as a control,
            counts as free of noise.
        discount: discount of the policies for which the reward is meant, for `epic`.
        bins: number of bins of equal width in [0, 1], for `calibration`.
        seed: decides which transitions `epic` compares.

    Raises:
        ConfigError: `bins` is less than one.
    """
    require_in("bins", bins, 1, math.inf)
    reward = as_reward(reward)
    likelihood = likelihood_of(reward) if likelihood is None else likelihood
    first, second = _log_probabilities(reward, comparisons, likelihood)
    is_counted = comparisons.answered & comparisons.decided.any()
    target = comparisons.preference[is_counted]
    losses = -(target * first[is_counted] + (1 - target) * second[is_counted])
    decided = int(comparisons.decided.sum())
    accuracy = _accuracy(first - second, comparisons)
    against = _against_truth(reward, episodes, true_reward, discount, seed)
    if not decided:
        against["notes"] += ("accuracy, log loss and calibration: no answer is decided.",)
    if fitted_count := int(seen_pairs(reward, comparisons).sum()):
        against["notes"] += (
            f"The reward was fitted to {fitted_count:,} of these {len(comparisons):,} pairs: its "
            "accuracy on others may be lower.",
        )
    return RewardReport(
        accuracy=accuracy,
        decided=decided,
        ties=int((comparisons.preference == 0.5).sum()),
        declined=int((~comparisons.answered).sum()),
        interval=wilson_interval((accuracy or 0.0) * decided, decided),
        log_loss=float(losses.mean()) if len(losses) else None,
        calibration=calibration(np.exp(first[is_counted]), target, bins=bins),
        likelihood=likelihood,
        seen=fitted_count,
        **against,
    )


def _accuracy(lead: FloatArray, comparisons: Comparisons) -> float | None:
    """Return the share of decided answers that agree with the sign of `lead` `[P]`.

    Return None if no answer is decided. A difference of zero is not a prediction. Nor is a
    difference that comes from rounding a mean over members.
    """
    if not comparisons.decided.any():
        return None
    lead = np.where(np.abs(lead) < 1e-12, 0, lead)[comparisons.decided]
    expected_sign = np.sign(comparisons.preference[comparisons.decided] - 0.5)
    return float((1 + np.sign(lead) * expected_sign).mean() / 2)


def seen_pairs(reward: object, comparisons: Comparisons) -> BoolArray:
    """Return `[P]`, true if the reward was fitted to the pair, in either order of its clips.

    A reward that preferl did not fit, such as a control, has seen no pair.
    """
    fitted_ids: IntArray = getattr(reward, "fitted_pairs", np.zeros(0, np.int64))
    if not len(fitted_ids):
        return np.zeros(len(comparisons), bool)
    return np.isin(pair_numbers(comparisons), fitted_ids)


def predicted_preferences(reward: AnyReward, comparisons: Comparisons) -> FloatArray:
    """Return `[P]` probabilities that the first is preferred, under the reward's likelihood.

    The answers are not used. An ensemble predicts the mean of its members' probabilities.
    """
    reward = as_reward(reward)
    return np.exp(_log_probabilities(reward, comparisons, likelihood_of(reward))[0])


def _log_probabilities(
    reward: Reward, comparisons: Comparisons, likelihood: Likelihood
) -> tuple[FloatArray, FloatArray]:
    """Return `[P]` log-probabilities of the first and second clip, exact even if they are tiny."""
    scores = np.asarray(reward.scores(comparisons.segments), np.float64)
    logits = scores[:, comparisons.pairs[:, 0]] - scores[:, comparisons.pairs[:, 1]]  # [E, P]
    first, second = (
        np.logaddexp.reduce(likelihood.log_probability(sign * logits)) - math.log(len(logits))
        for sign in (1, -1)
    )
    return first, second


def calibration(first: FloatArray, preference: FloatArray, *, bins: int = 10) -> Calibration:
    """Compare predicted probabilities with answers, bin by bin.

    Args:
        first: `[P]` predicted probability that the first is preferred.
        preference: `[P]` answers; NaN (declined) is left out.
        bins: number of bins of equal width in [0, 1].

    >>> calibration(np.array([0.9, 0.9]), np.array([1.0, 0.0])).error
    0.4
    """
    answered = ~np.isnan(preference)
    predicted = first[answered]
    observed = preference[answered]
    inside = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    count = np.bincount(inside, minlength=bins)
    used = count > 0
    mean = np.bincount(inside, predicted, bins)[used] / count[used]
    share = np.bincount(inside, observed, bins)[used] / count[used]
    error = float(np.abs(mean - share) @ count[used]) / len(observed) if len(observed) else None
    columns = [tuple(column.tolist()) for column in (mean, share, count[used])]
    return Calibration(columns[0], columns[1], columns[2], error)


def _against_truth(
    reward: Reward,
    episodes: Episodes | None,
    true_reward: TransitionReward | AnyReward | None,
    discount: float,
    seed: int,
) -> dict[str, Any]:
    """Compute `spearman`, `epic` and `notes` of a `RewardReport`."""
    if episodes is None or not episodes.steps:
        return {"notes": ("spearman and epic: no episodes with true rewards were given.",)}
    notes = []
    distance = math.nan
    ranks = spearman(step_rewards(reward, episodes), np.asarray(episodes.rewards))
    if math.isnan(ranks):
        notes.append("spearman: the learned or the true reward is the same at every step.")
    if true_reward is None:
        notes.append("epic: the true reward was not given as a function of transitions.")
    elif reward.context != 1:
        notes.append(
            f"epic: compares single transitions, and this reward looks at {reward.context} steps."
        )
    else:
        rng = np.random.default_rng(seed)
        distance = epic_distance(reward, true_reward, episodes, discount=discount, rng=rng)
        if math.isnan(distance):
            notes.append("epic: one of the rewards is constant up to shaping.")
    numbers = {"spearman": ranks, "epic": distance}
    return {"notes": tuple(notes)} | {k: v for k, v in numbers.items() if not math.isnan(v)}


def epic_distance(
    first: TransitionReward | AnyReward,
    second: TransitionReward | AnyReward,
    episodes: Episodes,
    *,
    discount: float = 0.99,
    transitions: int = 512,
    shaping: int = 128,
    rng: np.random.Generator,
) -> float:
    """Compute the EPIC distance in [0, 1] of two rewards over the transitions of `episodes`.

    Args:
        first: a learned reward, a control, or a function of observations, actions and perhaps the
            next observations.
        second: the other reward.
        episodes: transitions to compare on. The expectations use their states and actions, too.
        discount: `g`, the discount of the policies for which the rewards are meant.
        transitions: how many are compared. They are drawn without replacement if there are enough.
        shaping: how many draws of `(A, S')` estimate the expectations. All transitions use the same
            draws, so shaping cancels exactly, however few there are.
        rng: the generator of these draws.

    Returns:
        The distance, or NaN if one of the rewards is constant up to shaping.

    Raises:
        ConfigError: the discount is outside [0, 1].
        ModelError: a function does not return a number for each step.

    >>> blocks = np.arange(8.0)[:, None]
    >>> episodes = Episodes(blocks, blocks % 3, np.zeros(8), np.zeros(8, bool), blocks[:1],
    ...                     np.array([8]))
    >>> reward = lambda s, a, following: (s * a)[:, 0]
    >>> shaped = lambda s, a, following: (2 * s * a + 0.99 * following - s)[:, 0] + 5
    >>> round(epic_distance(reward, shaped, episodes, rng=np.random.default_rng(0)), 6)
    0.0
    """
    require_in("discount", discount, 0, 1)
    rows = rng.choice(episodes.steps, min(transitions, episodes.steps), replace=False)
    actions = episodes.actions[rng.integers(episodes.steps, size=shaping)]
    follow = _following(episodes, rng.integers(episodes.steps, size=shaping))
    batch = take(episodes.observations, rows), episodes.actions[rows], _following(episodes, rows)

    def canonical(reward: TransitionReward) -> FloatArray:
        present_values = _expected(reward, batch[0], actions, follow)
        later = _expected(reward, batch[2], actions, follow)
        rewards = one_per_step(reward(*batch), len(rows))
        return rewards + discount * later - present_values

    correlation = pearson(*(canonical(of_transitions(reward)) for reward in (first, second)))
    return math.sqrt(max(0.0, (1 - correlation) / 2)) if correlation == correlation else math.nan


def of_transitions(reward: TransitionReward | AnyReward) -> TransitionReward:
    """Turn a reward into a function of transitions; functions of three arguments stay as they are.

    Raises:
        ConfigError: the reward needs a history, which a single transition does not have.
        ModelError: the reward cannot be called with two or three arguments.
    """
    if not isinstance(reward, Reward) and callable(reward):
        if _takes(reward, 3):
            return cast("TransitionReward", reward)
        if not _takes(reward, 2):
            raise ModelError(
                "reward: expected a function of observations and actions, and perhaps of what "
                f"followed, got {reward}."
            )
    return markovian(cast("AnyReward", reward))


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function takes `count` arguments; without a signature, it counts as taking two."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return count == 2
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def markovian(reward: AnyReward) -> TransitionReward:
    """Turn a reward of single steps into a function of transitions.

    For errors, see `of_transitions`.
    """
    learned = as_reward(reward)
    if learned.context != 1:
        raise ConfigError(f"context of a reward for EPIC: expected 1, got {learned.context}.")

    def of_lone_steps(observations: Observations, actions: Array, _: Observations) -> FloatArray:
        windows = map_observations(lambda o: o[:, None], observations)
        return learned(windows, actions[:, None], np.ones((len(actions), 1), bool))

    return of_lone_steps


def _expected(
    reward: TransitionReward, states: Observations, actions: Array, following: Observations
) -> FloatArray:
    """Return `[B]` means of `reward(s, A, S')` over the same draws of `(A, S')` for each state."""
    count = len(leaves(states)[0])
    draw_count = len(actions)
    means = np.empty(count)
    size = max(1, CHUNK // draw_count)
    for first_row in range(0, count, size):
        rows = np.arange(first_row, min(first_row + size, count))
        draw = np.tile(np.arange(draw_count), len(rows))
        batch = take(states, np.repeat(rows, draw_count)), actions[draw], take(following, draw)
        values = one_per_step(reward(*batch), len(draw)).reshape(len(rows), draw_count)
        means[rows] = values.mean(1)
    return means


def _following(episodes: Episodes, rows: IntArray) -> Observations:
    """Return the observations after the steps `rows`, without a copy of all observations."""
    episode = np.searchsorted(episodes.ends, rows, side="right")
    last = rows == episodes.ends[episode] - 1

    def pick(observations: Array, final: Array) -> Array:
        following = np.array(observations[np.minimum(rows + 1, len(observations) - 1)])
        following[last] = final[episode[last]]
        return following

    return map_observations(pick, episodes.observations, episodes.final_observations)
