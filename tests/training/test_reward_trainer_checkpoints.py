"""A fit that was stopped goes on to the same numbers, to the last bit."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.killable_fit import CONFIGS, fit, main, parts
from helpers.programs import status_of
from preferl.errors import CheckpointError, ConfigError
from preferl.models import MLPReward, MLPRewardConfig
from preferl.runs.versioned import is_left, names_in, versions
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import FitCheckpoints, RewardTrainer, load_reward, save_reward
from preferl.training.reward_function import RewardFunction

KINDS = list(CONFIGS)


class StoppedError(Exception):
    """What stands for a killed program."""


def stopped(kind, folder, epoch):
    """A fit that is kept after each epoch, and ends within one."""

    def end(number, metrics):
        if number == epoch:
            raise StoppedError

    model, train, validation = parts(kind)
    trainer = RewardTrainer(model, CONFIGS[kind], seed=3)
    with pytest.raises(StoppedError):
        trainer.fit(train, validation, on_epoch=end, checkpoints=FitCheckpoints(folder, seconds=0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_that_was_stopped_comes_to_the_same(tmp_path, kind):
    expected, expected_report = fit(kind)
    for epoch in (1, 5, 6):
        stopped(kind, tmp_path / "it", epoch)
    model, report = fit(kind, FitCheckpoints(tmp_path / "it", seconds=0))
    for name, tensor in expected.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name
    np.testing.assert_array_equal(report.train_loss, expected_report.train_loss)
    np.testing.assert_array_equal(report.validation_loss, expected_report.validation_loss)
    assert (report.best_epoch, report.penalty) == (
        expected_report.best_epoch,
        expected_report.penalty,
    )
    assert report.likelihood == expected_report.likelihood


def test_a_finished_fit_makes_no_epoch_again(tmp_path):
    checkpoints = FitCheckpoints(tmp_path / "it", seconds=0)
    expected, expected_report = fit("ensemble", checkpoints)
    seen = []
    model, train, _ = parts("ensemble")
    report = RewardTrainer(model, CONFIGS["ensemble"], seed=3).fit(
        train, on_epoch=lambda *epoch: seen.append(epoch), checkpoints=checkpoints
    )
    assert not seen
    assert report.likelihood == expected_report.likelihood
    assert torch.equal(next(model.parameters()), next(expected.parameters()))
    checkpoints.remove()
    assert not (tmp_path / "it").exists()


def test_checkpoints_are_as_far_apart_as_was_asked(tmp_path):
    fit("ensemble", FitCheckpoints(tmp_path / "never", seconds=3600))
    assert versions(tmp_path / "never") == []
    with pytest.raises(ConfigError, match="seconds"):
        FitCheckpoints(tmp_path, seconds=-1)


@pytest.mark.parametrize("change", ["answers", "clips", "noise", "epochs", "seed", "model"])
def test_a_checkpoint_of_another_fit_is_refused(tmp_path, change):
    stopped("ensemble", tmp_path / "it", 4)
    model, train, _ = parts("ensemble")
    config = CONFIGS["ensemble"]
    if change == "answers":
        train = replace(train, preference=1 - train.preference)
    elif change == "clips":
        observations = np.array(train.segments.observations)
        observations[train.segments.start[train.pairs[0, 0]] + 1] += 1
        train = replace(train, segments=replace(train.segments, observations=observations))
    elif change == "noise":
        config = replace(config, noise=0.2)
    elif change == "model":
        model = MLPReward(POINT_SPACE, PUSH_SPACE, MLPRewardConfig((5,), members=3), seed=0)
    before = next(model.parameters()).detach().clone()
    trainer = RewardTrainer(model, config, seed=4 if change == "seed" else 3)
    what = {"answers": "answers", "clips": "answers", "model": "model"}.get(change, "fit")
    with pytest.raises(CheckpointError, match=f"{what} of"):
        trainer.fit(
            train,
            epochs=50 if change == "epochs" else None,
            checkpoints=FitCheckpoints(tmp_path / "it"),
        )
    assert torch.equal(next(model.parameters()), before)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    stopped("ensemble", tmp_path / "it", 4)
    (newest,) = (tmp_path / "it").glob("0*/tensors.safetensors")
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="whole checkpoint"):
        fit("ensemble", FitCheckpoints(tmp_path / "it"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_that_was_killed_comes_to_the_same(tmp_path, kind):
    """Killed six times, each after it has got further: between epochs, and while it saves."""
    model, report = fit(kind)
    save_reward(tmp_path / "expected", RewardFunction(model, likelihood=report.likelihood))
    kept = tmp_path / "checkpoints"
    reached = [0]
    drafts = []
    for touch in (0, 7, 17, 42, 44, 49):  # the checkpoint is in its place from the 43rd on
        assert status_of(main, tmp_path, kind, 2, touch) == -signal.SIGKILL, "it ended by itself"
        reached.append(max(versions(kept)))
        drafts.append(any(map(is_left, names_in(kept))))
    assert reached == sorted(set(reached)), "each one went on from the last"
    assert drafts == [False, True, True, True, True, True]
    assert status_of(main, tmp_path, kind) == 0
    expected, found = (
        load_file(tmp_path / one / "model.safetensors") for one in ("expected", "reward")
    )
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert load_reward(tmp_path / "reward").likelihood == report.likelihood
