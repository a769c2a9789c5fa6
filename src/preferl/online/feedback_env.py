"""Vector environments of stable-baselines3 that ask people and pay what was learned from them."""

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from preferl.feedback.protocols import PairSampler, Teacher
from preferl.online.feedback_config import FeedbackConfig
from preferl.online.feedback_controls import FeedbackControls, hide_return, settings_of
from preferl.online.recorder import outcomes, present_infos, stack_states
from preferl.online.reward_env import shallow_copy
from preferl.online.reward_source import Rewards
from preferl.online.transforms import Transform
from preferl.shapes import Array, FloatArray, IntArray, Observations, map_observations
from preferl.store.feedback import StoredFeedback


@final
class FeedbackVecEnv(FeedbackControls, VecEnvWrapper):
    """Asks people about what its agent does, and pays the agent what was learned from answers.

    Each step's info has `true_reward` (unless hidden) and `reward_version`, that of what was paid
    for it: 0 if that was no learned reward. An episode's last info has the sum of what was paid in
    it as `learned_return`. A newer reward is taken up by `FeedbackCallback`, by `refresh`, or
    every `refresh_every` vector steps; never in the middle of a rollout unless told so.

    Attributes:
        paid_replay: a replay buffer, and the version by which all of it was paid last.
        just_reset: no step was made since `reset`.
        explored_steps: environment steps in which `FeedbackCallback` explored.

    Args:
        venv: the environments. `VecNormalize` belongs outside of this wrapper, and `VecFrameStack`
            inside, where an agent with a replay buffer awaits rewards.
        feedback: where questions go; None asks nothing.
        rewards: folder of published rewards or its reader, one reward that stays, or None.
        config: how it collects and pays.
        sampler: chooses pairs instead of the config's `sampling`.
        synthetic_preferences: a teacher that answers in people's place, through the same store;
            True is one that prefers the higher true return.
        transform: what people and rewards see in place of an observation; works on the last axes.
        transformed_space: of such observations; needed with `transform`.
        **settings: fields of `FeedbackConfig`.

    Raises:
        ConfigError: settings that are out of range or do not go together.
        SpaceError: observations or actions that are not arrays of one shape, or a reward made for
            others.
    """

    def __init__(
        self,
        venv: VecEnv,
        feedback: StoredFeedback | None = None,
        rewards: Rewards = None,
        config: FeedbackConfig | None = None,
        *,
        sampler: PairSampler | None = None,
        synthetic_preferences: bool | Teacher = False,
        transform: Transform | None = None,
        transformed_space: spaces.Space[Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(venv)
        self.paid_replay: tuple[ReplayBuffer | None, int] = (None, 0)
        self.explored_steps = 0
        self.just_reset = False
        self._untold: list[tuple[dict[str, Any], int, int, int]] = []
        self._connect(
            venv.observation_space,
            venv.action_space,
            venv.num_envs,
            feedback=feedback,
            rewards=rewards,
            config=settings_of(config, settings),
            sampler=sampler,
            synthetic_preferences=synthetic_preferences,
            transform=transform,
            transformed_space=transformed_space,
        )

    def reset(self) -> VecEnvObs:
        """Begin anew; episodes under way are cut, and steps are paid at once again."""
        self.settle_rewards()
        observations, self.just_reset = self.venv.reset(), True
        for info in self.unwrapped.reset_infos:
            self._look_for_states(info)
        states = stack_states(self.unwrapped.reset_infos) if self.core.config.states else None
        self.core.reset(observations, states=states)
        return shallow_copy(observations)

    def step_async(self, actions: Array) -> None:
        """Send the actions off, then work out what they are worth.

        Raises:
            ConfigError: the environments were never reset.
        """
        self.venv.step_async(actions)
        self.core.act(actions)
        self.just_reset = False

    def step_wait(self) -> VecEnvStepReturn:
        """Give the step's outcome with what is paid, `[V]` float32."""
        observations, rewards, dones, infos = self.venv.step_wait()
        ended = dones.nonzero()[0]
        terminated, seen = np.zeros(self.num_envs, bool), observations
        if len(ended):
            terminated[ended], final = outcomes([infos[i] for i in ended])
            seen = _with_rows(observations, ended, final)
        keeps, version = self.core.config.states, self.core.paid_version
        paid = self.core.outcome(
            seen,
            rewards,
            terminated,
            dones & ~terminated,
            states=stack_states(infos) if keeps else None,
        )
        self._tell(infos, rewards.tolist(), version, ended)
        if len(ended):
            states = stack_states(present_infos(self.unwrapped, dones, infos)) if keeps else None
            self.core.reset(observations, dones, states=states)
        return shallow_copy(observations), paid, dones, infos

    def defer_rewards(self) -> None:
        """Pay what was learned later from now on: zeros at each step, and the rest together.

        A reward judges a rollout at once in a fraction of the time that its steps take one by one.
        Only rewards that judge whole episodes can; others are paid at once.
        """
        self.settle_rewards()
        self.core.defer()

    def settle_rewards(self) -> FloatArray:
        """Give what was not paid for the `T` steps since `defer_rewards`, `[T, V]` float32.

        From now on steps are paid at once. What infos said of returns until then is completed.

        Raises:
            DataError: the reward gave NaN or infinite numbers.
        """
        owed = self.core.settle()
        sums = np.concatenate([np.zeros((1, self.num_envs)), owed.astype(float).cumsum(axis=0)])
        for info, i, start, end in self._untold:
            info["learned_return"] += float(sums[end, i] - sums[start, i])
            if self.core.config.hide_true_reward and isinstance(info.get("episode"), dict):
                info["episode"]["r"] = info["learned_return"]  # in place: an algorithm keeps it
        self._untold = []
        return owed

    def switch_to_true_reward(self) -> None:
        """Pay the environment's own reward from now on, whatever is learned."""
        super().switch_to_true_reward()
        self.paid_replay = (None, 0)  # even if it is switched back before the rollout is over

    def snapshot(self) -> dict[str, Any]:
        """Where collecting and paying stand, for `restore`; `save_run` calls it."""
        return super().snapshot() | {"explored_steps": self.explored_steps}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from where wrappers of the same environments stood; `resume_run` calls it.

        Raises:
            SpaceError: a reward that was made for other observations or actions.
        """
        super().restore(snapshot)
        self.explored_steps = int(snapshot["explored_steps"])
        self.just_reset = False

    def close(self, seconds: float = 10.0) -> None:
        """Save what is to be asked, within so many seconds, and close the environments."""
        try:
            self._disconnect(seconds)
        finally:
            self.venv.close()

    def _tell(
        self, infos: list[dict[str, Any]], rewards: list[float], version: int, ended: IntArray
    ) -> None:
        hide = self.core.config.hide_true_reward
        for info, reward in zip(infos, rewards, strict=True):
            info["reward_version"] = version
            if not hide:
                info["true_reward"] = reward
        for i in ended:
            infos[i]["learned_return"] = float(self.core.returns[i])
            if self.core.deferred:
                start, end = int(self.core.since[i]), self.core.deferred
                self._untold.append((infos[i], int(i), start, end))
            if hide:
                hide_return(infos[i], infos[i]["learned_return"])


def _with_rows(observations: Any, rows: IntArray, values: Observations) -> Any:
    """A copy of `observations [V, *obs]` with `values [K, *obs]` in these rows."""

    def replaced(array: Array, new: Array) -> Array:
        array = array.copy()
        array[rows] = new
        return array

    return map_observations(replaced, observations, values)
