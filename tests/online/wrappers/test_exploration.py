import numpy as np
import pytest
from gymnasium import spaces

from preferl.errors import ConfigError, SpaceError
from preferl.online.wrappers.exploration import ExplorationPolicy, random_actions

BOX = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Agent:
    """Always acts with 5, outside of what random actions reach."""

    def __init__(self, shape=(1,)):
        self.shape = shape
        self.asked = []

    def predict(self, observation, *how):
        self.asked.append(how)
        return np.full((len(observation), *self.shape), 5.0, np.float32), ("next",)


def choices(policy, environments, steps):
    """`[steps, V]` whether the random policy acted."""
    observation = np.zeros((environments, 3))
    return np.stack([policy.predict(observation)[0][:, 0] != 5.0 for _ in range(steps)])


def test_shares_and_stretches(rng):
    policy = ExplorationPolicy(Agent(), BOX, rng, random_probability=0.3, switch_probability=0.2)
    random = choices(policy, 50, 2000)
    assert random.mean() == pytest.approx(0.3, abs=0.01)
    changed = (random[1:] != random[:-1]).mean()
    assert changed == pytest.approx(0.2 * 2 * 0.3 * 0.7, abs=0.005)
    # Environments choose for themselves.
    assert np.corrcoef(random[:, 0], random[:, 1])[0, 1] == pytest.approx(0.0, abs=0.12)


def test_episode_starts_draw_again_when_nothing_else_does(rng):
    policy = ExplorationPolicy(Agent(), BOX, rng, switch_probability=0.0)
    kept = choices(policy, 64, 20)
    assert (kept == kept[0]).all()
    starts = np.arange(64) < 32
    observation = np.zeros((64, 1))
    after = policy.predict(observation, episode_start=starts)[0][:, 0] != 5.0
    assert (after[32:] == kept[0, 32:]).all()
    assert (after[:32] != kept[0, :32]).any()


def test_the_policy_gets_what_it_needs(rng):
    agent = Agent()
    policy = ExplorationPolicy(agent, BOX, rng)
    start = np.array([True])
    _, state = policy.predict(np.zeros((1, 2)), ("before",), start, deterministic=True)
    assert agent.asked == [(("before",), start, True)]
    assert state == ("next",)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-2.0, 3.0, (2, 3), np.float32),
        spaces.Box(
            np.array([-np.inf, 0, -np.inf]), np.array([np.inf, np.inf, 1]), dtype=np.float64
        ),
        spaces.Box(0, 3, (4,), np.uint8),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 0]]),
        spaces.MultiBinary(3),
    ],
)
def test_random_actions_belong_to_their_space(space, rng):
    actions = random_actions(space, 3000, rng)
    space.seed(0)
    sampled = np.stack([space.sample() for _ in range(3000)])
    assert actions.dtype == sampled.dtype
    assert actions.shape == sampled.shape
    assert all(space.contains(space.dtype.type(a)) for a in actions[:200])
    # The same distribution as gymnasium's own, to five standard errors.
    error = 5 * sampled.astype(float).std(0) * np.sqrt(2 / 3000)
    assert (np.abs(actions.mean(0) - sampled.mean(0)) < error).all()
    np.testing.assert_allclose(
        actions.astype(float).std(0), sampled.astype(float).std(0), rtol=0.15
    )


def test_bad_settings_are_refused(rng):
    with pytest.raises(ConfigError, match="random_probability"):
        ExplorationPolicy(Agent(), BOX, rng, random_probability=1.5)
    with pytest.raises(ConfigError, match="switch_probability"):
        ExplorationPolicy(Agent(), BOX, rng, switch_probability=-0.1)
    with pytest.raises(SpaceError, match="Text"):
        random_actions(spaces.Text(3), 1, rng)
