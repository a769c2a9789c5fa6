"""Environments that pay a learned reward instead of their own."""

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from preferl.errors import ConfigError
from preferl.feedback.step_rewards import AnyReward
from preferl.online.paying import Payer, Reward, for_spaces
from preferl.shapes import Array


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
        self._payer = Payer(venv.num_envs)
        self._present: Any = None
        self._paid = np.zeros(venv.num_envs, np.float32)
        self._returns = np.zeros(venv.num_envs)

    def pay(self, reward: Reward | AnyReward) -> None:
        """Pay `reward` from the next step on: learned, a control, or a plain function of steps.

        Raises:
            SpaceError: the reward was made for other observations or actions.
        """
        self._payer.pay(for_spaces(reward, self.observation_space, self.action_space))

    def snapshot(self) -> dict[str, Any]:
        """What was paid and seen last, for `restore`; the reward is not in it."""
        return {
            "history": self._payer.snapshot(),
            "present": self._present,
            "returns": self._returns,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from where another one stood that paid the same reward; `pay` that before."""
        self._payer.restore(snapshot["history"])
        self._present = snapshot["present"]
        self._returns[:] = snapshot["returns"]

    def reset(self) -> VecEnvObs:
        """Begin anew, with no history and no sums."""
        self._payer.forget()
        self._returns[:] = 0.0
        self._present = self.venv.reset()
        return shallow_copy(self._present)

    def step_async(self, actions: Array) -> None:
        """Send the actions off, then work out what they are worth.

        Raises:
            ConfigError: the environments were never reset.
            DataError: the reward gave something else than one finite number per environment.
        """
        if self._present is None:
            raise ConfigError("LearnedRewardVecEnv: call `reset()` before the first step.")
        self.venv.step_async(actions)
        self._paid = self._payer.worth(self._present, actions)

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
            self._payer.forget(dones)
        # SB3 adds bootstrapped values to the rewards in place: `_paid` is new with each step.
        return shallow_copy(self._present), self._paid, dones, infos


def shallow_copy(observations: VecEnvObs) -> VecEnvObs:
    """The same arrays in a dictionary of their own, since SB3 replaces entries of those it gets."""
    return dict(observations) if isinstance(observations, dict) else observations
