"""Act, ask, fit: learning from preferences while acting (Christiano et al. 2017, section 2.2).

`PreferenceLoop.iterate` is the method, and `build_parts` makes what it calls. A checkpoint is a
`LoopState` with snapshots of the agent, the trainer and the teacher.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, final, runtime_checkable

import numpy as np

from preferl.configs import to_json
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes, join
from preferl.data.segment_sampling import Short, sample_segments, windows_of
from preferl.data.segments import Segments
from preferl.data.validation import TRAIN, VALIDATION
from preferl.envs.config import EnvSource
from preferl.envs.factory import env_factory
from preferl.errors import ConfigError, DataError
from preferl.evaluation.curve import Evaluation, Evaluator, evaluation_interval
from preferl.evaluation.findings import findings, ties_and_contradictions
from preferl.evaluation.policies import Policy
from preferl.feedback.instant import InstantFeedback, check_pairs
from preferl.feedback.likelihood import Likelihood
from preferl.feedback.pair_sampling import segments_wanted
from preferl.feedback.protocols import (
    Adapts,
    Feedback,
    LastingFeedback,
    PairSampler,
    SingleAnswers,
    Teacher,
)
from preferl.feedback.schedule import PlannedIteration, Schedule, plan
from preferl.models.spaces import check_spaces
from preferl.online.checkpoints.answer_journal import AnswerJournal
from preferl.online.configs import OnlineConfig
from preferl.online.learner import (
    PolicyLearner,
    RecordedExperience,
    SB3Learner,
    build_learner,
    build_trainer,
)
from preferl.online.reports import IterationReport, OnlineReport, Stopwatch, course_of
from preferl.online.run_answers import (
    QueryMetrics,
    WarmStart,
    all_answers,
    given_answers,
    latest,
    load_warm_start,
    prepare_answers,
    query_metrics,
    split_answers,
)
from preferl.online.wrappers.feedback_config import LengthGuard, RepetitionGuard
from preferl.online.wrappers.query_worker import build_sampler
from preferl.printing import get_logger
from preferl.reporting import MetricSink, Sinks
from preferl.shapes import BoolArray, FloatArray, IntArray
from preferl.store.feedback import Answered
from preferl.training.checkpoint_folder import JOURNAL, has_run, read_checkpoint, write_checkpoint
from preferl.training.configs import has_out_of_bag
from preferl.training.fit_report import FitReport, Validation
from preferl.training.generators import global_generators, restore_generators
from preferl.training.places import AnswerPlaces
from preferl.training.reward_function import RewardFunction, agent_reward
from preferl.training.reward_trainer import RewardTrainer
from preferl.training.scaling import RewardScaler

LOGGER = get_logger(__name__)

FIRST_EPISODE: Final = 30_000
"""Added to the run's seed; gives the seed of evaluations while learning.

Training and the report use other seeds.
"""

POLICY_EPISODES: Final = 10
"""How many of the latest whole episodes set a teacher's thresholds, by their mean return."""

ATTEMPTS: Final = 5
"""How often a round replaces queries that a script declined."""

OnIteration = Callable[[IterationReport], None]
"""Called after each iteration."""

OnAnswers = Callable[[Comparisons], None]
"""Called with all answers whenever there are new ones, before the reward is fitted to them."""

OnEvaluation = Callable[[Evaluation], None]
"""Called after each evaluation of the policy while it learns."""


