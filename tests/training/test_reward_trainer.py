"""One trainer for all: calls, members, bootstraps, stopping, seeds, and what is never read."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from preferl.data import Comparisons, cut, split
from preferl.data.content import pair_numbers
from preferl.errors import ConfigError, DataError, DivergenceError
from preferl.functional import preference_loss
from preferl.models import (
    LSTMRewardConfig,
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.statistics import wilson_interval
from preferl.testing import CountingModel, make_comparisons, make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import (
    AdaptivePenalty,
    CosineSchedule,
    RewardFunction,
    RewardTrainer,
    RewardTrainerConfig,
    load_reward,
    save_reward,
)

SMALL = MLPRewardConfig(hidden=(8,))
FEW = RewardTrainerConfig(epochs=3, batch_size=8, learning_rate=1e-2, noise=0.0)
NAN = float("nan")


@pytest.fixture
def comparisons(rng):
    return make_comparisons(rng, pairs=20)


def mlp(seed=0, config=SMALL, **changes):
    return MLPReward(POINT_SPACE, PUSH_SPACE, replace(config, **changes), seed=seed)


def fit(
    model,
    train,
    validation=None,
    *,
    seed=0,
    config=FEW,
    **changes,
):
    return RewardTrainer(model, replace(config, **changes), seed=seed).fit(train, validation)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def answered(comparisons, preference):
    return replace(comparisons, preference=np.asarray(preference, np.float64))


@contextmanager
def global_seed(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@pytest.mark.parametrize(
    ("members", "crops", "batches"), [(1, 1, [8, 8, 4]), (5, 1, [8, 8, 4]), (1, 6, [48, 48, 24])]
)
def test_a_fit_makes_one_call_per_batch_whatever_the_members(comparisons, members, crops, batches):
    model = CountingModel(mlp(members=members))
    config = replace(FEW, crop=2 * (crops > 1), crops=crops)
    report = RewardTrainer(model, config, seed=0).fit(comparisons, comparisons, epochs=5)
    assert model.rows == 5 * [2 * pairs for pairs in batches]
    assert (report.epochs, report.pairs, report.members) == (5, 20, members)
    assert report.train_loss.shape == report.validation_accuracy.shape == (5,)


def test_crops_together_weigh_as_much_as_their_pair(rng):
    single_steps = make_comparisons(rng, pairs=20, length=1)  # of which a crop leaves all
    once = mlp(members=3)
    often = mlp(members=3)
    reports = [
        fit(model, single_steps, batch_size=20, minibatch_size=10, crop=4, crops=crops)
        for model, crops in ((once, 1), (often, 6))
    ]
    torch.testing.assert_close(weights(often), weights(once), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(reports[1].train_loss, reports[0].train_loss, rtol=1e-4)
    np.testing.assert_array_equal(reports[1].train_accuracy, reports[0].train_accuracy)


def test_several_crops_need_a_crop():
    with pytest.raises(ConfigError, match=r"crops: expected 1 if crop is 0.*got 6. Set crop"):
        replace(FEW, crops=6)


PENALTY = AdaptivePenalty(0.05)
"""Without one, Adam would hide by how much a member's gradient is scaled."""


def train_alone(model, comparisons, counts, *, seed, epochs):
    """One member trained by a loop of its own on its bootstrap `[P]`."""
    order = torch.Generator().manual_seed(seed)
    torch.randint(2**31, (), generator=order)  # dropout's seed
    segments = comparisons.segments
    steps = np.unique(segments.rows()[segments.mask()])
    observe(model, segments, steps)
    clips = segments[comparisons.pairs]
    parts = [torch.from_numpy(part) for part in (clips.observations, clips.actions, clips.mask)]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    for _ in range(epochs):
        for batch in torch.randperm(len(comparisons), generator=order).split(8):
            optimiser.zero_grad()
            scores = model(*(part[batch].flatten(0, 1) for part in parts)).scores.view(-1, 2)
            preference = torch.from_numpy(comparisons.preference)[batch].float()
            weight = torch.from_numpy(counts)[batch].float()
            loss = preference_loss(scores[:, 0] - scores[:, 1], preference, weight)
            (loss + PENALTY.of(model.parameters())).backward()
            optimiser.step()


def observe(model, segments, steps):
    model.encoder.observe(
        torch.from_numpy(segments.observations[steps]), torch.from_numpy(segments.actions[steps])
    )


