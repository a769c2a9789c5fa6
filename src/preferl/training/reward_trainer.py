"""Fits any reward model, with any number of members, to comparisons and ratings.

Christiano et al. 2017, "Deep Reinforcement Learning from Human Preferences", section 2.2.3. A fit
makes epochs of gradient steps on the cross-entropy of answers, with a bootstrap for each member.
Ratings and outcomes of single clips are further answers (`preferl.functional.ordinal`). A fit
stops when the loss on held-out answers, or else on out-of-bag answers, stops falling. Then the
likelihood is calibrated on out-of-bag answers, or else on held-out answers.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from preferl.configs import to_json
from preferl.data.arrays import content_id
from preferl.data.comparisons import Comparisons
from preferl.data.content import compared_ids, pair_numbers
from preferl.data.implied import with_implied
from preferl.data.ratings import Ratings
from preferl.errors import ConfigError, DataError, require_in
from preferl.feedback.likelihood import Likelihood
from preferl.functional.preference import (
    preference_accuracy,
    preference_logits,
    preference_loss,
    preference_probability,
)
from preferl.models.base import RewardModel
from preferl.models.folder import require_converged, require_finite
from preferl.reading import reading
from preferl.registry import LOSSES
from preferl.shapes import BoolArray, FloatArray, IntArray, leaves
from preferl.threads import is_small, threads_for
from preferl.training.annotator_trust import AnnotatorTrust, Trust, fit_trust
from preferl.training.batches import (
    Answers,
    AnyWindows,
    Crop,
    JoinedWindows,
    Windows,
    crop_pairs,
    draw_crops,
    gather_windows,
    validation_batch,
)
from preferl.training.calibration import (
    MOST_EXPECTED,
    UNKNOWN_NOISE,
    expected_noise,
    fit_likelihood,
)
from preferl.training.checkpoint_folder import (
    has_run,
    read_checkpoint,
    read_state,
    saved_in_states,
    write_checkpoint,
    write_state,
)
from preferl.training.configs import RewardTrainerConfig, require_validation, usable_device
from preferl.training.distributed import ALONE, World
from preferl.training.fit_report import FitReport, RatingFit, Validation
from preferl.training.recorded import RecordedUpdate
from preferl.training.thresholds import Thresholds, bound_places

OnEpoch = Callable[[int, dict[str, float]], None]
"""Called after each epoch with its number, from 1, and its metrics."""

SECONDS: Final = 60.0
"""Seconds between two checkpoints.

A checkpoint takes tens of milliseconds, less than a thousandth of a minute. A killed program loses
a minute at most, or an epoch if an epoch takes longer.
"""

RECORDABLE_LOSSES: Final = ("cross_entropy", "squared_error")
"""Losses of answers that a GPU can replay as a graph. Other losses may do what a graph cannot."""

MOST_PAIRS: Final = 1_000_000
"""Most pairs that a model remembers as fitted, 8 bytes each. Of more, a random part is kept."""

RATINGS_STREAM: Final = 0x4A7E
"""Stream of the bootstraps of ratings; with a separate stream, those of comparisons stay equal."""

TRAINER: Final = "trainer"
"""Name of the folder of a trainer's state, beside its model."""


@final
class FitCheckpoints:
    """A folder in which a fit is saved between epochs, and from which it resumes.

    On the same machine, with the same packages and number of processes, a resumed fit ends with the
    same numbers to the last bit as a fit without an interruption. Only the first process writes.

    Args:
        folder: folder for the checkpoints of a single fit; created if missing.
        seconds: least seconds between two checkpoints; 0 saves every epoch.
        last: whether the last epoch is always saved; needed if other fits follow this one.

    Raises:
        ConfigError: `seconds` is negative.
    """

    def __init__(self, folder: Path | str, *, seconds: float = SECONDS, last: bool = False) -> None:
        require_in("seconds", seconds, 0, float("inf"))
        self.folder = Path(folder)
        self._seconds = seconds
        self._last = last
        self._written = time.monotonic()

    def is_due(self, over: bool) -> bool:
        """Whether the last checkpoint is old enough, or the fit is `over` and has to be saved."""
        return (self._last and over) or time.monotonic() - self._written >= self._seconds

    def write(self, state: "FitState", run: Mapping[str, Any]) -> None:
        """Write a checkpoint of a fit, see `write_checkpoint`."""
        write_checkpoint(self.folder, state, steps=len(state.history), run=run)
        self._written = time.monotonic()

    def within(self, name: str) -> "FitCheckpoints":
        """Return checkpoints for one of several fits, in a separate folder inside this one."""
        return FitCheckpoints(self.folder / name, seconds=self._seconds, last=True)

    def remove(self) -> None:
        """Remove the folder, when the fitted reward has been saved."""
        shutil.rmtree(self.folder, ignore_errors=True)


