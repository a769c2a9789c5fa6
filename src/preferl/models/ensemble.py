"""Several reward models as one; MLP models of the same shape become one batched computation."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from preferl.errors import ConfigError, SpaceError
from preferl.models.base import LastRewards, RewardModel, RewardOutput
from preferl.models.configs import EnsembleConfig
from preferl.models.mlp import MLPReward
from preferl.shapes import BoolArray


@final
class Ensemble(RewardModel):
    """Several models as one `RewardModel`, whose member axis runs over the members of all models.

    `MLPReward` models of the same shape are fused into one model when the ensemble is made. An
    ensemble of ten such models then takes a single batched forward pass.

    Args:
        models: at least one model; all have the same spaces and encode steps in the same way.

    Raises:
        ConfigError: there are no models, they have two different contexts above 1, or they encode
            steps differently because of their settings or input statistics.
        SpaceError: models are for different spaces.
    """

    def __init__(self, models: Sequence[RewardModel]) -> None:
        if not models:
            raise ConfigError("Ensemble: expected at least one model, got none.")
        models = [part for m in models for part in (m.models if isinstance(m, Ensemble) else [m])]
        for model in models:
            _require_alike(models[0], model)
        contexts = {model.context for model in models} - {1}
        if not len(contexts) <= 1:
            raise ConfigError(
                "contexts of an ensemble's members: expected at most one above 1, got "
                f"{sorted(contexts)}."
            )
        fused = _fuse(models)
        members = sum(model.members for model in fused)
        super().__init__(fused[0].encoder, context=max([1, *contexts]), members=members)
        self.config = EnsembleConfig(tuple(model.config for model in fused))
        self._models = nn.ModuleList(fused)
        for model in fused:  # all models share one encoder and its statistics
            model.encoder = self.encoder

    @property
    def models(self) -> list[RewardModel]:
        """Return the models after fusing.

        A fused model stands where the first of its group stood.
        """
        return [model for model in self._models if isinstance(model, RewardModel)]

    def judge(self, features: Any, mask: Tensor) -> RewardOutput:
        """Compute rewards `[E, B, L]` and scores `[E, B]`.

        Members of one model follow one another.
        """
        outputs = [model.judge(features, mask) for model in self.models]
        return RewardOutput(*(torch.cat(parts) for parts in zip(*outputs, strict=True)))

    def scores_where(self, features: Any, mask: Tensor, needed: Tensor) -> Tensor:
        """Compute scores `[E, B]`; a model skips windows that none of its members has to score."""
        parts = needed.split([model.members for model in self.models])
        pairs = zip(self.models, parts, strict=True)
        return torch.cat([model.scores_where(features, mask, part) for model, part in pairs])

    def pool(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """Pool rewards to scores `[E, B]`; each model pools the rewards of its own members."""
        parts = rewards.split([model.members for model in self.models])
        return torch.cat([m.pool(p, mask) for m, p in zip(self.models, parts, strict=True)])

    def trace(self, features: Any, lengths: Tensor) -> Tensor:
        """Compute rewards `[E, T]` of whole episodes, each model with its fastest method."""
        return torch.cat([model.trace(features, lengths) for model in self.models])

    def last_rewards(self) -> LastRewards:
        """Return a function for rewards `[E, B]` of last steps, made of each model's own."""
        return partial(_joined_rewards, [model.last_rewards() for model in self.models])


def _joined_rewards(models: Sequence[LastRewards], features: Any, mask: BoolArray) -> Tensor:
    return torch.cat([model(features, mask) for model in models])


def _require_alike(reference: RewardModel, model: RewardModel) -> None:
    """Raise an error unless two models have the same spaces and encode steps in the same way."""
    expected_spaces, model_spaces = (
        (m.observation_space, m.action_space) for m in (reference, model)
    )
    if model_spaces != expected_spaces:
        raise SpaceError(
            f"spaces of an ensemble's members: expected {expected_spaces}, got {model_spaces}."
        )
    expected_buffers, model_buffers = (dict(m.encoder.named_buffers()) for m in (reference, model))
    is_same = (
        type(model.encoder) is type(reference.encoder)
        and expected_buffers.keys() == model_buffers.keys()
    )
    is_same = is_same and all(
        torch.equal(expected_buffers[name].cpu(), model_buffers[name].cpu())
        for name in expected_buffers
    )
    if not is_same:
        raise ConfigError(
            "encoders of an ensemble's members: expected the same settings, such as `normalise` "
            "and `use_actions`, and input statistics, got differences between "
            f"{type(model).__name__} and {type(reference).__name__}. Join models before training "
            "them."
        )


def _fuse(models: Sequence[RewardModel]) -> list[RewardModel]:
    """Replace each group of `MLPReward`s of the same shape by a model with all their members."""
    groups: dict[object, list[Any]] = {}
    for model in models:
        shape = replace(model.config, members=1) if isinstance(model, MLPReward) else id(model)
        groups.setdefault(shape, []).append(model)
    return [
        _merge(group) if len(group) > 1 and isinstance(group[0], MLPReward) else group[0]
        for group in groups.values()
    ]


def _merge(group: Sequence[MLPReward]) -> MLPReward:
    first_model = group[0]
    config = replace(first_model.config, members=sum(model.members for model in group))
    merged = MLPReward(first_model.observation_space, first_model.action_space, config, seed=0)
    states = [model.networks.state_dict() for model in group]
    parameters = {name: torch.cat([state[name] for state in states]) for name in states[0]}
    merged.networks.load_state_dict(parameters)
    merged.encoder = first_model.encoder
    return merged.to(first_model.device).train(first_model.training)
