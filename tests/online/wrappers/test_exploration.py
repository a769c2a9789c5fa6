from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from preferl.errors import ConfigError, SpaceError
from preferl.online.wrappers.exploration import ExplorationPolicy, random_actions

BOX = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Agent:
    """Always acts with 5, outside of what random actions reach."""

    def __init__(self, shape: tuple[int, ...] = (1,)) -> None:
        self.shape = shape
        self.asked: list[Any] = []

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: Any = 0
    ) -> Any:
        self.asked.append((state, episode_start, deterministic))
        count = len(
            next(iter(observation.values())) if isinstance(observation, dict) else observation
        )
        return np.full((count, *self.shape), 5.0, np.float32), ("next",)


def choices(policy: ExplorationPolicy, environments: int, steps: int) -> np.ndarray:
    """`[steps, V]` whether the random policy acted."""
    observation = np.zeros((environments, 3))
    return np.stack([policy.predict(observation)[0][:, 0] != 5.0 for _ in range(steps)])


def test_shares_and_stretches(rng: np.random.Generator) -> None:
    policy = ExplorationPolicy(Agent(), BOX, rng, random_probability=0.3, switch_probability=0.2)
    random = choices(policy, 50, 2000)
    assert random.mean() == pytest.approx(0.3, abs=0.01)
    changed = (random[1:] != random[:-1]).mean()
    assert changed == pytest.approx(0.2 * 2 * 0.3 * 0.7, abs=0.005)
    # Environments choose for themselves.
    assert np.corrcoef(random[:, 0], random[:, 1])[0, 1] == pytest.approx(0.0, abs=0.12)


@pytest.mark.parametrize(("probability", "expected"), [(0.0, False), (1.0, True)])
def test_extremes(rng: np.random.Generator, probability: float, expected: bool) -> None:
    policy = ExplorationPolicy(Agent(), BOX, rng, random_probability=probability)
    assert (choices(policy, 4, 50) == expected).all()


def test_episode_starts_draw_again_when_nothing_else_does(rng: np.random.Generator) -> None:
    policy = ExplorationPolicy(Agent(), BOX, rng, switch_probability=0.0)
    kept = choices(policy, 64, 20)
    assert (kept == kept[0]).all()
    starts = np.arange(64) < 32
    observation = np.zeros((64, 1))
    after = policy.predict(observation, episode_start=starts)[0][:, 0] != 5.0
    assert (after[32:] == kept[0, 32:]).all()
    assert (after[:32] != kept[0, :32]).any()


def test_the_policy_gets_what_it_needs(rng: np.random.Generator) -> None:
    agent = Agent()
    policy = ExplorationPolicy(agent, BOX, rng)
    start = np.array([True])
    _, state = policy.predict(np.zeros((1, 2)), ("before",), start, deterministic=True)
    assert agent.asked == [(("before",), start, True)]
    assert state == ("next",)


def test_discrete_actions_keep_their_shape(rng: np.random.Generator) -> None:
    policy = ExplorationPolicy(Agent(()), spaces.Discrete(2), rng)
    actions, _ = policy.predict(np.zeros((40, 2)))
    assert actions.shape == (40,)
    assert set(actions.tolist()) == {0, 1, 5}


def test_one_seed_one_course() -> None:
    first, second = (
        choices(ExplorationPolicy(Agent(), BOX, np.random.default_rng(4)), 3, 30) for _ in range(2)
    )
    assert (first == second).all()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-2.0, 3.0, (2, 3), np.float32),
        spaces.Box(
            np.array([-np.inf, 0, -np.inf]), np.array([np.inf, np.inf, 1]), dtype=np.float64
        ),
        spaces.Box(0, 255, (4,), np.uint8),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 0]]),
        spaces.MultiBinary(3),
    ],
)
def test_random_actions_belong_to_their_space(
    space: spaces.Space[Any], rng: np.random.Generator
) -> None:
    actions = random_actions(space, 3000, rng)
    space.seed(0)
    sampled = np.stack([space.sample() for _ in range(3000)])
    assert actions.dtype == sampled.dtype
    assert actions.shape == sampled.shape
    assert all(space.contains(space.dtype.type(a)) for a in actions[:200])  # type: ignore[union-attr]
    # The same distribution as gymnasium's own, to five standard errors.
    error = 5 * sampled.astype(float).std(0) * np.sqrt(2 / 3000)
    assert (np.abs(actions.mean(0) - sampled.mean(0)) < error).all()
    np.testing.assert_allclose(
        actions.astype(float).std(0), sampled.astype(float).std(0), rtol=0.15
    )


def test_integers_reach_both_bounds(rng: np.random.Generator) -> None:
    drawn = random_actions(spaces.Box(0, 3, (1,), np.int32), 400, rng)
    assert np.unique(drawn).tolist() == [0, 1, 2, 3]


def test_bad_settings_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ConfigError, match="random_probability"):
        ExplorationPolicy(Agent(), BOX, rng, random_probability=1.5)
    with pytest.raises(ConfigError, match="switch_probability"):
        ExplorationPolicy(Agent(), BOX, rng, switch_probability=-0.1)
    with pytest.raises(SpaceError, match="Text"):
        random_actions(spaces.Text(3), 1, rng)
