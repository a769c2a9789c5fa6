"""Act, ask, fit, switch rewards: learning while acting (Christiano et al. 2017, section 2.2)."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol, final, runtime_checkable

import numpy as np

from preferl.configs import to_json
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes, join
from preferl.data.validation import TRAIN, VALIDATION
from preferl.envs.config import EnvSource
from preferl.envs.factory import env_factory
from preferl.errors import CheckpointError, ConfigError, DataError, require_in
from preferl.evaluation.findings import ties_and_contradictions
from preferl.feedback.instant import InstantFeedback
from preferl.feedback.likelihood import Likelihood, likelihood_of
from preferl.feedback.protocols import Feedback, LastingFeedback, PairSampler, Teacher
from preferl.feedback.schedule import PlannedIteration, Schedule, plan
from preferl.models.spaces import check_spaces
from preferl.online.answers import (
    FixedData,
    LearningSet,
    QueryMetrics,
    latest,
    load_fixed,
)
from preferl.online.checkpoints.answer_journal import AnswerJournal
from preferl.online.configs import OnlineConfig
from preferl.online.evaluations import AgentEvaluations, OnEvaluation
from preferl.online.learner import (
    PolicyLearner,
    RecordedExperience,
    SB3Learner,
    build_learner,
    build_trainer,
)
from preferl.online.methods.asking import QueryRounds
from preferl.online.methods.preparing import PreparedAnswers
from preferl.online.reports import FindingLog, IterationReport, OnlineReport, Stopwatch
from preferl.online.wrappers.feedback_config import LengthGuard, RepetitionGuard
from preferl.online.wrappers.query_worker import build_sampler
from preferl.printing import get_logger
from preferl.reading import read_object, reading
from preferl.reporting import MetricSink, Sinks
from preferl.runs.versioned import version_folder, versions
from preferl.store.feedback import Answered
from preferl.training.checkpoint_folder import (
    ABOUT,
    JOURNAL,
    RESTORE,
    has_run,
    read_checkpoint,
    write_checkpoint,
)
from preferl.training.configs import has_out_of_bag
from preferl.training.fit_report import FitReport, Validation
from preferl.training.generators import global_generators, restore_generators
from preferl.training.reward_function import RewardFunction, agent_reward
from preferl.training.reward_trainer import RewardTrainer
from preferl.training.scaling import RewardScaler

LOGGER = get_logger(__name__)

FORMAT: Final = 1
"""Version of what the loop's checkpoints hold; checkpoints of another one are refused."""

OnIteration = Callable[[IterationReport], None]
"""Called after each iteration."""

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
    """Teach an agent from comparisons; parts that are not given are built from the config.

    With `steps=0` and `initial_steps=0` no agent acts, and no environment is made: queries are
    about the recorded `episodes` alone, and the report has the reward.

    Ctrl-C ends the run after what is under way is put in order; the report notes it.

    Args:
        config: the whole run.
        teacher: answers instead of the config's scripted one.
        feedback: takes queries instead of an `InstantFeedback` around the teacher.
        learner: the agent.
        trainer: fits the reward.
        sampler: chooses queries.
        schedule: how densely to ask after each share of the run.
        comparisons: answers that exist already, to learn from together with new ones; beside those
            of the config's `warm_start`.
        episodes: recorded ones that queries may be about, too, likewise.
        sink: takes metrics, by environment step.
        on_iteration: called with the report of each iteration.
        on_answers: called with all answers when there are new ones, to keep them safe.
        on_evaluation: called after each evaluation of the policy (`config.eval_every`).
        eval_env: id or function that makes the environment of these evaluations; None takes the
            config's, and beside a learner of your own evaluates nothing.
        checkpoints: folder in which the run is kept after each iteration. A run of the same
            settings resumes from there as if it had never stopped. Answers of the iteration under
            way are kept at once and not asked for again. Feedback of your own keeps its answers
            itself; if it is a `LastingFeedback`, it is not asked again either.

    Raises:
        CheckpointError: what is there is damaged, of other settings, or of an older version.
        ConfigError: settings that do not go together, or a learner without `snapshot` and
            `restore` where there are to be checkpoints.
        DataError: no episode is long enough for a clip, lengths differ and the config refuses, or
            data of a warm start that cannot be read.
        SpaceError: comparisons or episodes of other spaces than the agent's.
    """
    run = PreferenceLoop(
        *(config, teacher, feedback, learner, trainer, sampler, schedule),
        data=(comparisons, episodes),
        eval_env=eval_env,
    )
    run.sink = sink or run.sink
    run.on_iteration = on_iteration
    run.on_answers = on_answers
    run.evaluations.on_evaluation = on_evaluation
    if checkpoints is not None:
        run.keep_in(Path(checkpoints))
    return run.through()


