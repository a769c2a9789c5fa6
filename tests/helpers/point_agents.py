"""Small agents of implicit Q-learning in the world of points."""

from preferl.offline import IQL, IQLConfig
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE

SPACES = (POINT_SPACE, PUSH_SPACE)
SMALL = IQLConfig(hidden=(16, 12), batch_size=32)


def agents(config=SMALL, *, seeds=(0, 1), planned=100):
    return IQL(*SPACES, config, seeds=seeds, steps=planned)
