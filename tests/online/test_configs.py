"""Settings of online runs: ranges, defaults, JSON, and settings that do not go together."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from preferl.configs import from_json, to_json
from preferl.errors import ConfigError
from preferl.functional.preference import lower_bound
from preferl.models import EnsembleConfig, LSTMRewardConfig, MLPRewardConfig
from preferl.online import DatasetConfig, OnlineConfig, PPOConfig, SACConfig
from preferl.online.configs import EvaluationConfig, WarmStartConfig
from preferl.training import AdaptivePenalty, RewardTrainerConfig


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sampler": "informative"}, r"sampler.*several members.*one network.*entropy"),
        ({"sampler": "k_center_disagreement"}, r"sampler.*several members.*one network"),
        (
            {"trainer": RewardTrainerConfig(penalty=AdaptivePenalty(1e-4, band=(1.1, 1.5)))},
            "penalty band needs validation",
        ),
    ],
)
def test_what_needs_several_members_is_refused_at_once(changes, match):
    for one in (MLPRewardConfig(), LSTMRewardConfig(), EnsembleConfig((MLPRewardConfig(),))):
        with pytest.raises(ConfigError, match=match):
            OnlineConfig(model=one, **changes)
    OnlineConfig(model=EnsembleConfig((LSTMRewardConfig(), MLPRewardConfig())), **changes)


def test_counts_beyond_what_an_array_holds_are_refused():
    with pytest.raises(ConfigError, match="comparisons"):
        OnlineConfig(comparisons=99_999_999_999_999_999_999)


@pytest.mark.parametrize("alone", ["labels", "demonstrations"])
def test_labels_need_their_demonstrations(alone):
    with pytest.raises(ConfigError, match=f"labels and demonstrations together, got only {alone}"):
        WarmStartConfig(**{alone: Path("somewhere")})
    assert not WarmStartConfig(episodes=Path("somewhere")).given
    assert WarmStartConfig(comparisons=(Path("somewhere"),)).given


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"steps": 6_000, "initial_steps": 5_990, "iterations": 3},
            "steps: expected at least 6,002: 5,990 initial_steps, and one step of each of 4 "
            "environments in each of 3 iterations, got 6,000. Allow more",
        ),
        ({"steps": -5}, "steps: expected at least 4,040.*got -5"),
        ({"before": "environment"}, "before: expected one of zero, entropy, got 'environment'"),
        ({"eval_episodes": 0}, r"eval_episodes: expected in \[1, 1e\+06\], got 0"),
    ],
)
def test_budgets_that_cannot_be_kept_are_refused_in_words(settings, words):
    with pytest.raises(ConfigError, match=words):
        OnlineConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mix": "random"}, "TIER:AMOUNT between commas.*'random'"),
        ({"mix": "random:2,random:3"}, "each of random, medium, expert, replay at most once"),
        ({"mix": "expert:0"}, "mix, expert"),
        ({"policy": "p", "mix": "random:1,replay:1"}, "only random and expert"),
    ],
)
def test_settings_of_a_data_set_out_of_range(settings, words):
    with pytest.raises(ConfigError, match=words):
        DatasetConfig("Pendulum-v1", **settings)
    amounts = DatasetConfig("E", mix=" replay:3, random:10 ,").amounts
    assert list(amounts.items()) == [("replay", 3), ("random", 10)]


@pytest.mark.parametrize(
    "config",
    [
        OnlineConfig(algorithm=SACConfig(tau=0.1), model=LSTMRewardConfig(), initial_epochs=None),
        OnlineConfig(warm_start=WarmStartConfig((Path("a"), Path("b/c")), episodes=Path("d"))),
        EvaluationConfig(oracle=False),
        DatasetConfig("E", mix="expert:2", policy=Path("p"), algorithm=PPOConfig(gamma=0.5)),
    ],
)
def test_settings_survive_json(config):
    assert from_json(type(config), json.loads(json.dumps(to_json(config)))) == config


def test_the_bonus_for_disagreement_decays():
    config = OnlineConfig(exploration_bonus=0.05)
    assert config.pessimism_after(0) == -0.05
    assert config.pessimism_after(100_000) == pytest.approx(-0.0184, abs=1e-4)
    assert replace(config, pessimism=0.5).pessimism_after(0) == 0.45
    members = lower_bound(config.pessimism_after(100_000))(torch.tensor([[0.0], [2.0]]))
    assert members.item() == pytest.approx(1.0184, abs=1e-4)
    assert OnlineConfig(pessimism=0.3).pessimism_after(7) == 0.3
