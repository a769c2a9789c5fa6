"""Parameters of Decision Transformers, and settings that do not belong to them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.errors import ConfigError
from preferl.offline.decision_transformer.parameters import LearnedTransformer
from preferl.offline.decision_transformer.sequences import InputStatistics
from preferl.offline.learner_configs import DTRConfig, PixelEncoderConfig, TokenShape

STATISTICS = InputStatistics(
    context=3,
    horizon=3,
    discount=0.5,
    scale=10.0,
    longest=5,
    quantiles=(),
    mean=np.zeros(2, np.float32),
    deviation=np.ones(2, np.float32),
)


def parameters(width=4, inner=8, positions=9, times=3) -> dict[str, torch.Tensor]:
    """Of one block, states of two numbers and actions of one."""
    shapes = {"encoder.wpe.weight": (positions, width), "embed_timestep.weight": (times, width)}
    for name, outputs, inputs in (
        ("embed_return", width, 1),
        ("embed_state", width, 2),
        ("embed_action", width, 1),
        ("predict_action.0", 1, width),
    ):
        shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
    for name in ("embed_ln", "encoder.ln_f", "encoder.h.0.ln_1", "encoder.h.0.ln_2"):
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    for name, inputs, outputs in (
        ("attn.c_attn", width, 3 * width),
        ("attn.c_proj", width, width),
        ("mlp.c_fc", width, inner),
        ("mlp.c_proj", inner, width),
    ):
        at = f"encoder.h.0.{name}"
        shapes |= {f"{at}.weight": (inputs, outputs), f"{at}.bias": (outputs,)}
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


def fits(shape=None, statistics=STATISTICS, regulariser=None, **changes: torch.Tensor) -> int:
    found = parameters() | {name.replace("_at_", "."): t for name, t in changes.items()}
    box = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))
    shape = shape or TokenShape(1, 2, squashed=True)
    encoder = PixelEncoderConfig()
    return LearnedTransformer(*box, found, shape, statistics, {}, encoder, regulariser).state_size


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": TokenShape(10**9, 2, squashed=True)}, "layers: expected at most 26"),
        ({"shape": TokenShape(2, 2, squashed=True)}, r"encoder\.h\.1"),
        ({"shape": TokenShape(1, 3, squashed=True)}, "heads: expected a divisor of 4, got 3"),
        ({"statistics": replace(STATISTICS, context=4)}, "at most 9.*got 12"),
        ({"statistics": replace(STATISTICS, horizon=4)}, "timesteps of a horizon.*at most 3"),
        ({"statistics": replace(STATISTICS, mean=np.zeros(3, np.float32))}, "shape of mean"),
        ({"embed_state_at_weight": torch.zeros(4, 3)}, r"embed_state.weight: expected \(4, 2\)"),
    ],
)
def test_settings_of_other_parameters_are_refused(changes, words):
    assert fits() == 2
    with pytest.raises(ConfigError, match=words):
        fits(**changes)


def test_critics_need_their_numbers():
    settings = DTRConfig(hidden=(8,))  # 4 networks of (2 + 1) x 8 + 8 weights
    assert fits(regulariser=settings, critics_at_all=torch.zeros(128)) == 2
    with pytest.raises(ConfigError, match=r"critics of a policy.*at least 128 numbers beside 127"):
        fits(regulariser=settings, critics_at_all=torch.zeros(127))
