"""Scores, members, and the likelihood of answers: tables by hand or published, exact gradients."""

import math

import pytest
import torch

from preferl.errors import ConfigError
from preferl.functional import (
    lower_bound,
    mean,
    pool,
    preference_accuracy,
    preference_logits,
    preference_loss,
    preference_probability,
)
from preferl.functional.preference import squared_error

NAN = float("nan")


def loss_and_gradient(logits, preference, **settings):
    tensor = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    loss = preference_loss(tensor, torch.tensor(preference), **settings)
    loss.sum().backward()
    return loss.detach(), tensor.grad


def test_logits_are_the_first_score_minus_the_second():
    scores = torch.tensor([[[3.0, 1.0], [0.0, 5.0]], [[1.0, 1.0], [2.0, -2.0]]])
    assert preference_logits(scores).tolist() == [[2.0, -5.0], [0.0, 4.0]]


@pytest.mark.parametrize(
    ("logit", "noise", "expected"),
    [
        (0.0, 0.0, 0.5),
        (math.log(3), 0.0, 0.75),
        (-math.log(3), 0.0, 0.25),
        (math.log(3), 0.2, 0.7),  # .8 * .75 + .1
        (1000.0, 0.1, 0.95),
        (-1000.0, 0.1, 0.05),
        (5.0, 1.0, 0.5),
    ],
)
def test_probabilities_by_hand(logit, noise, expected):
    probability = preference_probability(torch.tensor(logit), noise=noise)
    assert probability.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("logit", "preference", "noise", "expected"),
    [
        (0.0, 1.0, 0.0, math.log(2)),
        (math.log(3), 1.0, 0.0, -math.log(0.75)),
        (math.log(3), 0.0, 0.0, -math.log(0.25)),
        (math.log(3), 0.5, 0.0, -(math.log(0.75) + math.log(0.25)) / 2),
        (math.log(3), 0.9, 0.0, -0.9 * math.log(0.75) - 0.1 * math.log(0.25)),
        (math.log(3), 1.0, 0.2, -math.log(0.7)),
        (math.log(3), 0.25, 0.2, -0.25 * math.log(0.7) - 0.75 * math.log(0.3)),
        (-1000.0, 1.0, 0.1, -math.log(0.05)),  # a contradiction costs no more than this
        (-1000.0, 1.0, 0.0, 1000.0),
    ],
)
def test_losses_by_hand(logit, preference, noise, expected):
    loss = preference_loss(torch.tensor([logit]), torch.tensor([preference]), noise=noise)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


# Gradients by the score difference against the answer, with 10 % noise and without (Christiano et
# al. 2017 assume the noise; the table was measured with another implementation).
@pytest.mark.parametrize(
    ("against", "noisy", "plain"),
    [
        (-5, 6.34e-3, 6.69e-3),
        (0, 0.450, 0.500),
        (1, 0.606, 0.731),
        (2, 0.601, 0.881),
        (3, 0.439, 0.953),
        (5, 0.107, 0.993),
        (8, 6.0e-3, 1.000),
        (10, 8.2e-4, 1.000),
    ],
)
def test_the_noise_floor_changes_gradients(against, noisy, plain):
    for noise, expected in ((0.1, noisy), (0.0, plain)):
        _, first = loss_and_gradient([-against], [1.0], noise=noise)
        _, second = loss_and_gradient([against], [0.0], noise=noise)
        assert -first.item() == pytest.approx(expected, rel=1e-2, abs=6e-5)
        assert second.item() == pytest.approx(-first.item(), rel=1e-6)


@pytest.mark.parametrize("difference", [16.0, 17.0, 20.0, 28.0, 30.0, 40.0, 50.0, 100.0])
def test_gradients_of_absurd_comparisons_are_exact(difference):
    for logit, preference, expected in (
        (-difference, 1.0, -1.0),
        (difference, 0.0, 1.0),
        (difference, 1.0, -math.exp(-difference)),
        (-difference, 0.0, math.exp(-difference)),
    ):
        loss, gradient = loss_and_gradient([logit], [preference])
        assert gradient.item() == pytest.approx(expected, rel=1e-4)
        right = difference if abs(expected) == 1 else math.exp(-difference)
        assert loss.item() == pytest.approx(right, rel=1e-4, abs=1e-30)


def test_declined_answers_have_neither_loss_nor_gradient():
    for noise in (0.0, 0.1):
        loss, gradient = loss_and_gradient([5.0, 1.0], [NAN, 1.0], noise=noise)
        alone, _ = loss_and_gradient([1.0], [1.0], noise=noise)
        assert gradient[0] == 0
        assert gradient.isfinite().all()
        assert loss.item() == pytest.approx(alone.item() / 2)


def test_weights_count_answers():
    logits = torch.tensor([1.0, -2.0, 3.0])
    preference = torch.tensor([1.0, 0.0, 0.0])
    losses = [preference_loss(logits[i : i + 1], preference[i : i + 1]) for i in range(3)]
    weight = torch.tensor([2.0, 0.0, 0.5])
    expected = (2 * losses[0] + 0.5 * losses[2]) / 3
    torch.testing.assert_close(preference_loss(logits, preference, weight), expected)


def accuracy(logits, preference):
    return preference_accuracy(torch.tensor(logits), torch.tensor(preference)).item()


