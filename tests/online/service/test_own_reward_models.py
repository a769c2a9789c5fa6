"""The service fits, publishes and resumes a reward model of one's own like any other."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from helpers.serving_rewards import quick_service, serve_once
from preferl.training.publish import PublishedReward
from preferl.training.reward_presets import RewardSettings

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module", autouse=True)
def quadratic():
    """The example's model, registered by importing its module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return import_module("custom_reward_model").QuadraticReward


def test_the_service_fits_it_again_and_goes_on_after_a_restart(world, tmp_path, quadratic, caplog):
    config = replace(
        quick_service(tmp_path / "rewards"), reward=RewardSettings("quadratic", epochs=40)
    )
    world.ask_and_answer(40)
    ((first, metrics),) = serve_once(config, world)
    assert metrics["accuracy"] >= 0.6
    published = PublishedReward(config.out)
    assert published.refresh()
    assert isinstance(published.reward.model, quadratic)
    world.ask_and_answer(10)
    ((second, later),) = serve_once(config, world)  # another service, from what lies in the folder
    assert (first, second) == (1, 2)
    assert (metrics["answers"], later["answers"]) == (40, 50)
    older = published.reward.model.weights.detach().numpy().copy()
    assert published.refresh()
    assert not np.array_equal(older, published.reward.model.weights.detach().numpy())
    assert "a new model" not in caplog.text
    assert "anew" not in caplog.text
