"""Vector environments of stable-baselines3 whose rewards are learned from answers."""

from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat, final

import gymnasium
import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from preferl.envs.simulators import Environment
from preferl.errors import DataError
from preferl.feedback.step_rewards import AnyReward
from preferl.online.wrappers.feedback_config import BeforeFirstReward, FeedbackConfig
from preferl.online.wrappers.feedback_controls import (
    FeedbackControls,
    require_kind,
    with_rows,
)
from preferl.online.wrappers.feedback_core import FeedbackCore
from preferl.online.wrappers.reward_computer import Rewards, WindowReward
from preferl.shapes import (
    Array,
    BoolArray,
    FloatArray,
    Observations,
    map_observations,
)
from preferl.store.feedback import StoredFeedback
from preferl.store.stages import StateReader


@final
class FeedbackVecEnv(FeedbackControls, VecEnvWrapper):
    """Asks people about clips of its agent, and gives the agent the reward learned from answers.

    Each step's info has `true_reward` (unless hidden) and `reward_version`. The version is that of
    the learned reward which the step got, or 0. An episode's last info has `learned_return`, the
    sum of its rewards. The agent switches to a newer reward in `FeedbackCallback`, `refresh`,
    `set_reward`, or every `refresh_every` vector steps.

    Attributes:
        relabelled: a replay buffer, and the version of the reward that last relabelled all of it.
        just_reset: whether there has been no step since `reset`.
        explored_steps: number of environment steps in which `FeedbackCallback` explored.

    Args:
        venv: the environments. `VecNormalize` belongs outside of this wrapper. For an agent with a
            replay buffer, `VecFrameStack` belongs inside.
        feedback: where queries go; None asks nothing.
        rewards: folder of published rewards or a `PublishedReward`, one fixed reward, or None.
        config: how experience is collected, and the reward before the first learned one.
        record: keep experience for `take` instead of asking about it.
        **options: fields of `FeedbackConfig`, and the following:

            - `sampler`: a name, or a pair sampler of your own, instead of the config's.
            - `synthetic_preferences`: a teacher that answers in place of people, through the same
              store; True takes a teacher that prefers the higher true return.
            - `transform`: returns what people and rewards see in place of an observation; works on
              the last axes. `transformed_space` is the space of its results.

    Raises:
        ConfigError: settings are out of range or contradict each other, or the environments are of
            another library.
        SpaceError: observations or actions are not arrays of one shape, or the reward was made for
            other spaces.
    """

    def __init__(
        self,
        venv: VecEnv,
        feedback: StoredFeedback | None = None,
        rewards: Rewards = None,
        config: FeedbackConfig | None = None,
        *,
        record: bool = False,
        **options: Any,
    ) -> None:
        require_kind(venv, self)
        super().__init__(venv)
        self.relabelled: tuple[ReplayBuffer | None, int] = (None, 0)
        self.explored_steps = 0
        self.just_reset = False
        self._to_complete: list[tuple[dict[str, Any], int, int, int]] = []
        self.core = FeedbackCore(
            venv.observation_space,
            venv.action_space,
            venv.num_envs,
            feedback=feedback,
            rewards=rewards,
            config=config,
            record=record,
            **options,
        )

    def set_reward(self, reward: WindowReward | AnyReward, *, version: int | None = None) -> None:
        """From the next step on, use a reward, a control or a plain function of steps.

        Call this between rollouts, so that no rollout mixes two rewards. The default version is the
        last version plus 1.

        Raises:
            SpaceError: the reward was made for other observations or actions.
        """
        self.core.computer.set_reward(reward, version=version)

    def reset(self) -> VecEnvObs:
        """Begin new episodes. Running ones are cut, and rewards are no longer deferred."""
        self.settle_rewards()
        observations = self.venv.reset()
        self.just_reset = True
        self._begin(observations, self.unwrapped.reset_infos)
        return _shallow_copy(observations)

    def step_async(self, actions: Array) -> None:
        """Send the actions, then compute their rewards; raise `ConfigError` before any `reset`."""
        self.venv.step_async(actions)
        self.core.begin_step(actions)
        self.just_reset = False

    def step_wait(self) -> VecEnvStepReturn:
        """Return the step's outcome with the learned rewards, `[V]`."""
        observations, rewards, dones, infos = self.venv.step_wait()
        ended = dones.nonzero()[0]
        terminated = np.zeros(self.num_envs, bool)
        seen = observations
        if len(ended):
            terminated[ended], final = outcomes([infos[i] for i in ended])
            seen = with_rows(observations, ended, final)
        version = self.core.computer.active_version
        given = self.core.finish_step(
            seen,
            rewards,
            terminated,
            dones & ~terminated,
            states=self._states(infos),
            success=successes(infos),
        )
        self._complete_infos(infos, rewards.tolist(), version, ended)
        if len(ended):
            if deferred := self.core.steps_deferred:
                episode_starts = self.core.deferred_episode_starts.tolist()
                self._to_complete += [
                    (infos[i], i, episode_starts[i], deferred) for i in ended.tolist()
                ]
            self._begin(observations, present_infos(self.unwrapped, dones, infos), dones)
        # SB3 adds bootstrapped values to the rewards in place, so each step returns a new array.
        return _shallow_copy(observations), given, dones, infos

    def defer_rewards(self) -> None:
        """Compute rewards in one batch at `settle_rewards`; until then, steps get zeros.

        A batch takes a fraction of the time of single steps. Only a `RewardFunction` is deferred;
        other rewards are given at once.
        """
        self.settle_rewards()
        self.core.defer()

    def settle_rewards(self) -> FloatArray:
        """Return the rewards of the `T` steps since `defer_rewards`, `[T, V]` float32.

        Later steps get their rewards at once. Returns in infos since `defer_rewards` are completed.

        Raises:
            DataError: the reward gave NaN or infinite numbers.
        """
        later = self.core.settle()
        sums = np.concatenate([np.zeros((1, self.num_envs)), later.astype(float).cumsum(axis=0)])
        for info, i, start, end in self._to_complete:
            info["learned_return"] += float(sums[end, i] - sums[start, i])
            if self.core.config.hide_true_reward and isinstance(info.get("episode"), dict):
                info["episode"]["r"] = info["learned_return"]  # in place: an algorithm keeps it
        self._to_complete = []
        return later

    def switch_to_true_reward(self) -> None:
        """Give the environment's own reward from now on, even if there is a learned one."""
        super().switch_to_true_reward()
        self.relabelled = (None, 0)  # relabel again, even if it is switched back within the rollout

    def snapshot(self) -> dict[str, Any]:
        """Return the progress of collecting and of rewards, for `restore`; `save_run` calls it."""
        return super().snapshot() | {"explored_steps": self.explored_steps}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from the snapshot of a wrapper of the same environments; for `resume_run`."""
        super().restore(snapshot)
        self.explored_steps = int(snapshot["explored_steps"])
        self.just_reset = False

    def close(self, seconds: float = 10.0) -> None:
        """Store the queries that are due, within `seconds`, and close the environments."""
        self.core.close(seconds, self.venv.close)


def episode_recorder(venv: VecEnv, *, states: bool = False) -> FeedbackVecEnv:
    """Wrap environments so that `take` returns their episodes; they keep their own rewards.

    With `states`, `info["state"]` of steps and resets is recorded, see `RecordsStates`.
    """
    config = FeedbackConfig(before=BeforeFirstReward.ENVIRONMENT, states=states)
    return FeedbackVecEnv(venv, config=config, record=True)


@final
class RecordsStates(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Puts a state from which a step can be drawn into `info["state"]` of steps and resets.

    With `states=True`, other wrappers record this state with the steps, and `preferl.store` draws
    clips from it. In MuJoCo, the state has positions, speeds and what each episode places
    differently. In classic control, and in registered environments whose pictures depend on nothing
    else, it is the environment's `state`. Any other environment made with `render_mode="rgb_array"`
    is drawn at each step, and the small picture is recorded (`preferl.store.stages.PICTURE_BYTES`).
    This wrapper may reset the environment.

    Raises:
        ConfigError: at the first reset, if the environment has neither such a state nor pictures.
            Environments whose observations are pictures need no state.

    >>> env = RecordsStates(gymnasium.make("Pendulum-v1"))
    >>> observation, info = env.reset(seed=0)
    >>> info["state"].shape
    (2,)
    """

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._read = StateReader(env)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; its first state is in the info."""
        observation, info = self.env.reset(**options)
        return observation, info | {"state": self._read()}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Make a step; the state after it is in the info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, info | {"state": self._read()}


def present_infos(
    venv: VecEnv, dones: BoolArray, infos: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the infos `[V]` of the current observations: after an episode's end, the reset's."""
    return [venv.reset_infos[i] if done else infos[i] for i, done in enumerate(dones)]


def successes(infos: Sequence[Mapping[str, Any]]) -> BoolArray | None:
    """Return whether infos report success, `[V]`; None if they do not have the key."""
    if not any("success" in info for info in infos):
        return None
    return np.array([bool(np.any(info.get("success", False))) for info in infos])


def outcomes(infos: list[dict[str, Any]]) -> tuple[BoolArray, Observations]:
    """Read final observations, and which episodes terminated `[K]`, from infos of last steps."""
    if any("terminal_observation" not in info for info in infos):
        raise DataError(
            "info of an episode's last step: expected the key terminal_observation, which vector "
            f"environments of SB3 give, got keys {sorted(infos[0])}."
        )
    terminated = np.array([not info.get("TimeLimit.truncated", False) for info in infos])
    finals = [info["terminal_observation"] for info in infos]
    return terminated, map_observations(lambda *rows: np.stack(rows), *finals)


def _shallow_copy(observations: VecEnvObs) -> VecEnvObs:
    """Copy a dictionary but not its arrays, since SB3 replaces entries of the dictionary."""
    return dict(observations) if isinstance(observations, dict) else observations
