"""What `fit(options=...)` passes on, what it refuses, and what an epoch is."""

import numpy as np
import pytest

from helpers.installed import needs
from preferl.errors import ConfigError
from preferl.offline import DecisionTransformer, DTConfig
from preferl.testing import PointWorld, make_episodes

pytestmark = needs("transformers", "accelerate")

WORLD = PointWorld()
CONFIG = DTConfig(context=3, width=8, layers=1, batch_size=8, learning_rate=0.01)


def fitted(options, steps=3, episodes=20, **how):
    """An agent and the updates that were reported to it."""
    agent = DecisionTransformer(
        WORLD.observation_space, WORLD.action_space, CONFIG, seed=0, steps=steps
    )
    data = agent.sequences(make_episodes(np.random.default_rng(0), [6] * episodes))
    updates = []
    agent.fit(
        data,
        options=options,
        on_progress=lambda step, _: updates.append(step),
        **({"every": 1} | how),
    )
    return agent, updates


def test_the_last_update_is_reported_whatever_its_number():
    assert fitted({}, steps=5, every=2)[1] == [2, 4, 5]
    assert fitted({}, steps=4, every=2)[1] == [2, 4]


def test_fields_that_do_not_exist_are_refused():
    with pytest.raises(ConfigError, match=r"options\['number_of_epochs'\]"):
        fitted({"number_of_epochs": 3})


@pytest.mark.parametrize("steps", [None, 50])
def test_epochs_count(steps):
    """20 episodes in minibatches of 8 windows: three updates each."""
    agent, updates = fitted({"num_train_epochs": 4}, steps)
    assert updates == list(range(1, 13))
    assert agent.steps == 12
    assert fitted({"num_train_epochs": 1.5}, steps)[0].steps == 5


def test_strategies_of_epochs_wait_for_epochs(tmp_path):
    options = {"num_train_epochs": 2, "logging_strategy": "epoch", "save_strategy": "epoch"}
    _, updates = fitted(options, None, folder=tmp_path)
    assert updates == [3, 6]
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-6"]
