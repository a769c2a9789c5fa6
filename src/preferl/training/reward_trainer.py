"""Fits any reward model, with any number of members, to comparisons."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, final, get_args

import numpy as np
import torch
from torch import Tensor

from preferl.data.comparisons import Comparisons
from preferl.errors import ConfigError, DataError, require_in
from preferl.feedback.likelihood import Likelihood
from preferl.functional.preference import (
    preference_accuracy,
    preference_logits,
    preference_loss,
    preference_probability,
)
from preferl.models.base import RewardModel
from preferl.shapes import FloatArray
from preferl.training.batches import Answers, AnyWindows, gather_windows
from preferl.training.device import usable_device
from preferl.training.fit import Fit, OnEpoch
from preferl.training.fit_checkpoints import FitCheckpoints
from preferl.training.fit_report import FitReport
from preferl.training.learning_rate import CosineSchedule
from preferl.training.precision import Precision
from preferl.training.regularisation import AdaptivePenalty


@dataclass(frozen=True)
class RewardTrainerConfig:
    """How a reward model is fitted.

    Attributes:
        epochs: passes over the comparisons, at most.
        batch_size: pairs per optimiser step.
        minibatch_size: pairs per forward; gradients of a batch are accumulated over them. None
            takes the whole batch at once; smaller ones save memory.
        learning_rate: of AdamW; the peak, where there is a schedule.
        schedule: how the learning rate moves over each fit; None keeps it.
        weight_decay: of AdamW, decoupled from the loss; at 0 AdamW is Adam.
        noise: share of answers the likelihood takes to be random while weights are fitted, in
            [0, 1); 0.1 in the DRLHP paper. Nonzero values forgive answers that contradict the
            model strongly.
        calibrate: whether the noise and scale of the probabilities shown later are fitted, after
            the weights, to answers that bootstraps left out, or else to held-out ones. Without
            either, and if not, probabilities are those of `noise`.
        bootstrap: whether each of several members sees its own resample of the answers.
        penalty: on the weights, fixed or adaptive.
        patience: epochs without a better validation loss after which to stop; None never stops
            early. Needs validation comparisons, or members whose bootstraps leave answers out.
        stop_accuracy: training accuracy at which to stop, in (0, 1]; None never. B-Pref takes
            0.97.
        keep_best: whether the state of the epoch with the best validation loss is what remains,
            where there are validation comparisons.
        restart: whether each fit begins from the initial weights rather than the last fit's.
        compile: whether `torch.compile` compiles the training step; it pays from some thousands
            of steps on and needs a C++ compiler.
        precision: of the products in training. "bfloat16" keeps weights, statistics, losses and
            all judging in float32, and is faster for wide models where the processor has
            instructions for it.
    """

    epochs: int = 50
    batch_size: int = 32
    minibatch_size: int | None = None
    learning_rate: float = 1e-3
    schedule: CosineSchedule | None = None
    weight_decay: float = 0.01
    noise: float = 0.0
    calibrate: bool = True
    bootstrap: bool = True
    penalty: AdaptivePenalty = field(default_factory=AdaptivePenalty)
    patience: int | None = None
    stop_accuracy: float | None = None
    keep_best: bool = True
    restart: bool = False
    compile: bool = False
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            require_in(name, getattr(self, name), 1, float("inf"))
        if self.minibatch_size is not None and (
            self.minibatch_size < 1 or self.batch_size % self.minibatch_size
        ):
            raise ConfigError.mismatch(
                "minibatch_size",
                expected=f"a divisor of batch_size {self.batch_size}",
                got=self.minibatch_size,
            )
        require_in("learning_rate", self.learning_rate, 1e-12, float("inf"))
        require_in("weight_decay", self.weight_decay, 0, float("inf"))
        if not 0 <= self.noise < 1:
            raise ConfigError.mismatch("noise", expected="in [0, 1)", got=self.noise)
        if self.patience is not None:
            require_in("patience", self.patience, 1, float("inf"))
        if self.stop_accuracy is not None:
            require_in("stop_accuracy", self.stop_accuracy, 1e-9, 1)
        if self.precision not in get_args(Precision):
            raise ConfigError.mismatch(
                "precision", expected=get_args(Precision), got=self.precision
            )


@final
class RewardTrainer:
    """One trainer for every model: pairs, members and bootstraps are axes.

    The optimiser and its moments live as long as the trainer, so that fits over growing
    comparisons go on where the last one ended. The environment's rewards are never read.
    """

    def __init__(
        self,
        model: RewardModel,
        config: RewardTrainerConfig | None = None,
        *,
        seed: int,
        device: str = "cpu",
    ) -> None:
        """Prepare to train.

        Args:
            model: trained in place; moved to `device`.
            config: how; the defaults if None.
            seed: of bootstraps, the order of pairs, and dropout.
            device: `"cpu"`, `"cuda"`, or `"auto"` for a GPU if there is one.

        Raises:
            ConfigError: torch has no such device here.
        """
        self.config = config or RewardTrainerConfig()
        self.model = model.to(usable_device(device))
        self._seed = seed
        self._order = torch.Generator().manual_seed(seed)
        self._initial = deepcopy(model.state_dict()) if self.config.restart else None
        self._optimiser = self._fresh_optimiser()
        self._penalty = self.config.penalty
        self._loss = torch.compile(self._batch_loss) if self.config.compile else self._batch_loss

    def fit(
        self,
        train: Comparisons,
        validation: Comparisons | None = None,
        *,
        epochs: int | None = None,
        on_epoch: OnEpoch | None = None,
        checkpoints: FitCheckpoints | None = None,
    ) -> FitReport:
        """Train on comparisons.

        Args:
            train: declined answers in it count for nothing.
            validation: held out, for early stopping and the choice of the best epoch.
            epochs: instead of the config's, for a longer first fit; at least 1.
            on_epoch: told of each epoch's metrics.
            checkpoints: keep the fit while it is under way, and go on with the one that is there.

        Raises:
            CheckpointError: the checkpoint to go on from is damaged, or of another fit.
            ConfigError: segments longer than the model's context, less than one epoch, or
                settings that need validation comparisons without any.
            DataError: no answered comparisons.
            SpaceError: steps of another shape than the model was built for.
        """
        epochs = self.config.epochs if epochs is None else epochs
        require_in("epochs", epochs, 1, float("inf"))
        # The steps of other comparisons, such as held-out ones, stay out of input statistics.
        train = _answered("comparisons to train on", train).compact()
        if validation is not None:
            validation = _answered("validation comparisons", validation).compact()
        self._check(train, validation)
        if self._initial is not None:
            self.model.load_state_dict(self._initial)
            self._optimiser = self._fresh_optimiser()
            self._penalty = self.config.penalty
        # Dropout draws from torch's global stream; the fork leaves the caller's as it was.
        with torch.random.fork_rng(_devices(self.model)):
            _seed_global(self.model, int(torch.randint(2**31, (), generator=self._order)))
            return Fit(self, train, validation, epochs).run(on_epoch, checkpoints)

    def evaluate(
        self, comparisons: Comparisons, likelihood: Likelihood | None = None
    ) -> tuple[float, float]:
        """Loss (mean over members) and accuracy (of the members' mean) on comparisons.

        Args:
            comparisons: not trained on, or else the numbers are too good.
            likelihood: that of the probabilities, such as `FitReport.likelihood`; None takes the
                config's noise, under which the loss is what training makes small.

        Raises:
            DataError: no answered comparisons.
            SpaceError: steps of another shape than the model was built for.
        """
        comparisons = _answered("comparisons to judge by", comparisons).compact()
        windows = gather_windows(self.model, comparisons.segments, observe=False)
        answers = Answers.of(comparisons, np.ones((1, len(comparisons))), self.model.device)
        return self._evaluate(windows, answers, likelihood or Likelihood(self.config.noise))

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

    def _batch_loss(
        self, features: Any, mask: Tensor, preference: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Each member's loss `[E]` and logits `[E, B]` of one minibatch of pairs."""
        halved = self.config.precision == "bfloat16"
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=halved):
            scores = self.model.judge(features, mask).scores.float()
        logits = preference_logits(scores.unflatten(1, (-1, 2)))  # [E, B * 2] to [E, B, 2]
        return preference_loss(logits, preference, weight, noise=self.config.noise), logits

    def _evaluate(
        self, windows: AnyWindows, answers: Answers, likelihood: Likelihood
    ) -> tuple[float, float]:
        logits = likelihood.scale * self._logits(windows, answers)
        noise = likelihood.noise
        loss = preference_loss(logits, answers.preference, answers.weight, noise=noise)
        total = answers.weight.sum(1).clamp(min=1e-9) / len(answers)
        consensus = preference_probability(logits).mean(0) - 0.5
        return (
            float((loss / total).mean()),
            float(preference_accuracy(consensus, answers.preference)),
        )

    @torch.no_grad()
    def _logits(self, windows: AnyWindows, answers: Answers) -> Tensor:
        """`[E, P]` as the model is used: without dropout."""
        training = self.model.training
        self.model.eval()
        logits = torch.cat(
            [
                preference_logits(
                    self.model.judge(*windows(pairs.flatten())).scores.unflatten(1, (-1, 2))
                )
                for pairs in answers.pairs.split(max(1, windows.at_once // 2))
            ],
            dim=1,
        )
        self.model.train(training)
        return logits

    def _check(self, train: Comparisons, validation: Comparisons | None) -> None:
        length = max(part.segments.length for part in (train, validation) if part is not None)
        if 1 < self.model.context < length:
            raise ConfigError.mismatch(
                "segment length",
                expected=f"at most the model's context {self.model.context}",
                got=length,
                fix="Give the model a longer context or cut shorter segments.",
            )
        require_judges(self.config, members=self.model.members, held_out=validation is not None)

    def _fresh_optimiser(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.model.parameters(),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
            fused=True,
        )


def require_judges(config: RewardTrainerConfig, *, members: int, held_out: bool = False) -> None:
    """Raise `ConfigError` where settings need answers that are not trained on and there are none.

    Args:
        config: of a trainer.
        members: `E`; the bootstraps of several leave answers out.
        held_out: whether there are validation comparisons.
    """
    if held_out or (config.bootstrap and members > 1):
        return
    needing = {"patience": config.patience, "penalty band": config.penalty.band}
    for name, setting in needing.items():
        if setting is not None:
            raise ConfigError(
                f"{name} needs validation comparisons to judge by. Pass some with `split`, or "
                "use several members, whose bootstraps leave answers out."
            )


def _answered(what: str, comparisons: Comparisons) -> Comparisons:
    """Those that were not declined.

    Raises:
        DataError: there are none.
    """
    if not comparisons.answered.any():
        fix = "Ask questions first, or check the label files."
        raise DataError.mismatch(what, expected="at least one answered", got="none", fix=fix)
    return comparisons[comparisons.answered]


def _devices(model: RewardModel) -> list[torch.device]:
    return [model.device] if model.device.type == "cuda" else []


def _seed_global(model: RewardModel, seed: int) -> None:
    """Seed the stream that dropout draws from, and no other device's."""
    if model.device.type == "cuda":
        torch.cuda.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