@final
@saved_in_states
@dataclass(eq=False)
class FitState:
    """The state of a fit between two epochs, on which later epochs depend: its checkpoint.

    `model`, `trainer` and `dropout` are filled in only for a checkpoint. In a running fit, the
    model, the trainer and torch hold these numbers themselves.

    Attributes:
        model: the model's numbers.
        trainer: the result of `RewardTrainer.snapshot`.
        dropout: state of the stream from which dropout draws.
        history: metrics of each epoch so far.
        updates: optimiser steps so far.
        best_loss: the least loss on unseen answers.
        best_epoch: epoch with the least loss; the latest epoch if there are no unseen answers.
        best_model: the model's numbers after `best_epoch`, if the fit keeps them.
        best_numbers: trust and thresholds after `best_epoch`, if the fit keeps them.
        over: whether all epochs are made, or the fit has stopped early.
        seconds: wall time so far.
    """

    model: Mapping[str, Tensor] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    dropout: Tensor = field(default_factory=lambda: torch.empty(0))
    history: list[dict[str, float]] = field(default_factory=list)
    updates: int = 0
    best_loss: float = float("inf")
    best_epoch: int = 0
    best_model: Mapping[str, Tensor] | None = None
    best_numbers: Mapping[str, Any] | None = None
    over: bool = False
    seconds: float = 0.0


@final
@dataclass(frozen=True, eq=False)
class FitData:
    """The data of one fit, for training and validation; they stay the same in all epochs.

    Attributes:
        train: comparisons to learn from, including implied answers.
        rated: ratings and outcomes to learn from, or None.
        validation: held-out answers, or None.
        pairs: number of comparisons that were given, not counting pseudo-labels and implied
            answers.
        epochs: most epochs to make.
        windows: clips of `train` and `rated`.
        answers: answers of `train`, then of `rated`, weighted by the members' bootstraps.
        given: `[P]` true for answers, false for pseudo-labels.
        soft: `[P]` true for soft labels.
        out_of_bag: clips and answers that a member's bootstrap left out; None if there are none.
        held_out: clips and answers of `validation`, or None.
        seed: seed of dropout.
        graphs: updates that a GPU replays, by the number of answers in a batch.
    """

    train: Comparisons
    rated: Ratings | None
    validation: Comparisons | None
    pairs: int
    epochs: int
    windows: AnyWindows
    answers: Answers
    given: Tensor
    soft: BoolArray
    out_of_bag: tuple[AnyWindows, Answers] | None
    held_out: tuple[AnyWindows, Answers] | None
    seed: int
    graphs: dict[int, RecordedUpdate] = field(default_factory=dict)

    @property
    def mean_weight(self) -> float:
        """The mean weight of all answers; a rating weighs 1."""
        ratings = len(self.answers) - len(self.train)
        return float(self.train.weight.sum() + ratings) / len(self.answers)

    @property
    def unseen(self) -> tuple[AnyWindows, Answers] | None:
        """Clips and answers that validate each epoch."""
        return self.held_out or self.out_of_bag

    @property
    def calibrating(self) -> tuple[AnyWindows, Answers] | None:
        """Clips and answers to which the likelihood is fitted.

        Out-of-bag answers come first: if others are held out, no epoch is chosen by out-of-bag
        answers.
        """
        return self.out_of_bag or self.held_out


