"""Conditions of an experiment: the learned reward and its controls, their scores, a comparison."""

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

# the condition of agents that learn without a reward model; it has its own controls
ANSWERS = "answers"
TRUE_ANSWERS = "true_answers"
NEGATED_ANSWERS = "negated_answers"
RANDOM_ANSWERS = "random_answers"

CLONING = "cloning"  # agents that imitate the data, whatever their rewards

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
}  # keys say what a policy learns from

SUCCESS: Final = "success in %"
"""The unit of scores that are shares of episodes."""

NO_ANSWERS: Final = "No answers were used: the agents learned from the recorded rewards."


def main_condition(config: OfflineConfig) -> str:
    """Return the condition that a run is about. Its agents are evaluated while they learn."""
    if config.uses_true_reward:
        return TRUE
    main = {"rewards": LEARNED, "answers": ANSWERS, "actions": CLONING}
    return main[config.kind.learns_from]


@final
@dataclass(frozen=True, eq=False)
class Conditions:
    """The signals that agents learn from side by side. The seeds of a condition follow one another.

    A signal is the reward of each recorded step, scaled for agents, or the preference of each
    answer.
    """

    names: tuple[str, ...]  # names of the `C` conditions
    seeds: tuple[int, ...]  # `S` of each condition
    signals: FloatArray  # `[C, S, T]` float32, or `[C, S, P]` of answers
    # places of the `C` among all that were built; seeds of agents depend on them
    places: tuple[int, ...] = ()

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
        """Make conditions from signals by name: `[S, T]`, or `[T]` if equal for all seeds."""
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

        torch draws initial weights from the low 32 bits of a seed, and these are those of `seeds`.
        Agents of one seed therefore begin alike in all conditions, although their minibatches
        differ.
        """
        return [place * SEED_LIMIT + seed for place in self.places for seed in self.seeds]

    @property
    def flat_signals(self) -> FloatArray:
        """`[C * S, T]`, a row for each agent."""
        return self.signals.reshape(-1, self.signals.shape[-1])

    def with_controls(self, controls: Sequence[str]) -> Self:
        """Return the first condition and those named; their agents do not depend on the others."""
        kept = [k for k, name in enumerate(self.names) if k == 0 or name in controls]
        return replace(
            self,
            names=tuple(self.names[k] for k in kept),
            signals=self.signals[kept],
            places=tuple(self.places[k] for k in kept),
        )


def agent_name(condition: str, seed: int) -> str:
    """Return the name of an agent in files and tables."""
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
    """Build the rewards of each condition, scaled like the learned rewards by the range of returns.

    The learned reward is meaningful if its agents beat three controls: those of no reward (`zero`),
    of a smooth function without meaning (`random`, another one for each seed), and of the opposite
    (`negated`). The true reward (`true`) is the ceiling. It is left out if all recorded rewards are
    the same, which means that nobody knows them. Without a learned reward, the true reward takes
    its place and has the controls.

    Rewards `[T]` are scaled as the task says, or else by the longest episode. A Decision
    Transformer gets unscaled rewards: it scales returns itself, and receives the same rewards while
    it acts. The environment does not give it the opposite of the true reward, so this control is
    left out.

    Raises:
        ConfigError: seeds are not different numbers from 0 on.
        DataError: there is another number of learned rewards, or no reward at all.
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

    The given answers (`answers`) are meaningful if their agents beat those of the opposite answers
    (`negated_answers`) and of tossed coins (`random_answers`, others for each seed). Answers of the
    recorded rewards to the same queries (`true_answers`) are the ceiling. They are left out if
    nobody knows the rewards.

    Raises:
        ConfigError: seeds are not different numbers from 0 on.
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
    """Raise `DataError` if all recorded rewards are the same, so that nobody knows them."""
    if not (episodes.steps and np.ptp(episodes.rewards) > 0):
        raise DataError(
            "recorded rewards: expected different numbers, got the same at each step. Fit a "
            "reward to labels of these episodes, or record them with their rewards."
        )


@final
@dataclass(frozen=True, eq=False)
class ConditionScore:
    """Policies of one condition after their last update.

    Numbers are means over episodes, by seed.
    """

    returns: FloatArray  # `[S]` undiscounted sums of the environment's reward
    episodes: FloatArray  # `[S * K]` the same sums of single episodes
    scores: FloatArray | None  # `[S]` on D4RL's scale, 0 random and 100 expert; None without a task
    success: FloatArray | None  # `[S]` share of successes; None if the environment reports none

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
        """`[S]` in `unit`: the task's published scale, otherwise success, otherwise returns."""
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
        """The score for a run's summary. With a single seed, it is that of the episodes."""
        success = None if self.success is None else float(self.success.mean())
        if self.scores is None and len(self.returns) == 1:
            return Estimate.of_episodes(self.episodes, success)
        return Estimate.of_seeds(self.returns if self.scores is None else self.scores, success)

    def to_json(self) -> dict[str, Any]:
        """Return each number by seed, with its mean and its deviation over seeds (with `S - 1`)."""

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
    """The condition of the learned reward compared with the controls.

    One condition beats another if the difference of their means over seeds is larger than its 95 %
    interval by Welch's t-test. With a single seed, the interval is that of the episodes. It does
    not include how much training varies.
    """

    beaten: tuple[str, ...]  # controls with lower returns
    unclear: tuple[str, ...]  # controls without a significant difference
    lost_to: tuple[str, ...]  # controls with higher returns
    text: str  # the same in words

    @property
    def passed(self) -> bool:
        """Whether every control was beaten."""
        return bool(self.beaten) and not self.unclear and not self.lost_to

    def to_json(self) -> dict[str, Any]:
        """Return the fields, and whether every control was beaten."""
        return asdict(self) | {"passed": self.passed}


def compare(
    returns: Mapping[str, FloatArray], episodes: Mapping[str, FloatArray] | None = None
) -> ControlComparison | None:
    """Compare mean returns `[S]` of the learned condition with the others; None if there are none.

    `true` and `true_answers` are ceilings and not controls, but `true` takes the place of the
    learned condition if there is none. With a single seed, returns of single episodes are compared.

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
    """Return the learned condition's scores `[S]` minus each control's, seed by seed.

    The result has, by control, their mean and its 95 % interval by Student's t. It is empty with a
    single seed. For scores that are percentages of `episodes` episodes, an interval beyond -100 to
    100 is replaced by that of a mean with these bounds.

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
    """Return the condition that a run is about, if any, and the conditions it has to beat."""
    present = list(names)
    ours = next((name for name in (LEARNED, ANSWERS, TRUE) if name in present), None)
    return ours, [n for n in present if n not in (LEARNED, ANSWERS, TRUE, TRUE_ANSWERS)]


def _clear_sign(ours: FloatArray, theirs: FloatArray) -> int:
    """Return 1 if ours are significantly higher, -1 if they are lower, otherwise 0."""
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

    `targets` are the target returns as a person wrote them, `returns` their numbers. The rank
    correlation is that of means over seeds, and None if it does not exist.
    """
    correlation = spearman(np.array(returns), achieved.mean(0))
    return {
        "targets": list(targets),
        "asked": list(returns),
        "achieved": achieved.tolist(),
        "rank_correlation": None if np.isnan(correlation) else correlation,
    }


def reward_of_condition(condition: str, seed: int, learned: Reward | None) -> Reward | None:
    """Return the reward by which a condition's policies act; None for the environment's."""
    if condition == TRUE:
        return None
    return control_rewards(learned or oracle(), seed).get(condition, learned)
