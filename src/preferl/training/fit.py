"""One fit of a reward model: the state that moves from epoch to epoch."""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from preferl.configs import to_json
from preferl.data.arrays import content_id
from preferl.data.comparisons import Comparisons
from preferl.data.content import compared_ids
from preferl.errors import ConfigError, require_in
from preferl.feedback.likelihood import Likelihood
from preferl.functional import preference_accuracy, preference_probability
from preferl.models.folder import require_converged
from preferl.shapes import BoolArray, IntArray
from preferl.training.batches import (
    Answers,
    AnyWindows,
    Crop,
    Windows,
    crop_pairs,
    draw_crops,
    gather_windows,
    held_out,
)
from preferl.training.calibration import MOST_EXPECTED, expected_noise, fit_likelihood
from preferl.training.checkpoint_folder import has_run, read_checkpoint, write_checkpoint
from preferl.training.fit_report import FitReport
from preferl.training.recorded import RecordedUpdate
from preferl.training.trust import Trust, fit_trust

if TYPE_CHECKING:
    from preferl.training.reward_trainer import RewardTrainer

OnEpoch = Callable[[int, dict[str, float]], None]
"""Called after each epoch with its number, from 1, and its metrics."""

SECONDS: Final = 60.0
"""Between two checkpoints. One takes tens of milliseconds, so that this costs less than a
thousandth of a fit, and a killed program loses a minute at most, or one epoch that takes longer."""

RECORDABLE_LOSSES: Final = ("cross_entropy", "squared_error")
"""Of answers; others may do what a graph cannot."""

MOVING: Final = ("history", "update", "best", "best_epoch", "best_state", "over", "seconds")
"""What a fit itself changes from epoch to epoch."""


@final
class FitCheckpoints:
    """A folder in which a fit is kept between epochs, and from which it resumes.

    A resumed fit ends as it would have without the interruption, to the last bit, on the same
    machine with the same packages and number of processes. Of several, the first one writes.

    Args:
        folder: for one fit's checkpoints alone; made if it is not there.
        seconds: between two checkpoints, at least; 0 keeps every epoch.
        last: whether the last epoch is kept whatever the time, where other fits follow this one.

    Raises:
        ConfigError: negative seconds.
    """

    def __init__(self, folder: Path | str, *, seconds: float = SECONDS, last: bool = False) -> None:
        require_in("seconds", seconds, 0, float("inf"))
        self.folder = Path(folder)
        self._seconds = seconds
        self._last = last
        self._written = time.monotonic()

    def offer(self, fit: "Fit") -> None:
        """Write a checkpoint, as `write_checkpoint` does, if the last one is old enough."""
        is_old = time.monotonic() - self._written >= self._seconds
        if fit.world.is_first and (is_old or (self._last and fit.is_over)):
            write_checkpoint(self.folder, fit.snapshot(), steps=fit.epoch, run=fit.identity())
            self._written = time.monotonic()

    def within(self, name: str) -> "FitCheckpoints":
        """Those of one of several fits, in a folder of its own inside this one."""
        return FitCheckpoints(self.folder / name, seconds=self._seconds, last=True)

    def remove(self) -> None:
        """Remove the folder, once the fitted reward is safe."""
        shutil.rmtree(self.folder, ignore_errors=True)


