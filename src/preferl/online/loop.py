"""Act, ask, fit, switch rewards: learning while acting (Christiano et al. 2017, section 2.2)."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Protocol, final, runtime_checkable

import numpy as np

from preferl.aliases import accepts_former_names, present_method
from preferl.configs import to_json
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes, join
from preferl.data.segments import sample_segments
from preferl.errors import CheckpointError, ConfigError, DataError, FeedbackError
from preferl.feedback.instant import InstantFeedback
from preferl.feedback.likelihood import Likelihood, likelihood_of
from preferl.feedback.protocols import Feedback, LastingFeedback, PairSampler, Teacher
from preferl.feedback.schedule import PlannedIteration, Schedule, plan
from preferl.files import write_json, writing
from preferl.functional.preference import lower_bound, mean
from preferl.online.checkpoints.run_checkpoint import global_generators, restore_generators
from preferl.online.configs import OnlineConfig
from preferl.online.learner import PolicyLearner, SB3Learner, build_learner, build_trainer
from preferl.online.wrappers.feedback_config import LengthGuard
from preferl.online.wrappers.query_worker import build_sampler
from preferl.reading import read_object, reading
from preferl.reporting import MetricSink, Sinks
from preferl.training.checkpoint_folder import (
    ABOUT,
    JOURNAL,
    RESTORE,
    has_run,
    read_checkpoint,
    read_state,
    require_same,
    write_checkpoint,
    write_state,
)
from preferl.training.fit import FitReport
from preferl.training.reward_function import RewardFunction
from preferl.training.reward_trainer import RewardTrainer
from preferl.training.scaling import RewardScaler
from preferl.versioned import version_folder, versions

FORMAT: Final = 2
"""Of the loop's checkpoints: raised when what they hold changes, so that older ones are refused."""


@final
@dataclass(frozen=True)
class IterationReport:
    """What one round of act, ask and fit did.

    Attributes:
        iteration: its number; 0 came before the policy learned.
        iterations: number of the last one.
        env_steps: used so far.
        comparisons: answered so far.
        fit: of the reward model; None where nothing was asked.
        mean_return: of the iteration's whole episodes by the environment's reward, NaN without any.
        episodes: how many those were.
    """

    iteration: int
    iterations: int
    env_steps: int
    comparisons: int
    fit: FitReport | None
    mean_return: float
    episodes: int

    turn = property(attrgetter("iteration"), doc="Former name of `iteration`.")

    def metrics(self) -> dict[str, float]:
        """The numbers of this iteration for a metric sink."""
        values = {"policy/true_return": self.mean_return, "feedback/answers": self.comparisons}
        if self.fit is not None:
            last = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy")
            values |= {f"reward/{name}": getattr(self.fit, name)[-1] for name in last}
            values["reward/seconds"] = self.fit.seconds
        return values


@final
@dataclass(frozen=True, eq=False)
class OnlineReport:
    """What a run came to.

    Attributes:
        iterations: what each iteration did.
        reward: the last learned reward; None if the run ended before there was one.
        comparisons: all answers kept; None if there are none.
        env_steps: used in all, exploration included.
        seconds: wall time.
        interrupted: whether somebody stopped it early.
        learner: the agent that learned.
        experience: the latest episodes, as far as `buffer_steps` reaches.
    """

    iterations: tuple[IterationReport, ...]
    reward: RewardFunction | None
    comparisons: Comparisons | None
    env_steps: int
    seconds: float
    interrupted: bool
    learner: Any
    experience: Episodes | None

    turns = property(attrgetter("iterations"), doc="Former name of `iterations`.")


OnIteration = Callable[[IterationReport], None]
"""Called after each iteration."""

OnAnswers = Callable[[Comparisons], None]
"""Called with all answers whenever there are new ones, before they are learned from."""


