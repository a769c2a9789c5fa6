"""Parameters of Decision Transformers, and settings that do not belong to them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.valid_files import decision_transformer
from preferl.errors import ConfigError
from preferl.offline.learner_configs import DTRConfig, TokenShape

LEARNED = decision_transformer().learned  # of two blocks, states of three numbers, actions of two
STATISTICS = LEARNED.statistics
PARAMETERS = LEARNED.parameters


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": TokenShape(10**9, 2, squashed=True)}, r"layers: expected at most \d\d"),
        ({"shape": TokenShape(3, 2, squashed=True)}, r"encoder\.h\.2"),
        ({"shape": TokenShape(2, 3, squashed=True)}, "heads: expected a divisor of 4, got 3"),
        ({"statistics": replace(STATISTICS, context=3)}, "at most 6.*got 9"),
        ({"statistics": replace(STATISTICS, horizon=8)}, "timesteps of a horizon.*at most 7"),
        ({"statistics": replace(STATISTICS, mean=np.zeros(2, np.float32))}, "shape of mean"),
        (
            {"parameters": PARAMETERS | {"embed_state.weight": torch.zeros(4, 2)}},
            r"embed_state.weight: expected \(4, 3\)",
        ),
    ],
)
def test_settings_of_other_parameters_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        replace(LEARNED, **changes)


def test_critics_need_their_numbers():
    settings = DTRConfig(hidden=(8,))  # 4 networks of (3 + 2) x 8 + 8 weights
    enough = PARAMETERS | {"critics.all": torch.zeros(192)}
    assert replace(LEARNED, regulariser=settings, parameters=enough).state_size == 3
    with pytest.raises(ConfigError, match=r"critics of a policy.*at least 192 numbers beside 191"):
        replace(
            LEARNED, regulariser=settings, parameters=enough | {"critics.all": torch.zeros(191)}
        )
