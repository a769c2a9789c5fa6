"""Conditions of an experiment: the learned reward and its controls, their scores and comparison."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.tasks import Task, normalised_score
from preferl.errors import SEED_LIMIT, DataError
from preferl.evaluation.policy import PolicyReport
from preferl.feedback.step_rewards import Reward, control_rewards, oracle, random, step_rewards
from preferl.offline.experiment.config import OfflineConfig, require_seeds
from preferl.runs.summary import Estimate
from preferl.shapes import FloatArray
from preferl.statistics import mean_interval, share_interval, spearman, t_quantile
from preferl.training.scaling import scale_by_return_range

LEARNED = "learned"
TRUE = "true"
ZERO = "zero"
RANDOM = "random"
NEGATED = "negated"

ANSWERS = "answers"  # of agents that learn without a reward model, and their controls
TRUE_ANSWERS = "true_answers"
NEGATED_ANSWERS = "negated_answers"
RANDOM_ANSWERS = "random_answers"

CLONING = "cloning"  # agents that imitate the data, whatever its rewards

LABELS: Final = {
    LEARNED: "learned reward",
    TRUE: "true reward",
    ZERO: "no reward",
    RANDOM: "random reward",
    NEGATED: "negated reward",
    ANSWERS: "answers",
    TRUE_ANSWERS: "answers by the true reward",
    NEGATED_ANSWERS: "negated answers",
    RANDOM_ANSWERS: "random answers",
    CLONING: "cloning the data",
}
IN_SENTENCES: Final = LABELS | {RANDOM: "a random reward", NEGATED: "its opposite"}

CONTROLS: Final = {
    "rewards": (TRUE, ZERO, NEGATED, RANDOM, CLONING),
    "answers": (TRUE_ANSWERS, NEGATED_ANSWERS, RANDOM_ANSWERS, CLONING),
    "actions": (),
}  # by what a policy learns from

SUCCESS: Final = "success in %"
"""The unit of scores that are shares of episodes."""

NO_ANSWERS: Final = "No answers were used: the agents learned from the recorded rewards."


def main_condition(config: OfflineConfig) -> str:
    """The condition that a run is about: its agents are evaluated while they learn."""
    if config.uses_true_reward:
        return TRUE
    main = {"rewards": LEARNED, "answers": ANSWERS, "actions": CLONING}
    return main[config.kind.learns_from]


@final
@dataclass(frozen=True, eq=False)
class Conditions:
    """The signals that agents learn from side by side, a condition's seeds next to each other.

    It is the reward of each recorded step, scaled for agents, or the preference of each answer.
    """

    names: tuple[str, ...]  # of the `C` conditions
    seeds: tuple[int, ...]  # `S` of each condition
    signals: FloatArray  # `[C, S, T]` float32, or `[C, S, P]` of answers
    places: tuple[int, ...] = ()  # of the `C` among all that were built, for the seeds of agents

    def __post_init__(self) -> None:
        if not self.places:
            object.__setattr__(self, "places", tuple(range(len(self.names))))
        expected = (len(self.names), len(self.seeds))
        if self.signals.shape[:2] != expected:
            raise DataError(
                f"Conditions.signals: expected [{expected}, T], got {self.signals.shape}."
            )

    @classmethod
    def of(cls, signals: Mapping[str, FloatArray], seeds: Sequence[int]) -> Self:
        """Conditions by name, of signals `[S, T]`, or `[T]` that are alike for all seeds."""
        shape = (len(seeds), next(iter(signals.values())).shape[-1])
        stacked = np.stack([np.broadcast_to(rows, shape) for rows in signals.values()])
        return cls(tuple(signals), tuple(seeds), stacked.astype(np.float32))

    @property
    def agents(self) -> tuple[str, ...]:
        """`C * S` names such as `learned-0`, in the order of `flat_signals`."""
        return tuple(agent_name(name, seed) for name in self.names for seed in self.seeds)

    @property
    def agent_seeds(self) -> list[int]:
        """`C * S` different seeds; those of the first condition are `seeds`.

        torch draws initial weights from the low 32 bits, which are those of `seeds`. So agents of
        one seed begin alike in all conditions, though their minibatches differ.
        """
        return [place * SEED_LIMIT + seed for place in self.places for seed in self.seeds]

    @property
    def flat_signals(self) -> FloatArray:
        """`[C * S, T]`, a row for each agent."""
        return self.signals.reshape(-1, self.signals.shape[-1])

    def with_controls(self, controls: Sequence[str]) -> Self:
        """The first condition and those named; their agents are the same as beside all others."""
        kept = [k for k, name in enumerate(self.names) if k == 0 or name in controls]
        return replace(
            self,
            names=tuple(self.names[k] for k in kept),
            signals=self.signals[kept],
            places=tuple(self.places[k] for k in kept),
        )


def agent_name(condition: str, seed: int) -> str:
    """The name of an agent in files and tables."""
    return f"{condition}-{seed}"


def build_conditions(
    episodes: Episodes,
    learned: FloatArray | None,
    *,
    seeds: Sequence[int],
    task: str | Task | None = None,
    controls: bool = True,
    scaled: bool = True,
) -> Conditions:
    """Build the rewards of each condition, scaled by the range of returns as the learned ones are.

    The learned reward is meaningful where its agents beat those of no reward (`zero`), of a smooth
    function without meaning (`random`, another one for each seed), and of the opposite
    (`negated`). The true reward (`true`) is the ceiling; it is left out where the recorded
    rewards are all the same, as they are where nobody knows them. Without a learned reward the
    true one takes its place, and the controls are its own.

    Rewards `[T]` are scaled as the task has it, or by the longest episode. A Decision Transformer
    takes them unscaled: it scales returns itself, and receives the same rewards as it acts. The
    environment does not give it the opposite of the true reward, which is left out.

    Raises:
        ConfigError: seeds that are not different numbers from 0 on.
        DataError: another number of learned rewards, or no reward at all.
    """
    require_seeds(seeds)
    recorded = np.asarray(episodes.rewards)
    if learned is None:
        require_true_rewards(episodes)
    elif learned.shape != (episodes.steps,):
        raise DataError(f"learned: expected {episodes.steps} rewards, got {learned.shape}.")

    def scale(rewards: FloatArray, *, learned: bool = True) -> FloatArray:
        if not scaled:
            return rewards
        relabelled = replace(episodes, rewards=rewards)
        return np.asarray(scale_by_return_range(relabelled, task, learned=learned).rewards)

    rewards: dict[str, FloatArray] = {} if learned is None else {LEARNED: scale(learned)}
    if learned is None or (controls and np.ptp(recorded) > 0):
        rewards[TRUE] = scale(recorded, learned=False)
    if controls:
        rewards[ZERO] = np.zeros(episodes.steps)
        if learned is not None:
            rewards[NEGATED] = scale(-learned)
        elif scaled:
            rewards[NEGATED] = scale(np.negative(recorded, dtype=np.float64), learned=False)
        rewards[RANDOM] = np.stack([scale(step_rewards(random(s), episodes)) for s in seeds])
    return Conditions.of(rewards, seeds)


def build_answer_conditions(
    comparisons: Comparisons, *, seeds: Sequence[int], controls: bool = True
) -> Conditions:
    """Build the answers of each condition, for agents that learn without a reward model.

    The given ones (`answers`) are meaningful where their agents beat those of their opposite
    (`negated_answers`) and of tossed coins (`random_answers`, others for each seed). Answers to the
    same queries by the recorded rewards (`true_answers`) are the ceiling, left out where nobody
    knows them.

    Raises:
        ConfigError: seeds that are not different numbers from 0 on.
    """
    require_seeds(seeds)
    given = comparisons.preference
    segments = comparisons.segments
    answers: dict[str, FloatArray] = {ANSWERS: given}
    if controls and np.ptp(segments.rewards) > 0:
        first, second = segments.returns(comparisons.pairs).T
        answers[TRUE_ANSWERS] = (np.sign(first - second) + 1) / 2
    if controls:
        answers[NEGATED_ANSWERS] = 1 - given
        draws = (np.random.default_rng([seed, 0xC015]) for seed in seeds)
        answers[RANDOM_ANSWERS] = np.stack([rng.integers(2, size=len(given)) for rng in draws])
    return Conditions.of(answers, seeds)


def require_true_rewards(episodes: Episodes) -> None:
    """Raise `DataError` where the recorded rewards are all the same, so that nobody knows them."""
    if not (episodes.steps and np.ptp(episodes.rewards) > 0):
        raise DataError(
            "recorded rewards: expected some that differ, got the same at each step. Fit a "
            "reward to labels of these episodes, or record them with their rewards."
        )


@final
@dataclass(frozen=True, eq=False)
class ConditionScore:
    """Policies of one condition after their last update; means over episodes, by seed."""

    returns: FloatArray  # `[S]` undiscounted sums of the environment's reward
    episodes: FloatArray  # `[S * K]` the same of single episodes
    scores: FloatArray | None  # `[S]` on D4RL's scale, 0 random and 100 expert; None without a task
    success: FloatArray | None  # `[S]` share of episodes, where the environment reports success

    @classmethod
    def of(cls, reports: Sequence[PolicyReport], task: Task | None) -> Self:
        """Score a condition by one report per seed, normalised by a task's reference returns."""
        returns = np.array([report.mean for report in reports])
        rates = [report.success_rate for report in reports]
        return cls(
            returns=returns,
            episodes=np.concatenate([report.returns for report in reports]),
            scores=None if task is None else normalised_score(task, returns),
            success=None if None in rates else np.array(rates, float),
        )

    @property
    def shown(self) -> FloatArray:
        """`[S]` in `unit`: the task's published scale, else success, else returns."""
        if self.scores is not None:
            return self.scores
        return self.returns if self.success is None else 100 * self.success

    @property
    def unit(self) -> str:
        """The unit of `shown`, in words."""
        if self.scores is not None:
            return "normalised score"
        return "return" if self.success is None else SUCCESS

    @property
    def estimate(self) -> Estimate:
        """The score of a run's summary; of a single seed it is of its episodes."""
        success = None if self.success is None else float(self.success.mean())
        if self.scores is None and len(self.returns) == 1:
            return Estimate.of_episodes(self.episodes, success)
        return Estimate.of_seeds(self.returns if self.scores is None else self.scores, success)

    def to_json(self) -> dict[str, Any]:
        """Each number by seed, with its mean and, over seeds, deviation (with `S - 1`)."""

        def summary(values: FloatArray | None) -> dict[str, Any] | None:
            if values is None:
                return None
            std = float(values.std(ddof=1)) if len(values) > 1 else None
            return {"mean": float(values.mean()), "std": std, "seeds": values.tolist()}

        return {
            "return": summary(self.returns),
            "normalised_score": summary(self.scores),
            "success_rate": summary(self.success),
        }


