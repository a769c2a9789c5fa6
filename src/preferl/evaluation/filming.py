"""A policy at work, as pictures."""

from typing import Any

import gymnasium
import numpy as np

from preferl.errors import ConfigError, require_in
from preferl.evaluation.normalised import on_raw_observations
from preferl.evaluation.policy import EnvSource, make_env
from preferl.evaluation.protocols import PaidPolicy, Policy
from preferl.shapes import Array
from preferl.simulators import draw_off_screen, draw_plainly


def film(
    policy: Policy,
    env: EnvSource,
    *,
    seed: int,
    steps: int,
    every: int = 1,
    deterministic: bool = True,
) -> Array:
    """Frames of a policy; when an episode ends, the next one follows.

    Args:
        policy: anything with stable-baselines3's `predict`.
        env: the id of an environment, or a function that takes `render_mode`.
        seed: of the first episode; each later one adds 1.
        steps: how many steps are filmed.
        every: keep one frame in so many; the clip then plays at `frame_rate(env) / every`.
        deterministic: passed to the policy.

    Returns:
        `[frames, height, width, 3]` bytes, `ceil(steps / every)` frames.

    Raises:
        ConfigError: no steps, or an environment that draws no pictures.
    """
    require_in("steps", steps, 1, float("inf"))
    require_in("every", every, 1, float("inf"))
    draw_off_screen()
    stage = make_env(env, render_mode="rgb_array")
    try:
        draw_plainly(stage)
        return np.stack(
            _shoot(on_raw_observations(policy), stage, seed, steps, every, deterministic)
        )
    finally:
        stage.close()


def draws(env: EnvSource) -> bool:
    """Whether the environment says that it can draw pictures."""
    stage = make_env(env)
    try:
        return "rgb_array" in (stage.metadata.get("render_modes") or ())
    finally:
        stage.close()


def frame_rate(env: EnvSource, default: int = 30) -> int:
    """Steps per second at which the environment is meant to be watched."""
    stage = make_env(env)
    try:
        return int(stage.metadata.get("render_fps") or default)
    finally:
        stage.close()


def _shoot(
    policy: Policy,
    stage: gymnasium.Env[Any, Any],
    seed: int,
    steps: int,
    every: int,
    deterministic: bool,
) -> list[Array]:
    frames = []
    observation, _ = stage.reset(seed=seed)
    start, state = np.ones(1, bool), None
    for step in range(steps):
        if step % every == 0:
            frames.append(_frame(stage))
        batch = _batch_of_one(observation)
        actions, state = policy.predict(batch, state, start, deterministic)
        observation, reward, terminated, truncated, _ = stage.step(actions[0])
        if isinstance(policy, PaidPolicy):
            policy.earned(state, np.array([float(reward)]))
        start = np.array([terminated or truncated])
        if start[0]:
            seed += 1
            observation, _ = stage.reset(seed=seed)
    return frames


def _frame(stage: gymnasium.Env[Any, Any]) -> Array:
    frame = stage.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[-1] != 3:
        raise ConfigError.mismatch(
            "what the environment renders",
            expected="a picture [height, width, 3]",
            got=type(frame).__name__,
            fix="Film an environment that supports render_mode='rgb_array'.",
        )
    return frame.astype(np.uint8)


def _batch_of_one(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: np.asarray(value)[None] for key, value in observation.items()}
    return np.asarray(observation)[None]