@final
class Fit:
    """One fit of a trainer's model to comparisons; it changes the trainer as it goes."""

    def __init__(
        self,
        trainer: "RewardTrainer",
        train: Comparisons,
        validation: Comparisons | None,
        epochs: int,
        places: IntArray | None,
        asked: int,
        soft: BoolArray,
    ) -> None:
        self._trainer = trainer
        self._model = trainer.model
        self._config = trainer.config
        self.world = trainer.world
        self._epochs = epochs
        self._update = 0
        self._updates = epochs * -(-len(train) // self._config.batch_size)
        places = np.arange(len(train)) if places is None else places
        device = self._model.device
        bootstrap = trainer.bootstrap(int(places.max()) + 1)[:, places]
        bootstrap = np.where(places < 0, 1.0, bootstrap)
        bootstrap = np.where(bootstrap.any(1, keepdims=True), bootstrap, 1.0)  # few answers
        self._asked = asked
        # Implied answers weigh less than given ones, and a penalty is to count as much beside them.
        self._mean_weight = float(train.weight.mean())
        self._given = torch.from_numpy(places >= 0).to(device)
        self._windows = gather_windows(self._model, train.segments, observe=True)
        self._answers = Answers.of(train, bootstrap, device, soft)
        self._all_soft = bool(soft[train.decided].all() and train.decided.any())
        out_of_bag = Answers.of(train, bootstrap == 0, device, soft)
        self._bag = (self._windows, out_of_bag) if bool(out_of_bag.weight.any()) else None
        self._held_out = None if validation is None else held_out(self._model, validation)
        self._unseen = self._held_out or self._bag  # clips and answers that validate
        stops_by_bag = self._bag is not None and self._config.patience is not None
        by_unseen = self._held_out is not None or stops_by_bag
        self._keeps_best = self._config.keep_best and by_unseen
        self._validated_on: Literal["validation", "out-of-bag"] | None = None
        self._decided = 0
        if self._unseen is not None:
            self._validated_on = "out-of-bag" if validation is None else "validation"
            answers = self._unseen[1]
            decided = (answers.preference != 0.5) & (answers.weight > 0).any(0)
            self._decided = int(decided.sum())
        trainer.trust.begin(train.annotator, self._model.members, wanted=self._config.trust)
        self._compared = train, validation
        self._dropout = dropout_stream(device).initial_seed()
        self._recorded: dict[int, RecordedUpdate] = {}  # by answers in a batch
        self._history: list[dict[str, float]] = []
        self._best = np.inf
        self._best_epoch = 0
        self._best_state: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self._over = False
        self._seconds = 0.0

    def run(self, on_epoch: OnEpoch | None, checkpoints: FitCheckpoints | None = None) -> FitReport:
        """Train for all epochs, or until there is a reason to stop."""
        self._require_shareable()
        if checkpoints is not None and self.world.decide(has_run(checkpoints.folder)):
            self.restore(read_checkpoint(checkpoints.folder, run=self.identity()).state)
            self.world.decide(True)  # all have read it before the first one writes the next
        began = time.perf_counter() - self._seconds
        self._model.train()
        while not self.is_over:
            self._advance(on_epoch)
            self._seconds = time.perf_counter() - began
            if checkpoints is not None:
                checkpoints.offer(self)
        if self._best_state is not None:
            self._model.load_state_dict(self._best_state[0])
            self._trainer.trust.restore(self._best_state[1])
        else:
            self._best_epoch = self.epoch
        self._model.eval()
        rows = self._history
        likelihood = self._likelihood()
        curves: Any = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return FitReport(
            pairs=self._asked,
            members=self._model.members,
            epochs=self.epoch,
            best_epoch=self._best_epoch,
            decided=self._decided,
            penalty=self._trainer._penalty.strength,
            likelihood=likelihood,
            trust=self._trust(likelihood),
            validated_on=self._validated_on,
            seconds=time.perf_counter() - began,
            **curves,
        )

    @property
    def epoch(self) -> int:
        """Epochs made."""
        return len(self._history)

    @property
    def is_over(self) -> bool:
        """Whether all epochs are made, or there was a reason to stop."""
        return self._over or self.epoch >= self._epochs

    def identity(self) -> dict[str, Any]:
        """What has to be the same for a checkpoint to be one of this fit, as JSON."""
        settings = to_json(self._config) | {"epochs": self._epochs, "seed": self._trainer._seed}
        shapes = {name: list(part.shape) for name, part in self._model.state_dict().items()}
        return {"fit": settings, "model": shapes, "answers": self._digest}

    @cached_property
    def _digest(self) -> str:
        """Of all clips and answers, which only fits with checkpoints or in processes need."""
        return _digest(*self._compared)

    def snapshot(self) -> dict[str, Any]:
        """All that later epochs depend on, between two of them."""
        dropout = dropout_stream(self._model.device).get_state()
        of = {"model": self._model.state_dict(), "trainer": self._trainer.snapshot()}
        return of | {"dropout": dropout} | {name: getattr(self, f"_{name}") for name in MOVING}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a snapshot of an equal fit."""
        self._model.load_state_dict(state["model"])
        self._trainer.restore(state["trainer"])
        dropout_stream(self._model.device).set_state(state["dropout"])
        for name in MOVING:
            setattr(self, f"_{name}", state[name])

    def _advance(self, on_epoch: OnEpoch | None) -> None:
        metrics = self._train_epoch()
        config = self._config
        trainer = self._trainer
        self._history.append(metrics)
        if on_epoch and self.world.is_first:
            on_epoch(self.epoch, metrics)
        loss = metrics["validation_loss"]
        if self._unseen is not None:
            trainer._penalty = trainer._penalty.after(metrics["train_loss"], loss)
        if self._unseen is None or loss < self._best:
            self._best = loss
            self._best_epoch = self.epoch
            if self._keeps_best:
                state = self._model.state_dict(), trainer.trust.snapshot()
                self._best_state = deepcopy(state)
        waited = self.epoch - self._best_epoch
        self._over = (config.patience is not None and waited >= config.patience) or (
            config.stop_accuracy is not None and metrics["train_accuracy"] >= config.stop_accuracy
        )

    def _train_epoch(self) -> dict[str, float]:
        order = torch.randperm(len(self._answers), generator=self._trainer._order)
        order = order.to(self._model.device)
        answers = self._answers[order]
        if self.world.size > 1:  # each draws its own, and goes on so from any epoch
            words = np.random.SeedSequence([self._dropout, self.epoch, self.world.rank])
            dropout_stream(self._model.device).manual_seed(int(words.generate_state(1)[0]))
        losses = []
        logits = []
        for batch in answers.split(self._config.batch_size):
            loss, batch_logits = self._step(batch)
            losses.append(loss * len(batch))
            logits.append(batch_logits)
        loss = self.world.sum(torch.stack(losses).sum(0))
        require_converged("the reward model's weights", self._model.parameters())
        self._trainer.trust.normalise()
        return self._metrics(loss, self.world.merge(torch.cat(logits, dim=1)), order)

    def _step(self, batch: Answers) -> tuple[Tensor, Tensor]:
        """One optimiser step on a batch; its loss `[E]` and logits `[E, B]`, 0 beyond our part."""
        if self._config.schedule is not None:
            share = self._config.schedule.at(self._update, self._updates)
            self._set_learning_rate(self._config.learning_rate * share)
        self._update += 1
        if not self._is_recordable():
            return self._learn(batch)
        if len(batch) not in self._recorded:
            self._recorded[len(batch)] = RecordedUpdate(self._learn_recorded, self._model.device)
        columns = tuple(getattr(batch, column.name) for column in fields(batch))
        measured = self._recorded[len(batch)](columns)
        return measured["loss"].clone(), measured["logits"].clone()

    def _set_learning_rate(self, rate: float) -> None:
        for group in self._trainer._optimiser.param_groups:
            if isinstance(group["lr"], Tensor):  # on a GPU, where a recorded graph reads it
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _is_recordable(self) -> bool:
        """Whether a GPU may replay the optimiser step: nothing in it but numbers on the device.

        What changes between steps, but for answers and the learning rate, would stay as it was.
        """
        return (
            self._model.device.type == "cuda"
            and self._model.recordable
            and self.world.size == 1
            and self._config.loss in RECORDABLE_LOSSES
            and self._config.noise != "fitted"
            and self._config.penalty.strength == 0
            and self._config.crop == 0
            and isinstance(self._windows, Windows)
            and not self._trainer.trust.is_fitted
        )

    def _learn_recorded(self, batch: tuple[Any, ...]) -> dict[str, Tensor]:
        """`_learn` from a batch's tensors, in the form that is recorded."""
        loss, logits = self._learn(Answers(*batch))
        return {"loss": loss, "logits": logits}

    def _learn(self, batch: Answers) -> tuple[Tensor, Tensor]:
        """Step along the gradients of a batch, at the present learning rate."""
        trainer = self._trainer
        config = self._config
        optimiser = self._trainer._optimiser
        optimiser.zero_grad(set_to_none=True)
        total = batch.weight.new_zeros(self._model.members)
        logits = []
        for part in batch.split(config.minibatch_size or len(batch)):
            rows = self.world.part(len(part))
            crop = self._crop(len(part), rows)
            own = part[rows]
            found = total.new_zeros(len(total), 0)
            if len(own):
                features, mask = self._windows(own.pairs.flatten(), crop)
                trust = trainer.trust.of(own.annotator)
                loss, found = trainer._loss(
                    features, mask, own.preference, own.weight, trust, own.soft
                )
                share = len(own) / len(batch)
                (loss.sum() * share).backward()
                total = total + loss.detach() * share
            logits.append(F.pad(found.detach(), (rows.start, len(part) - rows.stop)))
        self.world.sum_gradients([*self._model.parameters(), *trainer.trust.parameters])
        penalty = trainer._penalty.of(self._model.parameters())
        if isinstance(penalty, Tensor):
            (penalty * self._mean_weight).backward()
        optimiser.step()
        trainer.trust.step()
        return total, torch.cat(logits, dim=1)

    def _crop(self, pairs: int, rows: slice) -> Crop | None:
        """Crops of some rows of so many pairs, drawn for all, as other processes do."""
        if not self._config.crop:
            return None
        drawn = draw_crops(pairs, most=self._config.crop, generator=self._trainer._order)
        return partial(crop_pairs, *(each[rows] for each in drawn))

    def _require_shareable(self) -> None:
        """Refuse processes that would fit different things, or one thing differently."""
        normed = any(isinstance(part, _BatchNorm) for part in self._model.modules())
        if not (self.world.size == 1 or not normed):
            raise ConfigError(
                "batch normalisation: expected none where processes share batches, got some. "
                "Each would normalise by its own part. Fit in one process, or without it."
            )
        if self.world.size == 1:
            return
        model = (t.detach().cpu().numpy().tobytes() for t in self._model.state_dict().values())
        order = self._trainer._order.get_state().numpy().tobytes()
        about = json.dumps(self.identity()).encode()
        self.world.require_same("model, answers and seed of the fit", (about, order, *model))

    def _metrics(self, loss: Tensor, logits: Tensor, order: Tensor) -> dict[str, float]:
        """Those of an epoch: of its losses `[E]`, and of the logits `[E, P]` before its steps."""
        weight = self._answers.weight.sum(1)
        preference = self._answers.preference
        seen = weight > 0  # with few answers, a member's bootstrap may hold none
        logits = torch.empty_like(logits).index_copy_(1, order, logits)
        consensus = preference_probability(logits).mean(0) - 0.5
        consensus = consensus[self._given]
        preference = preference[self._given]
        validation = float("nan"), float("nan")
        if self._unseen is not None:
            fitted = self._config.noise == "fitted"
            if self._held_out is not None or self._keeps_best or fitted or self._config.crop:
                logits = self._logits(*self._unseen)  # not those before each step
            require_converged("the reward model's rewards", [logits])
            if fitted:
                noise = expected_noise(logits, self._unseen[1], noise=self._trainer.noise)
                self._trainer.set_noise(noise)
            validation = self._trainer._evaluate(logits, self._unseen[1])
        return {
            "train_loss": float((loss[seen] / weight[seen]).mean()),
            "train_accuracy": float(preference_accuracy(consensus, preference)),
            "validation_loss": validation[0],
            "validation_accuracy": validation[1],
        }

    def _logits(self, windows: AnyWindows, answers: Answers, *, with_trust: bool = True) -> Tensor:
        how: Any = {"with_trust": with_trust, "world": self.world}
        return self._trainer._logits(windows, answers, **how)

    def _likelihood(self) -> Likelihood:
        """Noise and scale by out-of-bag answers, or else by held-out ones."""
        part = self._bag or self._held_out
        noise = 0.0 if self._all_soft else min(self._trainer.noise, MOST_EXPECTED)
        if not self._config.calibrate or part is None:
            return Likelihood(noise)
        return fit_likelihood(self._logits(*part), part[1], noise=noise)

    def _trust(self, likelihood: Likelihood) -> tuple[Trust, ...]:
        """Trust in annotators by out-of-bag answers, or else by held-out ones."""
        part = self._bag or self._held_out
        annotator = None if part is None else part[1].annotator
        if part is None or annotator is None:
            return ()
        logits = self._logits(*part, with_trust=False)
        answers = part[1]
        scaled = likelihood.scale * logits
        return fit_trust(scaled, answers.preference, answers.weight > 0, annotator)


def dropout_stream(device: torch.device) -> torch.Generator:
    """The global stream from which dropout draws on a device."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    stream: torch.Generator = torch.cuda.default_generators[index]
    return stream


def _digest(*parts: Comparisons | None) -> str:
    """A digest of the steps of all clips that were compared, and of the answers."""
    digest = blake2b(digest_size=16)
    for part in parts:
        if part is None:
            continue
        columns = [compared_ids(part), part.preference, part.weight]
        if part.annotator is not None:
            columns.append(part.annotator)
        digest.update(content_id(*columns).encode())
    return digest.hexdigest()
