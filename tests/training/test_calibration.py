"""Noise and scale of shown probabilities, fitted to answers that members were not trained on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from preferl.cli.reward import FitConfig, fit_reward
from preferl.data import folds, split
from preferl.data.sources import load_demonstrations, load_labels
from preferl.evaluation import evaluate_reward
from preferl.feedback import Likelihood
from preferl.models import MLPReward, MLPRewardConfig
from preferl.testing import make_comparisons
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction, RewardTrainer, RewardTrainerConfig
from preferl.training.batches import Answers
from preferl.training.calibration import fit_likelihood


def answers_of(likelihood, logits, seed=0):
    rng = np.random.default_rng(seed)
    first = likelihood.probability(logits.numpy()).mean(0)
    return torch.from_numpy((rng.random(len(first)) < first).astype(np.float32))


def fitted(logits, preference, *, votes=None, weight=None, noise=0.1):
    votes = torch.ones_like(logits, dtype=torch.bool) if votes is None else votes
    weight = votes * (torch.ones(logits.shape[1]) if weight is None else weight)
    answers = Answers(torch.zeros(len(preference), 2), preference, weight)
    return fit_likelihood(logits, answers, noise=noise)


@pytest.mark.parametrize("true", [Likelihood(0.2, 0.5), Likelihood(0.02, 2.0), Likelihood(0.4, 1)])
@pytest.mark.parametrize("configured", [0.0, 0.1])
def test_finds_the_noise_and_scale_that_made_the_answers(true, configured):
    generator = torch.Generator().manual_seed(0)
    logits = 8 * torch.randn(3, 20_000, generator=generator)
    found = fitted(logits, answers_of(true, logits), noise=configured)
    assert found.noise == pytest.approx(true.noise, abs=0.02)
    assert found.scale == pytest.approx(true.scale, rel=0.1)


def test_only_members_that_have_not_seen_an_answer_vote():
    generator = torch.Generator().manual_seed(1)
    logits = 12 * torch.randn(2, 20_000, generator=generator)
    preference = answers_of(Likelihood(0.1, 0.5), logits[:1])
    logits[1] = 100 * (preference - 0.5)  # knows every answer by heart
    votes = torch.tensor([[True], [False]]).expand(2, 20_000)
    found = fitted(logits, preference, votes=votes)
    assert found.noise == pytest.approx(0.1, abs=0.02)
    assert found.scale == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("preference", [[], [0.5, 0.5], [np.nan, 0.5]])
def test_ties_and_declined_answers_say_nothing_of_noise(preference):
    logits = torch.full((2, len(preference)), 5.0)
    assert fitted(logits, torch.tensor(preference)) == Likelihood(0.1)
    some = torch.tensor([[3.0, 1.0, -2.0]])
    more = torch.cat([some, logits[:1]], dim=1)
    decided = torch.tensor([1.0, 1.0, 0.0])
    assert fitted(more, torch.cat([decided, torch.tensor(preference)])) == fitted(some, decided)


@pytest.fixture(scope="module")
def noisy():
    """Answers by the recorded reward, three in ten of them tossed: 15 % are wrong."""
    rng = np.random.default_rng(0)
    comparisons = make_comparisons(rng, pairs=400)
    coin = rng.integers(0, 2, 400).astype(float)
    tossed = rng.random(400) < 0.3
    return replace(comparisons, preference=np.where(tossed, coin, comparisons.preference))


def trainer_of(members, **changes):
    config = RewardTrainerConfig(**{"epochs": 5, "learning_rate": 2e-2} | changes)
    model = MLPReward(POINT_SPACE, PUSH_SPACE, MLPRewardConfig((16,), members), seed=0)
    return RewardTrainer(model, config, seed=0)


def test_a_fit_ends_with_the_likelihood_of_out_of_bag_answers(noisy):
    train = noisy[:100]
    unseen = noisy[100:]
    trainer = trainer_of(3, epochs=60, patience=None)
    report = trainer.fit(train)
    reward = RewardFunction(trainer.model, likelihood=report.likelihood)
    calibrated = evaluate_reward(reward, unseen)
    ignored = evaluate_reward(reward, unseen, likelihood=Likelihood())
    assert calibrated.likelihood == report.likelihood
    assert calibrated.log_loss < 0.58 < 0.6 < ignored.log_loss
    assert calibrated.calibration.error < ignored.calibration.error
    assert report.to_json()["likelihood"] == report.likelihood.to_json()


def test_without_bootstraps_held_out_answers_say_it_or_else_the_config(noisy):
    train, validation = split(noisy, np.random.default_rng(1), validation=0.25)
    assert trainer_of(1, noise=0.1).fit(train).likelihood == Likelihood(0.1)
    left = {"calibrate": False, "noise": 0.0}
    assert trainer_of(3, **left).fit(train, validation).likelihood == Likelihood()
    assert trainer_of(1, noise=0.5).fit(train).likelihood == Likelihood(0.1)  # forgives more
    held = trainer_of(1).fit(train, validation).likelihood
    assert held.noise > 0.1


def test_out_of_bag_answers_leave_held_out_ones_to_judge(noisy):
    train, validation = split(noisy, np.random.default_rng(1), validation=0.25)
    config = {"keep_best": False}
    opposite = replace(validation, preference=1 - validation.preference)
    one, other = (trainer_of(3, **config).fit(train, v) for v in (validation, opposite))
    assert one.likelihood == other.likelihood


@pytest.mark.slow
def test_probabilities_of_people_come_true_on_unseen_answers(shared):
    """A fold of the door labels; `recipes/door_calibration.py` pools all."""
    door = shared / "data" / "adroit-door-human"
    episodes = load_demonstrations(door / "door-v0_demos.pickle")
    labels = door / "door-human-v1_human_labels"
    pairs = load_labels(labels, episodes, crossing="keep").comparisons
    fold = folds(pairs, 5, np.random.default_rng(0))
    config = FitConfig(door, labels)
    reward, _ = fit_reward(config, episodes, pairs[fold != 1])
    unseen = pairs[(fold == 1) & pairs.decided]
    shown = evaluate_reward(reward, unseen)
    assert shown.log_loss < 0.35
    assert shown.log_loss < evaluate_reward(reward, unseen, likelihood=Likelihood()).log_loss - 0.1


def test_noise_is_fitted_while_weights_are_and_the_best_out_of_bag_state_remains(noisy):
    ours = {"noise": "fitted", "patience": 10}
    plain, robust = (trainer_of(3, epochs=60, **of) for of in ({"noise": 0.0}, ours))
    plain.fit(noisy[:200])
    report = robust.fit(noisy[:200])
    assert plain.noise == 0
    assert robust.noise == pytest.approx(0.3, abs=0.15)
    assert report.best_epoch == 1 + int(np.argmin(report.validation_loss))
    assert report.epochs == report.best_epoch + 10 < 60
    again = trainer_of(3, epochs=report.best_epoch, noise="fitted")
    again.fit(noisy[:200])
    assert torch.equal(parameters(again), parameters(robust))
    again.restore(robust.snapshot())
    assert again.noise == robust.noise


def parameters(trainer):
    return torch.nn.utils.parameters_to_vector(trainer.model.parameters())
