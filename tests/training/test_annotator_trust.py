"""Trust in annotators: by hand, beside a reward, and where there is nothing to fit."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from preferl.errors import CheckpointError
from preferl.functional import preference_loss
from preferl.models import MLPReward, MLPRewardConfig
from preferl.testing import make_comparisons, make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardTrainer, RewardTrainerConfig
from preferl.training.annotator_trust import AnnotatorTrust, fit_trust
from preferl.training.reward_trainer import load_trainer, save_trainer

CPU = torch.device("cpu")
FEW = RewardTrainerConfig(epochs=4, batch_size=8, learning_rate=1e-2, trust=True)
CAREFUL = (0, 1)
OPPOSITE = 2
RANDOM = 3


def rows(*numbers):
    return torch.tensor(numbers)


def fitted_by(logits, preference, by, **options):
    """Trust by one member that saw no answer."""
    shown = torch.tensor([logits])
    votes = torch.ones_like(shown, dtype=torch.bool)
    return fit_trust(shown, torch.tensor(preference), votes, torch.tensor(by), **options)


def test_three_right_and_one_wrong_by_hand():
    (ann,) = fitted_by([1, 1, -1, 1], [1, 1, 0, 0], [0] * 4, deviation=math.inf)
    assert ann.value == pytest.approx(math.log(3))
    assert ann.high - ann.value == pytest.approx(1.96 / math.sqrt(0.75), abs=1e-4)
    assert ann.value - ann.low == pytest.approx(2.263, abs=1e-3)
    assert (ann.annotator, ann.answers) == (0, 4)


def test_somebody_without_an_answer_that_counts_has_the_prior():
    ann, bo = fitted_by([1, 1, 1, 1], [0.5, math.nan, 1, 1], [0, 0, 1, -1])
    assert (ann.low, ann.value, ann.high) == pytest.approx((-0.96, 1, 2.96), abs=1e-4)
    assert (ann.annotator, ann.answers) == (0, 0)
    assert (bo.annotator, bo.answers) == (1, 1), "nobody in particular is not fitted"


def test_only_members_that_did_not_see_an_answer_are_asked():
    logits = torch.tensor([[9.0, 1.0], [1.0, -9.0], [3.0, 1.0]])
    votes = torch.tensor([[False, True], [True, False], [True, True]])
    answers = torch.ones(2)
    by = torch.zeros(2, dtype=torch.int64)
    found = fit_trust(logits, answers, votes, by)
    assert found == fitted_by([2, 1], [1, 1], [0, 0])
    assert fit_trust(logits, answers, torch.zeros(3, 2, dtype=torch.bool), by)[0].answers == 0


@pytest.mark.parametrize("size", [1e-3, 1.0, 40.0, 1e4])
def test_differences_of_any_size_have_a_maximum(size):
    differences = torch.tensor([1, 1 / 7, 3, -1] * 5, dtype=torch.float64) * size
    opposite = (differences < 0).double()
    for answers in (1 - opposite, opposite):
        (found,) = fitted_by(differences.tolist(), answers.tolist(), [0] * 20)
        slope = differences * (answers - torch.sigmoid(found.value * differences))
        assert abs(float(slope.sum()) - (found.value - 1)) < 1e-6 * max(1.0, size)
        if size >= 1:
            assert found.value < 0 if answers is opposite else found.value >= 1


def begun(*annotators):
    trust = AnnotatorTrust(CPU)
    trust.begin(np.array(annotators), 1)
    return trust


def test_trust_multiplies_log_odds_and_gets_their_gradient():
    trust = begun(0, 1)
    trust.numbers.restore({"value": torch.tensor([-2.0, 0.5]), "moments": {}})
    by = trust.of(rows(1, -1, 0, 7))
    assert by.tolist() == [0.5, 1, -2, 1], "nobody in particular and newcomers have 1"
    preference_loss(trust.of(rows(0)), torch.ones(1)).backward()
    assert trust.numbers.value.grad.tolist() == pytest.approx([-0.8808, 0], abs=1e-4)


def test_a_step_follows_the_answers_and_the_prior():
    trust = begun(0, 1, 1)
    trust.numbers.restore({"value": torch.tensor([3.0, 1.0]), "moments": {}})
    (trust.of(rows(0, 1)) * torch.tensor([0.0, 1.0])).sum().backward()
    trust.step()  # Adam's first step has the size of its rate
    assert trust.value == pytest.approx([2.97, 0.97], abs=1e-5)
    trust.step()
    assert trust.value == pytest.approx([2.97, 0.97], abs=1e-5), "no gradients, no step"


def test_the_scale_is_that_of_those_who_answer():
    trust = begun(0, 1, 3)
    trust.numbers.restore({"value": torch.tensor([3.0, -1.0, 9.0, 0.5]), "moments": {}})
    trust.normalise()
    assert trust.value == pytest.approx([2, -2 / 3, 9, 1 / 3])
    anchored = begun(0, 1, -1)
    anchored.numbers.restore({"value": torch.tensor([3.0, -1.0]), "moments": {}})
    anchored.normalise()
    assert anchored.value.tolist() == [3, -1], "answers of nobody in particular fix the scale"


def crowd(rng, pairs):
    """True preferences of a linear reward, given by four people; one lies and one guesses."""
    asked = make_comparisons(rng, pairs, episodes=make_episodes(rng, [40] * 10))
    by = np.arange(pairs) % 4
    given = np.where(by == OPPOSITE, 1 - asked.preference, asked.preference)
    given = np.where(by == RANDOM, rng.integers(0, 2, pairs), given)
    return replace(asked, preference=given, annotator=by)


def trainer(config, members=3):
    model = MLPReward(POINT_SPACE, PUSH_SPACE, MLPRewardConfig((16,), members), seed=0)
    return RewardTrainer(model, config, seed=0)


def weights(of):
    return torch.cat([p.detach().flatten() for p in of.model.parameters()])


def fitted(asked, config):
    own = trainer(config)
    return own, own.fit(asked)


def test_a_liar_is_turned_round_and_a_guesser_ignored(rng):
    asked = crowd(rng, 240)
    unseen = make_comparisons(rng, 300)
    config = replace(FEW, epochs=30, batch_size=32)
    with_trust, report = fitted(asked, config)
    without, _ = fitted(asked, replace(config, trust=False))
    right, wrong = (own.evaluate(unseen)[1] for own in (with_trust, without))
    assert right > 0.9
    assert right > wrong + 0.03
    a = with_trust.trust.value
    assert a[OPPOSITE] < -0.3
    assert abs(a[RANDOM]) < min(a[list(CAREFUL)])
    assert np.abs(a).mean() == pytest.approx(1)
    assert [one.annotator for one in report.trust] == [0, 1, 2, 3]
    assert sum(one.answers for one in report.trust) == report.decided
    assert report.trust[OPPOSITE].high < 0 < report.trust[0].low
    assert report.trust[RANDOM].high < report.trust[0].value
    assert report.held_out_accuracy > 0.7, "a lie that was expected counts as right"
    assert report.to_json()["trust"][OPPOSITE]["value"] == report.trust[OPPOSITE].value


@pytest.mark.parametrize("annotator", [None, np.zeros(40, np.int64), np.full(40, -1), "several"])
def test_with_one_annotator_or_without_trust_nothing_changes(rng, annotator):
    asked = crowd(rng, 40)
    several = isinstance(annotator, str)
    if not several:
        asked = replace(asked, annotator=annotator)
    own, report = fitted(asked, replace(FEW, trust=not several))
    plain, plain_report = fitted(replace(asked, annotator=None), replace(FEW, trust=False))
    assert torch.equal(weights(own), weights(plain))
    np.testing.assert_array_equal(report.train_loss, plain_report.train_loss)
    np.testing.assert_array_equal(report.validation_loss, plain_report.validation_loss)
    assert report.likelihood == plain_report.likelihood
    assert plain_report.trust == ()
    assert not several or len(report.trust) == 4, "it is reported all the same"


def test_the_next_fit_of_a_saved_trainer_is_that_of_the_original(rng, tmp_path):
    asked = crowd(rng, 60)
    own, _ = fitted(asked[:40], FEW)
    save_trainer(tmp_path, own, {})
    other = trainer(FEW)
    load_trainer(tmp_path, other, own.model)
    assert other.trust.value.tolist() == own.trust.value.tolist() != [1, 1, 1, 1]
    for each in (own, other):
        each.fit(asked)
    assert torch.equal(weights(own), weights(other))
    assert other.trust.value.tolist() == own.trust.value.tolist()


def test_damaged_trust_is_refused(rng, tmp_path):
    own, _ = fitted(crowd(rng, 20), FEW)
    own.trust.numbers.restore({"value": torch.tensor([1.0, math.nan]), "moments": {}})
    save_trainer(tmp_path, own, {})
    other = trainer(FEW)
    with pytest.raises(CheckpointError):
        load_trainer(tmp_path, other, own.model)
    assert not len(other.trust.value)
