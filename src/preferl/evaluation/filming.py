"""Film a policy, and record one episode of it with all its steps."""

from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from preferl.data.episodes import Episodes
from preferl.envs.config import EnvConfig, EnvSource
from preferl.envs.factory import draws, make_env, playing_rate
from preferl.envs.simulators import draw_off_screen, draw_plainly
from preferl.errors import ConfigError, require_in
from preferl.evaluation.policies import Policy
from preferl.evaluation.rollout import SeededEpisodes, Step, rollout, task_env
from preferl.printing import get_logger
from preferl.shapes import Array, map_observations

logger = get_logger(__name__)

MOST_STEPS = 500
"""Steps after which a filmed episode is cut off, since nobody watches longer ones in a report."""


class FilmedEpisode(NamedTuple):
    """An episode, a frame `[height, width, 3]` of each step if it can be drawn, and their rate.

    The rate is in frames per second.
    """

    episode: Episodes
    frames: Array | None
    rate: int


def film(
    policy: Policy,
    env: EnvSource,
    *,
    seed: int,
    steps: int,
    every: int = 1,
    deterministic: bool = True,
) -> Array:
    """Film a policy; when an episode ends, the next one follows.

    Args:
        policy: anything with stable-baselines3's `predict`.
        env: the id of an environment, or a function that takes `render_mode`.
        seed: seed of the first episode; each later one adds 1.
        steps: how many steps are filmed.
        every: keep every `every`-th frame; the clip then plays at `frame_rate(env) / every`.
        deterministic: whether the policy acts without exploring.

    Returns:
        `[frames, height, width, 3]` bytes, `ceil(steps / every)` frames.

    Raises:
        ConfigError: `steps` or `every` is less than one, or the environment draws no pictures.
    """
    require_in("steps", steps, 1, float("inf"))
    require_in("every", every, 1, float("inf"))
    draw_off_screen()
    frames: list[Array] = []
    with closing(make_env(env, render_mode="rgb_array")) as stage:
        draw_plainly(stage)
        envs = SeededEpisodes([stage], seed)
        acting = rollout(policy, envs, deterministic=deterministic, observations=envs.reset())
        for step in range(steps):
            if step % every == 0:
                frame: Any = stage.render()
                is_picture = (
                    isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[-1] == 3
                )
                if not is_picture:
                    raise ConfigError(
                        "what the environment renders: expected a picture [height, width, 3], "
                        f"got {type(frame).__name__}. Film an environment that supports "
                        "render_mode='rgb_array'."
                    )
                frames.append(frame.astype(np.uint8))
            next(acting)
    return np.stack(frames)


def frame_rate(env: EnvSource, default: int = 30) -> int:
    """Return the steps per second at which to show the environment; see `playing_rate`."""
    with closing(make_env(env)) as stage:
        return playing_rate(stage.metadata, default)


def show(
    policy: Policy, task: str | EnvConfig, *, seed: int, max_steps: int | None = None
) -> FilmedEpisode:
    """Let a policy act for an episode of a task, and film it if the environment can be drawn.

    The policy acts a second time for the film, and must choose the same actions then.
    """
    env = task_env(task)
    steps = min(MOST_STEPS, max_steps or MOST_STEPS)
    with closing(env()) as stage:
        episode = _episode(policy, SeededEpisodes([stage], seed, episodes=1, max_steps=steps))
    frames = None
    if draws(env):
        try:
            frames = film(policy, env, seed=seed, steps=episode.steps)
        # Machines without a display raise errors of many classes. A missing picture must not cost
        # hours of training.
        except Exception as error:
            name = task if isinstance(task, str) else task.env_name
            logger.warning("%s cannot be drawn here: %r", name, error)
    return FilmedEpisode(episode, frames, frame_rate(env))


def _episode(policy: Policy, envs: SeededEpisodes) -> Episodes:
    """Record all steps of the first episode in a single environment."""
    steps: list[Step] = []
    acting = rollout(policy, envs, deterministic=True)
    while not steps or not steps[-1].dones[0]:
        steps.append(next(acting))
    observations = [step.observations for step in steps]
    last_info = steps[-1].infos[0]
    terminated = np.zeros(len(steps), bool)
    terminated[-1] = not last_info["TimeLimit.truncated"]
    return Episodes(
        observations=map_observations(lambda *rows: np.concatenate(rows), *observations),
        actions=np.concatenate([step.actions for step in steps]),
        rewards=np.concatenate([step.rewards for step in steps]),
        terminated=terminated,
        final_observations=map_observations(
            lambda a, b: np.asarray(b, a.dtype)[None],
            observations[0],
            last_info["terminal_observation"],
        ),
        lengths=np.array([len(steps)]),
    )