@pytest.mark.parametrize("places", [None, np.arange(20) * 3], ids=["in-order", "others-are-gone"])
def test_each_member_is_trained_as_if_alone_on_its_bootstrap(comparisons, places):
    together = mlp(members=3)
    members = [mlp() for _ in range(3)]
    for i, member in enumerate(members):
        for alone, shared in zip(member.parameters(), together.parameters(), strict=True):
            alone.data.copy_(shared.data[i : i + 1])
    trainer = RewardTrainer(together, replace(FEW, penalty=PENALTY), seed=4)
    counts = trainer.bootstrap(20) if places is None else trainer.bootstrap(58)[:, places]
    trainer.fit(comparisons, places=places)
    for i, member in enumerate(members):
        train_alone(member, comparisons, counts[i], seed=4, epochs=3)
        for alone, shared in zip(member.parameters(), together.parameters(), strict=True):
            torch.testing.assert_close(shared[i : i + 1], alone, atol=1e-5, rtol=1e-4)


def test_bootstraps_keep_their_counts_as_answers_arrive():
    trainer = RewardTrainer(mlp(members=4), seed=0)
    counts = trainer.bootstrap(4000)
    assert (trainer.bootstrap(10) == counts[:, :10]).all()
    assert counts.mean() == pytest.approx(1, abs=0.05)
    assert (counts == 0).mean() == pytest.approx(np.exp(-1), abs=0.02)
    assert (counts[0] != counts[1]).any()
    other = RewardTrainer(mlp(members=4), seed=1).bootstrap(4000)
    assert (other != counts).any()


@pytest.mark.parametrize("minibatch_size", [1, 4])
def test_accumulated_gradients_are_those_of_the_whole_batch(comparisons, minibatch_size):
    whole = mlp(members=2)
    parts = mlp(members=2)
    one = fit(whole, comparisons, penalty=AdaptivePenalty(0.01))
    other = fit(parts, comparisons, penalty=AdaptivePenalty(0.01), minibatch_size=minibatch_size)
    torch.testing.assert_close(weights(whole), weights(parts), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(one.train_loss, other.train_loss, rtol=1e-4)


def test_training_loss_is_the_mean_over_answers_whatever_the_batch(comparisons):
    still = {"learning_rate": 1e-12, "weight_decay": 0.0, "epochs": 1}
    reports = [fit(mlp(members=2), comparisons, batch_size=b, **still) for b in (1, 8, 20)]
    for report in reports:
        np.testing.assert_allclose(report.train_loss, reports[0].train_loss, rtol=1e-5)
    twice = replace(comparisons, weight=np.full(20, 2.0))
    weighed = fit(mlp(members=2), twice, **still)
    np.testing.assert_allclose(weighed.train_loss, reports[0].train_loss, rtol=1e-5)


def test_declined_answers_count_for_nothing(comparisons):
    declined = np.where(np.arange(20) % 3 == 0, NAN, comparisons.preference)
    with_them = mlp()
    without = mlp()
    report = fit(with_them, answered(comparisons, declined))
    fit(without, comparisons[np.arange(20) % 3 != 0])
    assert torch.equal(weights(with_them), weights(without))
    assert report.pairs == 13


@pytest.mark.parametrize("noise", [0.5, "fitted"])
def test_soft_answers_are_learned_as_probabilities(rng, noise):
    segments = cut(make_episodes(rng, [10]), np.array([0, 5]), 5)
    comparisons = Comparisons.of(segments, np.array([[0, 1]]), np.array([0.8]))
    model = mlp()
    report = fit(model, comparisons, epochs=200, weight_decay=0.0, noise=noise)
    assert report.likelihood.noise == 0
    scores = RewardFunction(model).scores(segments)[0]
    assert 1 / (1 + np.exp(scores[1] - scores[0])) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    ("preference", "weight", "exact"),
    [
        ([0.75, 0.25], [1.0, 1.0], True),  # of one answer, so no share of several
        ([0.3, 0.95], [7.0, 10.5], True),
        ([2 / 3, 5 / 6], [3.0, 3.0], False),  # votes of three, and two with a tie
        ([np.float32(2 / 3), 0.2], [3.0, 5.0], False),
        ([1.0, 0.5], [1.0, 4.0], False),
        ([1.0, NAN], [1.0, 1.0], False),
    ],
)
def test_noise_is_left_out_for_soft_answers_alone(comparisons, preference, weight, exact):
    """Training losses of a first epoch whose steps change nothing."""
    few = replace(answered(comparisons[:2], preference), weight=np.asarray(weight, np.float64))
    still = {"epochs": 1, "learning_rate": 1e-12, "weight_decay": 0.0, "bootstrap": False}
    losses = [fit(mlp(), few, noise=noise, **still).train_loss[0] for noise in (0.0, 0.5)]
    assert (losses[0] == losses[1]) == exact