@final
@dataclass(frozen=True)
class ControlComparison:
    """The condition of the learned reward beside the controls.

    One beats another where the difference of the means over seeds is larger than its 95 % interval
    by Welch's t-test. With a single seed the interval is that of the episodes, which does not
    include how much training varies.
    """

    beaten: tuple[str, ...]  # controls with lower returns
    unclear: tuple[str, ...]  # controls without a significant difference
    lost_to: tuple[str, ...]  # controls with higher returns
    text: str  # the same in a sentence or two

    @property
    def passed(self) -> bool:
        """Whether every control was beaten."""
        return bool(self.beaten) and not self.unclear and not self.lost_to

    def to_json(self) -> dict[str, Any]:
        """Its fields, and whether it passed."""
        return asdict(self) | {"passed": self.passed}


def compare(
    returns: Mapping[str, FloatArray], episodes: Mapping[str, FloatArray] | None = None
) -> ControlComparison | None:
    """Compare mean returns `[S]` of the learned condition with the others; None without others.

    `true` and `true_answers` are ceilings and no controls, but the first takes the place of a
    learned condition where there is none. Returns of single episodes stand in where there is one
    seed.

    >>> comparison = compare({"learned": np.array([9.0, 10, 11]), "zero": np.array([0.0, 1, 2])})
    >>> comparison.passed, comparison.text
    (True, 'The learned reward did better than no reward.')
    """
    ours, controls = _ours_and_controls(returns)
    if ours is None or not controls:
        return None
    single = len(returns[ours]) == 1
    taught_by = f"The {LABELS[ours]}"
    samples = episodes if single and episodes is not None else returns
    signs = {name: _clear_sign(samples[ours], samples[name]) for name in controls}
    beaten, unclear, lost = (
        tuple(name for name in controls if signs[name] == sign) for sign in (1, 0, -1)
    )
    groups = {
        f"{taught_by} did better than": beaten,
        "It did worse than": lost,
        "It did not differ significantly from": unclear,
    }
    sentences = [f"{words} {_and(names)}." for words, names in groups.items() if names]
    sentences[0] = sentences[0].replace("It ", f"{taught_by} ", 1)
    if lost or unclear:
        source = "recorded rewards" if ours == TRUE else "comparisons"
        sentences.append(f"So the {source} are not shown to have taught these policies.")
    if single:
        sentences.append("With one seed, how much training varies is not known.")
    return ControlComparison(beaten, unclear, lost, " ".join(sentences))


