"""A training that is put down and taken up again."""

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

from preferl.errors import CheckpointError
from preferl.online import EpisodeRecorder, SACConfig, build_algorithm, make_environments
from preferl.online.expert_state import read_training, refill, restore_training, save_training

TINY = SACConfig(hidden=(8,), batch_size=8, learning_starts=20, buffer_size=1_000, train_freq=10)


def build(seed: int = 0, environments: int = 1, **changes):
    recorder = EpisodeRecorder(make_environments("Pendulum-v1", environments, seed=seed))
    config = TINY if not changes else SACConfig(**{**vars(TINY), **changes})
    algorithm = build_algorithm(config, recorder, seed=seed)
    algorithm.set_logger(Logger(folder=None, output_formats=[]))
    return algorithm, recorder


@pytest.fixture(scope="module")
def trained():
    algorithm, recorder = build()
    algorithm.learn(450)
    return algorithm, recorder.take(unfinished="cut")


def test_the_buffer_is_filled_as_training_filled_it(trained):
    algorithm, lived = trained
    other, _ = build(seed=1)
    refill(other, lived)
    made, refilled = algorithm.replay_buffer, other.replay_buffer
    assert refilled.size() == made.size() == refilled.pos == 450
    for name in ("observations", "next_observations", "actions", "rewards"):
        np.testing.assert_allclose(
            getattr(refilled, name)[:450], getattr(made, name)[:450], atol=1e-6, err_msg=name
        )
    ends = [199, 399]
    assert np.flatnonzero(made.dones[:450]).tolist() == ends
    # the last, cut here, is taken for a time limit, across which values are bootstrapped
    assert np.flatnonzero(refilled.dones[:450]).tolist() == [*ends, 449]
    assert np.flatnonzero(refilled.timeouts[:450]).tolist() == [*ends, 449]


def test_of_too_much_experience_the_latest_is_kept(trained):
    _, lived = trained
    small, _ = build(buffer_size=100)
    refill(small, lived)
    buffer = small.replay_buffer
    assert (buffer.full, buffer.pos, buffer.size()) == (True, 0, 100)
    np.testing.assert_array_equal(buffer.rewards[:, 0], lived.rewards[-100:])


def test_several_environments_share_what_was_lived_through(trained):
    _, lived = trained
    wide, _ = build(environments=4)
    refill(wide, lived)
    assert wide.replay_buffer.pos == 450 // 4
    found = wide.replay_buffer.rewards[:112].reshape(-1)
    np.testing.assert_array_equal(found, lived.rewards[2:])


def test_learning_goes_on_with_the_same_numbers(trained, tmp_path):
    algorithm, lived = trained
    save_training(tmp_path / "training", algorithm)
    other, _ = build(seed=1)
    state = read_training(tmp_path / "training")
    restore_training(other, state)
    refill(other, lived)
    assert other.num_timesteps == 450
    for one in (algorithm, other):
        one.replay_buffer.dones[449] = one.replay_buffer.timeouts[449] = 0
        np.random.seed(0)  # noqa: NPY002  # stable-baselines3 draws batches from numpy's own
        torch.manual_seed(0)
        one.train(gradient_steps=3, batch_size=8)
    for name, values in algorithm.policy.state_dict().items():
        torch.testing.assert_close(other.policy.state_dict()[name], values, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(other.log_ent_coef, algorithm.log_ent_coef)


def test_damaged_and_foreign_states_are_named(trained, tmp_path):
    algorithm, _ = trained
    save_training(tmp_path / "training", algorithm)
    file = next((tmp_path / "training").glob("*.safetensors"))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="train from the beginning"):
        read_training(tmp_path / "training")
    save_training(tmp_path / "training", algorithm)
    wider, _ = build(hidden=(16,))
    with pytest.raises(CheckpointError, match="of the same networks"):
        restore_training(wider, read_training(tmp_path / "training"))