@pytest.mark.parametrize(
    ("logits", "preference", "expected"),
    [
        ([2.0, -1.0, 3.0, -4.0], [1.0, 0.0, 0.0, 1.0], 0.5),
        ([2.0, -1.0], [0.6, 0.4], 1.0),
        ([0.0, 0.0], [1.0, 0.0], 0.5),  # an undecided model is neither right nor wrong
        ([2.0, 2.0, 2.0], [1.0, 0.5, NAN], 1.0),  # ties and declined answers do not count
        ([2.0, 2.0, 2.0], [0.0, 0.5, NAN], 0.0),
    ],
)
def test_accuracies_by_hand(logits, preference, expected):
    assert accuracy(logits, preference) == expected


def test_accuracy_without_decided_answers_is_not_a_number():
    assert math.isnan(accuracy([1.0, -1.0], [0.5, NAN]))


REWARDS = torch.tensor([[1.0, 0.0, -3.0], [3.0, 0.0, 3.0]])


def test_lower_bounds_are_lower_where_members_disagree():
    assert lower_bound(1.0)(REWARDS).tolist() == [1.0, 0.0, -3.0]
    assert lower_bound(0.5)(REWARDS).tolist() == [1.5, 0.0, -1.5]
    assert lower_bound(-1.0)(REWARDS).tolist() == [3.0, 0.0, 3.0]
    assert lower_bound(0.0)(REWARDS).tolist() == mean(REWARDS).tolist()


STEPS = torch.tensor([[[1.0, 2.0, 3.0], [9.0, 4.0, 6.0]], [[0.0, -1.0, 1.0], [7.0, 1.0, 1.0]]])
MASK = torch.tensor([[True, True, True], [False, True, True]])


@pytest.mark.parametrize(
    ("pooling", "discount", "expected"),
    [
        ("sum", 1.0, [[6.0, 10.0], [0.0, 2.0]]),
        ("mean", 1.0, [[2.0, 5.0], [0.0, 1.0]]),
        ("sum", 0.5, [[2.75, 7.0], [-0.25, 1.5]]),  # the first real step weighs 1
        ("mean", 0.5, [[2.75 / 1.75, 7 / 1.5], [-0.25 / 1.75, 1.0]]),
    ],
)
def test_scores_by_hand(pooling, discount, expected):
    torch.testing.assert_close(pool(STEPS, MASK, pooling, discount), torch.tensor(expected))


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_masked_places_may_hold_anything_and_have_no_gradient(pooling, discount):
    rewards = STEPS.clone()
    rewards[:, ~MASK] = float("nan")
    rewards.requires_grad_()
    scores = pool(rewards, MASK, pooling, discount)
    torch.testing.assert_close(scores, pool(STEPS, MASK, pooling, discount))
    scores.sum().backward()
    assert (rewards.grad[:, ~MASK] == 0).all()
    assert (rewards.grad[:, MASK] > 0).all()


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_a_row_without_real_steps_has_score_zero(pooling):
    rewards = STEPS.clone().requires_grad_()
    scores = pool(rewards, torch.zeros_like(MASK), pooling, 0.9)
    scores.sum().backward()
    assert (scores == 0).all()
    assert (rewards.grad == 0).all()


@pytest.mark.parametrize(
    ("logit", "preference", "noise", "expected"),
    [
        (0.0, 1.0, 0.0, 0.25),
        (math.log(3), 1.0, 0.0, 0.0625),
        (math.log(3), 0.0, 0.0, 0.5625),
        (math.log(3), 0.5, 0.0, 0.0625),
        (math.log(3), 1.0, 0.2, 0.09),  # .8 * .75 + .1 = .7
        (-1000.0, 1.0, 0.0, 1.0),
    ],
)
def test_squared_errors_by_hand(logit, preference, noise, expected):
    error = squared_error(torch.tensor([logit]), torch.tensor([preference]), noise=noise)
    assert error.tolist() == pytest.approx([expected], abs=1e-6)


def test_the_squared_error_gives_up_on_what_contradicts_the_model():
    logits = torch.tensor([-20.0, 0.0], requires_grad=True)
    squared_error(logits, torch.tensor([1.0, 1.0])).sum().backward()
    # 2 (q - 1) q (1 - q)
    assert logits.grad.tolist() == pytest.approx([0.0, -0.25], abs=1e-7)


def test_another_loss_is_weighted_averaged_and_skips_declined_answers():
    logits = torch.tensor([[1.0, 2.0, 5.0], [3.0, 4.0, 5.0]], requires_grad=True)
    preference = torch.tensor([1.0, 0.0, NAN])
    weight = torch.tensor([[1.0, 2.0, 9.0], [0.0, 1.0, 9.0]])
    loss = preference_loss(logits, preference, weight, loss=lambda x, y: x * (1 + y))
    assert loss.tolist() == pytest.approx([(2 + 4) / 3, 4 / 3])
    loss.sum().backward()
    assert logits.grad.tolist() == [
        pytest.approx([2 / 3, 2 / 3, 0]),
        pytest.approx([0, 1 / 3, 0]),
    ]


def test_a_loss_that_gives_other_than_one_number_per_answer_is_refused():
    with pytest.raises(ConfigError, match=r"one number per answer, of shape \[2, 3\], got \[2\]"):
        preference_loss(torch.zeros(2, 3), torch.zeros(3), loss=lambda x, y: (x - y).sum(-1))
