"""Named ways to fit a reward: this library's, and those of the Preference Transformer's paper.

Kim et al. 2023, "Preference Transformer: Modeling Human Preferences using Transformers for RL",
compare a Markovian reward (MR), an LSTM (NMR) and their transformer (PT).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.data.ratings import Ratings
from preferl.data.validation import split
from preferl.errors import ConfigError, DataError, require_in, require_one_of, require_share
from preferl.models.configs import (
    CNNRewardConfig,
    EnsembleConfig,
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    RewardModelConfig,
    members_of,
)
from preferl.models.spaces import Space
from preferl.printing import get_logger
from preferl.registry import REWARD_MODELS
from preferl.training.configs import (
    CosineSchedule,
    Precision,
    RewardTrainerConfig,
    fast_precision,
    has_out_of_bag,
    require_validation,
)
from preferl.training.distributed import ALONE, World

if TYPE_CHECKING:
    from preferl.models.base import RewardModel
    from preferl.training.fit_report import FitReport
    from preferl.training.reward_trainer import FitCheckpoints, OnEpoch

LOGGER = get_logger(__name__)


@final
@dataclass(frozen=True)
class RewardPreset:
    """A model and how it is fitted.

    Attributes:
        model: shape of the model.
        held_out: share of the answers kept out of training. The model with the least loss on these
            answers is kept. 0 trains on all answers.
        choose: whether to fit each of `alternatives` and keep the one with the least loss on unseen
            answers.

    Raises:
        ConfigError: a penalty band or a choice has no answers for validation, or a number is out of
            range.
    """

    model: RewardModelConfig
    trainer: RewardTrainerConfig
    held_out: float = 0.0
    choose: bool = False

    def __post_init__(self) -> None:
        require_share("held_out", self.held_out)
        members = members_of(self.model)
        validated = self.held_out > 0
        require_validation(self.trainer, members=members, held_out=validated)
        if self.choose and not validated and not has_out_of_bag(self.trainer, members=members):
            raise ConfigError(
                "choose: expected answers that some member has not been trained on, got none. Set "
                "members to 2 or more, or hold out a share of the answers with held_out."
            )

    def alternatives(self, length: int) -> "dict[str, RewardPreset]":
        """Return this preset and its alternatives for segments of `L` steps, by name.

        A "bounded" head squashes the rewards of steps, so that no single step explains a segment.
        "cropped" segments lose up to a fifth of their steps, different ones in each pass (SURF). If
        a model scores segments by the mean of their rewards, it has no bounded alternative: its
        log-odds could not leave (-2, 2).
        """
        plain = replace(self, choose=False)
        cropped = replace(plain.trainer, crop=max(1, length // 5))
        presets = {"plain": plain, "cropped": replace(plain, trainer=cropped)}
        bounded = _with_fields(self.model, bounded=True)
        if bounded is not None and getattr(bounded, "pooling", "sum") != "mean":
            presets["bounded"] = replace(plain, model=bounded)
            presets["bounded, cropped"] = replace(plain, model=bounded, trainer=cropped)
        return presets

    def with_budget(self, updates: int, answers: int) -> Self:
        """Return this preset with about `updates` optimiser updates and a schedule to match.

        A fit makes whole epochs, at least one. `answers` is the number of answers for `fit`,
        including held-out ones. Implied answers (`implied`) are not counted, although they add
        updates to each epoch.

        Raises:
            ConfigError: the budget is below one update.
        """
        require_in("budget", updates, 1, float("inf"))
        trained = max(1, answers - round(self.held_out * answers))
        epochs = max(1, round(updates / -(-trained // self.trainer.batch_size)))
        return replace(self, trainer=replace(self.trainer, epochs=epochs))

    def fit(
        self,
        comparisons: Comparisons,
        observation_space: Space,
        action_space: Space,
        *,
        ratings: Ratings | None = None,
        seed: int,
        device: str = "cpu",
        on_epoch: "OnEpoch | None" = None,
        checkpoints: "FitCheckpoints | None" = None,
        world: World = ALONE,
    ) -> "tuple[RewardModel, FitReport]":
        """Build the model and train it on the answers that are not held out, and on all ratings.

        Initial weights, bootstraps, order, dropout and the choice of held-out answers depend on
        `seed`. For other arguments and errors, see `RewardTrainer` and the model. With `choose`,
        each fit has its own checkpoints, and a fit without a loss on unseen answers is not chosen.

        Raises:
            DataError: none of the fits to choose from has a loss on unseen answers.
        """
        if self.choose:
            reports = {}
            for name, preset in self.alternatives(comparisons.segments.length).items():
                reports[name] = preset.fit(
                    comparisons,
                    observation_space,
                    action_space,
                    ratings=ratings,
                    seed=seed,
                    device=device,
                    on_epoch=on_epoch,
                    checkpoints=checkpoints and checkpoints.within(name.replace(", ", "-")),
                    world=world,
                )
            return _least_loss(reports)
        # imported here, so that reading settings loads no torch
        from preferl.models.build import build_reward_model
        from preferl.training.reward_trainer import RewardTrainer

        model = build_reward_model(self.model, observation_space, action_space, seed=seed)
        trainer = RewardTrainer(model, self.trainer, seed=seed, device=device, world=world)
        train = comparisons
        validation = None
        if self.held_out and comparisons.answered.any():
            rng = np.random.default_rng([seed, 0x5917])
            answered = comparisons[comparisons.answered]
            by: Any = "clip" if self.trainer.implied else "pair"
            train, validation = split(answered, rng, validation=self.held_out, by=by)
        report = trainer.fit(
            train, validation, ratings=ratings, on_epoch=on_epoch, checkpoints=checkpoints
        )
        return trainer.model, report


def _least_loss(
    fits: "Mapping[str, tuple[RewardModel, FitReport]]",
) -> "tuple[RewardModel, FitReport]":
    """Choose the fit, by name, with the least loss on unseen answers."""
    losses = {name: report.unseen_loss for name, (_, report) in fits.items()}
    measured = {name: loss for name, loss in losses.items() if not math.isnan(loss)}
    unknown = ", ".join(name for name in losses if name not in measured)
    if not measured:
        raise DataError(
            "loss on unseen answers: expected a number for at least one fit, got NaN for "
            f"{unknown}. Give more answers, or hold some of them out."
        )
    if unknown:
        LOGGER.warning("Fits without a loss on unseen answers are not chosen: %s.", unknown)
    chosen = min(measured, key=measured.__getitem__)
    model, report = fits[chosen]
    return model, replace(report, chosen=chosen, alternatives=measured)


@dataclass(frozen=True)
class RewardSettings:
    """The name of a preset and changes to it, as commands take them; None changes nothing.

    Attributes:
        model: "mlp" (this library's), "cnn" (this library's, for pictures), "mr", "nmr", "pt" or
            "pt-readme" (published), or the name of another reward model; see `reward_preset`.
        members: number of networks, which differ by their initial weights and bootstraps. Several
            members measure how uncertain the reward is, and their out-of-bag answers validate it.
        hidden: units of each hidden layer of "mlp" and "mr".
        epochs: passes over the answers.
        budget: number of optimiser updates, instead of epochs; the schedule is shortened, too. The
            published number of epochs of "pt" needs a GPU.
        batch_size: pairs per update.
        noise: label noise, the share of answers that the likelihood takes to be random; 0.1 in the
            DRLHP paper.
        loss: loss of each answer: "cross_entropy", "squared_error" or the name of one of yours,
            see `RewardTrainerConfig`.
        normalise: whether inputs are normalised by the training set's statistics; the published
            models do not normalise them.
        use_actions: whether "mlp", "mr" and "cnn" see actions beside observations. If states show
            how good a clip is, a reward of states alone is harder to fool.
        annotator_trust: whether the trust in each annotator is fitted, see
            `RewardTrainerConfig.trust`.
        crop: most steps that the clips of a pair lose, see `RewardTrainerConfig.crop`.
        bounded: whether "mlp" and "mr" squash rewards of steps into (-1, 1).
        choose: whether to fit `RewardPreset.alternatives` (a bounded head, cropped clips, and
            both), and keep the one with the least loss on unseen answers. Models that average
            rewards over steps, such as "mr", have no bounded alternative.
        implied: whether to train on implied answers, too, as in ranked lists; see
            `RewardTrainerConfig.implied`.
        precision: precision of the products in training. None takes bfloat16 for the wide "pt" if
            the processor or GPU has instructions for it, which is about twice as fast. In all other
            cases, None takes float32.
    """

    model: Annotated[str, REWARD_MODELS] = "mlp"
    members: int | None = None
    hidden: tuple[int, ...] | None = None
    epochs: int | None = None
    budget: int | None = None
    batch_size: int | None = None
    noise: float | None = None
    loss: str | None = None
    normalise: bool | None = None
    use_actions: bool | None = None
    annotator_trust: bool | None = None
    implied: bool | None = None
    crop: int | None = None
    bounded: bool | None = None
    choose: bool = False
    precision: Precision | None = None

    def preset(
        self,
        *,
        length: int,
        answers: int,
        base: RewardPreset | None = None,
        keep: Collection[str] = (),
    ) -> RewardPreset:
        """Return the preset with these changes, for `answers` about segments of `length` steps.

        With a `base`, the changes apply to `base` instead of the named preset. The base keeps its
        context if that differs from the preset's, or if `keep` names "context". Otherwise its
        context is set to `length`. If `keep` names "precision", the base also keeps its precision.

        Raises:
            ConfigError: hidden layers, a choice of actions or normalised inputs are set for a model
                without them, both epochs and a budget are given, or a setting is out of range.
        """
        preset = reward_preset(self.model, length=length)
        if base is not None:
            default_context = getattr(reward_preset(self.model).model, "context", None)
            keeps_context = (
                "context" in keep or getattr(base.model, "context", None) != default_context
            )
            preset = base if keeps_context else _with_context(base, length)
        changes = self._changed_settings(
            "epochs", "batch_size", "noise", "loss", "crop", "implied", "precision"
        )
        if self.annotator_trust is not None:
            changes["trust"] = self.annotator_trust
        is_wide = self.model in ("pt", "pt-readme")
        if is_wide and preset.trainer.precision == "float32" and "precision" not in keep:
            changes.setdefault("precision", fast_precision())
        trainer = replace(preset.trainer, **changes)
        model = self._changed(preset.model)
        preset = replace(preset, model=model, trainer=trainer, choose=self.choose)
        if self.budget is None:
            return preset
        if self.epochs is not None:
            raise ConfigError("Give either epochs or a budget of updates, not both.")
        return preset.with_budget(self.budget, answers)

    def _changed(self, model: RewardModelConfig) -> RewardModelConfig:
        """Return a model with the changes to its layers, inputs and number of members."""
        for name, value in self._changed_settings(
            "hidden", "normalise", "use_actions", "bounded"
        ).items():
            changed = _with_fields(model, **{name: value})
            if changed is None:
                raise ConfigError(
                    f"{name}: expected None for model {self.model}, which has no such setting."
                )
            model = changed
        if self.members is None:
            return model
        require_in("members", self.members, 1, float("inf"))
        with_members = _with_fields(model, members=self.members)
        if with_members is not None or self.members == 1:
            return with_members or model
        return EnsembleConfig((model,) * self.members)

    def _changed_settings(self, *names: str) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def reward_preset(name: str, *, length: int | None = None) -> RewardPreset:
    """Return the preset of a name.

    "mlp" is this library's default: three members, fitted with noise in the likelihood. "cnn" is
    the same for pictures, with the layers of Christiano et al. 2017. "mr", "nmr" and "pt" are the
    published models with their optimisers, schedules and 10,000 epochs. "pt-readme" is the
    transformer without preference attention, as the command in its published code trains it. The
    published models hold out a tenth of the answers and keep the best state by them. The original
    code chose the state by answers of its training set. Any other name in
    `preferl.registry.REWARD_MODELS` gives that model with its default config, trained like "mlp". A
    model with history sees `length` steps, which are those of a labelled segment. Without `length`,
    it sees as many steps as its config has.

    Raises:
        ConfigError: the name is unknown.

    >>> reward_preset("pt", length=50).with_budget(600, answers=1_600).trainer.epochs
    100
    """
    require_one_of("model", name, model_names())
    preset = PRESETS.get(name)
    if preset is None:
        config = REWARD_MODELS.config(name)()
        preset = RewardPreset(_with_fields(config, members=3) or config, _OURS)
    return preset if length is None else _with_context(preset, length)


def _with_context(preset: RewardPreset, length: int) -> RewardPreset:
    """Return a preset whose model sees `length` steps, if the model has a history."""
    return replace(preset, model=_with_fields(preset.model, context=int(length)) or preset.model)


def model_names() -> tuple[str, ...]:
    """Return the names for `RewardSettings.model`: presets, and reward models without a preset."""
    others = (name for name in REWARD_MODELS.names() if name not in (*PRESETS, "ensemble"))
    return (*PRESETS, *others)


def _with_fields(model: RewardModelConfig, **changes: Any) -> RewardModelConfig | None:
    """Return a config with changed fields; None if a field is missing or of another type."""
    present = {f.name: getattr(model, f.name) for f in fields(model)}
    if any(type(present.get(name)) is not type(value) for name, value in changes.items()):
        return None
    return replace(model, **changes)


_OURS: Final = RewardTrainerConfig(epochs=15, noise=0.1)
_PUBLISHED: Final = RewardTrainerConfig(
    epochs=10_000, batch_size=256, weight_decay=0.0, noise=0.0, patience=None
)


# With a higher learning rate, "cnn" fits the answers equally well but ranks other pictures worse:
# rank correlation over the places of the moving dot is 0.94 instead of 0.97, with 400 answers.
_CNN: Final = replace(_OURS, batch_size=16, learning_rate=3e-4)
_MR: Final = MLPRewardConfig((256, 256), activation="relu", pooling="mean", normalise=False)
_PT: Final = PreferenceTransformerConfig(head="preference", normalise=False)
_PT_FIT: Final = replace(_PUBLISHED, schedule=CosineSchedule(), weight_decay=1e-4)

PRESETS: Final[Mapping[str, RewardPreset]] = {
    "mlp": RewardPreset(MLPRewardConfig(members=3), _OURS),
    "cnn": RewardPreset(CNNRewardConfig(members=3), _CNN),
    "mr": RewardPreset(_MR, replace(_PUBLISHED, learning_rate=3e-4), held_out=0.1),
    "nmr": RewardPreset(LSTMRewardConfig(normalise=False), _PUBLISHED, held_out=0.1),
    "pt": RewardPreset(_PT, _PT_FIT, held_out=0.1),
    "pt-readme": RewardPreset(replace(_PT, head="plain"), _PT_FIT, held_out=0.1),
}
"""Presets by name, with the default context of their configs."""
