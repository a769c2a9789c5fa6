"""What an offline run would only find out after hours is found out before it has a folder."""

from typing import Any

from preferl.models.build import build_reward_model
from preferl.models.spaces import infer_spaces
from preferl.offline.config import SEQUENCE_POLICIES, OfflineConfig
from preferl.offline.inputs import Inputs
from preferl.offline.iql import IQL
from preferl.offline.learner import BehaviourCloning
from preferl.training.device import require_device


def require_learnable(config: OfflineConfig, inputs: Inputs) -> None:
    """Build the reward model and an agent once, as the run will, and let go of them.

    Raises:
        ConfigError: settings of the reward, the agents or the device that cannot be.
        MissingExtraError: the packages of the agents are not installed.
        SpaceError: spaces that the agents do not know.
    """
    require_device(config.device)
    comparisons = inputs.comparisons
    if config.policy != "bc" and inputs.reward is None and comparisons is not None:
        answers = int(comparisons.answered.sum())
        preset = config.fitting.preset(length=comparisons.segments.length, answers=answers)
        shown = infer_spaces(inputs.episodes.observations, inputs.episodes.actions)
        build_reward_model(preset.model, *shown, seed=0)
    _build_agent(config, inputs.observation_space, inputs.action_space)


def _build_agent(config: OfflineConfig, observations: Any, actions: Any) -> None:
    if config.policy in SEQUENCE_POLICIES:
        from preferl.offline.decision_transformer import DecisionTransformer

        DecisionTransformer(
            observations, actions, config.transformer, seed=0, steps=1, device=config.device
        )
    elif config.policy == "bc":
        BehaviourCloning(observations, actions, seeds=(0,), steps=1, device=config.device)
    else:
        IQL(observations, actions, config.agent, seeds=(0,), steps=1, device=config.device)
