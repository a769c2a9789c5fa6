"""Fits to ratings and outcomes, alone and beside comparisons."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from preferl.data import Ratings, Segments, sample_segments, whole_episodes
from preferl.data.comparisons import Comparisons
from preferl.errors import CheckpointError, ConfigError, DataError
from preferl.functional import preference_loss, rating_loss
from preferl.models import LSTMRewardConfig, MLPReward, MLPRewardConfig, build_reward_model
from preferl.statistics import spearman
from preferl.testing import make_comparisons, make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import FitCheckpoints, RewardTrainer, RewardTrainerConfig

CONFIG = RewardTrainerConfig(epochs=40, learning_rate=1e-2, noise=0.0)
NAN = float("nan")


def mlp(members: int = 3) -> MLPReward:
    return MLPReward(POINT_SPACE, PUSH_SPACE, MLPRewardConfig((16,), members=members), seed=0)


def clips(rng: np.random.Generator, count: int) -> Segments:
    return sample_segments(make_episodes(rng, [40] * 20), count, 5, rng)


def rated(segments: Segments, rating: np.ndarray, outcome: np.ndarray | None = None) -> Ratings:
    """One person's ratings of all clips, and perhaps outcomes; NaN where there is none."""
    outcome = np.full(len(segments), NAN) if outcome is None else outcome
    values = np.append(rating, outcome)
    given = np.flatnonzero(~np.isnan(values))
    return Ratings(
        segments,
        clip=given % len(segments),
        annotator=np.zeros(len(given), int),
        value=values[given],
        is_outcome=given >= len(segments),
    )


def quintiles(segments: Segments) -> np.ndarray:
    """`[N]` ratings from 1 to 5 by the true return."""
    return 1.0 + segments.returns().argsort().argsort() * 5 // len(segments)


def scores_of(model: MLPReward, segments: Segments) -> torch.Tensor:
    """`[E, N]` scores."""
    laid_out = segments[:]
    parts = (laid_out.observations, laid_out.actions, laid_out.mask)
    return model(*map(torch.from_numpy, parts)).scores.detach()


@pytest.mark.parametrize("kind", ["ratings", "outcomes"])
def test_a_reward_of_ratings_alone_ranks_clips_and_a_shuffled_one_does_not(rng, kind):
    segments = clips(rng, 150)
    unseen = clips(rng, 200)
    rating = quintiles(segments)
    agreement = []
    for answers in (rating, rng.permutation(rating)):
        nothing = np.full(150, NAN)
        outcome = (answers > 3).astype(float)
        ratings = (
            rated(segments, answers) if kind == "ratings" else rated(segments, nothing, outcome)
        )
        model = mlp()
        report = RewardTrainer(model, CONFIG, seed=0).fit(None, ratings=ratings)
        agreement.append(spearman(scores_of(model, unseen).mean(0).numpy(), unseen.returns()))
    assert agreement[0] > 0.9
    assert abs(agreement[1]) < 0.7
    assert (report.pairs, report.decided, report.held_out_accuracy) == (0, 0, None)
    assert report.ratings.held_out > 100, "a third is out of each of three bags"
    assert np.shape(report.ratings.thresholds) == (3, 1, 5)
    assert (np.diff(np.array(report.ratings.thresholds)[..., :4]) > 0).all()


def test_agreement_with_out_of_bag_ratings_shows_whether_the_fit_learned(rng):
    segments = clips(rng, 150)
    rating = quintiles(segments)
    for answers, low, high in ((rating, 0.7, 1), (rng.permutation(rating), -0.3, 0.3)):
        ratings = rated(segments, answers, (answers > 2).astype(float))
        report = RewardTrainer(mlp(), CONFIG, seed=0).fit(None, ratings=ratings).ratings
        assert (report.ratings, report.outcomes) == (150, 150)
        assert low < report.rating_tau < high
        assert low - 0.2 < report.outcome_tau < high
        assert (report.loss < 0.8) == (low > 0)