@final
class RewardTrainer:
    """One trainer for every model: pairs, members and bootstraps are axes.

    The trainer keeps its optimiser with all moments, so that a fit to more comparisons continues
    where the last fit ended. It never reads the environment's rewards.

    Args:
        model: model to train in place; it is moved to `device`.
        config: settings of each fit; the defaults if None.
        seed: seed of bootstraps, the order of pairs, and dropout.
        device: `"cpu"`, `"cuda"`, or `"auto"` for a GPU if there is one.
        world: processes that share each fit; by default this process alone. All processes pass the
            same arguments, and make the same calls of `fit`. Their losses differ from those of a
            single process by rounding. With dropout, they also differ by which units are dropped.

    Raises:
        ConfigError: torch has no such device on this machine.
    """

    def __init__(
        self,
        model: RewardModel,
        config: RewardTrainerConfig | None = None,
        *,
        seed: int,
        device: str = "cpu",
        world: World = ALONE,
    ) -> None:
        self.config = config or RewardTrainerConfig()
        self.world = world
        self.model = model.to(usable_device(device))
        self._seed = seed
        self._order = torch.Generator().manual_seed(seed)
        self._initial = deepcopy(model.state_dict()) if self.config.restart else None
        self._forward = self._loss_and_logits
        if self.config.compile:
            self._forward = torch.compile(self._loss_and_logits)
        self._begin()

    def _begin(self) -> None:
        """Reset the optimiser, and everything else that fits change, to the settings."""
        device = self.model.device
        rate = self.config.learning_rate
        on_gpu = device.type == "cuda"
        self._optimiser = torch.optim.AdamW(
            self.model.parameters(),
            lr=torch.tensor(rate, device=device) if on_gpu else rate,  # a recorded graph reads it
            weight_decay=self.config.weight_decay,
            fused=True,
            capturable=on_gpu,
        )
        self.trust = AnnotatorTrust(device)
        self.thresholds = Thresholds(device)
        self._numbers = {"trust": self.trust.numbers, "thresholds": self.thresholds.numbers}
        self._penalty = self.config.penalty
        noise = self.config.noise
        self.set_noise(UNKNOWN_NOISE if noise == "fitted" else noise)

    def fit(
        self,
        train: Comparisons | None,
        validation: Comparisons | None = None,
        *,
        ratings: Ratings | None = None,
        places: IntArray | None = None,
        epochs: int | None = None,
        on_epoch: OnEpoch | None = None,
        checkpoints: FitCheckpoints | None = None,
    ) -> FitReport:
        """Train on comparisons and ratings. A small model takes one processor thread.

        Args:
            train: answers to learn from; declined answers do not count. None, or no answers, means
                a fit to ratings alone.
            validation: held-out answers, for early stopping and the choice of the best epoch.
            ratings: ratings and outcomes to learn from. Each counts as much as one comparison.
                Rated clips may differ in length from compared ones, and they are never cropped.
            places: `[P]`, the column of each answer in `bootstrap`; by default the order in
                `train`. With places, members keep their resamples if other answers are withdrawn.
                -1 marks a pseudo-label: every member trains on it, and it counts in no accuracy.
            epochs: most epochs, at least 1; those of the config if None.
            on_epoch: called with each epoch's number and metrics, only in the first process.
            checkpoints: where to save the fit between epochs; a fit that is there is resumed.

        Raises:
            CheckpointError: the checkpoint to resume from is damaged, or belongs to another fit.
            ConfigError: segments are longer than the model's context, there is less than one epoch,
                or a penalty's band has no answers to validate on. With several processes: they fit
                different data, or the model has batch normalisation.
            DataError: there are neither answered comparisons nor ratings.
            SpaceError: the steps' shapes differ from those that the model was built for.
        """
        epochs = self.config.epochs if epochs is None else epochs
        require_in("epochs", epochs, 1, float("inf"))
        if train is None and ratings is not None:
            train = Comparisons.none(ratings.segments)
        if train is None:
            raise DataError("a fit: expected comparisons or ratings, got neither.")
        places = None if places is None else places[train.answered]
        rated = None
        if ratings is None:
            train = _answered("comparisons to train on", train)
        else:
            train = train[train.answered].compact()
            rated = ratings.compact()
        if validation is not None:
            validation = _answered("validation comparisons", validation)
        places = np.arange(len(train)) if places is None else places
        self._require_fitting(train, validation, rated)
        if self._initial is not None:
            self.model.load_state_dict(self._initial)
            self.model.fitted_pairs = self.model.fitted_pairs[:0]
            self._begin()
        # Dropout draws from torch's global stream; the fork restores the caller's state.
        device = self.model.device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices), threads_for(small=self._is_small()):
            data = self._prepare(train, validation, rated, places, epochs)
            self._remember_pairs(data)
            return self._run(data, on_epoch, checkpoints)

    def _require_fitting(
        self, train: Comparisons, validation: Comparisons | None, rated: Ratings | None
    ) -> None:
        """Raise `ConfigError` if clips are too long, or there are no answers to validate on."""
        parts = (train, validation, rated)
        length = max(part.segments.length for part in parts if part is not None)
        context = self.model.context
        if 1 < context < length:
            raise ConfigError(
                f"segment length: expected at most the model's context {context}, got {length}. "
                "Give the model a longer context or cut shorter segments."
            )
        members = self.model.members
        require_validation(self.config, members=members, held_out=validation is not None)

    def _remember_pairs(self, data: FitData) -> None:
        """Store in the model to which pairs it is fitted, and by which pairs it is chosen."""
        given = data.given[: len(data.train)].cpu().numpy()
        for part in (data.train[given], data.validation):
            if part is not None:
                numbers = pair_numbers(part[part.weight > 0])
                pairs = np.union1d(self.model.fitted_pairs, numbers)
                self.model.fitted_pairs = pairs[:MOST_PAIRS]

    def _prepare(
        self,
        train: Comparisons,
        validation: Comparisons | None,
        rated: Ratings | None,
        places: IntArray,
        epochs: int,
    ) -> FitData:
        """Put the answers of a fit on the device, and draw each member's bootstrap."""
        pairs = int((places >= 0).sum())
        soft = train.soft
        if self.config.implied:
            train, first = with_implied(train)
            places = places[first]
            soft = np.append(soft, np.zeros(len(train) - len(soft), bool))
        device = self.model.device
        seed = int(torch.randint(2**31, (), generator=self._order))
        dropout_stream(device).manual_seed(seed)
        bootstrap = self.bootstrap(int(places.max(initial=-1)) + 1)[:, places]
        bootstrap = np.where(places < 0, 1.0, bootstrap)
        if rated is not None:
            clips = len(rated.segments)
            own = self.bootstrap(clips, stream=RATINGS_STREAM)[:, rated.clip]
            bootstrap = np.concatenate([bootstrap, own], axis=1)
        # if there are few answers, a draw may be empty
        bootstrap = np.where(bootstrap.any(1, keepdims=True), bootstrap, 1.0)
        windows = self._windows(train, rated)

        def weighted(counts: FloatArray) -> Answers:
            """Return all answers, weighted by `counts` `[E, P]`."""
            answers = Answers.of(train, counts[:, : len(train)], device, soft)
            if rated is None:
                return answers
            level = bound_places(rated, shared=self.config.thresholds == "shared")
            clip = rated.clip + len(train.segments)
            return answers.with_ratings(clip, level, counts[:, len(train) :])

        answers = weighted(bootstrap)
        out_of_bag = weighted((bootstrap == 0).astype(np.float64))
        if answers.level is not None:
            scores = self._logits(windows, answers)[:, len(train) :]
            self.thresholds.begin(answers.level[len(train) :], scores)
        whose = None if answers.annotator is None else answers.annotator.cpu().numpy()
        self.trust.begin(whose, self.model.members, wanted=self.config.trust)
        given = np.append(places >= 0, np.ones(len(answers) - len(train), bool))
        return FitData(
            train=train,
            rated=rated,
            validation=validation,
            pairs=pairs,
            epochs=epochs,
            windows=windows,
            answers=answers,
            given=torch.from_numpy(given).to(device),
            soft=soft,
            out_of_bag=(windows, out_of_bag) if bool(out_of_bag.weight.any()) else None,
            held_out=None if validation is None else validation_batch(self.model, validation),
            seed=seed,
        )

    def _windows(self, train: Comparisons, rated: Ratings | None) -> AnyWindows:
        """Put the clips on the device.

        Input statistics are those of compared clips, or of rated clips if there are no compared
        ones. Steps of other comparisons, such as held-out ones, do not count.
        """
        if rated is not None and not len(train):
            return gather_windows(self.model, rated.segments, observe=True)
        compared = gather_windows(self.model, train.segments, observe=True)
        if rated is None:
            return compared
        return JoinedWindows(compared, gather_windows(self.model, rated.segments, observe=False))

    def _run(
        self, data: FitData, on_epoch: OnEpoch | None, checkpoints: FitCheckpoints | None
    ) -> FitReport:
        """Train for all epochs, or until there is a reason to stop. Then calibrate."""
        identity = {}  # computing it is expensive, as it reads all clips
        if checkpoints is not None or self.world.size > 1:
            identity = self._identity(data)
            self._require_shareable(identity)
        state = FitState()
        if checkpoints is not None and self.world.decide(has_run(checkpoints.folder)):
            state = read_checkpoint(checkpoints.folder, run=identity).state
            self._resume(state)
            self.world.decide(True)  # all must read before the first process writes
        began = time.perf_counter() - state.seconds
        self.model.train()
        best_logits = None  # logits of unseen answers in the best state
        while not state.over:
            logits = self._train_epoch(data, state)
            metrics = state.history[-1]
            epoch = len(state.history)
            if on_epoch is not None and self.world.is_first:
                on_epoch(epoch, metrics)
            loss = metrics["validation_loss"]
            if data.unseen is not None:
                self._penalty = self._penalty.after(metrics["train_loss"], loss)
            if data.unseen is None or loss < state.best_loss:
                state.best_loss = loss
                state.best_epoch = epoch
                if self._keeps_best(data):
                    state.best_model = deepcopy(self.model.state_dict())
                    state.best_numbers = self._snapshot_numbers()
                    best_logits = logits
            state.over = epoch >= data.epochs or self._stops(state)
            state.seconds = time.perf_counter() - began
            if checkpoints is not None and self.world.is_first and checkpoints.is_due(state.over):
                checkpoints.write(self._checkpoint(state), identity)
        if state.best_model is not None and state.best_numbers is not None:
            self.model.load_state_dict(state.best_model)
            self._restore_numbers(state.best_numbers)
        else:
            state.best_epoch = len(state.history)
        self.model.eval()
        report = self._report(data, state, best_logits)
        return replace(report, seconds=time.perf_counter() - began)

    def _stops(self, state: FitState) -> bool:
        """Whether a fit ends early, because of patience or of its accuracy on training answers."""
        config = self.config
        waited = len(state.history) - state.best_epoch
        accuracy = state.history[-1]["train_accuracy"]
        return (config.patience is not None and waited >= config.patience) or (
            config.stop_accuracy is not None and accuracy >= config.stop_accuracy
        )

    def _keeps_best(self, data: FitData) -> bool:
        """Whether the fit keeps the state of the epoch with the best loss on unseen answers."""
        stops_by_bag = data.out_of_bag is not None and self.config.patience is not None
        return self.config.keep_best and (data.held_out is not None or stops_by_bag)

    def _train_epoch(self, data: FitData, state: FitState) -> Tensor | None:
        """Make one pass over the answers in random order and add its metrics to the history.

        A member computes only the answers in its bootstrap. The accuracy of an answer is therefore
        that of the members that learn from it.

        Return the logits `[E, P]` of unseen answers after the pass, without trust in annotators.
        Return None if there are no unseen answers.
        """
        order = torch.randperm(len(data.answers), generator=self._order)
        order = _kinds_together(order, data.answers.level, self.config.batch_size)
        order = order.to(self.model.device)
        if self.world.size > 1:  # each process draws its own dropout, the same after resuming
            words = np.random.SeedSequence([data.seed, len(state.history), self.world.rank])
            dropout_stream(self.model.device).manual_seed(int(words.generate_state(1)[0]))
        losses = []
        parts = []
        for batch in data.answers[order].split(self.config.batch_size):
            loss, batch_logits = self._step(batch, data, state)
            losses.append(loss * len(batch))
            parts.append(batch_logits)
        loss = self.world.sum(torch.stack(losses).sum(0))
        require_converged("the reward model's weights", self.model.parameters())
        self.trust.normalise()
        logits = self.world.merge(torch.cat(parts, dim=1))  # computed before each step
        logits = torch.empty_like(logits).index_copy_(1, order, logits)
        weight = data.answers.weight.sum(1)
        seen = weight > 0  # if there are few answers, a member's bootstrap may miss all
        metrics = {
            "train_loss": float((loss[seen] / weight[seen]).mean()),
            "train_accuracy": _accuracy(logits[:, data.given], data.answers[data.given]),
        }
        state.history.append(metrics)
        return self._validate(data, metrics)

    def _validate(self, data: FitData, metrics: dict[str, float]) -> Tensor | None:
        """Add loss and accuracy on unseen answers to an epoch's metrics; see `_train_epoch`."""
        metrics["validation_loss"] = metrics["validation_accuracy"] = float("nan")
        if data.unseen is None:
            return None
        answers = data.unseen[1]
        logits = self._logits(*data.unseen, world=self.world)
        trusted = self._with_trust(logits, answers)
        require_converged("the reward model's rewards", [trusted])
        if self.config.noise == "fitted":
            self.set_noise(expected_noise(trusted, answers, noise=self.noise))
        loss, accuracy = self._evaluate(trusted, answers)
        metrics["validation_loss"] = loss
        metrics["validation_accuracy"] = accuracy
        return logits

    def _step(self, batch: Answers, data: FitData, state: FitState) -> tuple[Tensor, Tensor]:
        """Make one optimiser step on a batch.

        Return the batch's loss `[E]` and logits `[E, B]`. Logits outside this process's part are 0.
        """
        config = self.config
        if config.schedule is not None:
            updates = data.epochs * -(-len(data.answers) // config.batch_size)
            rate = config.learning_rate * config.schedule.at(state.updates, updates)
            for group in self._optimiser.param_groups:
                if isinstance(group["lr"], Tensor):  # on a GPU, a recorded graph reads it
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate
        state.updates += 1
        if not self._is_recordable(data):
            return self._learn(batch, data)

        def learn(columns: tuple[Any, ...]) -> dict[str, Tensor]:
            loss, logits = self._learn(Answers(*columns), data)
            return {"loss": loss, "logits": logits}

        if len(batch) not in data.graphs:
            data.graphs[len(batch)] = RecordedUpdate(learn, self.model.device)
        columns = tuple(getattr(batch, column.name) for column in fields(batch))
        measured = data.graphs[len(batch)](columns)
        return measured["loss"].clone(), measured["logits"].clone()

    def _is_recordable(self, data: FitData) -> bool:
        """Whether a GPU may replay the optimiser step as a recorded graph.

        A replayed step can only use numbers on the device. Except for answers and the learning
        rate, nothing can change from step to step.
        """
        return (
            self.model.recordable
            and self.model.device.type == "cuda"
            and self.world.size == 1
            and self.config.loss in RECORDABLE_LOSSES
            and self.config.noise != "fitted"
            and self.config.penalty.strength == 0
            and self.config.crop == 0
            and isinstance(data.windows, Windows)
            and not self.trust.is_fitted
            and data.answers.level is None
        )

    def _learn(self, batch: Answers, data: FitData) -> tuple[Tensor, Tensor]:
        """Make a step along the gradients of a batch, at the current learning rate."""
        self._optimiser.zero_grad(set_to_none=True)
        total = batch.weight.new_zeros(self.model.members)
        logits = []
        for part in batch.split_by_kind(self.config.minibatch_size or len(batch)):
            rows = self.world.part(len(part))
            is_compared = part.level is None
            crop = self._crop(len(part), rows) if is_compared else None
            crops = self.config.crops if is_compared else 1
            own = part[rows]
            share = len(own) / len(batch)
            part_logits = total.new_zeros(len(total), 0)
            if len(own):
                own = own.repeated(crops)
                features, mask = data.windows(own.pairs.flatten(), crop)
                trust = self.trust.of(own.annotator)
                loss, part_logits = self._forward(
                    features, mask, own.preference, own.weight, trust, own.soft, own.level
                )
                (loss.sum() * share).backward()
                total = total + loss.detach() * share
                if crops > 1:
                    part_logits = part_logits.unflatten(1, (-1, crops)).mean(2)
            if self.world.size > 1:
                part_logits = F.pad(part_logits, (rows.start, len(part) - rows.stop))
            logits.append(part_logits.detach())
        numbers = [part.value for part in self._numbers.values()]
        self.world.sum_gradients(chain(self.model.parameters(), numbers))
        penalty = self._penalty.of(self.model.parameters())
        if isinstance(penalty, Tensor):
            # Implied answers weigh less than given ones. The penalty counts as much as without
            # them.
            (penalty * data.mean_weight).backward()
        self._optimiser.step()
        self.trust.step()
        self.thresholds.numbers.step()
        return total, torch.cat(logits, dim=1)

    def _crop(self, pairs: int, rows: slice) -> Crop | None:
        """Return the crops of some `rows` of `pairs` pairs. All crops of a pair follow one another.

        Every process draws the crops of all pairs, so that all processes draw the same.
        """
        if not self.config.crop:
            return None
        crops = self.config.crops
        cut, place = draw_crops(pairs * crops, most=self.config.crop, generator=self._order)
        cropped = slice(rows.start * crops, rows.stop * crops)
        return partial(crop_pairs, cut[cropped], place[cropped])

    def _loss_and_logits(
        self,
        features: Any,
        mask: Tensor,
        preference: Tensor,
        weight: Tensor,
        trust: Tensor | None,
        soft: Tensor | None,
        level: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return each member's loss `[E]` and logits `[E, B]` on a minibatch of one kind."""
        clips = len(mask) // len(preference)
        halved = self.config.precision == "bfloat16"
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=halved):
            asked = (weight > 0).repeat_interleave(clips, 1)  # [E, B * clips]
            scores = self.model.scores_where(features, mask, asked).float()
        logits = _answer_logits(scores, clips)
        logits = logits if trust is None else logits * trust
        return self._mean_loss(logits, preference, weight, soft, level), logits

    def _mean_loss(
        self,
        logits: Tensor,
        preference: Tensor,
        weight: Tensor,
        soft: Tensor | None,
        level: Tensor | None,
    ) -> Tensor:
        """Compute the mean loss `[E]` of logits `[E, P]` over weighted answers.

        Comparisons have the configured loss. Ratings have the ordinal loss, and their logits are
        scores. An answer of either kind weighs as much.

        Noise does not apply to soft labels, which contain their uncertainty. With a noise of 0.5,
        no model could predict a label of 0.8, since no probability exceeds 0.75.
        """

        def loss(logits: Tensor, target: Tensor) -> Tensor:
            noisy: Tensor = self._noisy_loss(logits, target)
            if soft is None:
                return noisy
            return torch.where(soft, self._noiseless_loss(logits, target), noisy)

        mean_loss = preference_loss(logits, preference, weight, loss=loss)
        if level is None:
            return mean_loss
        of_ratings = self.thresholds.loss(logits, level, noise=self.noise)
        return mean_loss + (of_ratings * weight).sum(-1) / len(level)

    @torch.no_grad()
    def _evaluate(
        self, logits: Tensor, answers: Answers, likelihood: Likelihood | None = None
    ) -> tuple[float, float]:
        """Compute loss and accuracy on answers.

        A member counts if it has a weight for an answer.
        """
        preference = answers.preference
        if likelihood is None:
            loss = self._mean_loss(logits, preference, answers.weight, answers.soft, answers.level)
        else:
            logits = likelihood.scale * logits
            loss = preference_loss(logits, preference, answers.weight, noise=likelihood.noise)
        total = answers.weight.sum(1) / len(answers)
        used = (total > 0).expand_as(loss)
        return float((loss / total)[used].mean()), _accuracy(logits, answers)

    @torch.no_grad()
    def _logits(self, windows: AnyWindows, answers: Answers, *, world: World = ALONE) -> Tensor:
        """Compute logits `[E, P]` without dropout; those of ratings are the scores of their clips.

        Only logits of answers with a weight are meaningful. Each process of `world` computes whole
        chunks, and all processes get all logits.
        """
        training = self.model.training
        self.model.eval()
        size = 2 * max(1, windows.at_once // 2)
        logits = []
        for kind in answers.split_by_kind(len(answers)):
            clips = kind.pairs.shape[1]
            chunks = kind.pairs.flatten().split(size)
            asked = (kind.weight > 0).expand(self.model.members, -1).repeat_interleave(clips, 1)
            parts = asked.split(size, 1)
            scores = [kind.weight.new_zeros(self.model.members, len(chunk)) for chunk in chunks]
            for number in world.own(range(len(chunks))):
                scores[number] = self.model.scores_where(*windows(chunks[number]), parts[number])
            logits.append(_answer_logits(world.merge(torch.cat(scores, dim=1)), clips))
        self.model.train(training)
        return torch.cat(logits, dim=1)

    @torch.no_grad()
    def _with_trust(self, logits: Tensor, answers: Answers) -> Tensor:
        """Multiply logits `[E, P]` by the trust in the annotator of each answer."""
        trust = self.trust.of(answers.annotator)
        return logits if trust is None else logits * trust

    def _report(self, data: FitData, state: FitState, logits: Tensor | None) -> FitReport:
        """Report a fit, after fitting likelihood and trust to answers outside of the training data.

        `logits` are those of the unseen answers in the state that the model keeps, if they are
        known.
        """
        all_soft = bool(data.soft[data.train.decided].all() and data.train.decided.any())
        likelihood = Likelihood(0.0 if all_soft else min(self.noise, MOST_EXPECTED))
        trust: tuple[Trust, ...] = ()
        part = data.calibrating
        if part is not None and (self.config.calibrate or part[1].annotator is not None):
            answers = part[1]
            if logits is None or part is not data.unseen:
                logits = self._logits(*part, world=self.world)
            if self.config.calibrate:
                trusted = self._with_trust(logits, answers)
                likelihood = fit_likelihood(trusted, answers, noise=likelihood.noise)
            if answers.annotator is not None:
                scaled = likelihood.scale * logits
                votes = answers.weight > 0
                trust = fit_trust(scaled, answers.preference, votes, answers.annotator)
        decided_answers = 0
        validated_on: Literal["validation", "out-of-bag"] | None = None
        if data.unseen is not None:
            validated_on = "out-of-bag" if data.validation is None else "validation"
            answers = data.unseen[1]
            decided = (answers.preference - 0.5).abs() > 0  # the preference of ratings is NaN
            decided_answers = int((decided & (answers.weight > 0).any(0)).sum())
        curves: Any = {
            name: np.array([metrics[name] for metrics in state.history])
            for name in state.history[0]
        }
        return FitReport(
            pairs=data.pairs,
            members=self.model.members,
            epochs=len(state.history),
            best_epoch=state.best_epoch,
            decided=decided_answers,
            penalty=self._penalty.strength,
            likelihood=likelihood,
            trust=trust,
            ratings=self._rating_fit(data),
            validated_on=validated_on,
            seconds=state.seconds,
            **curves,
        )

    @torch.no_grad()
    def _rating_fit(self, data: FitData) -> RatingFit | None:
        """Report the thresholds, and how well members predict out-of-bag ratings."""
        if data.rated is None:
            return None
        is_outcome = data.rated.is_outcome
        report = RatingFit(
            ratings=int((~is_outcome).sum()),
            outcomes=int(is_outcome.sum()),
            thresholds=self.thresholds.table().cpu().double().numpy().round(6).tolist(),
        )
        if data.out_of_bag is None:
            return report
        answers = data.out_of_bag[1][slice(len(data.train), None)]
        votes = answers.weight > 0
        seen = votes.any(0).cpu().numpy()
        level = answers.level
        if level is None or not seen.any():
            return report
        scores = self._logits(data.windows, answers, world=self.world)
        losses = self.thresholds.loss(scores, level, noise=self.noise)
        expected = self.thresholds.expected(scores, level)
        predicted = ((expected * votes).sum(0) / votes.sum(0)).cpu().numpy()
        given = data.rated.value
        return replace(
            report,
            held_out=int(seen.sum()),
            loss=float(losses[votes].mean()),
            rating_tau=_rank_agreement(predicted, given, seen & ~is_outcome),
            outcome_tau=_rank_agreement(predicted, given, seen & is_outcome),
        )

    def _identity(self, data: FitData) -> dict[str, Any]:
        """Return, as JSON, what identifies this fit; all of it must agree with a checkpoint's."""
        settings = to_json(self.config) | {"epochs": data.epochs, "seed": self._seed}
        shapes = {name: list(part.shape) for name, part in self.model.state_dict().items()}
        return {"fit": settings, "model": shapes, "answers": _digest(data)}

    def _require_shareable(self, identity: Mapping[str, Any]) -> None:
        """Refuse processes with different data or settings, or a model that they cannot share."""
        if self.world.size == 1:
            return
        if any(isinstance(part, _BatchNorm) for part in self.model.modules()):
            raise ConfigError(
                "batch normalisation: expected a model without it if processes share batches. Each "
                "process would normalise by its own part. Fit in one process, or use a model "
                "without batch normalisation."
            )
        model = (t.detach().cpu().numpy().tobytes() for t in self.model.state_dict().values())
        order = self._order.get_state().numpy().tobytes()
        fit = json.dumps(identity).encode()
        self.world.require_same("model, answers and seed of the fit", (fit, order, *model))

    def _checkpoint(self, state: FitState) -> FitState:
        """Return the state of a fit, including the numbers of the model and of this trainer."""
        return replace(
            state,
            model=self.model.state_dict(),
            trainer=self.snapshot(),
            dropout=dropout_stream(self.model.device).get_state(),
        )

    def _resume(self, state: FitState) -> None:
        """Restore the model and this trainer from a state that `_checkpoint` returned."""
        self.model.load_state_dict(state.model)
        self.restore(state.trainer)
        dropout_stream(self.model.device).set_state(state.dropout)

    def evaluate(
        self, comparisons: Comparisons, likelihood: Likelihood | None = None
    ) -> tuple[float, float]:
        """Compute the loss (mean over members) and the accuracy (of the members' mean).

        With a likelihood, such as `FitReport.likelihood`, the loss is the cross-entropy. Without
        one, it is the loss that training minimises.

        Raises:
            DataError: there are no answered comparisons.
            SpaceError: the steps' shapes differ from those that the model was built for.
        """
        comparisons = _answered("comparisons to evaluate on", comparisons)
        with threads_for(small=self._is_small()):
            windows, answers = validation_batch(self.model, comparisons)
            logits = self._with_trust(self._logits(windows, answers), answers)
            return self._evaluate(logits, answers, likelihood)

    def validate(self, held_out: Comparisons, likelihood: Likelihood) -> Validation:
        """Evaluate the model on held-out answers under a fit's likelihood. There may be none."""
        decided = int(held_out.decided.sum())
        if not decided:
            return Validation(len(held_out), 0)
        loss, accuracy = self.evaluate(held_out, likelihood)
        return Validation(len(held_out), decided, accuracy, loss)

    def bootstrap(self, pairs: int, stream: int = 0xB007) -> FloatArray:
        """Return how often each member sees each answer, `[E, P]`: Poisson(1) counts, or ones.

        The counts of the first answers do not change when more answers arrive. Members therefore
        stay different as comparisons grow.
        """
        members = self.model.members
        if not self.config.bootstrap or members == 1:
            return np.ones((members, pairs))
        rng = np.random.default_rng([self._seed, stream])
        return rng.poisson(1.0, (pairs, members)).T.astype(np.float64)

    def set_noise(self, noise: float) -> None:
        """From now on, set the share of answers that the likelihood takes to be random."""
        self.noise = noise
        name = str(self.config.loss)
        self._noisy_loss = LOSSES.bound(name, noise=noise)
        self._noiseless_loss = LOSSES.bound(name, noise=0.0)

    def snapshot(self) -> dict[str, Any]:
        """Return the state that the next fit depends on, apart from the model, for `restore`."""
        return {
            "moments": self._optimiser.state_dict()["state"],
            "order": self._order.get_state(),
            "penalty": self._penalty.strength,
            "numbers": self._snapshot_numbers(),
            "noise": self.noise,
            "fitted_pairs": self.model.fitted_pairs,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore the state of a trainer of the same settings and the same model."""
        self._order.set_state(snapshot["order"])  # first, since only this can fail
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": snapshot["moments"], "param_groups": groups})
        self._penalty = replace(self._penalty, strength=float(snapshot["penalty"]))
        self._restore_numbers(snapshot["numbers"])
        self.set_noise(float(snapshot["noise"]))
        self.model.fitted_pairs = snapshot["fitted_pairs"]

    def _snapshot_numbers(self) -> dict[str, Any]:
        return {name: numbers.snapshot() for name, numbers in self._numbers.items()}

    def _restore_numbers(self, snapshot: Mapping[str, Any]) -> None:
        for name, numbers in self._numbers.items():
            numbers.restore(snapshot[name])

    def _is_small(self) -> bool:
        return is_small(self.model, context=self.model.context)


def save_trainer(folder: Path, trainer: RewardTrainer, notes: dict[str, Any]) -> None:
    """Write a trainer's state and notes beside its model, which is saved in the folder."""
    (folder / TRAINER).mkdir()
    write_state(folder / TRAINER, {"trainer": trainer.snapshot(), "notes": notes})


def load_trainer(folder: Path, trainer: RewardTrainer, model: RewardModel) -> dict[str, Any]:
    """Restore a trainer that `save_trainer` wrote, and return its notes.

    `trainer` must have the same config and seed as the saved one. It gets the numbers of `model`,
    which was saved beside it. Its next fit is then the same as that of the saved trainer. If files
    are missing, damaged or of another model, `CheckpointError` is raised, and the trainer stays as
    it was.
    """
    folder = folder / TRAINER
    with reading(folder, expected="the state of such a trainer"):
        saved = read_state(folder)
        state = saved["trainer"]
        notes = dict(saved["notes"])
        parameters = list(trainer.model.parameters())
        for number, moments in state["moments"].items():
            for name, moment in moments.items():
                if moment.ndim and moment.shape != parameters[number].shape:
                    raise ValueError(f"{name} of shape {tuple(moment.shape)}")
            require_finite(folder, moments, dtype=torch.float32)
        for name, axes in (("trust", 1), ("thresholds", 3)):
            value = state["numbers"][name]["value"]
            if value.ndim != axes:
                raise ValueError(f"{name} of shape {tuple(value.shape)}")
            require_finite(folder, {name: value}, dtype=torch.float32)
        torch.Generator().set_state(state["order"])  # finds damage before anything changes
        trainer.model.load_state_dict(model.state_dict())
        trainer.restore(state)
    return notes


def _answered(what: str, comparisons: Comparisons) -> Comparisons:
    """Select comparisons that were not declined, with their steps only; require at least one."""
    if not comparisons.answered.any():
        raise DataError(
            f"{what}: expected at least one answered comparison, got none. Ask queries first, or "
            "check the label files."
        )
    return comparisons[comparisons.answered].compact()


def _kinds_together(order: Tensor, level: Tensor | None, size: int) -> Tensor:
    """In an order `[P]`, move comparisons to the front of each batch of `size`, before ratings."""
    if level is None:
        return order
    batch = torch.arange(len(order)) // size
    return order[torch.argsort(2 * batch + (level.cpu()[order] >= 0), stable=True)]


def _answer_logits(scores: Tensor, clips: int) -> Tensor:
    """Return logits `[E, P]` of comparisons, or scores of ratings, from scores `[E, P * clips]`."""
    scores = scores.unflatten(1, (-1, clips))  # [E, P * clips] to [E, P, clips]
    return preference_logits(scores) if clips == 2 else scores[..., 0]


def _accuracy(logits: Tensor, answers: Answers) -> float:
    """Compute the accuracy on answers. A member counts if it has a weight for an answer."""
    votes = answers.weight > 0
    seen = votes.any(0)
    consensus = torch.where(votes, preference_probability(logits) - 0.5, 0.0).sum(0)
    return float(preference_accuracy(consensus[seen], answers.preference[seen]))


def _rank_agreement(predicted: FloatArray, given: IntArray, rows: BoolArray) -> float | None:
    """Compute Kendall's tau-b of some rows; None without two different values or predictions."""
    from scipy.stats import kendalltau

    if len(np.unique(given[rows])) < 2:
        return None
    tau = float(kendalltau(predicted[rows], given[rows]).statistic)
    return None if np.isnan(tau) else tau


def dropout_stream(device: torch.device) -> torch.Generator:
    """Return the global generator from which dropout draws on a device."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    stream: torch.Generator = torch.cuda.default_generators[index]
    return stream


def _digest(data: FitData) -> str:
    """Compute a digest of the steps of all compared and rated clips, and of the answers."""
    digest = blake2b(digest_size=16)
    for part in (data.train, data.validation):
        if part is None:
            continue
        columns = [compared_ids(part), part.preference, part.weight]
        if part.annotator is not None:
            columns.append(part.annotator)
        digest.update(content_id(*columns).encode())
    if data.rated is not None:
        clips = data.rated.segments
        columns = [*leaves(clips.observations), clips.actions, clips.start, clips.real]
        digest.update(content_id(*columns, *data.rated.arrays().values()).encode())
    return digest.hexdigest()
