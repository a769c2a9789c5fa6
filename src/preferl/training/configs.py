"""Settings of fits (no torch): passes, batches, likelihood, regularisation, device, precision."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self, cast, final

from preferl.configs import require_fields
from preferl.errors import ConfigError, require_in, require_one_of, require_share
from preferl.reading import reading
from preferl.registry import LOSSES, PENALTIES

if TYPE_CHECKING:
    from torch import Tensor

    FunctionName = str | Callable[..., Tensor]
else:
    # the name of a function that was passed in code, see `Registry.registered_name`
    FunctionName = str

Precision = Literal["float32", "bfloat16"]
"""Precision in which products are computed; parameters always have 32 bits."""


@final
@dataclass(frozen=True)
class CosineSchedule:
    """A learning rate that rises linearly to its peak, then falls along half a cosine.

    Loshchilov and Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", section 3.
    The peak is the trainer's `learning_rate`. The schedule spans all updates of a fit. A shorter
    fit goes through the same rates in fewer updates.

    Attributes:
        warmup: share of the updates in which the rate rises; 0 begins at the peak.
        start: share of the peak at the first update.
        end: share of the peak after the last update.

    >>> schedule = CosineSchedule(warmup=0.5, start=0.0, end=0.2)
    >>> [round(schedule.at(update, 4), 3) for update in range(5)]
    [0.0, 0.5, 1.0, 0.6, 0.2]
    """

    warmup: float = 0.1
    start: float = 0.1
    end: float = 0.1

    def __post_init__(self) -> None:
        require_fields(self, warmup=(0, 1), start=(0, 1), end=(0, 1))

    def at(self, update: int, updates: int) -> float:
        """Return the share of the peak at update number `update`, from 0, out of `updates`."""
        rising = int(self.warmup * updates)
        if update < rising:
            return self.start + (1 - self.start) * update / rising
        progress = min(1.0, (update - rising) / max(1, updates - rising))
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * progress)) / 2


@final
@dataclass(frozen=True)
class AdaptivePenalty:
    """Penalty on all weights, such as `strength * Σ|w|^p`, and the rule that changes its strength.

    The rule of Christiano et al. (2017), section 2.2.3, is "chosen to keep the validation loss
    between 1.1 and 1.5 times the training loss". Both losses here are means per answer, so their
    ratio does not depend on the sizes of the two sets.

    Attributes:
        strength: factor of the penalty; 0 switches it off for good.
        norm: the `p` of the penalty, at least 1, since lower powers have no finite gradient at 0.
        band: two ratios of validation to training loss. The strength shrinks below the first and
            grows above the second; None keeps the strength as it is.
        factor: share by which the strength shrinks or grows, at most once per epoch, in (0, 1).
        measure: what the strength multiplies: "power", which is `Σ|w|^p`, or a function of yours
            that maps the parameters to a number. Give the function itself, its name in
            `preferl.registry.PENALTIES`, or `module:Name`. The function gets `norm` if it has such
            an argument.

    Raises:
        ConfigError: a number is out of its range, or the measure is unknown.
    """

    strength: float = 0.0
    norm: float = 2
    band: tuple[float, float] | None = None
    factor: float = 0.2
    measure: FunctionName = "power"

    def __post_init__(self) -> None:
        require_in("penalty strength", self.strength, 0, math.inf)
        if not 1 <= self.norm < math.inf:
            raise ConfigError(f"penalty norm: expected at least 1 and finite, got {self.norm}.")
        object.__setattr__(self, "measure", PENALTIES.registered_name(self.measure))
        if not 0 < self.factor < 1:
            raise ConfigError(f"penalty factor: expected in (0, 1), got {self.factor}.")
        if self.band is not None:
            if not 0 <= self.band[0] < self.band[1]:
                raise ConfigError(f"penalty band: expected 0 <= low < high, got {self.band}.")
            if not self.strength:
                raise ConfigError(
                    "penalty strength: expected more than 0 with a band, got 0. A strength of 0 "
                    "cannot grow; begin with 1e-4."
                )

    def of(self, parameters: "Iterable[Tensor]") -> "Tensor | float":
        """Compute the penalty on these parameters; add it to the loss once per optimiser step.

        Raises:
            ConfigError: your measure does not return one number.
        """
        if self.strength == 0:
            return 0.0
        measure = PENALTIES.bound(str(self.measure), norm=self.norm)
        size = measure(list(parameters))
        got = getattr(size, "shape", type(size).__name__)
        if getattr(size, "ndim", 1) != 0:
            raise ConfigError(
                f"penalty {self.measure}: expected a tensor of one number, got {got}."
            )
        return self.strength * cast("Tensor", size)

    def after(self, training_loss: float, validation_loss: float) -> Self:
        """Return the penalty for the next epoch, given the losses of the last one.

        >>> AdaptivePenalty(1.0, band=(1.1, 1.5)).after(0.1, 0.2).strength
        1.2
        """
        if self.band is None or not training_loss > 0:
            return self
        ratio = validation_loss / training_loss
        low, high = self.band
        change = 1 + self.factor if ratio > high else 1 - self.factor if ratio < low else 1.0
        return replace(self, strength=self.strength * change)


@dataclass(frozen=True)
class RewardTrainerConfig:
    """How a reward model is fitted.

    Attributes:
        epochs: most passes over the comparisons.
        batch_size: pairs per optimiser step.
        minibatch_size: pairs per forward; the gradients of a batch are accumulated over its
            minibatches. None takes the whole batch at once; smaller ones save memory.
        learning_rate: learning rate of AdamW; its peak if there is a schedule.
        schedule: how the learning rate changes over each fit; None keeps it constant.
        weight_decay: weight decay of AdamW, decoupled from the loss; at 0 AdamW is Adam.
        loss: loss of each answer: "cross_entropy" (the DRLHP paper's), "squared_error", whose
            gradient is small for answers that contradict the model, or a function of yours. Give
            the function itself, its name in `preferl.registry.LOSSES`, or `module:Name`. The loss
            also decides when to stop; calibration does not depend on it.
        noise: label noise: the share of answers that the likelihood takes to be random while
            weights are fitted, in [0, 1); 0.1 in the DRLHP paper. With noise above 0, a fit
            forgives answers that strongly contradict the model. Noise as large as 0.5 keeps members
            from memorising wrong answers. "fitted" estimates the noise after each epoch from
            answers that members have not seen. Noise does not apply to soft labels, such as 0.8 by
            one teacher (`Comparisons.soft`).
        calibrate: whether noise and scale (temperature) of the probabilities are fitted after the
            weights. They are fitted to out-of-bag answers, or else to held-out answers. If this is
            false, or if there are no such answers, probabilities use `noise`, but at most 0.1: a
            larger `noise` makes fits robust, but does not estimate how many answers are random.
        trust: whether a number is fitted for each annotator that multiplies the log-odds of that
            person's answers. It is near 0 for somebody who answers at random, and negative for
            somebody who answers the opposite. Switch it on if several people answer and not all of
            them are careful. It needs answers whose `Comparisons.annotator` is known.
        thresholds: who shares the thresholds with which ratings and outcomes are fitted. "shared"
            by all people is right if they rate alike or each rates few clips. One set for each
            "annotator" is right if some people rate more strictly and each rates some dozen clips.
        crop: how many steps the two clips of a pair lose at most, as in SURF; 0 cuts nothing. Both
            clips lose the same number of steps, each at its own place, drawn anew in each pass.
            Clips for validation are never cropped.
        crops: number of crops of each pair in one optimiser step. All crops have the pair's answer,
            and share its weight. SURF has 1; QPA has 20, with a `crop` of 15 out of 50 steps. The
            time of a step grows almost as much.
        implied: whether a fit also learns from implied answers: if a is preferred to b and b to c,
            a is preferred to c (`preferl.data.implied`). Switch it on if each clip was compared
            several times, as in ranked lists.
        bootstrap: whether each of several members sees its own resample of the answers.
        penalty: penalty on the weights, fixed or adaptive, of any norm or a function of yours.
        patience: number of epochs without a better loss on unseen answers after which a fit stops.
            Unseen answers are validation comparisons, or else the members' out-of-bag answers,
            about a third of all. A fit without unseen answers makes all its epochs. None never
            stops early, and models then memorise wrong answers.
        stop_accuracy: training accuracy at which a fit stops, in (0, 1]; None never stops. B-Pref
            takes 0.97.
        keep_best: whether a fit keeps the state of the epoch with the best loss on unseen answers.
            This needs validation comparisons, or out-of-bag answers and a patience.
        restart: whether each fit begins from the initial weights instead of the last fit's weights.
        compile: whether `torch.compile` compiles the training step; it helps from some thousands
            of steps on and needs a C++ compiler.
        precision: precision of the products in training. "bfloat16" keeps weights, statistics,
            losses and validation in float32, and is faster for wide models if the processor or GPU
            has instructions for it.
    """

    epochs: int = 50
    batch_size: int = 32
    minibatch_size: int | None = None
    learning_rate: float = 1e-3
    schedule: CosineSchedule | None = None
    weight_decay: float = 0.01
    loss: FunctionName = "cross_entropy"
    noise: Literal["fitted"] | float = 0.5
    calibrate: bool = True
    trust: bool = False
    thresholds: Literal["shared", "annotator"] = "shared"
    crop: int = 0
    crops: int = 1
    implied: bool = False
    bootstrap: bool = True
    penalty: AdaptivePenalty = field(default_factory=AdaptivePenalty)
    patience: int | None = 10
    stop_accuracy: float | None = None
    keep_best: bool = True
    restart: bool = False
    compile: bool = False
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        require_fields(self, epochs=1, batch_size=1, learning_rate=1e-12, weight_decay=0)
        require_fields(self, crop=0, crops=1, patience=1, stop_accuracy=(1e-9, 1))
        if self.crops > 1 and self.crop == 0:
            raise ConfigError(
                f"crops: expected 1 if crop is 0, which cuts nothing, got {self.crops}. Set crop "
                "to the number of steps that clips lose at most."
            )
        size = self.batch_size if self.minibatch_size is None else self.minibatch_size
        if not (size > 0 and self.batch_size % size == 0):
            raise ConfigError(
                f"minibatch_size: expected a divisor of batch_size {self.batch_size}, got {size}."
            )
        if self.noise != "fitted":
            require_share("noise", self.noise)
        require_one_of("thresholds", self.thresholds, ("shared", "annotator"))
        object.__setattr__(self, "loss", LOSSES.registered_name(self.loss))


def require_validation(
    config: RewardTrainerConfig, *, members: int, held_out: bool = False
) -> None:
    """Raise `ConfigError` if a penalty's band has no unseen answers to follow.

    Unseen answers are validation comparisons, or the out-of-bag answers of several members.
    """
    if config.penalty.band and not (held_out or has_out_of_bag(config, members=members)):
        raise ConfigError(
            "penalty band needs validation comparisons. Pass some with `split`, or use several "
            "members, whose bootstraps leave answers out."
        )


def has_out_of_bag(config: RewardTrainerConfig, *, members: int) -> bool:
    """Whether members have out-of-bag answers, so that no other answers are needed to validate."""
    return config.bootstrap and members > 1


def fast_precision() -> Precision:
    """Return the lowest precision that this machine's processor or GPU has instructions for."""
    import torch

    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    # old versions of torch lack it
    has: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return "bfloat16" if has.get("avx512_bf16") or has.get("amx_bf16") else "float32"


def usable_device(name: str) -> str:
    """Return the device of a name; "auto" is a GPU if there is one.

    Raises like `require_device`.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    require_device(name)
    return name


def require_device(name: str) -> None:
    """Raise `ConfigError` unless torch has the device on this machine."""
    import torch

    what = f"device {name!r}"
    expected = 'one that torch has here, such as "cpu" or "auto"'
    with reading(what, expected=expected, error=ConfigError):
        torch.empty(0, device=name)