@accepts_former_names
def learn_from_preferences(
    config: OnlineConfig,
    *,
    teacher: Teacher | None = None,
    feedback: Feedback | None = None,
    learner: PolicyLearner | None = None,
    trainer: RewardTrainer | None = None,
    sampler: PairSampler | None = None,
    schedule: Schedule | None = None,
    sink: MetricSink | None = None,
    on_iteration: OnIteration | None = None,
    on_answers: OnAnswers | None = None,
    checkpoints: Path | str | None = None,
) -> OnlineReport:
    """Teach an agent from comparisons; parts that are not given are built from the config.

    Ctrl-C ends the run after what is under way is put in order; the report notes it.

    Args:
        config: the whole run.
        teacher: answers instead of the config's scripted one.
        feedback: takes queries instead of an `InstantFeedback` around the teacher.
        learner: the agent.
        trainer: fits the reward.
        sampler: chooses queries.
        schedule: how densely to ask after each share of the run.
        sink: takes metrics, by environment step.
        on_iteration: called with the report of each iteration.
        on_answers: called with all answers when there are new ones, to keep them safe.
        checkpoints: folder in which the run is kept after each iteration. A run of the same
            settings resumes from there as if it had never stopped. Answers of the iteration under
            way are kept at once and not asked for again. Feedback of your own keeps its answers
            itself; if it is a `LastingFeedback`, it is not asked again either.

    Raises:
        CheckpointError: what is there is damaged, of other settings, or of an older version.
        ConfigError: settings that do not go together, or a learner without `snapshot` and
            `restore` where there are to be checkpoints.
        DataError: no episode is long enough for a clip, or lengths differ and the config refuses.
    """
    run = PreferenceLoop(config, teacher, feedback, learner, trainer, sampler, schedule)
    run.sink = sink or run.sink
    run.on_iteration, run.on_answers = on_iteration, on_answers
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
    ) -> None:
        self.config = config
        self.sampler = sampler or build_sampler(config, lambda: self.reward)
        self.plan = plan(
            steps=config.steps,
            queries=config.comparisons,
            iterations=config.iterations,
            schedule=schedule or config.schedule,
            initial_fraction=config.initial_fraction,
            initial_steps=config.initial_steps,
            oversampling=config.oversampling,
            sampler=self.sampler,
        )
        self.rng, answering, exploring = np.random.default_rng(config.seed).spawn(3)
        self.learner: Any = learner or build_learner(config, exploring)
        self.trainer = trainer or build_trainer(config, self.learner)
        self.feedback = feedback or InstantFeedback(
            teacher or config.teacher, answering, max_comparisons=config.max_comparisons
        )
        self.sink: MetricSink = Sinks()
        self.on_iteration: OnIteration | None = None
        self.on_answers: OnAnswers | None = None
        self.reward: RewardFunction | None = None
        self.experience: Episodes | None = None
        self.iterations: list[IterationReport] = []
        self.guard = LengthGuard(config.variable_length)
        self.shortest: int | None = None  # of episodes that ended, and of any
        self.longest = 0
        self.answers = 0
        self.seconds = 0.0  # of what was resumed
        self.journal: AnswerJournal | None = None  # beside the checkpoints
        self.given = 0  # answers of the iteration under way, before the interruption
        self.newest: int | None = None  # query of a lasting feedback when the iteration began

    def keep_in(self, folder: Path) -> None:
        """Save after each iteration, and go on from what is there."""
        expected = "one with `snapshot` and `restore`, since checkpoints are to be kept"
        got = type(self.learner).__name__
        ConfigError.check(isinstance(self.learner, Resumable), "learner", expected, got)
        run, feedback = to_json(self.config), self.feedback
        if has_run(folder):
            newest = version_folder(folder, versions(folder)[-1])
            with reading(newest, expected="a whole checkpoint", fix=RESTORE):
                found = read_object(newest / ABOUT)["run"].get("format", 1)
            what = f"format of the run in {folder}"
            fix = "Go on with the version of preferl that began it, or begin another run."
            CheckpointError.check(found == FORMAT, what, FORMAT, found, fix)
            self._restore(read_checkpoint(folder, run={"format": FORMAT} | run).state)
        self.journal = journal = AnswerJournal(folder / JOURNAL, len(self.iterations), run=run)
        if isinstance(feedback, InstantFeedback):
            before = feedback.asked
            for answers, feedback.rng in journal.read():  # that came after the last checkpoint
                feedback.remember(answers)
            self.given = feedback.asked - before
            feedback.on_answers = lambda new: journal.add(new, feedback.rng)
        elif isinstance(feedback, LastingFeedback) and not self.iterations:
            self.newest = journal.begun(feedback.newest)

    def through(self) -> OnlineReport:
        """Go through all iterations that are left, or until Ctrl-C."""
        began = time.perf_counter() - self.seconds
        interrupted = False
        try:
            for number in range(len(self.iterations), len(self.plan)):
                self._iterate(number, self.plan[number])
                self._save(time.perf_counter() - began)
        except KeyboardInterrupt:
            interrupted = True
        return OnlineReport(
            iterations=tuple(self.iterations),
            reward=self.reward,
            comparisons=self._comparisons(),
            env_steps=self.learner.steps,
            seconds=time.perf_counter() - began,
            interrupted=interrupted,
            learner=self.learner,
            experience=self.experience,
        )

    def _save(self, seconds: float) -> None:
        """Write what later iterations depend on; answers leave the journal."""
        if self.journal is None:
            return
        feedback, scaler = self.feedback, self.reward.scaler if self.reward else None
        state = {
            "turns": self.iterations,
            "answers": self.answers,
            "lengths": {"shortest": self.shortest, "longest": self.longest},
            "warned": self.guard.warned,
            "experience": self.experience,
            "rng": self.rng,
            "learner": self.learner.snapshot(),
            "feedback": feedback.snapshot() if isinstance(feedback, InstantFeedback) else None,
            "newest": feedback.newest if isinstance(feedback, LastingFeedback) else None,
            "model": self.trainer.model.state_dict(),
            "trainer": self.trainer.snapshot(),
            "rewarded": self.reward is not None,
            "scaler": None if scaler is None else vars(scaler),
            "likelihood": likelihood_of(self.reward).to_json(),
            "generators": global_generators(),
            "seconds": seconds,
        }
        run = {"format": FORMAT} | to_json(self.config)
        write_checkpoint(self.journal.folder.parent, state, steps=self.learner.steps, run=run)
        self.journal.next_iteration(len(self.iterations))

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.iterations, self.guard.warned = list(state["turns"]), bool(state["warned"])
        self.shortest, self.longest = (state["lengths"][k] for k in ("shortest", "longest"))
        self.answers, self.seconds = int(state["answers"]), float(state["seconds"])
        self.experience, self.rng = state["experience"], state["rng"]
        self.trainer.model.load_state_dict(state["model"])
        self.trainer.restore(state["trainer"])
        if state["rewarded"]:  # by the model as the last fit left it
            scaler = None if state["scaler"] is None else RewardScaler(**state["scaler"])
            self.reward = self._reward(Likelihood(**state["likelihood"]), scaler)
        self.learner.restore(state["learner"], self.reward)
        if isinstance(self.feedback, InstantFeedback):
            self.feedback.restore(state["feedback"])
        self.newest = state["newest"]
        restore_generators(state["generators"])

    def _iterate(self, number: int, planned: PlannedIteration) -> None:
        """One round of act, ask and fit."""
        episodes = (self.learner.learn if number else self.learner.explore)(planned.steps)
        self._remember(episodes)
        fit = self._ask_and_fit(planned, first=number == 0) if planned.queries else None
        whole = episodes.lengths >= self.longest
        report = IterationReport(
            iteration=number,
            iterations=len(self.plan) - 1,
            env_steps=self.learner.steps,
            comparisons=self.answers,
            fit=fit,
            mean_return=float(episodes.returns[whole].mean()) if whole.any() else float("nan"),
            episodes=int(whole.sum()),
        )
        self.iterations.append(report)
        self.sink.log(report.metrics(), report.env_steps)
        if self.on_iteration:
            self.on_iteration(report)

    def _ask_and_fit(self, planned: PlannedIteration, *, first: bool) -> FitReport | None:
        config = self.config
        if self.experience is None:
            raise DataError("No experience was recorded to ask about. Take more steps at a time.")
        segments = sample_segments(
            self.experience, planned.candidates, config.segment_length, self.rng, short=config.short
        )
        pairs = self.sampler(segments, planned.queries, self.rng)
        try:  # what was asked before an interruption in the same iteration is not asked again
            if self.newest is not None and isinstance(self.feedback, LastingFeedback):
                self.feedback.ask_rest(segments, pairs, since=self.newest)
            else:
                self.feedback.ask(segments, pairs[self.given :])
            self.newest, self.given = None, 0
        finally:  # a person who stops half-way keeps what they answered
            comparisons = self._comparisons()
            self.answers = 0 if comparisons is None else len(comparisons)
            if comparisons is not None and self.on_answers:
                self.on_answers(comparisons)
        if comparisons is None:  # every query was declined, or is answered later
            return None
        report = self.trainer.fit(comparisons, epochs=config.initial_epochs if first else None)
        by_answers = config.reference == "answers"
        reference = comparisons.segments.episodes() if by_answers else self.experience
        self.reward = self._reward(report.likelihood).scaled(
            reference, target=config.reward_deviation, centre=config.centre
        )
        present_method(self.learner, "set_reward")(self.reward)
        return report

    def _reward(self, likelihood: Likelihood, scaler: RewardScaler | None = None) -> RewardFunction:
        """The trainer's model as it is now, as a reward."""
        model, pessimism = self.trainer.model, self.config.pessimism
        combine = lower_bound(pessimism) if pessimism else mean
        return RewardFunction(model, combine=combine, scaler=scaler, likelihood=likelihood)

    def _remember(self, episodes: Episodes) -> None:
        """Take in episodes: of a learner of your own whole ones, except for the last one."""
        if not len(episodes):
            return
        self.longest = max(self.longest, int(episodes.lengths.max()))
        ended = episodes.lengths[: len(episodes) - int(episodes.truncated[-1])].tolist()
        self.shortest = min([*ended, *([self.shortest] if self.shortest else [])], default=None)
        learner, limit = self.learner, self.config.segment_length
        of = learner.env.core.recording if isinstance(learner, SB3Learner) else self
        more = f" {(episodes.lengths < limit).sum()} of {len(episodes)} episodes "
        more += f"are shorter than a clip ({self.config.short!r})."
        self.guard.check(of.shortest, of.longest, more)
        known = episodes if self.experience is None else join([self.experience, episodes])
        recent = known.steps - known.ends < self.config.buffer_steps  # by the steps that came after
        self.experience = known if recent.all() else known[recent]

    def _comparisons(self) -> Comparisons | None:
        with suppress(FeedbackError):
            return self.feedback.comparisons()
        return None


