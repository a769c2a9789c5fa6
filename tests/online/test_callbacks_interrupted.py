"""Ctrl-C saves a run at the next moment that can be resumed exactly; a second one does not wait."""

import os
import signal

import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from helpers.resumable_runs import (
    Kill,
    KilledError,
    assert_same,
    built,
    everything,
    learn,
    make,
    reward_for,
)
from preferl.errors import StorageError
from preferl.online import FeedbackCallback, SaveRunCallback, callbacks, resume_run

TOTAL = 192


class Interrupts(BaseCallback):
    """Presses Ctrl-C after so many steps of the environments."""

    def __init__(self, *at):
        super().__init__()
        self.at = list(at)

    def _on_step(self):
        while self.at and self.model.num_timesteps >= self.at[0]:
            self.at.pop(0)
            os.kill(os.getpid(), signal.SIGINT)
        return True


@pytest.fixture(autouse=True)
def ctrl_c():
    """As Python has it, and again afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def fresh(algorithm="PPO", env_id="Pendulum-v1"):
    return built(algorithm, env_id, reward_for(env_id))[0]


def interrupted(agent, folder, *at, total=TOTAL, every=10**6, more=()):
    """Learn with Ctrl-C pressed after these steps; the messages."""
    lines = []
    saving = SaveRunCallback(folder, every=every, say=lines.append)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(
            total - agent.num_timesteps,
            callback=[FeedbackCallback(wait=True), saving, Interrupts(*at), *more],
            reset_num_timesteps=False,
        )
    return lines


@pytest.mark.parametrize(("algorithm", "saved"), [("PPO", 128), ("SAC", 70)])
def test_the_first_one_saves_what_goes_on_as_if_nothing_had_been(tmp_path, algorithm, saved):
    unbroken = fresh(algorithm)
    learn(unbroken, TOTAL, None)
    wanted = everything(unbroken)  # the next draws of all generators, too
    agent = fresh(algorithm)
    lines = interrupted(agent, tmp_path / "run", 70)
    assert agent.num_timesteps == saved
    assert "Ctrl-C again stops at once; 70 steps are then repeated." in lines[0]
    assert lines[1:] == [f"Saved after {saved} steps."]
    again = fresh(algorithm)
    assert resume_run(tmp_path / "run", again).steps == saved
    learn(again, TOTAL, tmp_path / "run", every=10**6)
    assert_same(everything(again), wanted)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_stops_at_once(tmp_path):
    agent = fresh()
    lines = interrupted(agent, tmp_path / "run", 140, 150, every=64)
    assert agent.num_timesteps == 150
    assert len(lines) == 1
    assert "12 steps since the last checkpoint are then repeated" in lines[0]
    again = fresh()
    assert resume_run(tmp_path / "run", again).steps == 128
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name[0] == "."] == []


def test_what_cannot_be_saved_is_reported(tmp_path, monkeypatch):
    def full(*_args):
        raise StorageError("no space left")

    monkeypatch.setattr(callbacks, "save_run", full)
    lines = interrupted(fresh(), tmp_path / "run", 40)
    assert lines[1:] == ["Not saved; 64 steps are repeated."]


def test_ctrl_c_is_as_ever_after_a_run_that_failed(tmp_path):
    agent = fresh()
    with pytest.raises(KilledError):
        agent.learn(TOTAL, callback=[SaveRunCallback(tmp_path / "run"), Kill(40)])
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    other = fresh()
    with pytest.raises(KilledError):
        other.learn(TOTAL, callback=[SaveRunCallback(tmp_path / "run"), Kill(40)])
    assert interrupted(fresh(), tmp_path / "run", 40)[1:] == ["Saved after 64 steps."]


def test_a_scripts_own_handling_stays(tmp_path):
    received = []
    signal.signal(signal.SIGINT, lambda *_: received.append("Ctrl-C"))
    agent = fresh()
    saving = SaveRunCallback(tmp_path / "run")
    agent.learn(64, callback=[FeedbackCallback(wait=True), saving, Interrupts(20)])
    assert received == ["Ctrl-C"]
    assert agent.num_timesteps == 64


def test_environments_that_end_by_it_themselves_are_not_waited_for(tmp_path, monkeypatch):
    venv = make_vec_env(lambda: make("CartPole-v1"), 2, seed=5)
    monkeypatch.setattr(callbacks, "SubprocVecEnv", type(venv))
    agent = built("PPO", "CartPole-v1", reward_for("CartPole-v1"))[0]
    assert interrupted(agent, tmp_path / "run", 20) == []
    assert agent.num_timesteps == 20
