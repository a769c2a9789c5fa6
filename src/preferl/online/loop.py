"""Act, ask, fit, pay: learning while acting (Christiano et al. 2017, section 2.2)."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes, join
from preferl.data.segments import Short, left_out, sample_segments
from preferl.errors import ConfigError, DataError, FeedbackError, mismatch, require_in
from preferl.feedback.instant import InstantFeedback
from preferl.feedback.protocols import Feedback, PairSampler, Teacher
from preferl.feedback.sampling import InformativePairs, UniformPairs
from preferl.feedback.schedule import Schedule, ScheduleName, Turn, plan
from preferl.feedback.scripted import ScriptedTeacher
from preferl.functional.combine import Combine, lower_bound, mean
from preferl.models.build import RewardModelConfig, build_reward_model
from preferl.models.mlp import MLPRewardConfig
from preferl.online.algorithms import (
    AlgorithmConfig,
    PPOConfig,
    build_algorithm,
    make_environments,
)
from preferl.online.learner import PolicyLearner, SB3Learner
from preferl.reporting import MetricSink, Sinks
from preferl.training.fit_report import FitReport
from preferl.training.reward_function import RewardFunction
from preferl.training.reward_trainer import RewardTrainer, RewardTrainerConfig


class VariableLengthWarning(UserWarning):
    """Episodes differ in length, so that their ends may tell an agent about its reward."""


@dataclass(frozen=True)
class OnlineConfig:
    """A whole run of learning from preferences while acting.

    Attributes:
        env: id of a registered gymnasium environment.
        environments: how many copies act in parallel.
        steps: environment steps in all, exploration included.
        comparisons: questions in all.
        turns: times the policy learns; questions are asked before the first and between them.
        segment_length: steps per clip.
        initial_steps: of the untrained policy, about which the first questions are.
        initial_fraction: share of the questions that are asked then.
        initial_epochs: passes of the first fit, when there are few answers; None as any other.
        schedule: how the other questions are spread over the run.
        sampler: "uniform" pairs, or "informative" ones, about which members disagree most.
        oversampling: candidate pairs per question for the informative sampler.
        memory: environment steps of the latest experience that clips are cut from; older ones
            are forgotten.
        short: what becomes of episodes shorter than a clip: "drop" or "pad".
        variable_length: "allow" episodes of different length, with one warning, or "refuse".
        algorithm: what improves the policy.
        exploration_fraction: share of steps in which a random policy takes over now and then.
        random_probability: of taking over, whenever it is drawn who acts.
        switch_probability: per step, of drawing again who acts.
        model: shape of the reward model.
        trainer: how it is fitted.
        teacher: answers by the environment's own reward, unless a feedback of yours is given.
        max_comparisons: answers kept, the newest; None keeps all.
        pessimism: deviations over members taken off the mean; 0 pays the mean.
        reference: the steps over which rewards paid are normalised: of the clips that were
            "answers" are about, which change little from turn to turn, or of all recent
            "experience", which follows the agent.
        reward_deviation: of the rewards paid, for each member before they are combined.
        centre: whether rewards paid have zero mean. A shift matters where episodes end early.
        seed: of everything.
        device: of all networks: "cpu", "cuda" or "auto".
    """

    env: str = "Pendulum-v1"
    environments: int = 4
    steps: int = 100_000
    comparisons: int = 200
    turns: int = 10
    segment_length: int = 50
    initial_steps: int = 4_000
    initial_fraction: float = 0.25
    initial_epochs: int | None = None
    schedule: ScheduleName | Schedule = "hyperbolic"
    sampler: Literal["uniform", "informative"] = "uniform"
    oversampling: float = 10.0
    memory: int = 50_000
    short: Short = "drop"
    variable_length: Literal["allow", "refuse"] = "allow"
    algorithm: AlgorithmConfig = field(default_factory=PPOConfig)
    exploration_fraction: float = 0.05
    random_probability: float = 0.5
    switch_probability: float = 0.5
    model: RewardModelConfig = field(default_factory=lambda: MLPRewardConfig(members=3))
    trainer: RewardTrainerConfig = field(default_factory=RewardTrainerConfig)
    teacher: ScriptedTeacher = field(default_factory=ScriptedTeacher)
    max_comparisons: int | None = None
    pessimism: float = 0.0
    reference: Literal["answers", "experience"] = "answers"
    reward_deviation: float = 1.0
    centre: bool = True
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("steps", "comparisons", "turns", "segment_length", "initial_steps", "memory"):
            require_in(name, getattr(self, name), 1, float("inf"))
        for name, choices in (
            ("sampler", ("uniform", "informative")),
            ("short", ("drop", "pad")),
            ("reference", ("answers", "experience")),
            ("variable_length", ("allow", "refuse")),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    mismatch(name, expected=f"one of {choices}", got=getattr(self, name))
                )


@final
@dataclass(frozen=True)
class TurnReport:
    """What one turn did.

    Attributes:
        turn: its number; 0 came before the policy learned.
        turns: number of the last one.
        env_steps: used so far.
        comparisons: answered so far.
        fit: of the reward model; None where nothing was asked.
        mean_return: of the turn's whole episodes by the environment's reward, NaN without any.
        episodes: how many those were.
    """

    turn: int
    turns: int
    env_steps: int
    comparisons: int
    fit: FitReport | None
    mean_return: float
    episodes: int

    def metrics(self) -> dict[str, float]:
        """The numbers of this turn for a metric sink."""
        values = {"policy/true_return": self.mean_return, "feedback/answers": self.comparisons}
        if self.fit is not None:
            values |= {
                "reward/train_loss": self.fit.train_loss[-1],
                "reward/train_accuracy": self.fit.train_accuracy[-1],
                "reward/validation_loss": self.fit.validation_loss[-1],
                "reward/validation_accuracy": self.fit.validation_accuracy[-1],
                "reward/seconds": self.fit.seconds,
            }
        return values


@final
@dataclass(frozen=True, eq=False)
class OnlineReport:
    """What a run came to.

    Attributes:
        turns: what each turn did.
        reward: the last reward paid; None if the run ended before there was one.
        comparisons: all answers kept; None if there are none.
        env_steps: used in all, exploration included.
        seconds: wall time.
        interrupted: whether somebody stopped it early.
        learner: the agent that learned.
        experience: the latest episodes, as far as `memory` reaches.
    """

    turns: tuple[TurnReport, ...]
    reward: RewardFunction | None
    comparisons: Comparisons | None
    env_steps: int
    seconds: float
    interrupted: bool
    learner: Any
    experience: Episodes | None


OnTurn = Callable[[TurnReport], None]
"""Called after each turn."""

OnAnswers = Callable[[Comparisons], None]
"""Called with all answers whenever there are new ones, before they are learned from."""


def learn_from_preferences(
    config: OnlineConfig,
    *,
    teacher: Teacher | None = None,
    feedback: Feedback | None = None,
    learner: PolicyLearner | None = None,
    trainer: RewardTrainer | None = None,
    sampler: PairSampler | None = None,
    sink: MetricSink | None = None,
    on_turn: OnTurn | None = None,
    on_answers: OnAnswers | None = None,
) -> OnlineReport:
    """Teach an agent from comparisons; parts that are not given are built from the config.

    Ctrl-C ends the run after what is under way is put in order; the report says so.

    Args:
        config: the whole run.
        teacher: answers instead of the config's scripted one.
        feedback: takes questions instead of an `InstantFeedback` around the teacher.
        learner: the agent, instead of the config's algorithm.
        trainer: fits the reward, instead of the config's model and trainer.
        sampler: chooses questions, instead of the config's.
        sink: takes metrics, by environment step.
        on_turn: told of each turn.
        on_answers: given all answers when there are new ones, to keep them safe.

    Raises:
        ConfigError: settings that do not go together.
        DataError: no episode long enough for a clip, or episodes of different length where the
            config refuses them.
    """
    run = _Run(config, teacher, feedback, learner, trainer, sampler)
    run.sink = sink or run.sink
    run.on_turn, run.on_answers = on_turn, on_answers
    return run.through()


@final
class _Run:
    """The parts of a run and what it has come to so far."""

    def __init__(
        self,
        config: OnlineConfig,
        teacher: Teacher | None,
        feedback: Feedback | None,
        learner: PolicyLearner | None,
        trainer: RewardTrainer | None,
        sampler: PairSampler | None,
    ) -> None:
        self.config = config
        self.rng, answering, exploring = np.random.default_rng(config.seed).spawn(3)
        self.learner: Any = learner or build_learner(config, exploring)
        self.trainer = trainer or build_trainer(config, self.learner)
        self.feedback = feedback or InstantFeedback(
            teacher or config.teacher, answering, max_comparisons=config.max_comparisons
        )
        self.sampler = sampler or (
            UniformPairs()
            if config.sampler == "uniform"
            else InformativePairs(self._scores, oversampling=config.oversampling)
        )
        self.sink: MetricSink = Sinks()
        self.on_turn: OnTurn | None = None
        self.on_answers: OnAnswers | None = None
        self.reward: RewardFunction | None = None
        self.experience: Episodes | None = None
        self.turns: list[TurnReport] = []
        self.lengths: set[int] = set()
        self.answers = 0

    def through(self) -> OnlineReport:
        began = time.perf_counter()
        interrupted = False
        turns = _plan(self.config)
        try:
            for number, turn in enumerate(turns):
                self._turn(number, len(turns) - 1, turn)
        except KeyboardInterrupt:
            interrupted = True
        return OnlineReport(
            turns=tuple(self.turns),
            reward=self.reward,
            comparisons=self._comparisons(),
            env_steps=self.learner.steps,
            seconds=time.perf_counter() - began,
            interrupted=interrupted,
            learner=self.learner,
            experience=self.experience,
        )

    def _turn(self, number: int, last: int, turn: Turn) -> None:
        act = self.learner.learn if number else self.learner.explore
        episodes = act(turn.steps)
        self._remember(episodes)
        fit = self._ask_and_fit(turn, first=number == 0) if turn.questions else None
        whole = episodes.lengths >= max(self.lengths, default=1) if len(episodes) else []
        report = TurnReport(
            turn=number,
            turns=last,
            env_steps=self.learner.steps,
            comparisons=self.answers,
            fit=fit,
            mean_return=float(episodes.returns[whole].mean()) if np.any(whole) else float("nan"),
            episodes=int(np.sum(whole)),
        )
        self.turns.append(report)
        self.sink.log(report.metrics(), report.env_steps)
        if self.on_turn:
            self.on_turn(report)

    def _ask_and_fit(self, turn: Turn, *, first: bool) -> FitReport | None:
        config = self.config
        if self.experience is None:
            raise DataError("No experience was recorded to ask about. Take more steps per turn.")
        segments = sample_segments(
            self.experience, turn.candidates, config.segment_length, self.rng, short=config.short
        )
        try:
            self.feedback.ask(segments, self.sampler(segments, turn.questions, self.rng))
        finally:  # a person who stops half-way keeps what they answered
            comparisons = self._comparisons()
            self.answers = 0 if comparisons is None else len(comparisons)
            if comparisons is not None and self.on_answers:
                self.on_answers(comparisons)
        if comparisons is None:  # every question was declined, or is answered later
            return None
        report = self.trainer.fit(comparisons, epochs=config.initial_epochs if first else None)
        answers = config.reference == "answers"
        reference = comparisons.segments.episodes() if answers else self.experience
        unscaled = RewardFunction(self.trainer.model, combine=_combine(config.pessimism))
        self.reward = unscaled.scaled(
            reference, target=config.reward_deviation, centre=config.centre
        )
        self.learner.pay(self.reward)
        return report

    def _remember(self, episodes: Episodes) -> None:
        if not len(episodes):
            return
        self._check_lengths(episodes)
        known = episodes if self.experience is None else join([self.experience, episodes])
        age = known.steps - known.ends  # steps that came after each episode
        self.experience = known[age < self.config.memory] if age[0] >= self.config.memory else known

    def _check_lengths(self, episodes: Episodes) -> None:
        ended = episodes.lengths[episodes.terminated[episodes.ends - 1]]
        lengths = self.lengths | {int(length) for length in np.unique(ended)}
        lengths |= {int(episodes.lengths.max())}
        if len(lengths) > 1 and ended.size and len(self.lengths) < 2:
            text = (
                f"Episodes differ in length ({min(lengths)} to {max(lengths)} steps). Where an "
                "episode ends may tell the agent what its reward should: survival pays if learned "
                "rewards are positive, and ending early pays if they are negative. "
                f"{left_out(episodes, self.config.segment_length)} of {len(episodes)} episodes "
                f"are shorter than a clip ({self.config.short!r})."
            )
            if self.config.variable_length == "refuse":
                raise DataError(
                    f'{text} Pass variable_length="allow", or an environment of fixed length.'
                )
            warnings.warn(text, VariableLengthWarning, stacklevel=2)
        self.lengths = lengths

    def _scores(self, segments: Any) -> Any:
        return None if self.reward is None else self.reward.scores(segments)

    def _comparisons(self) -> Comparisons | None:
        try:
            return self.feedback.comparisons()
        except FeedbackError:
            return None


def build_learner(config: OnlineConfig, rng: np.random.Generator) -> SB3Learner:
    """The agent that a config describes, in its environments."""
    env = make_environments(config.env, config.environments, seed=config.seed)
    return SB3Learner(
        build_algorithm(config.algorithm, env, seed=config.seed, device=config.device),
        total_steps=config.steps,
        exploration_fraction=config.exploration_fraction,
        random_probability=config.random_probability,
        switch_probability=config.switch_probability,
        rng=rng,
    )


def build_trainer(config: OnlineConfig, learner: Any) -> RewardTrainer:
    """The reward model and trainer that a config describes, for the learner's spaces.

    Raises:
        ConfigError: a learner of one's own, whose spaces are unknown.
    """
    if not isinstance(learner, SB3Learner):
        raise ConfigError(
            mismatch(
                "trainer",
                expected="a RewardTrainer beside a learner of your own",
                got=f"none beside a {type(learner).__name__}",
                fix="Build its model for the learner's spaces and pass trainer=.",
            )
        )
    env = learner.reward_env
    model = build_reward_model(
        config.model, env.observation_space, env.action_space, seed=config.seed
    )
    return RewardTrainer(model, config.trainer, seed=config.seed, device=config.device)


def _plan(config: OnlineConfig) -> list[Turn]:
    return plan(
        steps=config.steps,
        questions=config.comparisons,
        turns=config.turns,
        schedule=config.schedule,
        initial_fraction=config.initial_fraction,
        initial_steps=config.initial_steps,
        oversampling=config.oversampling if config.sampler == "informative" else 1.0,
    )


def _combine(pessimism: float) -> Combine:
    return lower_bound(pessimism) if pessimism else mean