def learn_from_preferences(
    config: OnlineConfig,
    *,
    teacher: Teacher | None = None,
    feedback: Feedback | None = None,
    learner: PolicyLearner | None = None,
    trainer: RewardTrainer | None = None,
    sampler: PairSampler | None = None,
    schedule: Schedule | None = None,
    comparisons: Comparisons | None = None,
    episodes: Episodes | None = None,
    sink: MetricSink | None = None,
    on_iteration: OnIteration | None = None,
    on_answers: OnAnswers | None = None,
    on_evaluation: OnEvaluation | None = None,
    eval_env: EnvSource | None = None,
    checkpoints: Path | str | None = None,
) -> OnlineReport:
    """Teach an agent from comparisons. Parts that are not given are built from the config.

    With `steps=0` and `initial_steps=0`, no agent acts and no environment is made. Queries are
    about the recorded `episodes` only, and the report holds the reward.

    Ctrl-C ends the run, and the report then says `interrupted`.

    Args:
        config: settings of the run.
        teacher: answers instead of the config's scripted teacher.
        feedback: takes queries instead of an `InstantFeedback` around the teacher.
        learner: the agent.
        trainer: fits the reward.
        sampler: chooses queries.
        schedule: how densely to ask after each share of the run.
        comparisons: answers that exist already. The reward is fitted to them, to those of the
            config's `warm_start`, and to new ones.
        episodes: recorded episodes that queries may be about, beside those of the config's
            `warm_start`.
        sink: takes metrics, by environment step.
        on_iteration: called with the report of each iteration.
        on_answers: called with all answers when there are new ones, to keep them safe.
        on_evaluation: called after each evaluation of the policy (`config.eval_every`).
        eval_env: id or function that makes the environment of these evaluations. None takes the
            config's environment. With a `learner` of your own, None means no evaluation.
        checkpoints: folder in which the run is saved after each iteration. A run of the same
            settings resumes from there as if it had never stopped. Answers of the current iteration
            are saved at once, so no query is asked twice. `feedback` of your own has to save its
            answers itself. If it is a `LastingFeedback`, it is not asked twice either.

    Raises:
        CheckpointError: the checkpoint is damaged, or belongs to other settings.
        ConfigError: settings contradict each other, or `checkpoints` is given with a learner
            without `snapshot` and `restore`.
        DataError: no episode is long enough for a clip, the config refuses episodes of different
            lengths, or data of a warm start cannot be read.
        SpaceError: comparisons or episodes have other spaces than the agent.
    """
    parts = build_parts(
        config,
        teacher=teacher,
        feedback=feedback,
        learner=learner,
        trainer=trainer,
        sampler=sampler,
        schedule=schedule,
        comparisons=comparisons,
        episodes=episodes,
        eval_env=eval_env,
    )
    loop = PreferenceLoop(
        parts,
        sink=sink or Sinks(),
        on_iteration=on_iteration,
        on_answers=on_answers,
        on_evaluation=on_evaluation,
        checkpoints=None if checkpoints is None else Path(checkpoints),
    )
    return loop.learn()


@runtime_checkable
class Resumable(Protocol):
    """A learner whose state another program can take over."""

    def snapshot(self) -> dict[str, Any]:
        """Return the learner's state between two calls, as values that `write_state` takes."""

    def restore(self, snapshot: Mapping[str, Any], reward: RewardFunction | None) -> None:
        """Continue from a snapshot, and use `reward`."""


@final
@dataclass(eq=False)
class LoopState:
    """State of the loop. A checkpoint holds it beside the states of agent, trainer and teacher.

    Attributes:
        rng: generator for segments and queries.
        preparing: generator that `prepare_answers` uses.
        iterations: reports of the iterations that are over.
        evaluations: evaluations of the policy so far.
        experience: the latest episodes; None before the first.
        reward: the agent's reward; None before the first fit.
        pessimism: pessimism of that reward.
        answer_count: answers so far, including those of the warm start.
        clip_sets: the training or validation set of each clip, by the clip's name.
        bootstrap_queries: `[Q]` the query of each column of the bootstrap, see `AnswerPlaces`.
        returns: returns of the policy's latest whole episodes.
        lengths: lengths of these episodes.
        worst: least return of any window of `segment_length` steps; at most 0.
        shortest: steps of the shortest episode that ended; counted only for a learner of your own.
        longest: steps of the longest episode; counted only for a learner of your own.
        lengths_warned: whether a warning about episodes of different length was given.
        findings: names of the findings that were logged.
        newest_query: number of the newest query at the last checkpoint, if the feedback is a
            `LastingFeedback`; None after this program has asked queries.
        seconds: wall time of the run before it was resumed.
        warm_start: data that the run begins with; written once, beside the checkpoints.
    """

    rng: np.random.Generator
    preparing: np.random.Generator
    iterations: list[IterationReport] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    experience: Episodes | None = None
    reward: RewardFunction | None = None
    pessimism: float = 0.0
    answer_count: int = 0
    clip_sets: dict[str, int] = field(default_factory=dict)
    bootstrap_queries: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    worst: float = 0.0
    shortest: int | None = None
    longest: int = 0
    lengths_warned: bool = False
    findings: list[str] = field(default_factory=list)
    newest_query: int | None = None
    seconds: float = 0.0
    warm_start: WarmStart = field(default_factory=WarmStart)