def test_votes_stay_votes_where_answers_are_implied(comparisons):
    """Implied answers change weights; they are hard, as the votes that imply them."""
    chain = Comparisons.of(
        comparisons.segments,
        np.array([[0, 1], [1, 2]]),
        np.array([2 / 3, 2 / 3]),
        np.array([3.0, 3.0]),
    )
    still = {"epochs": 1, "learning_rate": 1e-12, "weight_decay": 0.0, "implied": True}
    losses = [fit(mlp(members=1), chain, noise=noise, **still).train_loss[0] for noise in (0, 0.5)]
    assert losses[0] != losses[1]


def test_soft_answers_say_nothing_about_how_many_are_random(comparisons):
    soft = answered(comparisons, np.where(np.arange(20) < 10, 0.7, NAN))
    trainer = RewardTrainer(mlp(members=3), replace(FEW, noise="fitted"), seed=0)
    trainer.fit(soft)
    assert trainer.noise == pytest.approx(0.05)  # what it began with


def test_out_of_bag_numbers_by_hand(comparisons):
    model = mlp(members=3)
    trainer = RewardTrainer(
        model, replace(FEW, epochs=1, learning_rate=1e-12, noise=0.1, patience=None), seed=0
    )
    counts = trainer.bootstrap(20)
    model.train()
    segments = comparisons.segments
    observe(model, segments, np.unique(segments.rows()[segments.mask()]))
    scores = RewardFunction(model).scores(segments)[:, comparisons.pairs]
    report = trainer.fit(comparisons)
    q = 1 / (1 + np.exp(scores[..., 1] - scores[..., 0]))  # [E, P]
    chance = np.where(comparisons.preference == 1, q, 1 - q) * 0.9 + 0.05
    losses = [-np.log(chance[e, counts[e] == 0]).mean() for e in range(3)]
    assert report.validation_loss[0] == pytest.approx(np.mean(losses), rel=1e-4)
    bagged = [(-np.log(chance[e]) * counts[e]).sum() / counts[e].sum() for e in range(3)]
    assert report.train_loss[0] == pytest.approx(np.mean(bagged), rel=1e-4)
    votes = ((q - 0.5) * (counts == 0)).sum(0)
    seen = (counts == 0).any(0)
    right = (votes > 0) == (comparisons.preference == 1)
    assert 0 < seen.sum() < 20
    assert report.validation_accuracy[0] == pytest.approx(right[seen].mean())
    assert report.decided == seen.sum()
    assert report.held_out_accuracy == report.validation_accuracy[0]
    assert report.held_out_interval == wilson_interval(int(right[seen].sum()), int(seen.sum()))
    votes = ((q - 0.5) * (counts > 0)).sum(0)
    seen = (counts > 0).any(0)
    right = (votes > 0) == (comparisons.preference == 1)
    assert report.train_accuracy[0] == pytest.approx(right[seen].mean())


def test_without_anything_held_out_there_is_no_validation(comparisons):
    report = fit(mlp(), comparisons)
    assert np.isnan(report.validation_loss).all()
    assert np.isnan(report.validation_accuracy).all()
    assert report.decided == 0
    assert report.held_out_accuracy is report.held_out_interval is None
    assert report.best_epoch == 3
    assert report.to_json()["validation_loss"] == [None, None, None]


def test_validation_steps_do_not_move_input_statistics(rng):
    episodes = make_episodes(rng, [200, 200])
    train, validation = split(make_comparisons(rng, pairs=30, episodes=episodes), rng)
    assert train.segments is validation.segments
    models = mlp(), mlp()
    fit(models[0], train, validation, keep_best=False)
    fit(models[1], train.compact(), keep_best=False)
    assert torch.equal(models[0].encoder.mean, models[1].encoder.mean)
    assert models[0].encoder.count < train.segments.steps
    assert torch.equal(weights(models[0]), weights(models[1]))


def test_evaluation_by_hand_and_it_changes_nothing(comparisons):
    model = mlp(members=2, dropout=0.5).train()
    trainer = RewardTrainer(model, replace(FEW, noise=0.2), seed=0)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    wanted = np.where(np.arange(20) < 5, 0.5, comparisons.preference)
    loss, accuracy = trainer.evaluate(answered(comparisons, wanted))
    assert model.training
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    scores = RewardFunction(model).scores(comparisons.segments)[:, comparisons.pairs]
    q = 1 / (1 + np.exp(scores[..., 1] - scores[..., 0]))
    chances = wanted * np.log(0.8 * q + 0.1) + (1 - wanted) * np.log(0.8 * (1 - q) + 0.1)
    assert loss == pytest.approx(-chances.mean(), rel=1e-4)
    right = ((q.mean(0) > 0.5) == (comparisons.preference == 1))[5:]
    assert accuracy == pytest.approx(right.mean())


