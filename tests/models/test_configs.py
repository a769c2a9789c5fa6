"""Settings of reward models: their ranges, their JSON, and what they ask for at least."""

import json

import pytest
from gymnasium import spaces

from preferl.configs import from_json, to_json
from preferl.errors import ConfigError
from preferl.models import (
    CNNRewardConfig,
    EnsembleConfig,
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.models.configs import dense, least_numbers, members_of

BOX = spaces.Box(-1, 1, (3,))
PICTURES = spaces.Box(0, 255, (84, 84, 1), "uint8")


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        (CNNRewardConfig, {"kernels": (7, 5)}, "strides"),
        (CNNRewardConfig, {"strides": (3, 2, 1, 0)}, "strides"),
        (CNNRewardConfig, {"kernels": ()}, "kernels"),
        (CNNRewardConfig, {"filters": 0}, "filters"),
        (CNNRewardConfig, {"hidden": 0}, "hidden"),
        (CNNRewardConfig, {"members": 0}, "members"),
        (CNNRewardConfig, {"dropout": 1.0}, "dropout"),
        (CNNRewardConfig, {"pooling": "max"}, "pooling"),
        (CNNRewardConfig, {"discount": 0.0}, "discount"),
        (MLPRewardConfig, {"hidden": (8, 0)}, "hidden"),
        (MLPRewardConfig, {"members": 0}, "members"),
        (MLPRewardConfig, {"activation": "sine"}, "activation"),
        (MLPRewardConfig, {"pooling": "max"}, "pooling"),
        (MLPRewardConfig, {"dropout": 1.0}, "dropout"),
        (MLPRewardConfig, {"dropout": -0.1}, "dropout"),
        (MLPRewardConfig, {"discount": 0.0}, "discount"),
        (MLPRewardConfig, {"discount": 1.1}, "discount"),
        (LSTMRewardConfig, {"width": 6}, "width"),
        (LSTMRewardConfig, {"width": 0}, "width"),
        (LSTMRewardConfig, {"context": 0}, "context"),
        (LSTMRewardConfig, {"dropout": 1.0}, "dropout"),
        (LSTMRewardConfig, {"activation": "sine"}, "activation"),
        (LSTMRewardConfig, {"pooling": "max"}, "pooling"),
        (PreferenceTransformerConfig, {"width": 18}, "width"),
        (PreferenceTransformerConfig, {"width": 9, "heads": 3}, "width"),
        (PreferenceTransformerConfig, {"layers": 0}, "layers"),
        (PreferenceTransformerConfig, {"heads": 0}, "heads"),
        (PreferenceTransformerConfig, {"preference_width": 0}, "preference_width"),
        (PreferenceTransformerConfig, {"context": 1}, "context"),
        (PreferenceTransformerConfig, {"positions": 7}, "positions"),
        (PreferenceTransformerConfig, {"dropout": 1.0}, "dropout"),
        (PreferenceTransformerConfig, {"head": "none"}, "head"),
        (PreferenceTransformerConfig, {"activation": "sine"}, "activation"),
        (PreferenceTransformerConfig, {"pooling": "max"}, "pooling"),
    ],
)
def test_settings_out_of_range_are_named(kind, settings, name):
    with pytest.raises(ConfigError, match=f"^{name}: expected"):
        kind(**settings)


@pytest.mark.parametrize(
    "config",
    [
        MLPRewardConfig(hidden=(8, 4), members=3, discount=0.9),
        CNNRewardConfig(kernels=(3,), strides=(2,), batch_norm=True),
        LSTMRewardConfig(pooling="last"),
        PreferenceTransformerConfig(head="plain", positions=200),
        EnsembleConfig((MLPRewardConfig(), EnsembleConfig((LSTMRewardConfig(),)))),
    ],
)
def test_configs_survive_json(config):
    assert from_json(type(config), json.loads(json.dumps(to_json(config)))) == config


def test_members_of_an_ensemble_are_those_of_all_its_parts():
    inner = EnsembleConfig((MLPRewardConfig(members=3), LSTMRewardConfig()))
    assert members_of(EnsembleConfig((inner, CNNRewardConfig(members=2)))) == 6
    assert members_of(EnsembleConfig(())) == 0


def test_weights_between_layers_by_hand():
    assert dense((6, 10, 4, 1)) == 60 + 40 + 4
    assert dense((6,)) == 0


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
        (PreferenceTransformerConfig(width=16, head="plain", context=9), BOX),
    ],
)
def test_no_model_has_fewer_parameters_than_its_config_asks_for(config, seen):
    model = build_reward_model(config, seen, BOX, seed=0)
    there = sum(parameter.numel() for parameter in model.parameters())
    assert 0 < least_numbers(config, seen, BOX) <= there
