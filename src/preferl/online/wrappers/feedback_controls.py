"""The methods that all environment wrappers share, without stable-baselines3."""

from collections.abc import Iterable, Mapping, Sequence
from operator import setitem
from typing import Any, Final, Literal

import gymnasium
import numpy as np

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, DataError
from preferl.online.wrappers.feedback_core import FeedbackCore
from preferl.online.wrappers.query_worker import QueryCounts, QueryWorker
from preferl.online.wrappers.reward_computer import RewardSource, WindowReward
from preferl.printing import get_logger
from preferl.shapes import (
    Array,
    BoolArray,
    IntArray,
    Observations,
    map_observations,
)

LOGGER = get_logger(__name__)

WRAPPED: Final = {
    "FeedbackVecEnv": "a vector environment of stable-baselines3",
    "FeedbackVectorEnv": "a vector environment of gymnasium",
    "HumanPreferencesEnvWrapper": "one environment of gymnasium",
}
"""Wrappers by name, and what each one is for."""


class FeedbackControls:
    """The part that all wrappers share: it collects, saves, and chooses the reward."""

    core: FeedbackCore
    _states_missed = False

    @property
    def queries(self) -> QueryWorker | None:
        """The worker that asks in the background; None if nothing is asked."""
        return self.core.queries

    @property
    def reward_version(self) -> int:
        """The version of the learned reward in use; 0 before the first one."""
        return self.core.computer.version

    @property
    def learned_reward(self) -> WindowReward | None:
        """The learned reward in use; it reads the environment's own observations."""
        return self.core.computer.for_raw_observations

    @property
    def reward_source(self) -> RewardSource:
        """Which reward steps get: "learned", "before_first_reward", or the "environment"'s own."""
        return self.core.computer.source

    @property
    def counts(self) -> QueryCounts | None:
        """Counts of experience and queries so far; None if nothing is collected."""
        return None if self.queries is None else self.queries.counts

    @property
    def steps(self) -> int:
        """Steps recorded since the beginning, summed over all environments."""
        return self.core.recording.steps

    def take(self, *, unfinished: Literal["keep", "cut"] = "keep") -> Episodes | None:
        """Return the episodes that ended since the last call; see `Recording.take`."""
        return self.core.recording.take(unfinished=unfinished)

    def refresh(self, *, wait: bool = False) -> bool:
        """Switch to the newest learned reward; return whether it changed.

        Call this between rollouts. With `wait`, the disk is read now, instead of using the version
        that was read in the background. A reward that was made for other observations or actions
        raises `SpaceError`.
        """
        return self.core.computer.switch_to_newest(wait=wait)

    def switch_to_true_reward(self) -> None:
        """Give the environment's own reward from now on, even if there is a learned one."""
        self.core.computer.true_reward_forced = True

    def switch_to_learned_reward(self) -> None:
        """Give the learned reward again; before the first one, the reward of `before`."""
        self.core.computer.true_reward_forced = False

    def pause_collecting(self) -> None:
        """Stop recording and asking. Queries about earlier steps are still possible."""
        if self.core.recording.collecting:
            self.core.hand_over()
            self.core.recording.pause()
        if self.queries is not None:
            self.queries.paused = True

    def resume_collecting(self) -> None:
        """Record and ask again, from the current observations on."""
        if self.queries is not None:
            self.queries.paused = False
        if self.core.collects and not self.core.recording.collecting:
            self.core.recording.resume()

    def save(self, seconds: float = 10.0) -> bool:
        """Ask the queries that are due; return whether they were on disk within `seconds`.

        Answers need no saving: they are on disk before they are acknowledged.
        """
        self.core.hand_over()
        return self.queries is None or self.queries.flush(seconds)

    def snapshot(self) -> dict[str, Any]:
        """Return the progress of collecting and rewards, for `restore`; `save_run` calls it."""
        return self.core.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from the snapshot of a wrapper of the same environments; for `resume_run`."""
        self.core.restore(snapshot)

    def _warn_if_unrewarded(self) -> None:
        """Warn if nothing asks people, and there is no reward."""
        published = self.core.computer.published
        if self.queries is not None or self.core.computer.reward is not None:
            return
        given = f"rewards of kind {str(self.core.config.before)!r} (`before`)"
        if published is None:
            LOGGER.warning(
                "%s asks nobody and has no learned reward, so steps get %s. Pass `rewards`, "
                "`feedback`, or a folder for both.",
                type(self).__name__,
                given,
            )
        elif not published.folder.is_dir():
            LOGGER.warning(
                "There is no reward in %(folder)s, so that steps get %(given)s until `preferl "
                "reward serve --out %(folder)s` publishes one.",
                {"folder": published.folder, "given": given},
            )

    def _begin(
        self, observations: Any, infos: Sequence[dict[str, Any]], which: BoolArray | None = None
    ) -> None:
        """Begin episodes where `which [V]` is true; warn once if needed states are not recorded."""
        lost = self.queries is not None and not self.core.config.states
        if lost and not self._states_missed and any("state" in info for info in infos):
            self._states_missed = True
            LOGGER.warning(
                'info["state"] is not recorded: clips that need it cannot be drawn. Pass '
                "`states=True` to %s, unless that state has another purpose.",
                type(self).__name__,
            )
        self.core.reset(observations, which, states=self._states(infos))

    def _states(self, infos: Sequence[dict[str, Any]]) -> Array | None:
        """Return the states in infos, `[V, *state]`; None if states are not recorded."""
        return stack_states(infos) if self.core.config.states else None

    def _complete_infos(
        self, infos: list[dict[str, Any]], rewards: list[float], version: int, ended: Iterable[int]
    ) -> None:
        """Add true rewards, the reward's version, and learned returns of ended episodes."""
        hide = self.core.config.hide_true_reward
        for info, reward in zip(infos, rewards, strict=True):
            info["reward_version"] = version
            if not hide:
                info["true_reward"] = reward
        for i in ended:
            infos[i]["learned_return"] = float(self.core.returns[i])
            if hide:
                hide_return(infos[i], infos[i]["learned_return"])


