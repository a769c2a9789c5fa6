"""One fit of a reward model: the state that moves from epoch to epoch, and what it came to.

Noise and scale of the likelihood are fitted last, to answers that no weight was fitted to. Guo et
al., "On calibration of modern neural networks" (2017) scale the logits of a fitted classifier by
one number; the share of random answers is a second one (Christiano et al. 2017).
"""

import shutil
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from preferl.configs import to_json
from preferl.data.comparisons import Comparisons
from preferl.errors import require_in
from preferl.feedback.likelihood import Likelihood
from preferl.functional import preference_accuracy, preference_probability
from preferl.shapes import IntArray
from preferl.training.batches import Answers, gather_windows, held_out
from preferl.training.checkpoint_folder import has_run, read_checkpoint, write_checkpoint
from preferl.training.fit_report import FitReport
from preferl.training.trust import Trust, fit_trust

if TYPE_CHECKING:
    from preferl.training.reward_trainer import RewardTrainer

OnEpoch = Callable[[int, dict[str, float]], None]
"""Called after each epoch with its number, from 1, and its metrics."""

SECONDS: Final = 60.0
"""Between two checkpoints. One takes tens of milliseconds, so that this costs less than a
thousandth of a fit, and a killed program loses a minute at most, or one epoch that takes longer."""

MOVING: Final = ("history", "update", "best", "best_epoch", "best_state", "over", "seconds")
"""What a fit itself changes from epoch to epoch."""

PRIOR_ANSWERS: Final = 10.0
"""Answers that the configured noise counts as much as, so that few answers cannot move it far."""

PRIOR_DEVIATION: Final = 1.0
"""Of the scale's logarithm around 0: a factor of `e` either way is one deviation."""

UNKNOWN_NOISE: Final = 0.05
"""Where the search for noise begins if none is configured; at 0 there would be no gradient."""


