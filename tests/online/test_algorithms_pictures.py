from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.online import PPOConfig, load_policy, make_environments, save_policy
from preferl.online.algorithms import SmallPictures, build_algorithm, picture_policy


class Grid(gymnasium.Env[Any, Any]):
    """Observes whatever is in its space."""

    action_space = spaces.Discrete(3)

    def __init__(self, space: spaces.Space[Any], render_mode: str | None = None) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, True, {}


def test_small_pictures_have_their_own_network(tmp_path):
    env = make_environments("preferl/MovingDot-v0", 2, seed=0)
    config = PPOConfig(n_steps=4, batch_size=4, n_epochs=1, hidden=(8,))
    agent = build_algorithm(config, env, seed=0)
    extractor = agent.policy.features_extractor
    assert isinstance(extractor, SmallPictures)
    agent.learn(8)
    save_policy(tmp_path / "policy", agent, config)
    seen = env.reset()
    again = load_policy(tmp_path / "policy")
    assert again.predict(seen, deterministic=True)[0].tolist() == (
        agent.predict(seen, deterministic=True)[0].tolist()
    )


@pytest.mark.parametrize("side", [3, 16, 40])
def test_pictures_in_a_dictionary_are_learned_from(side, tmp_path):
    parts = {
        "an.image": spaces.Box(0, 255, (side, side, 4), np.uint8),
        "direction": spaces.Discrete(4),
    }
    env = make_environments(partial(Grid, spaces.Dict(parts)), 2, seed=0)
    config = PPOConfig(n_steps=4, batch_size=4, n_epochs=1, hidden=(8,))
    agent = build_algorithm(config, env, seed=0)
    agent.learn(8)
    save_policy(tmp_path / "policy", agent, config)
    seen = env.reset()
    again = load_policy(tmp_path / "policy")
    assert again.predict(seen, deterministic=True)[0].tolist() == (
        agent.predict(seen, deterministic=True)[0].tolist()
    )


@pytest.mark.parametrize("shape", [(8, 8, 1), (35, 20, 4), (3, 12, 12)])
def test_any_small_picture_becomes_features(shape):
    space = spaces.Box(0, 255, shape, np.uint8)
    assert picture_policy(space) == {"features_extractor_class": SmallPictures}
    first = shape if shape[0] < shape[2] else (shape[2], *shape[:2])
    extractor = SmallPictures(spaces.Box(0, 255, first, np.uint8), features_dim=5)
    assert extractor(torch.rand(2, *first)).shape == (2, 5)
