"""Small agents in the world of points, and episodes of mixed quality there."""

import numpy as np

from helpers.point_walks import point_walks
from preferl.offline import IQL, IQLConfig
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE

SPACES = (POINT_SPACE, PUSH_SPACE)
SMALL = IQLConfig(hidden=(16, 12), batch_size=32)


def agents(config=SMALL, *, seeds=(0, 1), planned=100):
    return IQL(*SPACES, config, seeds=seeds, steps=planned)


def mixed_episodes(rng, count=100, length=20):
    """Pushes of a skill that differs between episodes, from harmful to good, and much noise."""
    skill = rng.uniform(-0.6, 0.6, (count, 1, 1)) * np.array([1.0, -1.0])
    push = skill + rng.normal(0, 0.4, (count, length, 2))
    return point_walks(rng, np.clip(push, -1, 1).astype(np.float32))


def networks_of(agent, kind):
    """Parameters of all networks of a kind, as the agent's state has them."""
    at = "target." if kind == "target" else f"{kind}.values."
    return {k.removeprefix(at): t for k, t in agent.state().items() if k.startswith(at)}
