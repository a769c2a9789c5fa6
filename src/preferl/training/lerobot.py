"""A learned reward as a reward model of LeRobot: its class, its config and its two files.

This module is imported only when it is needed, since LeRobot cannot be installed with the versions
that this package locks. After the import, LeRobot knows configs of type `preferl`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from gymnasium import spaces
from lerobot.configs.rewards import RewardModelConfig
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.processor import PolicyProcessorPipeline
from lerobot.rewards.pretrained import PreTrainedRewardModel
from torch import Tensor

from preferl.errors import ModelError
from preferl.models.base import RewardModel
from preferl.models.build import build_reward_model, config_from_json, config_of, config_to_json
from preferl.models.spaces import Space, is_image, space_from_json, space_to_json
from preferl.reading import parse_json, reading
from preferl.training.reward_function import RewardFunction, reward_from_json, reward_to_json

ACTION = "action"


@RewardModelConfig.register_subclass("preferl")
@final
@dataclass
class PreferlConfig(RewardModelConfig):
    """Config of a `PreferlRewardModel`.

    Attributes:
        reward: the shape of the model, its spaces, and how its members are combined, as JSON.
            The reward observes the `input_features`.
    """

    reward: str = ""


@final
class PreferlRewardModel(PreTrainedRewardModel):
    """A learned reward with LeRobot's interface. LeRobot does not train it."""

    config_class = PreferlConfig
    name = "preferl"

    def __init__(self, config: PreferlConfig, **_: Any) -> None:
        super().__init__(config)
        self._function: RewardFunction | None = None
        with reading("reward of a LeRobot config", expected="a model that preferl wrote"):
            self._about = parse_json(config.reward)
            self.model = _untrained(self._about)

    @classmethod
    def of(cls, reward: RewardFunction, observations: Sequence[str]) -> "PreferlRewardModel":
        """Return a learned reward as LeRobot's reward model; `save_pretrained` writes its folder.

        Args:
            reward: the learned reward.
            observations: names of the features that the reward observes. If its observations are a
                dictionary, these are the keys.

        Raises:
            ModelError: there is not one name for each observation, or the reward observes features
                of a frozen encoder.
        """
        if reward.frozen_encoder:
            raise ModelError(
                "reward: expected a reward of states or pictures, got a reward of features of the "
                f"encoder {reward.frozen_encoder}. Write a table: preferl reward export"
            )
        space = reward.observation_space
        features = dict.fromkeys(observations[:1], space)
        expected = "the name of one feature"
        if isinstance(space, spaces.Dict):
            features = dict(space)
            expected = ", ".join(features)
        if not features or list(features) != list(observations):
            raise ModelError(f"observations: expected {expected}, got {list(observations)}")
        about = reward_to_json(reward) | {
            "model": config_to_json(config_of(reward.model)),
            "observation_space": space_to_json(space),
            "action_space": space_to_json(reward.action_space),
        }
        config = PreferlConfig(
            reward=json.dumps(about),
            input_features={name: _feature(part) for name, part in features.items()},
            device=str(reward.device),
        )
        wrapped = cls(config)
        wrapped.model.load_state_dict(reward.model.state_dict())
        wrapped.eval()
        return wrapped

    @torch.no_grad()
    def compute_reward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Compute the reward `[B]` of a batch of frames, on the device of the model.

        Observations are `[B, *obs]`. Pictures are `[B, channels, height, width]`, either in [0, 1],
        as LeRobot's loader returns them, or as bytes. If actions come in chunks `[B, chunk, *act]`,
        the first action of each chunk is taken.
        one is taken.

        Raises:
            ModelError: the reward needs a history, or the batch lacks a feature.
        """
        if self._function is None:
            self._function = reward_from_json(self.model, self._about)
        if self._function.context != 1:
            raise ModelError(
                f"context: expected a reward of single frames, got one of {self._function.context}"
            )
        observed = list(self.config.input_features)
        names = [*observed, ACTION]
        missing = [name for name in names if name not in batch]
        if missing:
            raise ModelError(f"batch: expected {', '.join(names)}, got no {', '.join(missing)}")
        space = self._function.observation_space
        device = self._function.device
        several = dict(space) if isinstance(space, spaces.Dict) else {}
        parts = {
            name: _values(batch[name].to(device), several.get(name, space))[:, None]
            for name in observed
        }
        observations: Any = parts if several else parts[observed[0]]
        actions = batch[ACTION].to(device)
        if actions.ndim > 1 + len(self._function.action_space.shape or ()):
            actions = actions[:, 0]
        mask = torch.ones(len(actions), 1, dtype=torch.bool, device=device)
        return self._function.of_tensors(observations, actions[:, None], mask)


def make_preferl_pre_post_processors(
    config: PreferlConfig, dataset_stats: Mapping[str, Any] | None = None
) -> tuple[Any, Any]:
    """Return LeRobot's pipelines. They change nothing: the model scales its inputs itself."""
    del config, dataset_stats
    before = PolicyProcessorPipeline(steps=[], name="preferl_preprocessor")
    return before, PolicyProcessorPipeline(steps=[], name="preferl_postprocessor")


def _untrained(about: Mapping[str, Any]) -> RewardModel:
    """Return the model of a config with initial weights, which those of a file replace."""
    config = config_from_json(about["model"], "a LeRobot config", ())
    of = space_from_json(about["observation_space"]), space_from_json(about["action_space"])
    return build_reward_model(config, *of, seed=0)


def _feature(space: Space) -> PolicyFeature:
    if not is_image(space):
        return PolicyFeature(FeatureType.STATE, tuple(space.shape or ()))
    height, width, channels = space.shape or ()
    return PolicyFeature(FeatureType.VISUAL, (channels, height, width))


def _values(values: Tensor, space: Space) -> Tensor:
    """Return a batch of a feature in the model's layout: pictures as bytes with channels last."""
    if not is_image(space):
        return values
    pictures = values if values.dtype == torch.uint8 else (values * 255).round().clamp(0, 255)
    return pictures.to(torch.uint8).movedim(1, -1)
