"""Presets carry published settings, shorten with a budget, hold answers out, and can be changed."""

from dataclasses import replace

import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.testing import make_comparisons
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import FitCheckpoints, RewardSettings, reward_preset, reward_presets

PUBLISHED = ["mr", "nmr", "pt", "pt-readme"]


@pytest.fixture
def comparisons(rng):
    return make_comparisons(rng, pairs=40)


def test_published_settings():
    rates = {name: reward_preset(name, length=50).trainer.learning_rate for name in PUBLISHED}
    assert rates == {"mr": 3e-4, "nmr": 1e-3, "pt": 1e-3, "pt-readme": 1e-3}
    for name in PUBLISHED:
        preset = reward_preset(name, length=50)
        assert (preset.trainer.epochs, preset.trainer.batch_size) == (10_000, 256)
        assert preset.held_out == 0.1
        assert not preset.model.normalise
    assert [reward_preset(n, length=50).model.pooling for n in PUBLISHED] == [
        "mean", "sum", "mean", "mean",
    ]  # fmt: skip
    schedule = reward_preset("pt", length=50).trainer.schedule
    assert schedule.at(0, 100) * 1e-3 == pytest.approx(1e-4)
    assert schedule.at(10, 100) * 1e-3 == pytest.approx(1e-3)
    assert schedule.at(100, 100) * 1e-3 == pytest.approx(1e-4)
    assert reward_preset("pt", length=50).trainer.weight_decay == 1e-4
    assert reward_preset("nmr", length=50).trainer.weight_decay == 0


def test_a_choice_keeps_the_fit_that_unseen_answers_fit_best(comparisons):
    settings = RewardSettings(epochs=3, choose=True)
    preset = settings.preset(length=5, answers=40)
    of = preset.alternatives(5)
    assert list(of) == ["plain", "cropped", "bounded", "bounded, cropped"]
    mean = reward_preset("mr", length=5).alternatives(5)
    assert list(mean) == ["plain", "cropped"], "a mean of bounded rewards is no alternative"
    assert (of["cropped"].trainer.crop, of["bounded"].model.bounded) == (1, True)
    losses = {
        name: one.fit(comparisons, POINT_SPACE, PUSH_SPACE, seed=2)[1].unseen_loss
        for name, one in of.items()
    }
    model, report = preset.fit(comparisons, POINT_SPACE, PUSH_SPACE, seed=2)
    assert report.alternatives == pytest.approx(losses)
    assert report.chosen == min(losses, key=losses.get)
    assert len(set(losses.values())) == 4
    alone, _ = of[report.chosen].fit(comparisons, POINT_SPACE, PUSH_SPACE, seed=2)
    for own, other in zip(model.parameters(), alone.parameters(), strict=True):
        np.testing.assert_array_equal(own.detach(), other.detach())
    assert report.to_json()["chosen"] == report.chosen


@pytest.mark.parametrize(("seconds", "left"), [(0, [2, 3]), (3600, [1, 2, 3])])
def test_a_choice_that_was_stopped_repeats_no_finished_fit(comparisons, tmp_path, seconds, left):
    preset = RewardSettings(epochs=3, choose=True).preset(length=5, answers=40)
    kept = FitCheckpoints(tmp_path / "kept", seconds=seconds)
    how = {"seed": 2, "checkpoints": kept}
    made = []

    def stop(epoch, _):
        made.append(epoch)
        if len(made) == 8:  # in the third of four fits
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        preset.fit(comparisons, POINT_SPACE, PUSH_SPACE, on_epoch=stop, **how)
    rest = []
    found, report = preset.fit(
        comparisons, POINT_SPACE, PUSH_SPACE, on_epoch=lambda epoch, _: rest.append(epoch), **how
    )
    assert rest == [*left, 1, 2, 3]
    whole, expected = preset.fit(comparisons, POINT_SPACE, PUSH_SPACE, seed=2)
    assert report.alternatives == expected.alternatives
    for own, other in zip(found.parameters(), whole.parameters(), strict=True):
        np.testing.assert_array_equal(own.detach(), other.detach())
    kept.remove()
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("updates", "answers", "epochs"),
    [(600, 1600, 100), (1, 1600, 1), (10, 256, 10), (11, 285, 6)],  # 257 to train on: two batches
)
def test_a_budget_of_updates_becomes_whole_epochs(updates, answers, epochs):
    preset = reward_preset("pt", length=50).with_budget(updates, answers=answers)
    assert preset.trainer.epochs == epochs
    assert preset.trainer.schedule == reward_preset("pt", length=50).trainer.schedule


@pytest.mark.parametrize("model", ["mlp", *PUBLISHED])
def test_every_preset_fits(model, comparisons):
    length = comparisons.segments.length
    settings = RewardSettings(model=model, budget=2, precision="float32")
    preset = settings.preset(length=length, answers=len(comparisons))
    fitted, report = preset.fit(comparisons, POINT_SPACE, PUSH_SPACE, seed=0)
    assert not fitted.training
    held_out = 40 - report.pairs
    # Four different pairs, one of which was answered twice.
    assert held_out == (0 if model == "mlp" else 5)
    assert np.isfinite(report.validation_loss).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_transformers_take_the_fast_precision_by_default(precision, monkeypatch):
    monkeypatch.setattr(reward_presets, "fast_precision", lambda: precision)
    of = {name: RewardSettings(name).preset(length=5, answers=9) for name in ("mr", "pt")}
    assert of["pt"].trainer.precision == precision
    assert of["mr"].trainer.precision == "float32"
    preset = RewardSettings("pt", precision="float32").preset(length=5, answers=9)
    assert preset.trainer.precision == "float32"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (RewardSettings("pt", hidden=(8,)), "hidden: expected None for model pt"),
        (RewardSettings("pt", use_actions=False), "use_actions: expected None for model pt"),
        (RewardSettings("pt", epochs=2, budget=3), "either epochs or a budget"),
        (RewardSettings("pt", budget=0), "budget: expected at least 1"),
        (RewardSettings("gpt"), "model: expected one of"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        settings.preset(length=5, answers=9)


def test_changes_are_made_to_any_settings_of_a_preset():
    usual = reward_preset("pt")

    def changed(settings, model=None, trainer=None, **more):
        base = replace(
            usual,
            model=replace(usual.model, **(model or {})),
            trainer=replace(usual.trainer, **(trainer or {})),
            **more,
        )
        return settings.preset(length=20, answers=9, base=base)

    few = RewardSettings("pt", epochs=7, precision="float32")
    found = changed(few, {"layers": 2}, {"learning_rate": 1e-2}, held_out=0.3)
    assert (found.model.layers, found.model.context, found.held_out) == (2, 20, 0.3)
    assert (found.trainer.learning_rate, found.trainer.epochs) == (1e-2, 7)
    assert changed(RewardSettings("pt"), {"context": 30}).model.context == 30
    fast = changed(RewardSettings("pt"), trainer={"precision": "bfloat16"})
    assert fast.trainer.precision == "bfloat16"
