"""Environments that pay a learned reward instead of their own."""

from typing import Any, Protocol, final

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from preferl.data.windows import History
from preferl.errors import ConfigError, DataError, SpaceError, mismatch
from preferl.shapes import Array, BoolArray, FloatArray, Observations, map_observations


class Reward(Protocol):
    """Pays the last step of each window; `RewardFunction` is one."""

    @property
    def context(self) -> int:
        """`H`, the steps a window holds; 1 looks at single steps."""
        ...

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Of the observations it understands."""
        ...

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Of the actions it understands."""
        ...

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Windows `[B, H, ...]`, false in `mask [B, H]` where padded, to rewards `[B]`."""
        ...


@final
class LearnedRewardVecEnv(VecEnvWrapper):
    """Pays what a learned reward thinks of the step: observation before acting, and action.

    One call per vector step, made while the environments are stepping. Each step's info has the
    environment's own reward as `true_reward`; the last one of an episode has the sum of what was
    paid in it as `learned_return`. Zeros are paid until a reward is given.

    A reward with context sees the episode's last `H` steps. These are kept from the first reward
    with that context on, so in episodes that were under way then it looks back no further.

    Args:
        venv: the environments. A recorder of true rewards belongs inside of this wrapper.
    """

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self._reward: Reward | None = None
        self._history: History | None = None
        self._single = np.ones((venv.num_envs, 1), bool)  # the mask of windows of one step
        self._present: Any = None
        self._paid = np.zeros(venv.num_envs, np.float32)
        self._returns = np.zeros(venv.num_envs)

    def pay(self, reward: Reward) -> None:
        """Pay `reward` from the next step on.

        Raises:
            SpaceError: the reward was made for other observations or actions.
        """
        _require_space("observations", reward.observation_space, self.observation_space)
        _require_space("actions", reward.action_space, self.action_space)
        if reward.context == 1:
            self._history = None
        elif self._history is None or self._history.length != reward.context:
            self._history = History(reward.context, self.num_envs)
        self._reward = reward

    def reset(self) -> VecEnvObs:
        """Begin anew, with no history and no sums."""
        if self._history is not None:
            self._history.forget()
        self._returns[:] = 0.0
        self._present = self.venv.reset()
        return _shallow_copy(self._present)

    def step_async(self, actions: Array) -> None:
        """Send the actions off, then work out what they are worth.

        Raises:
            ConfigError: the environments were never reset.
            DataError: the reward gave something else than one finite number per environment.
        """
        if self._present is None:
            raise ConfigError("LearnedRewardVecEnv: call `reset()` before the first step.")
        self.venv.step_async(actions)
        self._paid = self._worth(self._present, actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Give the step's outcome with the learned rewards `[V]`, float32."""
        self._present, true_rewards, dones, infos = self.venv.step_wait()
        for info, true_reward in zip(infos, true_rewards.tolist(), strict=True):
            info["true_reward"] = true_reward
        self._returns += self._paid
        if dones.any():
            for i in np.flatnonzero(dones):
                infos[i]["learned_return"] = float(self._returns[i])
            self._returns[dones] = 0.0
            if self._history is not None:
                self._history.forget(dones)
        # SB3 adds bootstrapped values to the rewards in place: `_paid` is new with each step.
        return _shallow_copy(self._present), self._paid, dones, infos

    def _worth(self, observations: Observations, actions: Array) -> FloatArray:
        """`[V]` rewards of taking `actions` at `observations`."""
        if self._reward is None:
            return np.zeros(self.num_envs, np.float32)
        if self._history is None:
            windows = map_observations(lambda o: o[:, None], observations)  # [V, 1, *obs]
            rewards = self._reward(windows, actions[:, None], self._single)
        else:
            rewards = self._reward(*self._history.append(observations, actions))
        paid = np.array(rewards, np.float32)
        if paid.shape != (self.num_envs,) or not np.isfinite(paid).all():
            raise DataError(
                mismatch(
                    "learned reward",
                    expected=f"{self.num_envs} finite numbers, one per environment",
                    got=rewards,
                )
            )
        return paid


def _shallow_copy(observations: VecEnvObs) -> VecEnvObs:
    """The same arrays in a dictionary of their own, since SB3 replaces entries of those it gets."""
    return dict(observations) if isinstance(observations, dict) else observations


def _require_space(what: str, expected: spaces.Space[Any], got: spaces.Space[Any]) -> None:
    if expected != got:
        raise SpaceError(
            mismatch(
                f"{what} of the environment",
                expected=f"{expected}, which the reward was made for",
                got=got,
                fix="Build the reward for this environment's spaces, or wrap the environment.",
            )
        )