def paired_differences(
    scores: Mapping[str, FloatArray], *, percentages_of: int | None = None
) -> dict[str, tuple[float, tuple[float, float]]]:
    """The learned condition's scores `[S]` less each control's, seed by seed.

    By control, their mean and its 95 % interval by Student's t; empty with a single seed. For
    scores that are percentages of so many episodes, one that leaves -100 to 100 is replaced by
    that of a mean with these bounds.

    >>> scores = {"learned": np.array([3.0, 5.0]), "zero": np.array([1.0, 3.0])}
    >>> paired_differences(scores)
    {'zero': (2.0, (2.0, 2.0))}
    """
    ours, controls = _ours_and_controls(scores)
    if ours is None:
        return {}
    differences = {name: scores[ours] - scores[name] for name in controls}
    intervals = {}
    for name, values in differences.items():
        interval = mean_interval(values)
        if interval is None:
            continue
        if percentages_of is not None and max(map(abs, interval)) > 100:
            low, high = share_interval((values / 100 + 1) / 2, percentages_of)
            interval = 200 * low - 100, 200 * high - 100
        intervals[name] = float(values.mean()), interval
    return intervals


def _ours_and_controls(names: Iterable[str]) -> tuple[str | None, list[str]]:
    """The condition that a run is about, if any, and those it has to beat."""
    present = list(names)
    ours = next((name for name in (LEARNED, ANSWERS, TRUE) if name in present), None)
    return ours, [n for n in present if n not in (LEARNED, ANSWERS, TRUE, TRUE_ANSWERS)]