@final
@dataclass(frozen=True, eq=False)
class LoopParts:
    """The parts that act, ask and fit in a run, and the state in which the run begins.

    Attributes:
        config: settings of the run.
        state: state at the beginning of a run.
        plan: steps and queries of each iteration.
        learner: the agent, a `PolicyLearner`.
        trainer: fits the reward.
        feedback: takes queries and holds the answers.
        sampler: chooses queries.
        evaluator: evaluates the policy while it learns; None if it is not evaluated.
        read_warm_start: reads the data that the run begins with; called once.
    """

    config: OnlineConfig
    state: LoopState
    plan: list[PlannedIteration]
    learner: Any
    trainer: RewardTrainer
    feedback: Feedback
    sampler: PairSampler
    evaluator: Evaluator | None
    read_warm_start: Callable[[], WarmStart]

    def require_suitable(self, data: WarmStart) -> None:
        """Raise `SpaceError` if data has other spaces than the reward model."""
        clips = None if data.comparisons is None else data.comparisons.segments
        model = self.trainer.model
        for name, steps in {"given comparisons": clips, "given episodes": data.episodes}.items():
            if steps is not None:
                check_spaces(
                    model.observation_space,
                    model.action_space,
                    steps.observations,
                    steps.actions,
                    what=name,
                )


def build_parts(
    config: OnlineConfig,
    *,
    teacher: Teacher | None = None,
    feedback: Feedback | None = None,
    learner: PolicyLearner | None = None,
    trainer: RewardTrainer | None = None,
    sampler: PairSampler | None = None,
    schedule: Schedule | None = None,
    comparisons: Comparisons | None = None,
    episodes: Episodes | None = None,
    eval_env: EnvSource | None = None,
) -> LoopParts:
    """Build the parts of a run that are not given.

    The arguments are those of `learn_from_preferences`. If settings contradict each other, an error
    is raised before any folder is touched.
    """
    if not (config.comparisons or config.warm_start.given or comparisons is not None):
        raise ConfigError(
            "comparisons: expected at least 1, got 0. Ask at least one query, or give comparisons "
            "to learn from."
        )

    @cache
    def read_warm_start() -> WarmStart:
        return load_warm_start(config, comparisons, episodes)

    querying, answering, exploring, preparing = np.random.default_rng(config.seed).spawn(4)
    state = LoopState(rng=querying, preparing=preparing, pessimism=config.pessimism)
    feedback = feedback or InstantFeedback(
        teacher or config.teacher, answering, max_comparisons=config.max_comparisons
    )

    def asked() -> Comparisons | None:
        answered = all_answers(state.warm_start.comparisons, feedback)
        return None if answered is None else answered.comparisons

    sampler = sampler or build_sampler(config, lambda: state.reward, asked)
    iterations = plan(
        steps=config.steps,
        queries=config.comparisons,
        iterations=config.iterations,
        schedule=schedule or config.schedule,
        initial_fraction=config.initial_fraction,
        initial_steps=config.initial_steps,
        final_queries=config.final_queries,
        oversampling=config.oversampling,
        sampler=sampler,
    )
    if eval_env is None and learner is None and config.steps:
        eval_env = env_factory(config)
    if learner is None and config.steps:
        learner = build_learner(config, exploring)
    elif learner is None:
        learner = RecordedExperience(*read_warm_start(), queries=config.comparisons)
    return LoopParts(
        config=config,
        state=state,
        plan=iterations,
        learner=learner,
        trainer=trainer or build_trainer(config, learner),
        feedback=feedback,
        sampler=sampler,
        evaluator=None if eval_env is None else _build_evaluator(config, learner, eval_env),
        read_warm_start=read_warm_start,
    )