@runtime_checkable
class Resumable(Protocol):
    """A learner that can go on in another program."""

    def snapshot(self) -> dict[str, Any]:
        """Everything that it depends on between two calls: what `write_state` takes."""

    def restore(self, snapshot: Mapping[str, Any], reward: RewardFunction | None) -> None:
        """Go on from there with `reward`."""


@final
class PreferenceLoop:
    """The parts of a run, see `learn_from_preferences`, and what it has come to so far.

    Building it refuses settings that do not go together, before a folder is touched.
    """

    def __init__(
        self,
        config: OnlineConfig,
        teacher: Teacher | None = None,
        feedback: Feedback | None = None,
        learner: PolicyLearner | None = None,
        trainer: RewardTrainer | None = None,
        sampler: PairSampler | None = None,
        schedule: Schedule | None = None,
        data: tuple[Comparisons | None, Episodes | None] = (None, None),
        eval_env: EnvSource | None = None,
    ) -> None:
        self.config = config
        self.data = data
        given = config.warm_start.given or data[0] is not None
        fix = "Ask at least one query, or give comparisons to learn from."
        require_in("comparisons", config.comparisons, 0 if given else 1, float("inf"), fix=fix)
        self.sampler = sampler or build_sampler(
            config, lambda: self.reward, lambda: self.learning.comparisons()
        )
        self.plan = plan(
            steps=config.steps,
            queries=config.comparisons,
            iterations=config.iterations,
            schedule=schedule or config.schedule,
            initial_fraction=config.initial_fraction,
            initial_steps=config.initial_steps,
            final_queries=config.final_queries,
            oversampling=config.oversampling,
            sampler=self.sampler,
        )
        rngs = np.random.default_rng(config.seed).spawn(4)
        self.rng, answering, exploring, preparing = rngs
        self.fixed: FixedData | None = None
        self.learner: Any = learner
        if learner is None and config.steps == 0:
            self.fixed = load_fixed(config, *data)
            self.learner = RecordedExperience(self.fixed.comparisons, self.fixed.episodes)
            if config.comparisons and self.fixed.episodes is None:
                raise ConfigError(
                    f"{config.comparisons} comparisons of a run without steps are about recorded "
                    "episodes, and there are none. Pass episodes=, or take steps."
                )
        elif learner is None:
            self.learner = build_learner(config, exploring)
        self.trainer = trainer or build_trainer(config, self.learner)
        self.feedback = feedback or InstantFeedback(
            teacher or config.teacher, answering, max_comparisons=config.max_comparisons
        )
        self.rounds = QueryRounds(config, self.feedback, self.sampler)
        self.learning = LearningSet(self.feedback, config.validation)
        self.prepared = PreparedAnswers(config, self.trainer, preparing)
        where = eval_env
        if eval_env is None and learner is None and config.steps:
            where = env_factory(config)
        self.evaluations = AgentEvaluations(config, self.learner, where)
        self.sink: MetricSink = Sinks()
        self.on_iteration: OnIteration | None = None
        self.on_answers: OnAnswers | None = None
        self.reward: RewardFunction | None = None
        self.pessimism = config.pessimism  # of that reward
        self.experience: Episodes | None = None
        self.iterations: list[IterationReport] = []
        self.guard = LengthGuard(config.variable_length)
        self.repetitions = RepetitionGuard(config)
        self.timed = Stopwatch()
        self.findings = FindingLog(config)
        self.shortest: int | None = None  # of episodes that ended, and of any
        self.longest = 0
        self.answers = 0
        self.seconds = 0.0  # of what was resumed
        self.journal: AnswerJournal | None = None  # beside the checkpoints

    def keep_in(self, folder: Path) -> None:
        """Save after each iteration, and go on from what is there."""
        if not isinstance(self.learner, Resumable):
            raise ConfigError(
                "learner: expected one with `snapshot` and `restore`, since checkpoints are to "
                f"be kept, got {type(self.learner).__name__}."
            )
        run = to_json(self.config)
        feedback = self.feedback
        if has_run(folder):
            newest = version_folder(folder, versions(folder)[-1])
            with reading(newest, expected="a whole checkpoint", fix=RESTORE):
                found = read_object(newest / ABOUT)["run"].get("format")
            if found != FORMAT:
                raise CheckpointError(
                    f"format of the run in {folder}: expected {FORMAT}, got {found}. Go on with "
                    "the version of preferl that began it, or begin another run."
                )
            self._restore(read_checkpoint(folder, run={"format": FORMAT} | run).state)
        self.journal = journal = AnswerJournal(folder / JOURNAL, len(self.iterations), run=run)
        self.fixed = FixedData(**journal.fixed(lambda: self.load()._asdict()))
        if isinstance(feedback, InstantFeedback):
            self.rounds.given.extend(journal.read())  # that came after the last checkpoint
            feedback.on_answers = lambda new: journal.add(new, feedback.rng)
        elif isinstance(feedback, LastingFeedback) and not self.iterations:
            self.rounds.newest = journal.begun(feedback.newest)

    def load(self) -> FixedData:
        """Read the data of a warm start, once; raises as `load_fixed`, and `SpaceError`."""
        if self.fixed is None:
            self.fixed = load_fixed(self.config, *self.data)
        comparisons, episodes = self.fixed
        clips = None if comparisons is None else comparisons.segments
        for what, held in {"given comparisons": clips, "given episodes": episodes}.items():
            if held is not None:
                model = self.trainer.model
                steps = (held.observations, held.actions)
                check_spaces(model.observation_space, model.action_space, *steps, what=what)
        return self.fixed

    def through(self) -> OnlineReport:
        """Go through all iterations that are left, or until Ctrl-C."""
        with self.threads():
            return self._through()

    def threads(self) -> AbstractContextManager[None]:
        """Let the agent take one processor thread inside a block if its policy is small.

        Fits of a large reward model have all threads there.
        """
        return self.learner.threads() if isinstance(self.learner, SB3Learner) else nullcontext()

    def _through(self) -> OnlineReport:
        began = time.perf_counter() - self.seconds
        self.learning.fixed, episodes = self.load()
        if not self.iterations:
            self.experience = episodes
        if isinstance(self.learner, RecordedExperience) and episodes is not None:
            self.shortest = int(episodes.lengths.min())
            self.longest = int(episodes.lengths.max())
        interrupted = False
        self.evaluations.sink = self.sink
        if isinstance(self.learner, SB3Learner):
            self.learner.report_to(self.sink)
        try:
            for number in range(len(self.iterations), len(self.plan)):
                self._iterate(number, self.plan[number])
                self._save(time.perf_counter() - began)
        except KeyboardInterrupt:
            interrupted = True
            self.rounds.remember()
        return OnlineReport(
            iterations=tuple(self.iterations),
            reward=self.reward,
            comparisons=self.learning.comparisons(),
            env_steps=self.learner.steps,
            seconds=time.perf_counter() - began,
            interrupted=interrupted,
            learner=None if isinstance(self.learner, RecordedExperience) else self.learner,
            experience=self.experience,
            evaluations=tuple(self.evaluations.made),
            findings=self.findings.found(self.iterations),
        )

    def _save(self, seconds: float) -> None:
        """Write what later iterations depend on; answers leave the journal."""
        if self.journal is None:
            return
        feedback = self.feedback
        scaler = self.reward.scaler if self.reward else None
        state = {
            "iterations": self.iterations,
            "evaluations": self.evaluations.made,
            "answers": self.answers,
            "clips": self.learning.of_clip,
            "lengths": {"shortest": self.shortest, "longest": self.longest},
            "warned": self.guard.warned,
            "experience": self.experience,
            "policy": self.rounds.snapshot(),
            "rng": self.rng,
            "learner": self.learner.snapshot(),
            "feedback": feedback.snapshot() if isinstance(feedback, InstantFeedback) else None,
            "newest": feedback.newest if isinstance(feedback, LastingFeedback) else None,
            "model": self.trainer.model.state_dict(),
            "trainer": self.trainer.snapshot(),
            "rewarded": self.reward is not None,
            "scaler": None if scaler is None else vars(scaler),
            "likelihood": likelihood_of(self.reward).to_json(),
            "pessimism": self.pessimism,
            "prepared": self.prepared.snapshot(),
            "generators": global_generators(),
            "seconds": seconds,
        }
        run = {"format": FORMAT} | to_json(self.config)
        write_checkpoint(self.journal.folder.parent, state, steps=self.learner.steps, run=run)
        self.journal.next_iteration(len(self.iterations))

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.iterations = list(state["iterations"])
        self.guard.warned = bool(state["warned"])
        self.evaluations.made = list(state["evaluations"])
        self.shortest, self.longest = (state["lengths"][k] for k in ("shortest", "longest"))
        self.answers = int(state["answers"])
        self.seconds = float(state["seconds"])
        self.learning.of_clip = dict(state["clips"])
        self.experience = state["experience"]
        self.rng = state["rng"]
        self.trainer.model.load_state_dict(state["model"])
        self.trainer.restore(state["trainer"])
        self.pessimism = float(state["pessimism"])
        self.prepared.restore(state["prepared"])
        if state["rewarded"]:  # by the model as the last fit left it
            self.reward = agent_reward(
                self.trainer.model,
                Likelihood(**state["likelihood"]),
                RewardScaler(**state["scaler"]),
                pessimism=self.pessimism,
            )
        self.learner.restore(state["learner"], self.reward)
        if isinstance(self.feedback, InstantFeedback):
            self.feedback.restore(state["feedback"])
        self.rounds.newest = state["newest"]
        self.rounds.restore(state["policy"])
        restore_generators(state["generators"])

    def _iterate(self, number: int, planned: PlannedIteration) -> None:
        """One round of act, ask and fit; a warm start is learned from before."""
        fit = None
        validation = None
        metrics = QueryMetrics()
        ties = contradicted = float("nan")
        if number == 0 and self.learning.fixed is not None:
            self._keep_answers()
            fit, validation = self.timed("fitting", self._fit, self.learning.given)
        act = self.learner.learn if number else self.learner.explore
        episodes = self.timed("acting", act, planned.steps)
        self._remember(episodes)
        if isinstance(self.learner, SB3Learner):
            whole = self.learner.env.core.recording.whole
        else:  # of a learner of one's own, those that a time limit or we have cut look the same
            whole = ~episodes.truncated[episodes.ends - 1] | (episodes.lengths >= self.longest)
        self.rounds.see(episodes, whole)
        self.evaluations.offer(over=number == len(self.plan) - 1)
        if planned.queries:
            metrics = self.timed("asking", self._ask, number, planned)
            answered = self.learning.answered()
            ties, contradicted = ties_and_contradictions(answered and answered.comparisons)
            fit, validation = self.timed("fitting", self._fit, answered)
        report = IterationReport(
            iteration=number,
            iterations=len(self.plan) - 1,
            env_steps=self.learner.steps,
            comparisons=self.answers,
            fit=fit,
            mean_return=float(episodes.returns[whole].mean()) if whole.any() else float("nan"),
            episodes=int(whole.sum()),
            validation=validation,
            query_entropy=metrics.entropy,
            query_deviation=metrics.deviation,
            evaluation=self.evaluations.latest,
            ties=ties,
            contradicted=contradicted,
            has_true_reward=self._has_true_reward(),
            seconds=self.timed.take(),
        )
        self.iterations.append(report)
        self.sink.log(report.metrics(), report.env_steps)
        self.findings.check(self.iterations)
        if self.on_iteration:
            self.on_iteration(report)

    def _has_true_reward(self) -> bool:
        """Whether the environment's reward has differed, also in steps that are kept no more."""
        if any(report.has_true_reward for report in self.iterations):
            return True
        return self.experience is not None and self.experience.has_true_reward

    def _ask(self, number: int, planned: PlannedIteration) -> QueryMetrics:
        """Put the queries of an iteration; what the reward in use expects of their answers."""
        experience = self.experience
        if experience is None:
            raise DataError("No experience was recorded to ask about. Take more steps at a time.")
        recorded = self.fixed.episodes if self.fixed else None
        self.repetitions.check(
            *(experience, planned.queries),
            asked=sum(one.queries for one in self.plan[: number + 1]),
            steps=self.learner.steps + (recorded.steps if recorded else 0),
        )
        try:
            return self.rounds.put(experience, planned.queries, self.rng, self.reward)
        finally:  # a person who stops half-way keeps what they answered
            self._keep_answers()

    def _keep_answers(self) -> None:
        comparisons = self.learning.comparisons()
        self.answers = 0 if comparisons is None else len(comparisons)
        if comparisons is not None and self.on_answers:
            self.on_answers(comparisons)

    def _fit(self, answered: Answered | None) -> tuple[FitReport | None, Validation | None]:
        """Fit the reward to answers that are not held out, validate it and give it to the agent."""
        config = self.config
        if answered is None:  # every query was declined, or is answered later
            return None, None
        queries, comparisons, _ = answered
        if self.reward is None and not comparisons.decided.any():
            LOGGER.info("No fit yet: %d answers are all ties.", len(comparisons))
            return None, None  # the agent goes on to see new states
        sets = self.learning.split(comparisons)
        train = comparisons[sets == TRAIN]
        held_out = comparisons[sets == VALIDATION]
        bagged = has_out_of_bag(self.trainer.config, members=self.trainer.model.members)
        validation = held_out if len(held_out) and not bagged else None
        waits = self.trainer.config.penalty.band and not bagged and validation is None
        if not len(train) or waits:
            LOGGER.warning(
                "No fit yet: of %d answers %d are held out.", len(comparisons), len(held_out)
            )
            return None, None
        epochs = config.initial_epochs if self.reward is None else None
        train, places = self.prepared(train, queries[sets == TRAIN], self.reward, self.experience)
        report = self.trainer.fit(train, validation, places=places, epochs=epochs)
        self.pessimism = config.pessimism_after(self.learner.steps)
        by_answers = config.reference == "answers"
        clips = comparisons.segments.episodes()
        self.reward = agent_reward(
            self.trainer.model,
            report.likelihood,
            clips if by_answers or self.experience is None else self.experience,
            pessimism=self.pessimism,
            deviation=config.reward_deviation,
            centre=not self.guard.differ if config.centre is None else config.centre,
        )
        self.timed("relabelling", self.learner.set_reward, self.reward)
        if not config.validation:
            return report, None
        return report, self.trainer.validate(held_out, report.likelihood)

    def _remember(self, episodes: Episodes) -> None:
        """Take in episodes: of a learner of your own whole ones, except for the last one."""
        self.longest = max(self.longest, int(episodes.lengths.max(initial=0)))
        ended = episodes.lengths[: len(episodes) - int(episodes.truncated[-1:].sum())].tolist()
        self.shortest = min([*ended, *([self.shortest] if self.shortest else [])], default=None)
        learner = self.learner
        limit = self.config.segment_length
        of = learner.env.core.recording if isinstance(learner, SB3Learner) else self
        more = f" {(episodes.lengths < limit).sum()} of {len(episodes)} episodes "
        more += f"are shorter than a clip ({self.config.short!r})."
        self.guard.check(of.shortest, of.longest, more)  # also after a run went on without steps
        if len(episodes):
            known = episodes if self.experience is None else join([self.experience, episodes])
            self.experience = latest(known, self.config.buffer_steps)