@final
class FitCheckpoints:
    """A folder in which a fit is kept between epochs, and from which it resumes.

    A resumed fit ends as it would have without the interruption, to the last bit, on the same
    machine with the same packages.

    Args:
        folder: for one fit's checkpoints alone; made if it is not there.
        seconds: between two checkpoints, at least; 0 keeps every epoch.

    Raises:
        ConfigError: negative seconds.
    """

    def __init__(self, folder: Path | str, *, seconds: float = SECONDS) -> None:
        require_in("seconds", seconds, 0, float("inf"))
        self.folder = Path(folder)
        self._seconds = seconds
        self._written = time.monotonic()

    def offer(self, fit: "Fit") -> None:
        """Write a checkpoint, as `write_checkpoint` does, if the last one is old enough."""
        if time.monotonic() - self._written >= self._seconds:
            write_checkpoint(self.folder, fit.snapshot(), steps=fit.epoch, run=fit.identity())
            self._written = time.monotonic()

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
        places: IntArray | None = None,
    ) -> None:
        self._trainer, self._model, self._config = trainer, trainer.model, trainer.config
        self._epochs = epochs
        self._update, self._updates = 0, epochs * -(-len(train) // self._config.batch_size)
        places, device = np.arange(len(train)) if places is None else places, self._model.device
        bootstrap = trainer.bootstrap(int(places.max()) + 1)[:, places]
        self._windows = gather_windows(self._model, train.segments, observe=True)
        self._answers = Answers.of(train, bootstrap, device)
        out_of_bag = (bootstrap == 0) * train.weight
        self._out_of_bag = torch.from_numpy(out_of_bag).float().to(device)  # [E, P]
        self._held_out = None if validation is None else held_out(self._model, validation)
        self._validated = validation is not None or bool(out_of_bag.any())
        decided = (train if validation is None else validation).preference != 0.5
        unseen = (out_of_bag > 0).any(0) if validation is None else True
        self._decided = int((decided & unseen).sum())
        self._validated_on: Literal["validation", "out-of-bag"] | None = None
        if self._validated:
            self._validated_on = "out-of-bag" if validation is None else "validation"
        trainer.trust.begin(train.annotator, self._model.members, wanted=self._config.trust)
        self._digest = _digest(train, validation)
        self._history: list[dict[str, float]] = []
        self._best, self._best_epoch = np.inf, 0
        self._best_state: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self._over, self._seconds = False, 0.0

    def run(self, on_epoch: OnEpoch | None, checkpoints: FitCheckpoints | None = None) -> FitReport:
        """Train for all epochs, or until there is a reason to stop."""
        if checkpoints is not None and has_run(checkpoints.folder):
            self.restore(read_checkpoint(checkpoints.folder, run=self.identity()).state)
        began = time.perf_counter() - self._seconds
        self._model.train()
        while self.epoch < self._epochs and not self._over:
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
        rows, likelihood = self._history, self._likelihood()
        return FitReport(
            pairs=len(self._answers),
            members=self._model.members,
            epochs=self.epoch,
            best_epoch=self._best_epoch,
            judged=self._decided,
            penalty=self._trainer._penalty.strength,
            likelihood=likelihood,
            trust=self._trust(likelihood),
            validated_on=self._validated_on,
            seconds=time.perf_counter() - began,
            **{name: np.array([row[name] for row in rows]) for name in rows[0]},
        )

    @property
    def epoch(self) -> int:
        """Epochs made."""
        return len(self._history)

    def identity(self) -> dict[str, Any]:
        """What has to be the same for a checkpoint to be one of this fit, as JSON."""
        settings = to_json(self._config) | {"epochs": self._epochs}
        return {"fit": settings, "answers": self._digest}

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
        metrics, config, trainer = self._train_epoch(), self._config, self._trainer
        self._history.append(metrics)
        if on_epoch:
            on_epoch(self.epoch, metrics)
        loss = metrics["validation_loss"]
        if self._validated:
            trainer._penalty = trainer._penalty.after(metrics["train_loss"], loss)
        if not self._validated or loss < self._best:
            self._best, self._best_epoch = loss, self.epoch
            if self._held_out is not None and config.keep_best:
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
        losses, logits = [], []
        for batch in answers.split(self._config.batch_size):
            loss, batch_logits = self._step(batch)
            losses.append(loss * len(batch))
            logits.append(batch_logits)
        loss = torch.stack(losses).sum(0)
        self._trainer.trust.normalise()
        return self._metrics(loss, torch.cat(logits, dim=1), answers.preference, order)

    def _step(self, batch: Answers) -> tuple[Tensor, Tensor]:
        """One optimiser step on a batch; its loss `[E]` and logits `[E, B]`."""
        trainer, config, optimiser = self._trainer, self._config, self._trainer._optimiser
        optimiser.zero_grad(set_to_none=True)
        if config.schedule is not None:
            share = config.schedule.at(self._update, self._updates)
            for group in optimiser.param_groups:
                group["lr"] = config.learning_rate * share
        self._update += 1
        total: Any = 0.0
        logits = []
        for part in batch.split(config.minibatch_size or len(batch)):
            features, mask = self._windows(part.pairs.flatten())
            trust = trainer.trust.of(part.annotator)
            loss, part_logits = trainer._loss(features, mask, part.preference, part.weight, trust)
            share = len(part) / len(batch)
            (loss.sum() * share).backward()
            total = total + loss.detach() * share
            logits.append(part_logits.detach())
        penalty = trainer._penalty.of(self._model.parameters())
        if isinstance(penalty, Tensor):
            penalty.backward()
        optimiser.step()
        trainer.trust.step()
        return total, torch.cat(logits, dim=1)

    def _metrics(
        self, loss: Tensor, logits: Tensor, preference: Tensor, order: Tensor
    ) -> dict[str, float]:
        weight = self._answers.weight.sum(1)
        seen = weight > 0  # with few answers, a member's bootstrap may hold none
        consensus = preference_probability(logits).mean(0) - 0.5
        validation = float("nan"), float("nan")
        if self._held_out is not None:
            validation = self._trainer._evaluate(*self._held_out)
        elif self._validated:
            validation = self._evaluate_out_of_bag(logits, preference, self._out_of_bag[:, order])
        return {
            "train_loss": float((loss[seen] / weight[seen]).mean()),
            "train_accuracy": float(preference_accuracy(consensus, preference)),
            "validation_loss": validation[0],
            "validation_accuracy": validation[1],
        }

    def _evaluate_out_of_bag(
        self, logits: Tensor, preference: Tensor, weight: Tensor
    ) -> tuple[float, float]:
        """Loss and accuracy of each member on its out-of-bag answers."""
        total, votes = weight.sum(1), weight > 0
        used, seen = total > 0, votes.any(0)
        loss = self._trainer._mean_loss(logits, preference, weight) * len(preference)
        consensus = torch.where(votes, preference_probability(logits) - 0.5, 0.0).sum(0)
        accuracy = preference_accuracy(consensus[seen], preference[seen])
        return float((loss[used] / total[used]).mean()), float(accuracy)

    def _likelihood(self) -> Likelihood:
        """Noise and scale by out-of-bag answers, or else by held-out ones."""
        config, bagged = self._config, bool(self._out_of_bag.any())
        part = (self._windows, self._answers) if bagged else self._held_out
        if not config.calibrate or part is None:
            return Likelihood(config.noise)
        logits, answers = self._trainer._logits(*part), part[1]
        votes = self._out_of_bag > 0 if bagged else torch.ones_like(logits, dtype=torch.bool)
        weight = self._out_of_bag.amax(0) if bagged else answers.weight[0]
        return fit_likelihood(logits, answers.preference, weight, votes, noise=config.noise)

    def _trust(self, likelihood: Likelihood) -> tuple[Trust, ...]:
        """Trust in annotators by out-of-bag answers, or else by held-out ones."""
        bagged = bool(self._out_of_bag.any())
        part = (self._windows, self._answers) if bagged else self._held_out
        annotator = None if part is None else part[1].annotator
        if part is None or annotator is None:
            return ()
        logits, answers = self._trainer._logits(*part, with_trust=False), part[1]
        votes = self._out_of_bag > 0 if bagged else answers.weight > 0
        scaled = likelihood.scale * logits
        return fit_trust(scaled, answers.preference, votes, annotator)


def fit_likelihood(
    logits: Tensor, preference: Tensor, weight: Tensor, votes: Tensor, *, noise: float
) -> Likelihood:
    """The noise and scale that maximise the likelihood of answers times a weak prior.

    The prior is around the configured `noise`, the result without answers, and a scale of 1. Of
    logits `[E, P]`, the mean probability of members with `votes`, `[E, P]`, counts: those that have
    not been trained on an answer. Ties do not count: they mean that two clips are alike, not that
    answers are random.
    """
    counts = votes.any(0) & (preference != 0.5) & ~preference.isnan() & (weight > 0)
    if not counts.any():
        return Likelihood(noise)
    logits = logits[:, counts].detach().double().cpu()
    votes = votes[:, counts].double().cpu()
    target, weight = (column[counts].double().cpu() for column in (preference, weight))
    begin = torch.tensor(noise or UNKNOWN_NOISE, dtype=torch.float64)
    place = torch.stack([torch.logit(begin), torch.zeros_like(begin)]).requires_grad_()
    search = torch.optim.LBFGS(
        [place], max_iter=100, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def log_mean(logits: Tensor) -> Tensor:
        """`[P]` logarithm of the voting members' mean probability."""
        certain, random = F.logsigmoid(-place[0]), F.logsigmoid(place[0])
        floor = random - torch.log(torch.tensor(2.0, dtype=logits.dtype))
        each = torch.logaddexp(floor, certain + F.logsigmoid(torch.exp(place[1]) * logits))
        return torch.logsumexp(each + torch.log(votes), 0) - torch.log(votes.sum(0))

    def loss() -> Tensor:
        search.zero_grad()
        first, second = log_mean(logits), log_mean(-logits)
        total = -(weight * (target * first + (1 - target) * second)).sum()
        share = noise * F.logsigmoid(place[0]) + (1 - noise) * F.logsigmoid(-place[0])
        total = total + (-PRIOR_ANSWERS * share + (place[1] / PRIOR_DEVIATION).square() / 2)
        total.backward()
        return total

    with torch.enable_grad():
        search.step(loss)
    share, scale = place.detach()
    return Likelihood(float(torch.sigmoid(share)), float(torch.exp(scale)))


def dropout_stream(device: torch.device) -> torch.Generator:
    """The global stream from which dropout draws on a device."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    stream: torch.Generator = torch.cuda.default_generators[index]
    return stream


def _digest(*parts: Comparisons | None) -> str:
    """A digest of which pairs were compared, with which answers."""
    found = blake2b(digest_size=16)
    for part in parts:
        if part is not None:
            by = () if part.annotator is None else (part.annotator,)
            for column in (part.pairs, part.preference, part.weight, part.segments.start, *by):
                found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()