def _clear_sign(ours: FloatArray, theirs: FloatArray) -> int:
    """1 if ours are significantly higher, -1 if lower, 0 if neither."""
    if len(ours) < 2 or len(theirs) < 2:
        return 0
    difference = float(ours.mean() - theirs.mean())
    counts = np.array([len(ours), len(theirs)])
    shares = np.array([ours.var(ddof=1), theirs.var(ddof=1)]) / counts
    spread = float(shares.sum())
    if spread == 0:
        return int(np.sign(difference))
    freedom = spread**2 / float((shares**2 / (counts - 1)).sum())
    clear = abs(difference) > t_quantile(freedom) * math.sqrt(spread)
    return int(np.sign(difference)) if clear else 0


def _and(names: tuple[str, ...]) -> str:
    *first, last = (IN_SENTENCES.get(name, name) for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def target_sweep(
    targets: Sequence[str], returns: Sequence[float], achieved: FloatArray
) -> dict[str, Any]:
    """Compare returns `achieved` `[S, Q]`, by the environment's reward, with `Q` target returns.

    `targets` are these as a person wrote them, `returns` the numbers that they stand for.
    The rank correlation is of means over seeds, and None where there is none.
    """
    correlation = spearman(np.array(returns), achieved.mean(0))
    return {
        "targets": list(targets),
        "asked": list(returns),
        "achieved": achieved.tolist(),
        "rank_correlation": None if np.isnan(correlation) else correlation,
    }


def reward_of_condition(condition: str, seed: int, learned: Reward | None) -> Reward | None:
    """The reward that a condition's policies go by; None where it is the environment's."""
    if condition == TRUE:
        return None
    return control_rewards(learned or oracle(), seed).get(condition, learned)
