"""A policy at work, as pictures."""

import os
import sys
from typing import Any

import gymnasium
import numpy as np

from preferl.errors import ConfigError, mismatch, require_in
from preferl.evaluation.policy import EnvSource, make_env
from preferl.evaluation.protocols import Policy
from preferl.shapes import Array


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
    _render_without_display()
    stage = make_env(env, render_mode="rgb_array")
    try:
        _draw_plainly(stage)
        return np.stack(_shoot(policy, stage, seed, steps, every, deterministic))
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
        observation, _, terminated, truncated, _ = stage.step(actions[0])
        start = np.array([terminated or truncated])
        if start[0]:
            seed += 1
            observation, _ = stage.reset(seed=seed)
    return frames


def _frame(stage: gymnasium.Env[Any, Any]) -> Array:
    frame = stage.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[-1] != 3:
        raise ConfigError(
            mismatch(
                "what the environment renders",
                expected="a picture [height, width, 3]",
                got=type(frame).__name__,
                fix="Film an environment that supports render_mode='rgb_array'.",
            )
        )
    return frame.astype(np.uint8)


def _batch_of_one(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: np.asarray(value)[None] for key, value in observation.items()}
    return np.asarray(observation)[None]


def _render_without_display() -> None:
    """Let MuJoCo and pygame draw off screen where there is none; a choice that was made stands."""
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _draw_plainly(stage: gymnasium.Env[Any, Any]) -> None:
    """Leave out MuJoCo's shadows and mirrors, nine tenths of its time without a GPU."""
    model: Any = getattr(stage.unwrapped, "model", None)
    if type(model).__module__.split(".")[0] == "mujoco":
        model.light_castshadow[:] = 0
        model.mat_reflectance[:] = 0
        model.vis.quality.offsamples = 0
