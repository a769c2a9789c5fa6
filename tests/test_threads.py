"""Torch takes as many threads as it is given, and afterwards as many as before."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO

from preferl.models import (
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.online import OnlineConfig, PPOConfig, learn_from_preferences, run_online
from preferl.online.configs import EvaluationConfig
from preferl.testing import make_comparisons
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.threads import half_of_the_cores, is_small, threads_for, torch_threads
from preferl.training import RewardFunction, RewardTrainer, RewardTrainerConfig

PERCEPTRON = MLPRewardConfig(hidden=(8,), members=2)
WIDE = MLPRewardConfig(hidden=(1_000, 1_000))
TRANSFORMER = PreferenceTransformerConfig(width=8, layers=1, heads=1, context=10)
LSTM = LSTMRewardConfig(width=8, context=10)
RUN = OnlineConfig(
    eval_every=0,
    environments=2,
    steps=400,
    comparisons=4,
    iterations=1,
    segment_length=5,
    initial_steps=200,
    algorithm=PPOConfig(n_steps=50, batch_size=50, n_epochs=1, hidden=(8,)),
    model=PERCEPTRON,
    trainer=RewardTrainerConfig(epochs=1),
)


@pytest.fixture
def three_threads():
    """Torch takes three threads outside of all blocks, and still does afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == 3


def fitted(config, comparisons, threads):
    """A trainer after an epoch, at whose end the threads of torch are noted."""
    segments = comparisons.segments
    observation_space = POINT_SPACE
    if segments.observations.dtype == np.uint8:
        observation_space = spaces.Box(0, 255, segments.observations.shape[1:], np.uint8)
    model = build_reward_model(config, observation_space, PUSH_SPACE, seed=0)
    trainer = RewardTrainer(model, RewardTrainerConfig(epochs=1), seed=0)
    trainer.fit(comparisons, on_epoch=lambda *_: threads.append(torch.get_num_threads()))
    return trainer


def noted(threads):
    """Combines members to their mean, and notes the threads of torch."""

    def combine(rewards):
        threads.append(torch.get_num_threads())
        return rewards.mean(0)

    return combine


def test_torch_is_not_loaded_for_its_threads():
    code = (
        "import sys\nfrom preferl.threads import half_of_the_cores, torch_threads\n"
        "with torch_threads(2):\n    half_of_the_cores()\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="not every system limits cores")
def test_half_of_the_cores_that_this_process_may_use():
    mine = os.sched_getaffinity(0)
    try:
        for count in range(1, len(mine) + 1):
            os.sched_setaffinity(0, sorted(mine)[:count])
            assert half_of_the_cores() == (1 if count == 1 else count // 2)
    finally:
        os.sched_setaffinity(0, mine)


def test_small_networks_have_one_thread_and_large_ones_all_of_them(three_threads):
    with threads_for(small=True):
        assert torch.get_num_threads() == 1
        with threads_for(small=False):
            assert torch.get_num_threads() == 3
            with threads_for(small=True):
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1


def test_threads_that_somebody_chose_are_those_of_all_networks(three_threads):
    with torch_threads(2):
        for small in (True, False):
            with threads_for(small=small):
                assert torch.get_num_threads() == 2


def test_torch_may_be_loaded_inside_a_block(three_threads, monkeypatch):
    block = torch_threads(1)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        block.__enter__()
    block.__exit__(None, None, None)
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("network", "small"),
    [
        (torch.nn.Linear(1_000, 900), True),
        (torch.nn.Linear(1_000, 1_000), False),
        (torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), False),
        (torch.nn.LSTM(3, 4), False),
    ],
)
def test_small_is_what_has_few_numbers_and_no_convolutions_or_memory(network, small):
    assert is_small(network) is small
    assert not is_small(network, context=20)


@pytest.mark.parametrize(
    ("config", "threads"), [(PERCEPTRON, 1), (WIDE, 3), (TRANSFORMER, 3), (LSTM, 3)]
)
def test_reward_models_are_fitted_and_used_with_the_threads_of_their_size(
    config, threads, rng, three_threads
):
    noticed = []
    comparisons = make_comparisons(rng, pairs=4)
    trainer = fitted(config, comparisons, noticed)
    reward = RewardFunction(trainer.model, combine=noted(noticed))
    seen = comparisons.segments.observations
    done = comparisons.segments.actions
    reward(seen[None, :4], done[None, :4], np.ones((1, 4), bool))
    assert set(noticed) == {threads}


@pytest.mark.parametrize(("model", "threads"), [(PERCEPTRON, 1), (TRANSFORMER, 3)])
def test_agents_that_act_have_one_thread_beside_any_reward(
    model, threads, three_threads, monkeypatch
):
    acting = []
    fitting = []
    train = PPO.train
    fit = RewardTrainer.fit

    def noted_train(self):
        acting.append(torch.get_num_threads())
        train(self)

    def note(*_):
        fitting.append(torch.get_num_threads())

    def noted_fit(self, *args, **kwargs):
        return fit(self, *args, **kwargs, on_epoch=note)

    monkeypatch.setattr(PPO, "train", noted_train)
    monkeypatch.setattr(RewardTrainer, "fit", noted_fit)
    learn_from_preferences(replace(RUN, model=model))
    assert set(acting) == {1}
    assert set(fitting) == {threads}


def test_whole_runs_have_one_thread_from_start_to_end(tmp_path, three_threads):
    threads = []

    def note(*_):
        threads.append(torch.get_num_threads())

    evaluation = EvaluationConfig(episodes=1, oracle=False, queries=10, clip_steps=0)
    run_online(RUN, tmp_path / "run", evaluation=evaluation, on_iteration=note, on_stage=note)
    assert set(threads) == {1}
