"""SAC's updates, as stable-baselines3 makes them, and as a GPU replays them."""

import numpy as np
import pytest
import stable_baselines3
import torch
from stable_baselines3.common.logger import Logger

from preferl.online.algorithms import build_algorithm, make_environments
from preferl.online.configs import SACConfig
from preferl.online.methods.pretraining import reset_critic
from preferl.online.methods.sac import SAC
from preferl.testing.worlds import PointWorld

CONFIG = SACConfig(buffer_size=1_000, hidden=(16, 16), batch_size=32, learning_rate="lin_0.001")


def agent(device="cpu", config=CONFIG):
    env = make_environments(PointWorld, 2, seed=0)
    made = build_algorithm(config, env, seed=0, device=device)
    made._logger = Logger(folder=None, output_formats=[])
    rng = np.random.default_rng(0)
    buffer = made.replay_buffer
    for column in (buffer.observations, buffer.next_observations, buffer.rewards):
        column[:] = rng.normal(size=column.shape)
    buffer.actions[:] = rng.uniform(-1, 1, buffer.actions.shape)
    buffer.dones[:] = rng.random(buffer.dones.shape) < 0.1
    buffer.full = True
    np.random.seed(0)  # noqa: NPY002  # stable-baselines3 draws minibatches from it
    torch.manual_seed(0)
    return made


def weights(made):
    parts = [*made.policy.state_dict().values()]
    if made.log_ent_coef is not None:
        parts.append(made.log_ent_coef)
    return torch.cat([part.detach().cpu().flatten() for part in parts])


def recorded_metrics(made):
    return dict(made.logger.name_to_value)


@pytest.mark.parametrize("temperature", ["auto", 0.1])
@pytest.mark.parametrize("steps", [1, 3])
def test_updates_are_those_of_stable_baselines3(temperature, steps):
    config = SACConfig(
        buffer_size=1_000, hidden=(16, 16), batch_size=32, ent_coef=temperature, n_steps=steps
    )
    ours = agent(config=config)
    theirs = agent(config=config)
    for _ in range(20):
        ours.update(ours.replay_buffer.sample(32))
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  # as above
    stable_baselines3.SAC.train(theirs, 20, 32)
    assert torch.equal(weights(ours), weights(theirs))


def test_what_a_gpu_does_is_the_same_without_recording(monkeypatch):
    theirs = agent()
    theirs._current_progress_remaining = 0.5
    stable_baselines3.SAC.train(theirs, 10, 32)
    monkeypatch.setattr("preferl.online.methods.sac.RecordedUpdate", lambda update, _: update)
    monkeypatch.setattr(SAC, "_is_recordable", lambda _: True)
    ours = agent()
    ours._current_progress_remaining = 0.5
    ours.train(10, 32)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-5, atol=1e-6)
    assert recorded_metrics(ours) == pytest.approx(recorded_metrics(theirs), rel=1e-5)
    assert recorded_metrics(ours)["train/learning_rate"] == 0.0005


@pytest.mark.gpu
def test_replayed_updates_are_those_of_stable_baselines3():
    ours = agent("cuda")
    theirs = agent("cuda")
    for made, train in ((ours, SAC.train), (theirs, stable_baselines3.SAC.train)):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  # as above
        for share in np.linspace(1, 0.1, 25):
            made._current_progress_remaining = share
            train(made, 2, 32)
    assert ours._recorded is not None
    assert recorded_metrics(ours) == pytest.approx(recorded_metrics(theirs), rel=1e-3)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_a_critic_that_was_reset_and_an_agent_that_was_restored_learn_on(tmp_path):
    ours = agent("cuda")
    theirs = agent("cuda")
    for made, train in ((ours, SAC.train), (theirs, stable_baselines3.SAC.train)):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  # as above
        train(made, 10, 32)
        reset_critic(made, updates=0)
        train(made, 10, 32)
        made.set_parameters(made.get_parameters(), device="cuda")
        train(made, 10, 32)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-3, atol=1e-4)
    reset_critic(ours, updates=5)
    ours.train(10, 32)
    assert weights(ours).isfinite().all()
    ours.save(tmp_path / "agent")
    assert torch.equal(weights(SAC.load(tmp_path / "agent", device="cpu")), weights(ours))
