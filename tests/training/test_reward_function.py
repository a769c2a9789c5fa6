"""Snapshots of models: frozen, equal to loops, with history, scale, and files."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import safetensors.numpy
import torch
from gymnasium import spaces

from preferl.data import concatenate, sample_segments
from preferl.errors import CheckpointError, ConfigError, DataError
from preferl.evaluation import evaluate_reward, negated
from preferl.evaluation.reward_report import seen_pairs
from preferl.functional import lower_bound, mean
from preferl.models import Ensemble, MLPReward, MLPRewardConfig
from preferl.shapes import take
from preferl.testing import FadingModel, make_comparisons, make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import (
    RewardFunction,
    RewardScaler,
    RewardTrainer,
    RewardTrainerConfig,
    load_reward,
    relabel,
    reward_function,
    save_reward,
)
from preferl.training.batches import to_tensors
from preferl.training.publish import newest_reward, publish

MIXED = (
    spaces.Dict({"at": spaces.Box(-1, 1, (2,)), "mode": spaces.Discrete(3, start=1)}),
    spaces.MultiDiscrete([2, 2]),
)


def mlp(spaces=(POINT_SPACE, PUSH_SPACE), **changes):
    config = MLPRewardConfig(hidden=(8,), members=2, pooling="mean", discount=0.9)
    return MLPReward(*spaces, replace(config, **changes), seed=0)


@pytest.fixture(params=["mlp", "mixed ensemble", "dictionaries", "history"])
def model(request):
    return {
        "mlp": mlp,
        "mixed ensemble": lambda: Ensemble([mlp(), mlp(pooling="sum", hidden=())]),
        "dictionaries": lambda: mlp(MIXED),
        "history": FadingModel,
    }[request.param]()


@pytest.fixture
def episodes(model, rng):
    return make_episodes(rng, [7, 3, 11], model.observation_space, model.action_space)


def ask(model, observations, actions, mask):
    windows = (to_tensors(part, "cpu") for part in (observations, actions, mask))
    with torch.no_grad():
        return tuple(output.numpy() for output in model.eval()(*windows))


def loop_rewards(model, episodes):
    """`[E, T]` by one step at a time, with the history it had, without padding."""
    rewards = np.zeros((model.members, episodes.steps), np.float32)
    for begin, end in zip(episodes.starts, episodes.ends, strict=True):
        for step in range(begin, end):
            seen = np.arange(max(begin, step + 1 - model.context), step + 1)[None]  # [1, H]
            window = take(episodes.observations, seen), episodes.actions[seen]
            rewards[:, step] = ask(model, *window, np.ones(seen.shape, bool))[0][:, 0, -1]
    return rewards


def test_relabelling_equals_a_loop_over_steps(model, episodes):
    reward = RewardFunction(model, combine=lower_bound(0.5))
    expected = loop_rewards(model, episodes)
    np.testing.assert_allclose(reward.member_rewards(episodes), expected, atol=1e-5)
    before = episodes.rewards.copy()
    relabelled = relabel(episodes, reward)
    combined = expected.mean(0) - 0.5 * expected.std(0)
    np.testing.assert_allclose(relabelled.rewards, combined, atol=1e-5)
    assert relabelled.rewards.dtype == np.float32
    assert relabelled.observations is episodes.observations
    np.testing.assert_array_equal(episodes.rewards, before)


@pytest.mark.parametrize("count", [2, 60])  # few windows of many steps, and the other way round
@pytest.mark.parametrize("chunk", [3, reward_function.CHUNK])
def test_scores_are_those_of_clips_laid_out(model, episodes, rng, count, chunk, monkeypatch):
    segments = sample_segments(episodes, count, 4, rng, short="pad")
    clips = segments[:]
    monkeypatch.setattr(reward_function, "CHUNK", chunk)
    scores = RewardFunction(model).scores(segments)
    expected = ask(model, clips.observations, clips.actions, clips.mask)[1]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_a_reward_does_not_change_when_its_model_trains_on(rng):
    comparisons = make_comparisons(rng)
    episodes = make_episodes(rng, [20])
    model = mlp(dropout=0.5)
    reward = RewardFunction(model)
    before = reward.member_rewards(episodes)
    RewardTrainer(model, RewardTrainerConfig(epochs=2), seed=0).fit(comparisons)
    model.train()
    np.testing.assert_array_equal(reward.member_rewards(episodes), before)
    assert (RewardFunction(model).member_rewards(episodes) != before).any()


def test_scaled_rewards_have_no_mean_and_the_deviation_asked_for(model, episodes):
    reward = RewardFunction(model).scaled(episodes, target=0.05)
    for member in reward.scaler(reward.member_rewards(episodes)):
        assert member.mean() == pytest.approx(0, abs=1e-6)
        assert member.std() == pytest.approx(0.05, rel=1e-4)
    rewards = relabel(episodes, reward).rewards
    raw = loop_rewards(model, episodes)
    scaled = (raw - raw.mean(1, keepdims=True)) / raw.std(1, keepdims=True) * 0.05
    np.testing.assert_allclose(rewards, scaled.mean(0), atol=1e-5)
    scaler = RewardScaler.fit(raw + 5, centre=False)
    np.testing.assert_allclose(scaler(raw + 5), (raw + 5) / raw.std(1, keepdims=True), rtol=1e-3)


def test_scalers_out_of_range_are_named():
    one = np.ones(2)
    with pytest.raises(ConfigError, match="target deviation"):
        RewardScaler(one, one, 0.0)
    for mean_, deviation in ((one, one[:1]), (one, np.zeros(2)), (one, np.array([1, np.nan]))):
        with pytest.raises(DataError, match="deviations above 0"):
            RewardScaler(mean_, deviation)
    with pytest.raises(ConfigError, match="statistics of the model's 2 members"):
        RewardFunction(mlp(), scaler=RewardScaler(np.ones(3), np.ones(3)))


@pytest.mark.parametrize(("combine", "scaled"), [(mean, False), (lower_bound(0.1 + 0.2), True)])
def test_saved_rewards_compute_bit_for_bit_the_same(tmp_path, rng, combine, scaled):
    episodes = make_episodes(rng, [30])
    reward = RewardFunction(Ensemble([mlp(), mlp(hidden=())]), combine=combine)
    reward = reward.scaled(episodes, target=0.3) if scaled else reward
    save_reward(tmp_path / "it", reward)
    loaded = load_reward(tmp_path / "it")
    np.testing.assert_array_equal(
        relabel(episodes, loaded).rewards, relabel(episodes, reward).rewards
    )
    assert (loaded.scaler is None) == (not scaled)


def fitted(rng, pairs=20):
    """A trainer, and the answers that it was fitted to."""
    comparisons = make_comparisons(rng, pairs=pairs)
    trainer = RewardTrainer(mlp(), RewardTrainerConfig(epochs=1), seed=0)
    trainer.fit(comparisons[:15], comparisons[15:])
    return trainer, comparisons


def test_rewards_remember_the_pairs_that_they_were_fitted_to(tmp_path, rng):
    trainer, comparisons = fitted(rng)
    save_reward(tmp_path / "it", RewardFunction(trainer.model))
    publish(tmp_path / "rewards", RewardFunction(trainer.model))
    published = newest_reward(tmp_path / "rewards").reward
    others = make_comparisons(rng, pairs=10)
    shown = concatenate([others, comparisons.swapped()])
    for reward in (RewardFunction(trainer.model), load_reward(tmp_path / "it"), published):
        assert seen_pairs(reward, shown).tolist() == [False] * 10 + [True] * 20
        report = evaluate_reward(reward, shown)
        assert report.seen == 20
        assert "fitted to 20 of these 30 pairs" in report.notes[-1]
    assert (tmp_path / "it/fitted_pairs.safetensors").stat().st_size < 8 * 20 + 1024
    assert not seen_pairs(RewardFunction(mlp()), shown).any()
    assert not seen_pairs(negated(RewardFunction(mlp())), shown).any()


@pytest.mark.parametrize("pairs", [None, np.zeros(3, np.int64), np.zeros(20)])
def test_damaged_memories_of_pairs_are_refused(tmp_path, rng, pairs):
    trainer, _ = fitted(rng)
    save_reward(tmp_path / "it", RewardFunction(trainer.model))
    file = tmp_path / "it/fitted_pairs.safetensors"
    if pairs is None:
        file.unlink()
    else:
        safetensors.numpy.save_file({"pairs": pairs}, file)
    with pytest.raises(CheckpointError, match=r"safetensors: expected 20 pairs that the reward"):
        load_reward(tmp_path / "it")


def test_ways_of_combining_without_a_name_are_not_saved(tmp_path):
    for combine in (lambda r: r[0], partial(torch.sum, dim=0)):
        with pytest.raises(ConfigError, match="mean or lower_bound"):
            save_reward(tmp_path / "it", RewardFunction(mlp(), combine=combine))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "about",
    [
        None,
        "",
        "{}",
        {"combine": {"kind": "max"}, "scaler": None},
        {"combine": {"kind": "mean"}, "scaler": None, "likelihood": {"noise": 1.5}},
        {"combine": {"kind": "lower_bound"}, "scaler": None},
        {"combine": {"kind": "mean"}, "scaler": {"mean": [0], "deviation": [0], "target": 1}},
        {"combine": {"kind": "mean"}, "scaler": {"mean": [0], "deviation": [1], "target": 1}},
    ],
)
def test_damaged_rewards_are_refused(tmp_path, about):
    save_reward(tmp_path / "it", RewardFunction(mlp()))
    file = tmp_path / "it" / "reward.json"
    if about is None:
        file.unlink()
    else:
        file.write_text(about if isinstance(about, str) else json.dumps(about))
    with pytest.raises(CheckpointError, match=r"reward\.json: expected how a reward's members"):
        load_reward(tmp_path / "it")