def _build_evaluator(config: OnlineConfig, learner: Any, env: EnvSource) -> Evaluator:
    policy = learner.algorithm if isinstance(learner, SB3Learner) else learner
    if not isinstance(policy, Policy):
        raise ConfigError(
            "learner: expected a method `predict`, which evaluations need, got "
            f"{type(learner).__name__}."
        )
    return Evaluator(
        env,
        every=evaluation_interval(config.eval_every, config.steps),
        episodes=config.eval_episodes,
        seed=config.seed + FIRST_EPISODE,
    )


@final
@dataclass(eq=False, kw_only=True)
class PreferenceLoop:
    """A run of learning from preferences: its parts, its state, and the functions it calls.

    Args:
        parts: what `build_parts` returned. See `learn_from_preferences` for the other arguments.
    """

    parts: LoopParts = field(kw_only=False)
    sink: MetricSink = field(default_factory=Sinks)
    on_iteration: OnIteration | None = None
    on_answers: OnAnswers | None = None
    on_evaluation: OnEvaluation | None = None
    checkpoints: Path | None = None

    def __post_init__(self) -> None:
        parts = self.parts
        self.state = parts.state
        self.stopwatch = Stopwatch()
        self.length_guard = LengthGuard(parts.config.variable_length)
        self.repetition_guard = RepetitionGuard(parts.config)
        self.journal: AnswerJournal | None = None
        # Answers that the current iteration got before a restart, oldest first. Beside each is the
        # state that the teacher's generator had after it.
        self.kept_answers: deque[tuple[Comparisons, np.random.Generator]] = deque()
        learner = parts.learner
        if isinstance(learner, SB3Learner):
            learner.report_to(self.sink)
            learner.before_rollout(self._evaluate)
        if self.checkpoints is None:
            self.state.warm_start = parts.read_warm_start()
        else:
            self._resume(self.checkpoints)
        parts.require_suitable(self.state.warm_start)
        recorded = self.state.warm_start.episodes
        if not self.state.iterations:
            self.state.experience = recorded
        if isinstance(learner, RecordedExperience) and recorded is not None:
            self.state.shortest = int(recorded.lengths.min())
            self.state.longest = int(recorded.lengths.max())

    def learn(self) -> OnlineReport:
        """Make the remaining iterations, until the end or Ctrl-C, and return a report."""
        state = self.state
        learner = self.parts.learner
        start_time = time.perf_counter() - state.seconds
        interrupted = False
        # A small policy takes one processor thread; fits of a large reward model take all.
        with learner.threads() if isinstance(learner, SB3Learner) else nullcontext():
            try:
                for number in range(len(state.iterations), len(self.parts.plan)):
                    self.iterate(number)
                    self._save(time.perf_counter() - start_time)
            except KeyboardInterrupt:
                interrupted = True
                self._take_kept_answers()
        answered = self._answered()
        return OnlineReport(
            iterations=tuple(state.iterations),
            reward=state.reward,
            comparisons=None if answered is None else answered.comparisons,
            env_steps=learner.steps,
            seconds=time.perf_counter() - start_time,
            interrupted=interrupted,
            learner=None if isinstance(learner, RecordedExperience) else learner,
            experience=state.experience,
            evaluations=tuple(state.evaluations),
            findings=findings(course_of(state.iterations, self.parts.config)),
        )

    def iterate(self, number: int) -> None:
        """Make one iteration: act, ask, fit."""
        parts = self.parts
        planned = parts.plan[number]
        fit = validation = None
        metrics = QueryMetrics()

        # Before the first iteration, the reward is fitted to the answers of a warm start.
        warm_start_answers = given_answers(self.state.warm_start.comparisons, parts.feedback)
        if number == 0 and warm_start_answers is not None:
            self._count_and_pass_on_answers()
            with self.stopwatch.part("fitting"):
                fit, validation = self._fit(warm_start_answers)

        # Act: the policy produces trajectories, and is improved on the learned reward.
        with self.stopwatch.part("acting"):
            act = parts.learner.learn if number else parts.learner.explore
            episodes = act(planned.steps)
        whole = self._take_in(episodes)
        self._evaluate(over=number == len(parts.plan) - 1)

        if planned.queries:
            # Ask: pairs of segments of the trajectories are shown and compared.
            with self.stopwatch.part("asking"):
                metrics = self._ask_round(number)
            # Fit: the reward model learns from all comparisons so far; the agent gets its reward.
            with self.stopwatch.part("fitting"):
                fit, validation = self._fit(self._answered())

        self._report(
            number, episodes.returns[whole], metrics=metrics, fit=fit, validation=validation
        )

    def _take_in(self, episodes: Episodes) -> BoolArray:
        """Add new episodes to the experience; return which of them are whole, `[K]`."""
        config = self.parts.config
        state = self.state
        learner = self.parts.learner
        if isinstance(learner, SB3Learner):
            whole = learner.recording.whole
            shortest = learner.recording.lengths.shortest
            longest = learner.recording.lengths.longest
        else:  # a cut looks like a time limit; only the last episode may be cut
            state.longest = longest = max(state.longest, int(episodes.lengths.max(initial=0)))
            ended = episodes.lengths[: len(episodes) - int(episodes.truncated[-1:].sum())].tolist()
            earlier = [] if state.shortest is None else [state.shortest]
            state.shortest = shortest = min([*ended, *earlier], default=None)
            whole = ~episodes.truncated[episodes.ends - 1] | (episodes.lengths >= longest)
        short = int((episodes.lengths < config.segment_length).sum())
        self.length_guard.check(
            shortest,
            longest,
            f" {short} of {len(episodes)} episodes are shorter than a clip ({config.short!r}).",
        )
        state.lengths_warned = self.length_guard.warned
        if len(episodes):
            experience = [] if state.experience is None else [state.experience]
            state.experience = latest(join([*experience, episodes]), config.buffer_steps)
        self._note_returns(episodes, whole)
        return whole

    def _note_returns(self, episodes: Episodes, whole: BoolArray) -> None:
        """Keep the returns of the latest whole episodes. A teacher's thresholds follow them."""
        config = self.parts.config
        state = self.state
        # if no episode is whole, cut episodes are better than none
        if not whole.any() and not state.returns:
            whole = np.ones_like(whole)
        returns = episodes.returns[whole].tolist()
        lengths = episodes.lengths[whole].tolist()
        state.returns = [*state.returns, *returns][-POLICY_EPISODES:]
        state.lengths = [*state.lengths, *lengths][-POLICY_EPISODES:]
        windows = window_returns(episodes, config.segment_length, config.short)
        state.worst = min(state.worst, float(windows.min(initial=0.0)))

    def _evaluate(self, *, over: bool = False) -> None:
        """Evaluate the current policy, without exploration, if an evaluation is due.

        A stable-baselines3 agent is also evaluated between two rollouts.

        Args:
            over: whether the run has ended.
        """
        evaluations = self.state.evaluations
        evaluator = self.parts.evaluator
        learner = self.parts.learner
        step = learner.steps
        last_step = evaluations[-1].step if evaluations else None
        if evaluator is None or not evaluator.due(step, last_step, over=over):
            return
        policy = learner.algorithm if isinstance(learner, SB3Learner) else learner
        evaluation = Evaluation(step, evaluator(policy))
        evaluations.append(evaluation)
        self.sink.log(evaluation.metrics(), step)
        if self.on_evaluation is not None:
            self.on_evaluation(evaluation)

    def _ask_round(self, number: int) -> QueryMetrics:
        """Ask the queries of an iteration; return how uncertain the reward was about them."""
        experience = self.state.experience
        if experience is None:
            raise DataError("No experience was recorded to ask about. Take more steps at a time.")
        plan = self.parts.plan
        recorded = self.state.warm_start.episodes
        self.repetition_guard.check(
            experience,
            plan[number].queries,
            asked=sum(planned.queries for planned in plan[: number + 1]),
            steps=self.parts.learner.steps + (0 if recorded is None else recorded.steps),
        )
        try:
            return self._choose_and_ask(experience, plan[number].queries)
        finally:  # if a person stops half-way, their answers count
            self._count_and_pass_on_answers()

    def _choose_and_ask(self, experience: Episodes, count: int) -> QueryMetrics:
        """Ask queries, and replace those that a script declines (B-Pref, section 3).

        Queries that a person declines are not replaced, because that would take more of the
        person's time than planned.
        """
        config = self.parts.config
        sampler = self.parts.sampler
        rng = self.state.rng
        metrics = QueryMetrics()
        feedback = self.parts.feedback
        script = feedback if isinstance(feedback, InstantFeedback) else None
        if script is not None:
            self._adapt_thresholds(script)
        replaces_declined = script is not None and not isinstance(script.teacher, SingleAnswers)
        for attempt in range(1 + ATTEMPTS if replaces_declined else 1):
            segment_count = segments_wanted(sampler, count, oversampling=config.oversampling)
            segments = sample_segments(
                experience, segment_count, config.segment_length, rng, short=config.short
            )
            pairs = check_pairs(sampler(segments, count, rng), len(segments))[:count]
            if attempt == 0:
                metrics = query_metrics(self.state.reward, segments, pairs)
            declined_before = 0 if script is None else script.declined
            self._hand_over(segments, pairs)
            count = 0 if script is None else script.declined - declined_before
            if count == 0:
                break
        return metrics

    def _adapt_thresholds(self, feedback: InstantFeedback) -> None:
        """Let a teacher's thresholds follow the policy (B-Pref, section 3)."""
        state = self.state
        if isinstance(feedback.teacher, Adapts) and state.returns:
            length = self.parts.config.segment_length
            share = min(length / float(np.mean(state.lengths)), 1.0)
            typical = float(np.mean(state.returns)) * share
            feedback.teacher = feedback.teacher.adapted(typical, state.worst)

    def _hand_over(self, segments: Segments, pairs: IntArray) -> None:
        """Ask queries, except those that this iteration already asked before a restart."""
        feedback = self.parts.feedback
        since = self.state.newest_query
        self.state.newest_query = None
        if since is not None and isinstance(feedback, LastingFeedback):
            feedback.ask_rest(segments, pairs, since=since)
        else:
            feedback.ask(segments, pairs[self._take_kept_answers(len(pairs)) :])

    def _take_kept_answers(self, most: float = float("inf")) -> int:
        """Give the feedback `most` answers from before a restart at most; return how many."""
        feedback = self.parts.feedback
        count = 0
        while self.kept_answers and count < most and isinstance(feedback, InstantFeedback):
            answers, feedback.rng = self.kept_answers.popleft()
            feedback.remember(answers)
            count += len(answers)
        return count

    def _answered(self) -> Answered | None:
        """Return all answers so far, those of the warm start first; None if there are none."""
        return all_answers(self.state.warm_start.comparisons, self.parts.feedback)

    def _count_and_pass_on_answers(self) -> None:
        """Count the answers so far, and call `on_answers` with them."""
        answered = self._answered()
        self.state.answer_count = 0 if answered is None else len(answered.comparisons)
        if answered is not None and self.on_answers is not None:
            self.on_answers(answered.comparisons)

    def _fit(self, answered: Answered | None) -> tuple[FitReport | None, Validation | None]:
        """Fit the reward to answers that are not held out, validate it, give it to the agent."""
        config = self.parts.config
        state = self.state
        trainer = self.parts.trainer
        if answered is None:  # all queries were declined, or are answered later
            return None, None
        queries, comparisons, _ = answered
        if state.reward is None and not comparisons.decided.any():
            LOGGER.info("No fit yet: %d answers are all ties.", len(comparisons))
            return None, None  # the agent acts on and sees new states
        joined = state.warm_start.comparisons is not None
        sets = split_answers(comparisons, config.validation, state.clip_sets, joined=joined)
        train = comparisons[sets == TRAIN]
        held_out = comparisons[sets == VALIDATION]
        bagged = has_out_of_bag(trainer.config, members=trainer.model.members)
        validation = held_out if len(held_out) and not bagged else None
        waits = trainer.config.penalty.band and not bagged and validation is None
        if not len(train) or waits:
            LOGGER.warning(
                "No fit yet: of %d answers %d are held out.", len(comparisons), len(held_out)
            )
            return None, None
        places = AnswerPlaces(state.bootstrap_queries)
        train, train_places = prepare_answers(
            train,
            queries[sets == TRAIN],
            places,
            config=config,
            trainer=trainer,
            reward=state.reward,
            experience=state.experience,
            rng=state.preparing,
        )
        state.bootstrap_queries = places.queries
        epochs = config.initial_epochs if state.reward is None else None
        report = trainer.fit(train, validation, places=train_places, epochs=epochs)
        self._give_reward(report.likelihood, comparisons)
        if not config.validation:
            return report, None
        return report, trainer.validate(held_out, report.likelihood)

    def _give_reward(self, likelihood: Likelihood, comparisons: Comparisons) -> None:
        """Give the agent the reward of the last fit, normalised, and relabel its experience."""
        config = self.parts.config
        state = self.state
        state.pessimism = config.pessimism_after(self.parts.learner.steps)
        reference = state.experience if config.reference == "experience" else None
        state.reward = agent_reward(
            self.parts.trainer.model,
            likelihood,
            comparisons.segments.episodes() if reference is None else reference,
            pessimism=state.pessimism,
            deviation=config.reward_deviation,
            centre=not self.length_guard.differ if config.centre is None else config.centre,
        )
        with self.stopwatch.part("relabelling"):
            self.parts.learner.set_reward(state.reward)

    def _has_true_reward(self) -> bool:
        """Return whether the environment ever gave a reward, even in steps that were dropped."""
        if any(report.has_true_reward for report in self.state.iterations):
            return True
        return self.state.experience is not None and self.state.experience.has_true_reward

    def _report(
        self,
        number: int,
        returns: FloatArray,
        *,
        metrics: QueryMetrics,
        fit: FitReport | None,
        validation: Validation | None,
    ) -> None:
        """Report an iteration: the returns of its whole episodes, and new findings."""
        state = self.state
        answered = self._answered() if self.parts.plan[number].queries else None
        ties, contradicted = ties_and_contradictions(answered and answered.comparisons)
        report = IterationReport(
            iteration=number,
            iterations=len(self.parts.plan) - 1,
            env_steps=self.parts.learner.steps,
            comparisons=state.answer_count,
            fit=fit,
            mean_return=float(returns.mean()) if len(returns) else float("nan"),
            episodes=len(returns),
            validation=validation,
            query_entropy=metrics.entropy,
            query_deviation=metrics.deviation,
            evaluation=state.evaluations[-1] if state.evaluations else None,
            ties=ties,
            contradicted=contradicted,
            has_true_reward=self._has_true_reward(),
            seconds=self.stopwatch.take(),
        )
        state.iterations.append(report)
        self.sink.log(report.metrics(), report.env_steps)
        for finding in findings(course_of(state.iterations, self.parts.config)):
            if finding.name not in state.findings:
                LOGGER.warning("%s: %s", finding.name, finding.in_words)
                state.findings.append(finding.name)
        if self.on_iteration is not None:
            self.on_iteration(report)

    def _resume(self, folder: Path) -> None:
        """Save the run in a folder from now on, and resume from a checkpoint there."""
        state = self.state
        feedback = self.parts.feedback
        if not isinstance(self.parts.learner, Resumable):
            raise ConfigError(
                "learner: expected methods `snapshot` and `restore`, which checkpoints need, got "
                f"{type(self.parts.learner).__name__}."
            )
        run = to_json(self.parts.config)
        if has_run(folder):
            self._restore(read_checkpoint(folder, run=run).state)
        self.journal = journal = AnswerJournal(folder / JOURNAL, len(state.iterations), run=run)
        state.warm_start = WarmStart(
            **journal.fixed(lambda: self.parts.read_warm_start()._asdict())
        )
        if isinstance(feedback, InstantFeedback):
            self.kept_answers.extend(journal.read())  # answers after the last checkpoint
            feedback.on_answers = lambda answers: journal.add(answers, feedback.rng)
        elif isinstance(feedback, LastingFeedback) and not state.iterations:
            state.newest_query = journal.begun(feedback.newest_query)

    def _save(self, seconds: float) -> None:
        """Write a checkpoint; remove the answers in it from the journal."""
        if self.journal is None:
            return
        state = self.state
        parts = self.parts
        feedback = parts.feedback
        newest_query = feedback.newest_query if isinstance(feedback, LastingFeedback) else None
        saved_state = vars(state) | {"seconds": seconds, "newest_query": newest_query}
        del saved_state["warm_start"]
        if state.reward is not None:  # the reward's model is the trainer's
            saved_state["reward"] = {
                "scaler": vars(state.reward.scaler),
                "likelihood": state.reward.likelihood.to_json(),
            }
        checkpoint = {
            "loop": saved_state,
            "learner": parts.learner.snapshot(),
            "feedback": feedback.snapshot() if isinstance(feedback, InstantFeedback) else None,
            "model": parts.trainer.model.state_dict(),
            "trainer": parts.trainer.snapshot(),
            "generators": global_generators(),
        }
        folder = self.journal.folder.parent
        write_checkpoint(folder, checkpoint, steps=parts.learner.steps, run=self.journal.run)
        self.journal.next_iteration(len(state.iterations))

    def _restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Continue from a checkpoint that `_save` wrote."""
        parts = self.parts
        parts.trainer.model.load_state_dict(checkpoint["model"])
        parts.trainer.restore(checkpoint["trainer"])
        own = checkpoint["loop"]
        reward = own.pop("reward")
        for name, value in own.items():
            setattr(self.state, name, value)
        self.length_guard.warned = self.state.lengths_warned
        if reward is not None:
            self.state.reward = agent_reward(
                parts.trainer.model,
                Likelihood(**reward["likelihood"]),
                RewardScaler(**reward["scaler"]),
                pessimism=self.state.pessimism,
            )
        parts.learner.restore(checkpoint["learner"], self.state.reward)
        if isinstance(parts.feedback, InstantFeedback):
            parts.feedback.restore(checkpoint["feedback"])
        restore_generators(checkpoint["generators"])


def window_returns(episodes: Episodes, length: int, short: Short = "drop") -> FloatArray:
    """Return the returns `[N]` of all windows of `length` steps of the episodes, in order.

    `short` decides about episodes that are shorter, as in `sample_segments`.

    >>> zeros = np.zeros((5, 1))
    >>> episodes = Episodes(zeros, zeros, np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.zeros(5, bool),
    ...                     zeros[:2], np.array([2, 3]))
    >>> window_returns(episodes, 2).tolist()
    [3.0, 12.0, 24.0]
    """
    windows = windows_of(episodes, length, short)
    before = np.cumsum(windows) - windows
    first = np.arange(windows.sum()) + np.repeat(episodes.starts - before, windows)
    last = np.minimum(first + length, np.repeat(episodes.ends, windows))
    total = np.append(0.0, np.cumsum(np.asarray(episodes.rewards, np.float64)))
    return np.asarray(total[last] - total[first])