def require_kind(env: Any, wrapper: object) -> None:
    """Raise `ConfigError` unless the wrapper is for `env`; name the wrapper that fits."""
    name = type(wrapper).__name__
    if isinstance(env, gymnasium.vector.VectorEnv):
        right = "FeedbackVectorEnv"
    elif isinstance(env, gymnasium.Env):
        right = "HumanPreferencesEnvWrapper"
    elif hasattr(env, "step_async") and hasattr(env, "num_envs"):
        right = "FeedbackVecEnv"
    else:
        raise ConfigError(
            f"environment of {name}: expected {WRAPPED[name]}, got a {type(env).__name__}. Wrap an "
            "environment of one of these libraries."
        )
    if right != name:
        raise ConfigError(
            f"environment of {name}: expected {WRAPPED[name]}, got {WRAPPED[right]}, a "
            f"{type(env).__name__}. Wrap it in {right}."
        )


def hide_return(info: dict[str, Any], learned: Any) -> None:
    """Replace the true return by the learned one, if a monitor inside gives the true one."""
    monitored = info.get("episode")
    if isinstance(monitored, dict) and "r" in monitored:
        info["episode"] = monitored | {"r": learned}


def stack_states(infos: Sequence[dict[str, Any]]) -> Array:
    """Stack the states in infos, `[V, *state]`; raise `DataError` if an info has none."""
    if any("state" not in info for info in infos):
        raise DataError(
            "info of a step or reset: expected the key state, since states are to be recorded, "
            f"got keys {sorted(infos[0])}. Wrap each environment in `RecordsStates`, or do not "
            "record states."
        )
    return np.stack([info["state"] for info in infos])


def with_rows(observations: Any, rows: IntArray, values: Observations) -> Any:
    """Copy `observations [V, *obs]`, and replace `rows` by `values [K, *obs]`."""
    copied = map_observations(np.copy, observations)
    map_observations(lambda array, new: setitem(array, rows, new), copied, values)
    return copied