@pytest.mark.parametrize("keep_best", [True, False])
def test_the_best_state_is_what_remains(comparisons, rng, keep_best):
    train, validation = split(answered(comparisons, rng.integers(0, 2, 20)), rng, validation=0.5)
    model = mlp()
    seen = []
    config = replace(FEW, epochs=15, learning_rate=0.05, keep_best=keep_best)
    trainer = RewardTrainer(model, config, seed=0)
    report = trainer.fit(train, validation, on_epoch=lambda *_: seen.append(weights(model).clone()))
    best = int(np.argmin(report.validation_loss))
    assert 0 <= best < 14
    left = best if keep_best else report.epochs - 1
    assert report.best_epoch == left + 1
    assert torch.equal(weights(model), seen[left])
    assert trainer.evaluate(validation)[0] == pytest.approx(report.validation_loss[left])
    assert not model.training


def test_patience_ends_a_fit_that_no_longer_helps(comparisons):
    opposite = answered(comparisons, 1 - comparisons.preference)  # training soon does harm
    report = fit(mlp(), comparisons, opposite, epochs=50, patience=4)
    assert report.epochs == report.best_epoch + 4 < 50
    assert report.best_epoch == int(np.argmin(report.validation_loss)) + 1


def test_training_stops_once_it_is_accurate_enough(comparisons):
    report = fit(mlp(), comparisons, epochs=300, stop_accuracy=0.9)
    assert report.train_accuracy[-1] >= 0.9
    assert (report.train_accuracy[:-1] < 0.9).all()
    assert report.epochs < 300


def test_a_restarted_fit_remembers_nothing(comparisons):
    model = mlp()
    fresh = weights(model).clone()
    config = replace(
        FEW, restart=True, epochs=1, batch_size=20, learning_rate=1e-3, weight_decay=0.0,
        penalty=AdaptivePenalty(1.0, band=(0.0, 1e-6)),
    )  # fmt: skip
    trainer = RewardTrainer(model, config, seed=0)
    penalties = []
    for _ in range(2):
        report = trainer.fit(comparisons, comparisons)
        penalties.append(report.penalty)
        # Adam's first step is as long as the learning rate, whatever the gradient.
        assert (weights(model) - fresh).abs().max().item() == pytest.approx(1e-3, rel=1e-2)
    assert penalties == [1.2, 1.2]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_equal_seeds_agree_bit_for_bit_whatever_the_global_seed(comparisons, dropout):
    models = []
    for seed in (1, 2):
        model = mlp(members=2, dropout=dropout)
        with global_seed(seed):
            before = torch.random.get_rng_state()
            fit(model, comparisons)
            assert torch.equal(before, torch.random.get_rng_state())
        models.append(model)
    assert torch.equal(weights(models[0]), weights(models[1]))


def test_true_rewards_are_never_read(comparisons, rng):
    strange = rng.normal(size=comparisons.segments.steps) * 1e6
    strange[::2] = NAN
    scrambled = replace(comparisons, segments=replace(comparisons.segments, rewards=strange))
    models = mlp(members=2), mlp(members=2)
    reports = [
        fit(model, answers, answers)
        for model, answers in zip(models, (comparisons, scrambled), strict=True)
    ]
    assert torch.equal(weights(models[0]), weights(models[1]))
    np.testing.assert_array_equal(reports[0].validation_loss, reports[1].validation_loss)


@pytest.mark.slow
@pytest.mark.nightly  # half a minute of compiling
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # by torch's own imports
def test_a_compiled_step_gives_the_same_numbers(comparisons):
    models = mlp(members=2), mlp(members=2)
    fit(models[0], comparisons)
    fit(models[1], comparisons, compile=True)
    torch.testing.assert_close(weights(models[0]), weights(models[1]), atol=1e-5, rtol=1e-4)


def rates_seen(trainer, train):
    """The learning rate at each of a fit's optimiser steps."""
    seen = []

    def look(optimiser, *_):
        if isinstance(optimiser, torch.optim.AdamW):  # not the search for the noise
            seen.append(optimiser.param_groups[0]["lr"])

    hook = register_optimizer_step_pre_hook(look)
    trainer.fit(train)
    hook.remove()
    return seen


