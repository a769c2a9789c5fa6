"""What an offline run starts from, read and checked before anything is trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from gymnasium import spaces

from preferl.data.arrays import content_id
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.sources import LabelReport, load_labels, load_source
from preferl.errors import CheckpointError, SpaceError
from preferl.evaluation.policies import shape_of
from preferl.evaluation.rollout import make_task_env
from preferl.models.spaces import check_spaces, infer_spaces
from preferl.offline.config import OfflineConfig
from preferl.shapes import leaves, map_observations
from preferl.training.reward_function import RewardFunction
from preferl.training.saving import load_reward


@final
@dataclass(frozen=True, eq=False)
class Inputs:
    """Data that fit each other.

    Attributes:
        episodes: what was recorded.
        observation_space: of the environment, or as the data show it.
        action_space: the same.
        comparisons: from the labels; None without any.
        labels: counts of what the label folder held.
        reward: fitted before; None if one is to be fitted.
    """

    episodes: Episodes
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    comparisons: Comparisons | None
    labels: LabelReport | None
    reward: RewardFunction | None

    @property
    def about(self) -> dict[str, Any]:
        """Counts, and a name by content that tells other data from these."""
        episodes = self.episodes
        arrays = (*leaves(episodes.observations), episodes.actions, episodes.rewards)
        return {
            "episodes": len(episodes),
            "steps": episodes.steps,
            "id": content_id(*arrays, episodes.lengths),
        }


def load_inputs(config: OfflineConfig) -> Inputs:
    """Read everything a config names.

    Raises:
        ConfigError: an unknown environment; the message lists ids that look alike.
        DataError: files that are missing, cut off, or do not belong to each other.
        SpaceError: data of another environment, or a reward of other observations.
        CheckpointError: a run without a reward.
    """
    of_env = _env_spaces(config)
    reward = None if config.reward is None else load_reward(reward_folder(config.reward))
    episodes = load_source(config.source, task=config.row)
    if of_env is not None:
        _require_recorded_in(of_env, episodes, config)
    if reward is not None:
        _require_reward_of(reward, episodes, config)
    spaces_of_agents = of_env or infer_spaces(episodes.observations, episodes.actions)
    if config.labels is None:
        return Inputs(episodes, *spaces_of_agents, None, None, reward)
    labelled = load_labels(config.labels, episodes, length=config.length, crossing=config.crossing)
    return Inputs(episodes, *spaces_of_agents, labelled.comparisons, labelled.report, reward)


def clonable(inputs: Inputs) -> bool:
    """Whether behaviour cloning knows such spaces: states of numbers and continuous actions."""
    seen: Any = inputs.episodes.observations
    pictures = not isinstance(seen, dict) and seen.dtype.kind != "f"
    return not pictures and isinstance(inputs.action_space, spaces.Box)


def reward_folder(path: Path) -> Path:
    """Where the reward is: in a run's folder, or the folder itself.

    Raises:
        CheckpointError: there is no such folder.
    """
    if not path.is_dir():
        raise CheckpointError.mismatch(
            f"{path}", expected="a run with a reward, or a reward's folder", got="no folder"
        )
    inside = path / "reward"
    return inside if inside.is_dir() else path


def _env_spaces(config: OfflineConfig) -> tuple[spaces.Space[Any], spaces.Space[Any]] | None:
    """Of the environment that judges; None where nothing is judged."""
    if config.env_id is None or not config.episodes:
        return None
    env = make_task_env(config.env_id)
    env.close()
    return env.observation_space, env.action_space


def _require_recorded_in(
    of_env: tuple[spaces.Space[Any], spaces.Space[Any]], episodes: Episodes, config: OfflineConfig
) -> None:
    recorded = (episodes.observations, episodes.actions)
    for what, space, arrays in zip(("observations", "actions"), of_env, recorded, strict=True):
        expected, got = shape_of(space), map_observations(lambda array: array.shape[1:], arrays)
        if expected != got:
            raise SpaceError.mismatch(
                f"{what} of {config.source}",
                expected=f"{expected} per step, as in {config.env_id}",
                got=got,
                fix="Name the environment that was recorded, or its task.",
            )


def _require_reward_of(reward: RewardFunction, episodes: Episodes, config: OfflineConfig) -> None:
    try:
        check_spaces(
            reward.observation_space, reward.action_space, episodes.observations, episodes.actions
        )
    except SpaceError as error:
        raise SpaceError(f"The reward {config.reward} was fitted to other data: {error}") from error