def test_an_answer_of_either_kind_weighs_one_answer(rng):
    """The loss is the mean over all answers, of clips of two lengths, by the formulas."""
    episodes = make_episodes(rng, [9, 12, 30])
    comparisons = make_comparisons(rng, pairs=20, episodes=episodes)
    whole = whole_episodes(episodes)
    ratings = rated(whole, np.array([1.0, NAN, 4.0]), np.array([1.0, 0.0, NAN]))
    config = replace(CONFIG, noise=0.2, epochs=1, learning_rate=1e-12, batch_size=7, weight_decay=0)
    model = mlp(members=1)
    trainer = RewardTrainer(model, config, seed=0)
    report = trainer.fit(comparisons, ratings=ratings)
    pairs = scores_of(model, comparisons.segments)[:, comparisons.pairs]
    preference = torch.from_numpy(comparisons.preference)
    of_pairs = preference_loss(pairs[..., 0] - pairs[..., 1], preference, noise=0.2) * 20
    scores = scores_of(model, whole)[:, [0, 2, 0, 1]]
    first, _, third, fourth, goal = report.ratings.thresholds[0][0]
    inf = float("inf")
    lower = torch.tensor([-inf, third, goal, -inf])
    upper = torch.tensor([first, fourth, inf, goal])
    of_ratings = rating_loss(scores, lower, upper, torch.tensor([5, 5, 2, 2]), noise=0.2)
    expected = (of_pairs + of_ratings.sum(1)) / 24
    # Thresholds move by 0.03 in each of the four steps.
    assert report.train_loss[0] == pytest.approx(expected.item(), abs=0.02)


def test_ratings_beside_comparisons_leave_the_bootstraps_of_comparisons_alone(rng):
    comparisons = make_comparisons(rng, pairs=30)
    segments = clips(rng, 12)
    out_of_bag = RewardTrainer(mlp(), CONFIG, seed=0).fit(comparisons).decided
    report = RewardTrainer(mlp(), CONFIG, seed=0).fit(
        comparisons, ratings=rated(segments, quintiles(segments))
    )
    assert (report.pairs, report.decided) == (30, out_of_bag)


def test_thresholds_of_each_annotator_show_who_is_strict(rng):
    segments = clips(rng, 120)
    generous = quintiles(segments)
    strict = np.maximum(generous - 2, 1)
    both = Ratings(
        segments,
        clip=np.tile(np.arange(120), 2),
        annotator=np.repeat([0, 1], 120),
        value=np.append(generous, strict),
        is_outcome=np.zeros(240, bool),
    )
    losses = []
    for whose in ("annotator", "shared"):
        config = replace(CONFIG, thresholds=whose)
        losses.append(RewardTrainer(mlp(), config, seed=0).fit(None, ratings=both).ratings)
    own, shared = losses
    for of_generous, of_strict in own.thresholds:
        np.testing.assert_array_less(np.add(of_generous[:2], 1), of_strict[:2])
    assert own.loss < shared.loss - 0.1


def test_a_stopped_fit_goes_on_to_the_same_thresholds(tmp_path, rng):
    comparisons = make_comparisons(rng, pairs=20)
    segments = clips(rng, 20)
    ratings = rated(segments, quintiles(segments))
    config = replace(CONFIG, epochs=6, batch_size=8)

    def fit(ratings: Ratings, **how):
        model = mlp()
        return model, RewardTrainer(model, config, seed=0).fit(comparisons, ratings=ratings, **how)

    def stop(epoch, metrics):
        if epoch == 4:
            raise KeyboardInterrupt

    checkpoints = FitCheckpoints(tmp_path / "it", seconds=0)
    with pytest.raises(KeyboardInterrupt):
        fit(ratings, on_epoch=stop, checkpoints=checkpoints)
    with pytest.raises(CheckpointError, match="answers of the run"):
        fit(replace(ratings, value=ratings.value[::-1]), checkpoints=checkpoints)
    model, report = fit(ratings, checkpoints=checkpoints)
    expected_model, expected = fit(ratings)
    assert report.ratings == expected.ratings
    assert torch.equal(next(model.parameters()), next(expected_model.parameters()))


def test_models_with_a_history_take_episodes_of_different_lengths(rng):
    episodes = make_episodes(rng, [6, 9, 4, 8])
    model = build_reward_model(LSTMRewardConfig(context=9), POINT_SPACE, PUSH_SPACE, seed=0)
    ratings = rated(whole_episodes(episodes), np.array([1.0, 5, 3, 2]))
    report = RewardTrainer(model, replace(CONFIG, epochs=30), seed=0).fit(None, ratings=ratings)
    assert report.train_loss[-1] < report.train_loss[0] - 0.3
    assert report.ratings.loss is None, "one member has no bootstrap"


def test_neither_comparisons_nor_ratings_are_refused(rng):
    trainer = RewardTrainer(mlp(), CONFIG, seed=0)
    with pytest.raises(DataError, match="expected comparisons or ratings, got neither"):
        trainer.fit(None)
    with pytest.raises(DataError, match="at least one answered"):
        trainer.fit(Comparisons.none(clips(rng, 2)))
    with pytest.raises(ConfigError, match="thresholds"):
        replace(CONFIG, thresholds="mine")