def test_the_schedule_spans_each_fit(comparisons):
    schedule = CosineSchedule(warmup=0.5, start=0.0, end=0.5)
    config = replace(FEW, epochs=2, batch_size=10, learning_rate=0.1, schedule=schedule)
    trainer = RewardTrainer(mlp(), config, seed=0)
    expected = pytest.approx([0.0, 0.05, 0.1, 0.075])
    assert rates_seen(trainer, comparisons) == expected
    assert rates_seen(trainer, comparisons) == expected


def test_nothing_to_learn_from_is_refused(comparisons):
    nothing = answered(comparisons, np.full(20, NAN))
    for empty in (comparisons[:0], nothing):
        with pytest.raises(DataError, match="comparisons to train on: expected at least one"):
            fit(mlp(), empty)
        with pytest.raises(DataError, match="validation comparisons: expected at least one"):
            fit(mlp(), comparisons, empty)
        with pytest.raises(DataError, match="comparisons to evaluate on: expected at least one"):
            RewardTrainer(mlp(), seed=0).evaluate(empty)


def test_a_band_without_unseen_answers_is_refused(comparisons):
    setting = {"penalty": AdaptivePenalty(1e-3, band=(1.1, 1.5))}
    with pytest.raises(ConfigError, match=r"^penalty band needs validation comparisons"):
        fit(mlp(), comparisons, **setting)
    with pytest.raises(ConfigError, match="needs validation comparisons"):
        fit(mlp(members=3), comparisons, bootstrap=False, **setting)
    fit(mlp(members=3), comparisons, **setting)


def test_segments_longer_than_the_context_are_refused(comparisons):
    model = CountingModel(mlp())
    model.context = 4
    for parts in ((comparisons, None), (comparisons, comparisons)):
        with pytest.raises(ConfigError, match="at most the model's context 4, got 5"):
            fit(model, *parts)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("epochs", 0), ("minibatch_size", 5), ("noise", 1.0), ("stop_accuracy", 1.1)],
)
def test_settings_out_of_range_are_named(setting, value):
    with pytest.raises(ConfigError, match=f"^{setting}: expected"):
        RewardTrainerConfig(**{setting: value})


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "config",
    [
        MLPRewardConfig(hidden=(16, 16), members=3),
        LSTMRewardConfig(width=32, context=6),
        PreferenceTransformerConfig(width=16, heads=2, preference_width=8, context=6),
    ],
    ids=lambda config: type(config).__name__,
)
def test_rewards_learn_as_on_the_processor(config, precision, tmp_path):
    rng = np.random.default_rng(0)
    episodes = make_episodes(rng, [40, 60])
    comparisons = make_comparisons(rng, pairs=64)
    fitted = RewardTrainerConfig(epochs=5, batch_size=16, precision=precision)
    losses = []
    found = []
    for device in ("cpu", "cuda"):
        model = build_reward_model(config, POINT_SPACE, PUSH_SPACE, seed=0)
        report = RewardTrainer(model, fitted, seed=0, device=device).fit(comparisons)
        losses.append(report.train_loss[-1])
        save_reward(tmp_path / device, RewardFunction(model))
        found.append(load_reward(tmp_path / device, device="cuda").member_rewards(episodes))
    assert losses[1] == pytest.approx(losses[0], rel=0.2)
    same = load_reward(tmp_path / "cuda", device="cpu").member_rewards(episodes)
    np.testing.assert_allclose(found[1], same, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("noise", "members"), [(0.0, 1), ("fitted", 3)])
def test_a_fit_that_diverges_is_an_error(comparisons, noise, members):
    with pytest.raises(DivergenceError, match=r"the training diverged .* lower the learning rate"):
        fit(mlp(members=members), comparisons, learning_rate=1e18, noise=noise)


def test_models_remember_the_pairs_of_all_fits_but_not_what_did_not_count(comparisons):
    """Declined answers, answers without weight and pseudo-labels did not teach anything."""
    numbers = pair_numbers(comparisons)
    trainer = RewardTrainer(mlp(), FEW, seed=0)
    few = answered(comparisons[:8], [*comparisons.preference[:7], NAN])
    weight = np.append(np.ones(6), [0.0, 1.0])
    trainer.fit(replace(few, weight=weight), places=np.array([0, 1, 2, 3, 4, -1, 5, 6]))
    np.testing.assert_array_equal(trainer.model.fitted_pairs, np.sort(numbers[:5]))
    again = RewardTrainer(mlp(), FEW, seed=0)
    again.restore(trainer.snapshot())
    again.fit(comparisons[10:12], comparisons[12:14])
    expected = np.union1d(numbers[:5], numbers[10:14])
    np.testing.assert_array_equal(again.model.fitted_pairs, expected)
