"""Fits any reward model, with any number of members, to comparisons."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from preferl.data.comparisons import Comparisons
from preferl.data.content import pair_numbers
from preferl.data.implied import with_implied
from preferl.errors import ConfigError, DataError, require_in
from preferl.feedback.likelihood import Likelihood
from preferl.functional.preference import (
    preference_accuracy,
    preference_logits,
    preference_loss,
    preference_probability,
)
from preferl.models.base import RewardModel
from preferl.models.folder import require_finite
from preferl.reading import read_object, reading
from preferl.registry import LOSSES
from preferl.shapes import FloatArray, IntArray
from preferl.threads import is_small, threads_for
from preferl.training.batches import Answers, AnyWindows, held_out
from preferl.training.calibration import UNKNOWN_NOISE
from preferl.training.configs import RewardTrainerConfig, require_validation, usable_device
from preferl.training.distributed import ALONE, World
from preferl.training.fit import (
    Fit,
    FitCheckpoints,
    OnEpoch,
    dropout_stream,
)
from preferl.training.fit_report import FitReport, Validation
from preferl.training.trust import AnnotatorTrust

TENSORS: Final = "trainer.safetensors"
"""Moments of the optimiser and the stream that orders pairs."""
STATE: Final = "trainer.json"
MOST_PAIRS: Final = 1_000_000
"""That a model remembers to have been fitted to, 8 bytes each; of more, a random part."""
ORDER: Final = "order"
TRUST: Final = "trust"


@final
class RewardTrainer:
    """One trainer for every model: pairs, members and bootstraps are axes.

    The trainer keeps its optimiser with all moments, so that fits over growing comparisons go on
    where the last one ended. The environment's rewards are never read.

    Args:
        model: trained in place; moved to `device`.
        config: how; the defaults if None.
        seed: of bootstraps, the order of pairs, and dropout.
        device: `"cpu"`, `"cuda"`, or `"auto"` for a GPU if there is one.
        world: of the processes that make each fit together, by default this one alone. They give
            the same arguments and call `fit` as often. Of one process, losses differ by rounding,
            and where there is dropout by what is dropped.

    Raises:
        ConfigError: torch has no such device here.
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
        self._small = is_small(model, context=model.context)
        self._seed = seed
        self._order = torch.Generator().manual_seed(seed)
        self._initial = deepcopy(model.state_dict()) if self.config.restart else None
        self._optimiser = self._fresh_optimiser()
        self.trust = AnnotatorTrust(self.model.device)
        self._penalty = self.config.penalty
        self._forget_noise()
        self._loss = torch.compile(self._batch_loss) if self.config.compile else self._batch_loss

    def fit(
        self,
        train: Comparisons,
        validation: Comparisons | None = None,
        *,
        places: IntArray | None = None,
        epochs: int | None = None,
        on_epoch: OnEpoch | None = None,
        checkpoints: FitCheckpoints | None = None,
    ) -> FitReport:
        """Train on comparisons; a small model takes one processor thread.

        Args:
            train: declined answers in it do not count.
            validation: held out, for early stopping and the choice of the best epoch.
            places: `[P]`, the column of each answer in `bootstrap`, so that members keep their
                resamples where other answers are withdrawn; the order in `train` if None. -1 is a
                pseudo-label: every member trains on it, and it counts in no accuracy.
            epochs: at least 1; those of the config if None.
            on_epoch: called with each epoch's number and metrics, in the first process alone.
            checkpoints: keep the fit between epochs, and resume the one that is there.

        Raises:
            CheckpointError: the checkpoint to resume from is damaged, or of another fit.
            ConfigError: segments longer than the model's context, less than one epoch, or a
                penalty's band without answers to validate on; or processes that fit other
                things, or with batch normalisation.
            DataError: no answered comparisons.
            SpaceError: steps of another shape than the model was built for.
        """
        epochs = self.config.epochs if epochs is None else epochs
        require_in("epochs", epochs, 1, float("inf"))
        # The steps of other comparisons, such as held-out ones, stay out of input statistics.
        places = None if places is None else places[train.answered]
        train = _answered("comparisons to train on", train)
        asked = len(train) if places is None else int((places >= 0).sum())
        soft = train.soft
        if self.config.implied:
            given = np.arange(len(train)) if places is None else places
            train, first = with_implied(train)
            places = given[first]
            soft = np.append(soft, np.zeros(len(train) - len(soft), bool))
        if validation is not None:
            validation = _answered("validation comparisons", validation)
        learned_from = [train] if places is None else [train[places >= 0]]  # no pseudo-labels
        if validation is not None:
            learned_from.append(validation)
        length = max(part.segments.length for part in (train, validation) if part is not None)
        context = self.model.context
        members = self.model.members
        if 1 < context < length:
            raise ConfigError(
                f"segment length: expected at most the model's context {context}, got {length}. "
                "Give the model a longer context or cut shorter segments."
            )
        require_validation(self.config, members=members, held_out=validation is not None)
        if self._initial is not None:
            self.model.load_state_dict(self._initial)
            self._optimiser = self._fresh_optimiser()
            self.trust = AnnotatorTrust(self.model.device)
            self._penalty = self.config.penalty
            self._forget_noise()
            self.model.fitted_pairs = self.model.fitted_pairs[:0]
        for part in learned_from:
            numbers = pair_numbers(part[part.weight > 0])
            pairs = np.union1d(self.model.fitted_pairs, numbers)
            self.model.fitted_pairs = pairs[:MOST_PAIRS]
        # Dropout draws from torch's global stream; the fork leaves the caller's as it was.
        device = self.model.device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices), threads_for(small=self._small):
            seed = int(torch.randint(2**31, (), generator=self._order))
            dropout_stream(device).manual_seed(seed)
            fit = Fit(
                self,
                train=train,
                validation=validation,
                epochs=epochs,
                places=places,
                asked=asked,
                soft=soft,
            )
            return fit.run(on_epoch, checkpoints)

    def evaluate(
        self, comparisons: Comparisons, likelihood: Likelihood | None = None
    ) -> tuple[float, float]:
        """Loss (mean over members) and accuracy (of the members' mean) on held-out comparisons.

        Under a likelihood, such as `FitReport.likelihood`, the loss is the cross-entropy; without
        one, it is the loss that training minimises.

        Raises:
            DataError: no answered comparisons.
            SpaceError: steps of another shape than the model was built for.
        """
        comparisons = _answered("comparisons to evaluate on", comparisons)
        with threads_for(small=self._small):
            part = held_out(self.model, comparisons)
            return self._evaluate(self._logits(*part), part[1], likelihood)

    def validate(self, held_out: Comparisons, likelihood: Likelihood) -> Validation:
        """Evaluate on held-out answers, of which there may be none, under a fit's likelihood."""
        decided = int(held_out.decided.sum())
        if not decided:
            return Validation(len(held_out), 0)
        loss, accuracy = self.evaluate(held_out, likelihood)
        return Validation(len(held_out), decided, accuracy, loss)

    def bootstrap(self, pairs: int) -> FloatArray:
        """`[E, P]` how often each member sees each answer: Poisson(1) counts, or ones.

        The counts of the first answers do not change when more arrive, so members keep their
        differences as comparisons grow.
        """
        members = self.model.members
        if not self.config.bootstrap or members == 1:
            return np.ones((members, pairs))
        rng = np.random.default_rng([self._seed, 0xB007])
        return rng.poisson(1.0, (pairs, members)).T.astype(np.float64)

    def _forget_noise(self) -> None:
        fitted = self.config.noise == "fitted"
        self.set_noise(UNKNOWN_NOISE if fitted else float(self.config.noise))

    def set_noise(self, noise: float) -> None:
        """Take this share of answers to be random from now on."""
        self.noise = noise
        self._answer_loss = LOSSES.bound(str(self.config.loss), noise=noise)
        self._loss_without_noise = LOSSES.bound(str(self.config.loss), noise=0.0)

    def snapshot(self) -> dict[str, Any]:
        """State that the next fit depends on beside the model, for `restore`."""
        return {
            "moments": self._optimiser.state_dict()["state"],
            "order": self._order.get_state(),
            "penalty": self._penalty.strength,
            "trust": self.trust.snapshot(),
            "noise": self.noise,
            "fitted_pairs": self.model.fitted_pairs,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore the state of a trainer of the same settings and the same model."""
        self._order.set_state(snapshot["order"])  # first, since it alone may fail
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": snapshot["moments"], "param_groups": groups})
        self._penalty = replace(self._penalty, strength=float(snapshot["penalty"]))
        self.trust.restore(snapshot["trust"])
        self.set_noise(float(snapshot["noise"]))
        self.model.fitted_pairs = snapshot["fitted_pairs"]

    def _batch_loss(
        self,
        features: Any,
        mask: Tensor,
        preference: Tensor,
        weight: Tensor,
        trust: Tensor | None,
        soft: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Each member's loss `[E]` and logits `[E, B]` of one minibatch of pairs."""
        halved = self.config.precision == "bfloat16"
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=halved):
            scores = self.model.judge(features, mask).scores.float()
        logits = preference_logits(scores.unflatten(1, (-1, 2)))  # [E, B * 2] to [E, B, 2]
        logits = logits if trust is None else logits * trust
        return self._mean_loss(logits, preference, weight, soft), logits

    def _mean_loss(
        self, logits: Tensor, preference: Tensor, weight: Tensor, soft: Tensor | None
    ) -> Tensor:
        """The configured loss of `[E, P]` logits over weighted answers, `[E]`.

        Soft labels say themselves how sure they are. Under a noise of 0.5, no model could give one
        of 0.8, since no probability exceeds 0.75.
        """

        def without_noise_if_soft(logits: Tensor, target: Tensor) -> Tensor:
            loss: Tensor = self._answer_loss(logits, target)
            if soft is None:
                return loss
            return torch.where(soft, self._loss_without_noise(logits, target), loss)

        return preference_loss(logits, preference, weight, loss=without_noise_if_soft)

    def _evaluate(
        self, logits: Tensor, answers: Answers, likelihood: Likelihood | None = None
    ) -> tuple[float, float]:
        """Loss and accuracy of members on answers, each on those that have a weight for it."""
        given = answers.preference, answers.weight
        if likelihood is None:
            loss = self._mean_loss(logits, *given, answers.soft)
        else:
            logits = likelihood.scale * logits
            loss = preference_loss(logits, *given, noise=likelihood.noise)
        total = answers.weight.sum(1) / len(answers)
        votes = answers.weight > 0
        used = (total > 0).expand_as(loss)
        seen = votes.any(0)
        consensus = torch.where(votes, preference_probability(logits) - 0.5, 0.0).sum(0)
        accuracy = preference_accuracy(consensus[seen], answers.preference[seen])
        return float((loss / total)[used].mean()), float(accuracy)

    @torch.no_grad()
    def _logits(
        self,
        windows: AnyWindows,
        answers: Answers,
        *,
        with_trust: bool = True,
        world: World = ALONE,
    ) -> Tensor:
        """`[E, P]` as the model is used: without dropout, and of these annotators.

        Each process of `world` computes whole chunks, and has the logits of all.
        """
        training = self.model.training
        self.model.eval()
        chunks = answers.pairs.flatten().split(2 * max(1, windows.at_once // 2))
        scores = [answers.weight.new_zeros(self.model.members, len(some)) for some in chunks]
        for number in world.own(range(len(chunks))):
            scores[number] = self.model.judge(*windows(chunks[number])).scores
        self.model.train(training)
        found = world.merge(torch.cat(scores, dim=1))
        logits = preference_logits(found.unflatten(1, (-1, 2)))
        trust = self.trust.of(answers.annotator) if with_trust else None
        return logits if trust is None else logits * trust

    def _fresh_optimiser(self) -> torch.optim.Optimizer:
        device = self.model.device
        rate = self.config.learning_rate
        on_gpu = device.type == "cuda"
        return torch.optim.AdamW(
            self.model.parameters(),
            lr=torch.tensor(rate, device=device) if on_gpu else rate,  # which a recording reads
            weight_decay=self.config.weight_decay,
            fused=True,
            capturable=on_gpu,
        )


def save_trainer(folder: Path, trainer: RewardTrainer, notes: dict[str, Any]) -> None:
    """Write a trainer's state and notes as JSON into the folder in which its model is saved."""
    state = trainer.snapshot()
    tensors = {
        f"{number}.{name}": value.detach().cpu().contiguous()
        for number, moments in state["moments"].items()
        for name, value in moments.items()
    }
    tensors |= {ORDER: state["order"], TRUST: state["trust"]["value"].cpu()}
    save_file(tensors, folder / TENSORS)
    about = {"penalty": state["penalty"], "noise": state["noise"], "notes": notes}
    (folder / STATE).write_text(json.dumps(about, allow_nan=False), encoding="utf-8")


def load_trainer(folder: Path, trainer: RewardTrainer, model: RewardModel) -> dict[str, Any]:
    """Restore what `save_trainer` wrote and return its notes; the next fit is that of the original.

    The trainer has the same config and seed, and gets the numbers of `model`, which was saved. It
    stays as it was where files are missing, damaged or of another model: a `CheckpointError`.
    """
    with reading(folder, expected="the state of such a trainer"):
        about = read_object(folder / STATE)
        tensors = load_file(folder / TENSORS)
        penalty = float(about["penalty"])
        notes = dict(about["notes"])
        order = tensors.pop(ORDER)
        trust = tensors.pop(TRUST, torch.ones(0))
        if trust.ndim != 1 or not trust.is_floating_point():
            raise ValueError(f"trust of {trust.dtype} and shape {tuple(trust.shape)}")
        noise = float(about["noise"])
        parameters = list(trainer.model.parameters())
        moments: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            number, name = key.split(".")
            shape = parameters[int(number)].shape
            if tensor.ndim and tensor.shape != shape:
                raise ValueError(f"{key} of shape {tuple(tensor.shape)}, not {tuple(shape)}")
            if not tensor.is_floating_point():
                raise ValueError(f"{key} of {tensor.dtype}")
            moments.setdefault(int(number), {})[name] = tensor
        require_finite(folder / TENSORS, tensors | {TRUST: trust})
        torch.Generator().set_state(order)  # a damaged one must not be found out half way
        trainer.model.load_state_dict(model.state_dict())
    state = {"moments": moments, "order": order, "penalty": penalty, "noise": noise}
    trainer.restore(state | {"trust": {"value": trust}, "fitted_pairs": model.fitted_pairs})
    return notes


def _answered(what: str, comparisons: Comparisons) -> Comparisons:
    """Comparisons that were not declined, at least one, with the steps that they need alone."""
    if not comparisons.answered.any():
        raise DataError(
            f"{what}: expected at least one answered, got none. Ask queries first, or check the "
            "label files."
        )
    return comparisons[comparisons.answered].compact()