@final
@dataclass
class AnswerJournal:
    """Keeps answers that no checkpoint holds, each on the disk before the next query is put.

    They lie in a folder per iteration, in their order. Those of another `run` are refused.
    """

    folder: Path
    iteration: int
    run: dict[str, Any]

    @property
    def place(self) -> Path:
        """Folder of the answers of this iteration."""
        return version_folder(self.folder, self.iteration)

    def add(self, answers: Comparisons, rng: np.random.Generator) -> None:
        """Write answers, declined ones as NaN, and the teacher's draws after them, to the disk."""
        number = max(versions(self.place), default=0) + 1
        with writing(version_folder(self.place, number), durable=True) as draft:
            draft.mkdir()
            write_state(draft, {"answers": answers.compact(), "rng": rng, "run": self.run})

    def read(self) -> Iterator[tuple[Comparisons, np.random.Generator]]:
        """What was added in this iteration, in its order."""
        for number in versions(self.place):
            path = version_folder(self.place, number)
            state = read_state(path)
            require_same(path, state["run"], self.run)
            yield state["answers"], state["rng"]

    def next_iteration(self, iteration: int) -> None:
        """Forget earlier ones, which a checkpoint holds."""
        for earlier in versions(self.folder):
            if earlier < iteration:
                shutil.rmtree(version_folder(self.folder, earlier), ignore_errors=True)
        self.iteration = iteration

    def begun(self, newest: int) -> int | None:
        """The newest query of a lasting feedback when the run began; None, and noted, if now."""
        path = self.folder / "begun.json"
        if not path.is_file():
            write_json(path, {"newest": newest, "run": self.run}, durable=True)
            return None
        with reading(path, expected="a note", fix=RESTORE):
            noted = read_object(path)
            require_same(path, noted["run"], self.run)
            return int(noted["newest"])
