"""What an offline run starts from: data that belong together, and the reward learned of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from helpers.offline_runs import LENGTH, config_of, recorded, run
from preferl.data import save_episodes
from preferl.errors import DataError
from preferl.offline.experiment.inputs import (
    FIT,
    RELABELLED,
    REWARD,
    Inputs,
    learn_reward,
    load_inputs,
)
from preferl.runs import RunFolder
from preferl.testing import PointWorld, make_episodes
from preferl.training import load_reward


def test_labels_of_other_data_are_refused(data, tmp_path):
    fewer = recorded(np.random.default_rng(0), episodes=5)
    save_episodes(tmp_path / "fewer", fewer)
    with pytest.raises(DataError, match="labels does not belong to these episodes"):
        run(config_of(data, demonstrations=str(tmp_path / "fewer")), tmp_path / "run")


def inputs_of(episodes, action_space=PointWorld.action_space):
    return Inputs(episodes, PointWorld.observation_space, action_space, None, None, None)


def test_data_are_known_by_their_counts_and_content(rng):
    episodes = recorded(rng, episodes=3)
    description = inputs_of(episodes).description
    assert (description["episodes"], description["steps"]) == (3, 60)
    assert inputs_of(replace(episodes)).description == description
    rewards = episodes.rewards.copy()
    rewards[7] += 1e-3
    assert inputs_of(replace(episodes, rewards=rewards)).description["id"] != description["id"]


def test_clones_know_numbers_and_continuous_actions_alone(rng):
    pictures = make_episodes(rng, [4], spaces.Box(0, 255, (8, 8, 3), np.uint8))
    assert inputs_of(recorded(rng, episodes=1)).clonable
    assert not inputs_of(recorded(rng, episodes=1), spaces.Discrete(2)).clonable
    assert not inputs_of(pictures).clonable


def test_spaces_are_those_of_the_environment_or_else_inferred(data):
    found = load_inputs(config_of(data))
    assert (found.observation_space, found.action_space) == (
        PointWorld.observation_space,
        PointWorld.action_space,
    )
    assert found.labels.length == LENGTH
    alone = load_inputs(config_of(data, episodes=0))
    assert alone.observation_space.shape == (2,)
    assert alone.observation_space != PointWorld.observation_space


def test_a_reward_is_fitted_once_and_then_taken_over(data, tmp_path):
    config = config_of(data)
    folder = RunFolder(tmp_path / "run")
    epochs = []
    folder.path(FIT)  # makes the folder
    inputs = load_inputs(config)
    assert inputs.preset(config) is not None
    options = {"seed": 0, "on_epoch": lambda *now: epochs.append(now)}
    first = learn_reward(config, inputs, folder, **options)
    assert first.rewards.shape == (800,)
    assert set(first.reports) == {"learned", "zero", "negated", "random"}
    assert set(json.loads(json.dumps(first.to_json()))) == {"fit", "spearman", "on_labels"}
    count = len(epochs)
    assert count > 0
    again = learn_reward(config, inputs, folder, **options)
    assert len(epochs) == count
    np.testing.assert_array_equal(again.rewards, first.rewards)
    assert {path.name for path in folder.folder.iterdir()} == {FIT, REWARD, RELABELLED}

    fitted = replace(inputs, reward=load_reward(folder.path(REWARD)), comparisons=None)
    assert fitted.preset(config) is None
    (tmp_path / "other").mkdir()
    taken = learn_reward(config, fitted, RunFolder(tmp_path / "other"), **options)
    assert (len(epochs), taken.fit, taken.reports) == (count, None, {})
    np.testing.assert_allclose(taken.rewards, first.rewards, rtol=1e-5)
    assert taken.spearman == pytest.approx(first.spearman)
