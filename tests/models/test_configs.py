"""Settings of reward models: their ranges, their JSON, and what they ask for at least."""

import pytest
from gymnasium import spaces

from preferl.errors import ConfigError
from preferl.models import (
    CNNRewardConfig,
    EnsembleConfig,
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.models.configs import least_numbers

BOX = spaces.Box(-1, 1, (3,))
PICTURES = spaces.Box(0, 255, (84, 84, 1), "uint8")


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        (CNNRewardConfig, {"kernels": (7, 5)}, "strides"),
        (CNNRewardConfig, {"strides": (3, 2, 1, 0)}, "strides"),
        (MLPRewardConfig, {"hidden": (8, 0)}, "hidden"),
        (LSTMRewardConfig, {"width": 6}, "width"),
        (PreferenceTransformerConfig, {"width": 9, "heads": 3}, "width"),
        (PreferenceTransformerConfig, {"context": 1}, "context"),
        (PreferenceTransformerConfig, {"positions": 7}, "positions"),
    ],
)
def test_settings_out_of_range_are_named(kind, settings, name):
    with pytest.raises(ConfigError, match=f"^{name}: expected"):
        kind(**settings)


def test_least_numbers_by_hand():
    def numbers(config):
        return least_numbers(config, BOX, BOX)

    blind = MLPRewardConfig(hidden=(10,), use_actions=False)
    assert numbers(blind) == 3 * 10 + 10
    assert numbers(LSTMRewardConfig(width=8)) == 6 * 8 + 8 * 4 + 4 * 4
    small = PreferenceTransformerConfig(width=8, layers=2, preference_width=5, context=7)
    assert numbers(small) == 8 * (6 + 5 + 7 + 4 * 2 * 8)
    assert numbers(EnsembleConfig((blind, blind))) == 2 * numbers(blind)
    assert least_numbers(object(), BOX, BOX) == 0


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        (MLPRewardConfig(hidden=(8, 4), members=2), BOX),
        (CNNRewardConfig(members=2), PICTURES),
        (LSTMRewardConfig(width=16), BOX),
        (PreferenceTransformerConfig(width=16, layers=2, preference_width=8), BOX),
    ],
)
def test_no_model_has_fewer_parameters_than_its_config_asks_for(config, seen):
    model = build_reward_model(config, seen, BOX, seed=0)
    there = sum(parameter.numel() for parameter in model.parameters())
    assert 0 < least_numbers(config, seen, BOX) <= there
