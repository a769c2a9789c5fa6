"""Fits that a GPU replays as a recorded graph, and their twin without one on the processor."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from preferl.models import PreferenceTransformer, PreferenceTransformerConfig
from preferl.testing import make_comparisons
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import CosineSchedule, FitCheckpoints, RewardTrainer, RewardTrainerConfig

SHAPE = PreferenceTransformerConfig(width=16, heads=2, preference_width=8, context=6)
SETTINGS = RewardTrainerConfig(
    epochs=5, batch_size=16, schedule=CosineSchedule(), noise=0.1, patience=None
)


class Curves:
    """Fits of 70 answers, four whole batches and a part of one, with validation."""

    def __init__(self, device, settings=SETTINGS, shape=SHAPE):
        rng = np.random.default_rng(0)
        known = make_comparisons(rng, pairs=70)
        unsure = np.where(rng.random(70) < 0.3, 0.8, known.preference)  # soft labels
        self.known = replace(known, preference=unsure)
        self.unseen = make_comparisons(rng, pairs=30)
        self.model = PreferenceTransformer(POINT_SPACE, PUSH_SPACE, shape, seed=0)
        self.trainer = RewardTrainer(self.model, settings, seed=0, device=device)

    def fit(self, **how):
        report = self.trainer.fit(self.known, self.unseen, **how)
        return np.array([report.train_loss, report.validation_loss])

    def weights(self):
        return torch.cat([part.detach().cpu().flatten() for part in self.model.parameters()])


def test_the_step_that_is_recorded_is_the_usual_one(monkeypatch):
    usual = Curves("cpu")
    expected = usual.fit()
    batches = []

    def not_recorded(update, _):
        def step(batch):
            batches.append(len(batch[0]))
            return update(batch)

        return step

    monkeypatch.setattr("preferl.training.reward_trainer.RecordedUpdate", not_recorded)
    monkeypatch.setattr(RewardTrainer, "_is_recordable", lambda *_: True)
    twin = Curves("cpu")
    np.testing.assert_array_equal(twin.fit(), expected)
    assert torch.equal(twin.weights(), usual.weights())
    assert batches == 5 * [16, 16, 16, 16, 6]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_fits_that_are_replayed_are_those_that_are_not(precision):
    settings = replace(SETTINGS, precision=precision)
    replayed = Curves("cuda", settings)
    curves = replayed.fit()
    usual = Curves("cuda", settings)
    usual.model.recordable = False
    np.testing.assert_allclose(curves, usual.fit(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(replayed.weights(), usual.weights(), rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
def test_a_replayed_fit_resumes_and_stops_early(tmp_path):
    settings = replace(SETTINGS, epochs=40, patience=3, learning_rate=1e-2)
    whole = Curves("cuda", settings)
    curves = whole.fit()
    assert curves.shape[1] < 40
    checkpoints = FitCheckpoints(tmp_path / "fit", seconds=0)

    def stop(epoch, _):
        if epoch == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Curves("cuda", settings).fit(on_epoch=stop, checkpoints=checkpoints)
    resumed = Curves("cuda", settings)
    np.testing.assert_allclose(resumed.fit(checkpoints=checkpoints), curves, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(resumed.weights(), whole.weights(), rtol=1e-2, atol=1e-3)
