"""One fit of a reward model: the state that moves from epoch to epoch."""

import time
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor

from preferl.data.comparisons import Comparisons
from preferl.feedback.likelihood import Likelihood
from preferl.functional.preference import (
    preference_accuracy,
    preference_loss,
    preference_probability,
)
from preferl.training.batches import Answers, AnyWindows, gather_windows
from preferl.training.fit_report import FitReport
from preferl.training.likelihood import fit_likelihood

if TYPE_CHECKING:
    from preferl.training.reward_trainer import RewardTrainer

OnEpoch = Callable[[int, dict[str, float]], None]
"""Called after each epoch with its number, from 1, and its metrics."""


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

    def run(self, on_epoch: OnEpoch | None) -> FitReport:
        """Train for all epochs, or until there is a reason to stop."""
        began = time.perf_counter()
        history: list[dict[str, float]] = []
        best, best_epoch, best_state = np.inf, 0, None
        self._model.train()
        for epoch in range(1, self._epochs + 1):
            metrics = self._epoch()
            history.append(metrics)
            if on_epoch:
                on_epoch(epoch, metrics)
            self._adapt(metrics)
            if not self._judged or metrics["validation_loss"] < best:
                best, best_epoch = metrics["validation_loss"], epoch
                if self._held_out is not None and self._trainer.config.keep_best:
                    best_state = deepcopy(self._model.state_dict())
            if self._is_over(epoch - best_epoch, metrics):
                break
        if best_state is not None:
            self._model.load_state_dict(best_state)
        else:
            best_epoch = len(history)
        self._model.eval()
        likelihood = self._likelihood()
        return self._report(history, best_epoch, likelihood, time.perf_counter() - began)

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

    def _report(
        self,
        history: list[dict[str, float]],
        best_epoch: int,
        likelihood: Likelihood,
        seconds: float,
    ) -> FitReport:
        columns = {name: np.array([metrics[name] for metrics in history]) for name in history[0]}
        return FitReport(
            pairs=len(self._answers),
            members=self._model.members,
            epochs=len(history),
            best_epoch=best_epoch,
            judged=self._judging,
            penalty=self._trainer._penalty.strength,
            likelihood=likelihood,
            seconds=seconds,
            **columns,
        )
