"""Losses by name and of one's own: what they change, and what they do not."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from preferl.configs import from_json, to_json
from preferl.errors import ConfigError
from preferl.functional.preference import cross_entropy
from preferl.models import MLPReward, MLPRewardConfig
from preferl.registry import LOSSES
from preferl.testing import make_comparisons
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import AdaptivePenalty, RewardFunction, RewardTrainer, RewardTrainerConfig

CONFIG = RewardTrainerConfig(epochs=3, batch_size=8, learning_rate=1e-2, noise=0.1)

pytestmark = pytest.mark.usefixtures("no_others")


def hinge(logits, preference):
    """Zero from a margin of one on; ties cost the size of the difference."""
    return torch.relu(preference - (2 * preference - 1) * logits)


def own_entropy(logits, preference, noise):
    """What the built-in loss is, by another name."""
    return cross_entropy(logits, preference, noise=noise)


@pytest.fixture
def comparisons(rng):
    return make_comparisons(rng, pairs=40)


def trained(comparisons, config, members=2, validation=None):
    model = MLPReward(POINT_SPACE, PUSH_SPACE, MLPRewardConfig((8,), members=members), seed=0)
    trainer = RewardTrainer(model, config, seed=0)
    return trainer, trainer.fit(comparisons, validation)


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def test_a_loss_that_is_the_built_in_one_trains_bit_for_bit_as_that(comparisons):
    one, report = trained(comparisons, CONFIG)
    other, again = trained(comparisons, replace(CONFIG, loss=own_entropy))
    assert torch.equal(weights(one), weights(other))
    np.testing.assert_array_equal(report.validation_loss, again.validation_loss)
    without_noise, _ = trained(comparisons, replace(CONFIG, noise=0.0))
    assert not torch.equal(weights(one), weights(without_noise)), "it is given the noise"


def test_a_penalty_counts_as_much_beside_answers_that_weigh_less(comparisons):
    config = replace(CONFIG, penalty=AdaptivePenalty(0.05), weight_decay=0.0)
    light = replace(comparisons, weight=np.full(40, 0.25))
    found, less, free = (
        weights(trained(answers, settings)[0])
        for answers, settings in ((comparisons, config), (light, config), (comparisons, CONFIG))
    )
    torch.testing.assert_close(less, found, atol=1e-4, rtol=0)
    assert not torch.allclose(found, free, atol=1e-3)


@pytest.mark.parametrize("loss", ["squared_error", hinge])
def test_the_loss_is_what_is_minimised_and_reported(comparisons, loss):
    config = replace(CONFIG, epochs=40, loss=loss, bootstrap=False)
    trainer, report = trained(comparisons, config, members=1)
    scores = RewardFunction(trainer.model).scores(comparisons.segments)[0, comparisons.pairs]
    logits = torch.from_numpy(scores[:, 0] - scores[:, 1])
    preference = torch.from_numpy(comparisons.preference).float()
    by_hand = hinge(logits, preference)
    if loss != hinge:
        by_hand = (0.05 + 0.9 * torch.sigmoid(logits) - preference).square()
    assert trainer.evaluate(comparisons)[0] == pytest.approx(by_hand.mean().item(), rel=1e-4)
    assert report.train_loss[-1] < 0.6 * report.train_loss[0]
    assert report.train_accuracy[-1] > 0.85


def test_a_loss_is_saved_by_name(comparisons):
    config = replace(CONFIG, loss=hinge)
    written = json.loads(json.dumps(to_json(config)))
    assert written["loss"] == f"{__name__}:hinge"
    assert from_json(RewardTrainerConfig, written) == config
    LOSSES.register("hinge", hinge)
    assert RewardTrainerConfig(loss="hinge") == RewardTrainerConfig(loss=hinge)


@pytest.mark.parametrize("name", ["huber", "os:system"])
def test_a_name_that_nobody_registered_is_refused(name):
    with pytest.raises(ConfigError, match=f"loss: expected one of cross_entropy.*{name}"):
        from_json(RewardTrainerConfig, {"loss": name})
