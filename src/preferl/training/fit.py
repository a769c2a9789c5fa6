"""One fit of a reward model: the state that moves from epoch to epoch."""

import shutil
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from torch import Tensor

from preferl.configs import to_json
from preferl.data.comparisons import Comparisons
from preferl.errors import require_in
from preferl.feedback.likelihood import Likelihood
from preferl.functional.preference import (
    preference_accuracy,
    preference_loss,
    preference_probability,
)
from preferl.training.batches import Answers, AnyWindows, gather_windows
from preferl.training.checkpoint_folder import has_run, read_checkpoint, write_checkpoint
from preferl.training.fit_report import FitReport
from preferl.training.likelihood import fit_likelihood

if TYPE_CHECKING:
    from preferl.training.reward_trainer import RewardTrainer

OnEpoch = Callable[[int, dict[str, float]], None]
"""Called after each epoch with its number, from 1, and its metrics."""


SECONDS: Final = 60.0
"""Between two checkpoints. One takes tens of milliseconds, so that this costs less than a
thousandth of a fit, and a killed program loses a minute at most, or one epoch that takes longer."""


@final
class FitCheckpoints:
    """A folder in which a fit is kept between epochs, and from which it goes on.

    A fit that goes on comes to what it would have come to without the interruption, to the last
    bit, on the same machine with the same packages.
    """

    def __init__(self, folder: Path | str, *, seconds: float = SECONDS) -> None:
        """Keep a fit in a folder.

        Args:
            folder: for one fit's checkpoints alone; made if it is not there.
            seconds: between two checkpoints, at least; 0 keeps every epoch.

        Raises:
            ConfigError: negative seconds.
        """
        require_in("seconds", seconds, 0, float("inf"))
        self.folder = Path(folder)
        self._seconds = seconds
        self._written = time.monotonic()

    def resume(self, fit: "Fit") -> None:
        """Bring a fit to where its newest checkpoint is; without one it begins.

        Raises:
            CheckpointError: a damaged checkpoint, or one of other answers or settings.
            StorageError: the folder cannot be read.
        """
        if has_run(self.folder):
            fit.restore(read_checkpoint(self.folder, run=fit.identity()).state)

    def offer(self, fit: "Fit") -> None:
        """Write a checkpoint, on the disk when this returns, if the last one is old enough.

        Raises:
            StorageError: the folder cannot be written to, or is full.
        """
        if time.monotonic() - self._written >= self._seconds:
            write_checkpoint(self.folder, fit.snapshot(), steps=fit.epoch, run=fit.identity())
            self._written = time.monotonic()

    def remove(self) -> None:
        """Remove the folder, once what the fit came to is safe."""
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
    ) -> None:
        self._trainer = trainer
        self._model = trainer.model
        self._epochs = epochs
        self._update = 0
        self._updates = epochs * -(-len(train) // trainer.config.batch_size)
        bootstrap = trainer.bootstrap(len(train))
        device = self._model.device
        self._windows = gather_windows(self._model, train.segments, observe=True)
        self._answers = Answers.of(train, bootstrap, device)
        left_out = (bootstrap == 0) * train.weight
        self._left_out = torch.from_numpy(left_out).float().to(device)  # [E, P]
        self._held_out: tuple[AnyWindows, Answers] | None = None
        if validation is not None:
            self._held_out = (
                gather_windows(self._model, validation.segments, observe=False),
                Answers.of(validation, np.ones((1, len(validation))), device),
            )
        self._judged = self._held_out is not None or bool(left_out.any())
        decided = (train if validation is None else validation).preference != 0.5
        seen = (left_out > 0).any(0) if validation is None else True
        self._judging = int((decided & seen).sum())
        self._digest = _digest(train, validation)
        self._history: list[dict[str, float]] = []
        self._best, self._best_epoch = np.inf, 0
        self._best_state: dict[str, Tensor] | None = None
        self._over, self._seconds = False, 0.0

    def run(self, on_epoch: OnEpoch | None, checkpoints: FitCheckpoints | None = None) -> FitReport:
        """Train for all epochs, or until there is a reason to stop."""
        if checkpoints is not None:
            checkpoints.resume(self)
        began = time.perf_counter() - self._seconds
        self._model.train()
        while self.epoch < self._epochs and not self._over:
            self._advance(on_epoch)
            self._seconds = time.perf_counter() - began
            if checkpoints is not None:
                checkpoints.offer(self)
        if self._best_state is not None:
            self._model.load_state_dict(self._best_state)
        else:
            self._best_epoch = self.epoch
        self._model.eval()
        return self._report(self._likelihood(), time.perf_counter() - began)

    @property
    def epoch(self) -> int:
        """Epochs made."""
        return len(self._history)

    def identity(self) -> dict[str, Any]:
        """What has to be the same for a checkpoint to be one of this fit, as JSON."""
        return {
            "fit": to_json(self._trainer.config) | {"epochs": self._epochs},
            "answers": self._digest,
        }

    def snapshot(self) -> dict[str, Any]:
        """All that later epochs depend on, between two of them."""
        return {
            "model": self._model.state_dict(),
            "trainer": self._trainer.snapshot(),
            "dropout": _dropout_stream(self._model.device),
            "history": self._history,
            "update": self._update,
            "best": self._best,
            "best_epoch": self._best_epoch,
            "best_state": self._best_state,
            "over": self._over,
            "seconds": self._seconds,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot of an equal fit."""
        self._model.load_state_dict(state["model"])
        self._trainer.restore(state["trainer"])
        _restore_dropout_stream(self._model.device, state["dropout"])
        self._history, self._update = list(state["history"]), int(state["update"])
        self._best, self._best_epoch = float(state["best"]), int(state["best_epoch"])
        self._best_state, self._over = state["best_state"], bool(state["over"])
        self._seconds = float(state["seconds"])

    def _advance(self, on_epoch: OnEpoch | None) -> None:
        metrics = self._epoch()
        self._history.append(metrics)
        if on_epoch:
            on_epoch(self.epoch, metrics)
        self._adapt(metrics)
        if not self._judged or metrics["validation_loss"] < self._best:
            self._best, self._best_epoch = metrics["validation_loss"], self.epoch
            if self._held_out is not None and self._trainer.config.keep_best:
                self._best_state = deepcopy(self._model.state_dict())
        self._over = self._is_over(self.epoch - self._best_epoch, metrics)

    def _likelihood(self) -> Likelihood:
        """Noise and scale of what was not trained on: left-out answers, or else held-out ones."""
        config, bagged = self._trainer.config, bool(self._left_out.any())
        part = (self._windows, self._answers) if bagged else self._held_out
        if not config.calibrate or part is None:
            return Likelihood(config.noise)
        logits, answers = self._trainer._logits(*part), part[1]
        votes = self._left_out > 0 if bagged else torch.ones_like(logits, dtype=torch.bool)
        weight = self._left_out.amax(0) if bagged else answers.weight[0]
        return fit_likelihood(logits, answers.preference, weight, votes, noise=config.noise)

    def _epoch(self) -> dict[str, float]:
        order = torch.randperm(len(self._answers), generator=self._trainer._order)
        order = order.to(self._model.device)
        answers = self._answers[order]
        losses, logits = [], []
        for batch in answers.split(self._trainer.config.batch_size):
            loss, batch_logits = self._step(batch)
            losses.append(loss * len(batch))
            logits.append(batch_logits)
        return self._metrics(
            torch.stack(losses).sum(0), torch.cat(logits, dim=1), answers.preference, order
        )

    def _step(self, batch: Answers) -> tuple[Tensor, Tensor]:
        """One optimiser step on a batch; its loss `[E]` and logits `[E, B]`."""
        trainer = self._trainer
        trainer._optimiser.zero_grad(set_to_none=True)
        self._set_learning_rate()
        total: Any = 0.0
        logits = []
        for part in batch.split(trainer.config.minibatch_size or len(batch)):
            features, mask = self._windows(part.pairs.flatten())
            loss, part_logits = trainer._loss(features, mask, part.preference, part.weight)
            share = len(part) / len(batch)
            (loss.sum() * share).backward()
            total = total + loss.detach() * share
            logits.append(part_logits.detach())
        penalty = trainer._penalty.of(self._model.parameters())
        if isinstance(penalty, Tensor):
            penalty.backward()
        trainer._optimiser.step()
        return total, torch.cat(logits, dim=1)

    def _set_learning_rate(self) -> None:
        config = self._trainer.config
        if config.schedule is not None:
            share = config.schedule.at(self._update, self._updates)
            for group in self._trainer._optimiser.param_groups:
                group["lr"] = config.learning_rate * share
        self._update += 1

    def _metrics(
        self, loss: Tensor, logits: Tensor, preference: Tensor, order: Tensor
    ) -> dict[str, float]:
        weight = self._answers.weight.sum(1)
        seen = weight > 0  # with few answers, a member's bootstrap may hold none
        consensus = preference_probability(logits).mean(0) - 0.5
        metrics = {
            "train_loss": float((loss[seen] / weight[seen]).mean()),
            "train_accuracy": float(preference_accuracy(consensus, preference)),
            "validation_loss": float("nan"),
            "validation_accuracy": float("nan"),
        }
        if self._held_out is not None:
            trained = Likelihood(self._trainer.config.noise)
            held = self._trainer._evaluate(*self._held_out, trained)
            metrics["validation_loss"], metrics["validation_accuracy"] = held
        elif self._judged:
            metrics |= self._out_of_bag(logits, preference, self._left_out[:, order])
        return metrics

    def _out_of_bag(self, logits: Tensor, preference: Tensor, weight: Tensor) -> dict[str, float]:
        """Loss and accuracy of each member on the answers its bootstrap left out."""
        total = weight.sum(1)
        used = total > 0
        noise = self._trainer.config.noise
        loss = preference_loss(logits, preference, weight, noise=noise) * len(preference)
        votes = torch.where(weight > 0, preference_probability(logits) - 0.5, 0.0).sum(0)
        seen = (weight > 0).any(0)
        return {
            "validation_loss": float((loss[used] / total[used]).mean()),
            "validation_accuracy": float(preference_accuracy(votes[seen], preference[seen])),
        }

    def _adapt(self, metrics: dict[str, float]) -> None:
        if self._judged:
            self._trainer._penalty = self._trainer._penalty.after(
                metrics["train_loss"], metrics["validation_loss"]
            )

    def _is_over(self, since_best: int, metrics: dict[str, float]) -> bool:
        config = self._trainer.config
        tired = config.patience is not None and since_best >= config.patience
        target = config.stop_accuracy
        return tired or (target is not None and metrics["train_accuracy"] >= target)

    def _report(self, likelihood: Likelihood, seconds: float) -> FitReport:
        history = self._history
        columns = {name: np.array([metrics[name] for metrics in history]) for name in history[0]}
        return FitReport(
            pairs=len(self._answers),
            members=self._model.members,
            epochs=len(history),
            best_epoch=self._best_epoch,
            judged=self._judging,
            penalty=self._trainer._penalty.strength,
            likelihood=likelihood,
            seconds=seconds,
            **columns,
        )


def _digest(*parts: Comparisons | None) -> str:
    """Of which pairs were compared with which answers."""
    found = blake2b(digest_size=16)
    for part in parts:
        if part is not None:
            columns = (part.pairs, part.preference, part.weight, part.segments.start)
            for column in columns:
                found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()


def _dropout_stream(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _restore_dropout_stream(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
