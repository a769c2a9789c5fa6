"""What a Decision Transformer sees as it acts, step by step, and parameters that do not fit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.errors import ConfigError, SpaceError
from preferl.offline.decision_transformer.context import Context, require_fitting
from preferl.offline.decision_transformer.sequences import PADDED_ACTION, InputStatistics
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


def context(environments: int = 1, targets: tuple[float, ...] = (6.0,)) -> Context:
    return Context(STATISTICS, np.zeros((environments, 2)), 1, np.array(targets))


def test_the_window_slides_and_late_steps_share_the_last_embedding():
    seen = context()
    real = []
    for step in range(4):
        seen.append(np.full((1, 2), step), None, "even")
        real.append(seen.real.sum())
    assert real == [1, 2, 3, 3]
    assert seen.states[0, :, 0].tolist() == [1, 2, 3]
    assert seen.timesteps.tolist() == [[1, 2, 2]]


def test_an_episode_that_begins_forgets_the_one_before_and_no_other():
    seen = context(2)
    for starts in (None, None, np.array([False, True])):
        seen.append(np.ones((2, 2)), starts, "even")
        seen.actions[:, -1] = 0.5
    assert seen.real.tolist() == [[True] * 3, [False, False, True]]
    assert seen.timesteps.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert seen.states[1, :, 0].tolist() == [0, 0, 1]
    assert seen.actions[1, :, 0].tolist() == [PADDED_ACTION, PADDED_ACTION, 0.5]


def test_rewards_lower_the_target_of_each_candidate():
    seen = context(2, targets=(6.0, 12.0))
    seen.append(np.zeros((2, 2)), None, "paid")
    np.testing.assert_allclose(seen.returns_to_go[:, :, -1], [[0.6, 1.2]] * 2)
    seen.rewards = np.array([2.0, -1.0])
    seen.append(np.zeros((2, 2)), None, "paid")
    expected = [[0.8, 2.0], [1.4, 2.6]]  # (0.6 - 0.2) / 0.5 and so on
    np.testing.assert_allclose(seen.returns_to_go[:, :, -1], expected, rtol=1e-6)


def test_evenly_the_target_is_spent_over_the_longest_episode_and_no_further():
    seen = context()
    found = []
    for _ in range(7):
        seen.append(np.zeros((1, 2)), None, "even")
        found.append(seen.returns_to_go[0, 0, -1])
    np.testing.assert_allclose(found, [0.6, 0.48, 0.36, 0.24, 0.12, 0, 0], atol=1e-6)


def test_rewards_are_asked_for_at_each_step_but_the_first():
    seen = context(2)
    seen.append(np.zeros((2, 2)), None, "paid")
    seen.append(np.zeros((2, 2)), np.array([True, True]), "paid")  # both begin anew
    with pytest.raises(ConfigError, match=r'reward of the last actions.*spending="even"'):
        seen.append(np.zeros((2, 2)), np.array([True, False]), "paid")
    with pytest.raises(SpaceError, match="expected 2 rows, got 3"):
        seen.append(np.zeros((3, 2)), None, "paid")


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
    return require_fitting(found, shape, statistics, *box, PixelEncoderConfig(), regulariser)


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
