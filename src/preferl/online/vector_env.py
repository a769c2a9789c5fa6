"""Vector environments of gymnasium whose rewards are learned from people's answers."""

from typing import Any, final

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from preferl.errors import ConfigError
from preferl.online.feedback_config import FeedbackConfig
from preferl.online.feedback_controls import FeedbackControls, hide_return, with_rows
from preferl.online.reward_computer import Rewards
from preferl.shapes import Array, BoolArray, map_observations
from preferl.store.feedback import StoredFeedback


@final
class FeedbackVectorEnv(FeedbackControls, gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """`FeedbackVecEnv` for gymnasium's vector environments, with the same arguments but `record`.

    Episodes may begin in the same step, in the next one, whose action and reward mean nothing and
    are not recorded, or by `reset` with a mask. Infos have arrays `true_reward` (unless hidden) and
    `reward_version`, false in `_true_reward` and `_reward_version` where a step only began an
    episode, and `learned_return` where one ended.

    Raises:
        ConfigError: settings that are out of range or do not go together, or environments whose
            metadata do not say how they begin episodes.
    """

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv[Any, Any, Any],
        feedback: StoredFeedback | None = None,
        rewards: Rewards = None,
        config: FeedbackConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(env)
        self._mode = (env.metadata or {}).get("autoreset_mode")
        if not isinstance(self._mode, AutoresetMode):
            raise ConfigError.mismatch(
                'metadata["autoreset_mode"]',
                expected="an AutoresetMode, as gymnasium.make_vec gives",
                got=self._mode,
            )
        spaces = env.single_observation_space, env.single_action_space
        self._connect(*spaces, env.num_envs, False, feedback, rewards, config, **options)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes everywhere, or where `options["reset_mask"]` is true."""
        mask = None if options is None else options.get("reset_mask")
        observations, infos = self.env.reset(seed=seed, options=options)
        self._look_for_states(infos)
        self.core.reset(observations, mask, states=self._states(infos))
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Give the step's outcome with the learned rewards, `[V]` float32.

        Raises:
            ConfigError: the environments were never reset.
        """
        began, version = self.core.recording.idle.copy(), self.core.active_version
        self.core.act(np.asarray(actions))
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = (terminated | truncated) & ~began
        same = self._mode == AutoresetMode.SAME_STEP and over.any()
        states, last = self._states(infos), observations
        if same:
            finals = map_observations(lambda *rows: np.stack(rows), *infos["final_obs"][over])
            last = with_rows(observations, over.nonzero()[0], finals)
        given = self.core.outcome(last, rewards, terminated, truncated, states=states)
        self._complete_infos(infos, rewards, version, ~began, over)
        if same:
            self.core.reset(observations, over, states=states)
        elif self._mode == AutoresetMode.NEXT_STEP and began.any():
            self.core.reset(observations, began, states=states)
        return observations, given, terminated, truncated, infos

    def close(self, seconds: float = 10.0, **kwargs: Any) -> None:
        """Save what is to be asked, within so many seconds, and close the environments."""
        try:
            self._disconnect(seconds)
        finally:
            super().close(**kwargs)

    def _states(self, infos: dict[str, Any]) -> Array | None:
        if not self.core.config.states:
            return None
        if "state" not in infos:
            raise ConfigError.mismatch(
                "infos", expected="the key state, since states are recorded", got="none"
            )
        return np.stack(list(infos["state"]))

    def _complete_infos(
        self, infos: dict[str, Any], rewards: Array, version: int, real: BoolArray, over: BoolArray
    ) -> None:
        hide = self.core.config.hide_true_reward
        known = {"reward_version": (np.full(len(real), version), real)}
        if not hide:
            known["true_reward"] = (np.array(rewards), real)
        if over.any():
            known["learned_return"] = (self.core.returns, over)
        for name, (values, where) in known.items():
            infos[name], infos[f"_{name}"] = values.copy(), where.copy()
        if hide:
            returns = np.where(over, self.core.returns, 0.0)
            hide_return(infos, returns)
            if isinstance(final := infos.get("final_info"), dict):  # where the next ones begin
                infos["final_info"] = final = dict(final)
                hide_return(final, returns)
