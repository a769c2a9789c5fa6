"""One episode of a policy, step by step and as pictures."""

import logging
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from preferl.data.episodes import Episodes
from preferl.errors import ConfigError
from preferl.evaluation.environments import make_task_env, task_env
from preferl.evaluation.filming import film
from preferl.evaluation.protocols import PaidPolicy, Policy
from preferl.shapes import Array, FloatArray, map_observations

logger = logging.getLogger(__name__)

MOST_STEPS = 500
"""A clip is cut off here: longer ones are not watched, and weigh on the page."""


@final
@dataclass(frozen=True, eq=False)
class Shown:
    """An episode to look at.

    Attributes:
        episode: the only one in it.
        frames: `[T, height, width, 3]` bytes, one per step; None where nothing can be drawn.
        rate: frames per second at which it is meant to be watched.
    """

    episode: Episodes
    frames: Array | None
    rate: int


def show(policy: Policy, env_id: str, *, seed: int, max_steps: int | None = None) -> Shown:
    """Let a policy act for an episode; it is drawn where the environment can.

    Args:
        policy: acts without drawing, so that the episode can be lived through twice.
        env_id: the environment.
        seed: of the episode.
        max_steps: of the task.
    """
    steps = min(MOST_STEPS, max_steps or MOST_STEPS)
    env = make_task_env(env_id)
    try:
        episode = _act(policy, env, seed, steps)
        draws = "rgb_array" in env.metadata.get("render_modes", ())
        rate = int(env.metadata.get("render_fps") or 30)
    finally:
        env.close()
    frames = _draw(policy, env_id, seed, episode.steps) if draws else None
    return Shown(episode, frames, rate)


def _act(policy: Policy, env: Any, seed: int, steps: int) -> Episodes:
    observation, _ = env.reset(seed=seed)
    seen, done, paid, terminated = [observation], [], [], False
    state = None
    for _ in range(steps):
        action, state = policy.predict(observation, state)
        observation, reward, terminated, truncated, _ = env.step(action)
        if isinstance(policy, PaidPolicy):
            policy.earned(state, np.array([float(reward)]))
        seen.append(observation)
        done.append(action)
        paid.append(float(reward))
        if terminated or truncated:
            break
    stacked = map_observations(lambda *rows: np.stack(rows), *seen)
    last = np.zeros(len(paid), bool)
    last[-1] = terminated
    return Episodes(
        observations=map_observations(lambda rows: rows[:-1], stacked),
        actions=np.stack(done),
        rewards=np.array(paid),
        terminated=last,
        final_observations=map_observations(lambda rows: rows[-1:], stacked),
        lengths=np.array([len(paid)]),
    )


def _draw(policy: Policy, env_id: str, seed: int, steps: int) -> Array | None:
    try:
        return film(policy, task_env(env_id), seed=seed, steps=steps)
    except ConfigError:
        return None
    # What a machine without a display or its libraries raises has no common class, and hours of
    # training are not lost for want of a picture.
    except Exception as error:
        logger.warning("%s cannot be drawn here: %r", env_id, error)
        return None


def best_window(rewards: FloatArray, length: int) -> slice:
    """The `length` steps in a row with the highest sum; all steps if there are no more.

    >>> best_window(np.array([0.0, 1, 5, 2, 0]), 2)
    slice(2, 4, None)
    """
    if len(rewards) <= length:
        return slice(0, len(rewards))
    sums = np.cumsum(np.concatenate([[0.0], rewards]))
    first = int((sums[length:] - sums[:-length]).argmax())
    return slice(first, first + length)
