"""Vector environments of gymnasium whose rewards are learned from people's answers."""

from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from preferl.errors import ConfigError
from preferl.feedback.protocols import PairSampler, Teacher
from preferl.online.feedback_config import FeedbackConfig
from preferl.online.feedback_controls import (
    FeedbackControls,
    hide_return,
    settings_of,
    with_rows,
)
from preferl.online.reward_source import Rewards, Transform
from preferl.shapes import Array, BoolArray, map_observations
from preferl.store.feedback import StoredFeedback


@final
class FeedbackVectorEnv(FeedbackControls, gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """`FeedbackVecEnv` for gymnasium's vector environments.

    All its ways to begin episodes are known: in the same step, in the next one, whose action and
    reward mean nothing and are not recorded, or by `reset` with a mask.

    Infos have arrays `true_reward` (unless hidden) and `reward_version`, false in
    `_true_reward` and `_reward_version` where a step only began an episode, and `learned_return`
    where one ended.

    Args:
        env: the environments; same arguments as `FeedbackVecEnv` otherwise.
        feedback: where questions go; None asks nothing.
        rewards: folder of published rewards or its reader, one reward that stays, or None.
        config: how it collects, and what comes before the first reward.
        sampler: chooses pairs instead of the config's `sampler`.
        synthetic_preferences: a teacher that answers in people's place, or True.
        transform: what people and rewards see in place of an observation; works on the last axes.
        transformed_space: of such observations; needed with `transform`.
        **settings: fields of `FeedbackConfig`.

    Raises:
        ConfigError: settings that are out of range or do not go together, or environments that
            do not say how they begin episodes.
    """

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv[Any, Any, Any],
        feedback: StoredFeedback | None = None,
        rewards: Rewards = None,
        config: FeedbackConfig | None = None,
        *,
        sampler: PairSampler | str | None = None,
        synthetic_preferences: bool | Teacher = False,
        transform: Transform | None = None,
        transformed_space: spaces.Space[Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(env)
        mode = (env.metadata or {}).get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ConfigError.mismatch(
                'metadata["autoreset_mode"]',
                expected="an AutoresetMode, as gymnasium.make_vec gives",
                got=mode,
            )
        self._mode = mode
        self._connect(
            env.single_observation_space,
            env.single_action_space,
            env.num_envs,
            feedback=feedback,
            rewards=rewards,
            config=settings_of(config, settings),
            sampler=sampler,
            synthetic_preferences=synthetic_preferences,
            transform=transform,
            transformed_space=transformed_space,
        )

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
        began, version = self.core.recording.idle.copy(), self.core.paid_version
        self.core.act(np.asarray(actions))
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = (terminated | truncated) & ~began
        same = self._mode == AutoresetMode.SAME_STEP and over.any()
        states, last = self._states(infos), observations
        if same:
            finals = map_observations(lambda *rows: np.stack(rows), *infos["final_obs"][over])
            last = with_rows(observations, over.nonzero()[0], finals)
        given = self.core.outcome(
            last,
            rewards,
            terminated,
            truncated,
            states=states,
        )
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
        self,
        infos: dict[str, Any],
        rewards: Array,
        version: int,
        real: BoolArray,
        over: BoolArray,
    ) -> None:
        known = {"reward_version": np.full(len(real), version)}
        if not self.core.config.hide_true_reward:
            known["true_reward"] = np.array(rewards)
        for name, values in known.items():
            infos[name], infos[f"_{name}"] = values, real.copy()
        if over.any():
            infos["learned_return"], infos["_learned_return"] = (
                self.core.returns.copy(),
                over.copy(),
            )
        if self.core.config.hide_true_reward:
            returns = np.where(over, self.core.returns, 0.0)
            hide_return(infos, returns)
            if isinstance(final := infos.get("final_info"), dict):  # where the next ones begin
                infos["final_info"] = final = dict(final)
                hide_return(final, returns)
