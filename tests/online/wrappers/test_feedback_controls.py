"""What all wrappers share: which reward steps get, what infos hold, pauses and snapshots."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from stable_baselines3.common.env_util import make_vec_env

from preferl.errors import ConfigError, DataError
from preferl.online.wrappers.feedback_controls import hide_return, stack_states, with_rows
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.gymnasium_envs import FeedbackVectorEnv, HumanPreferencesEnvWrapper


def pendulum(**more: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1", max_episode_steps=20, **more)


def test_before_the_first_reward_the_agent_is_not_given_the_answer() -> None:
    env = FeedbackVecEnv(make_vec_env(pendulum, 1, seed=0))
    env.reset()
    assert env.step(np.zeros((1, 1)))[1].tolist() == [0.0]
    env.switch_to_true_reward()
    _, rewards, _, infos = env.step(np.zeros((1, 1)))
    assert rewards[0] == pytest.approx(infos[0]["true_reward"])
    env.switch_to_learned_reward()
    assert env.reward_source == "before"


def test_a_wrapper_that_asks_nothing_has_nothing_to_save() -> None:
    env = FeedbackVecEnv(make_vec_env(pendulum, 1, seed=0))
    env.reset()
    assert (env.queries, env.counts, env.learned_reward, env.reward_version) == (None,) * 3 + (0,)
    assert env.save(0.0)
    assert not env.refresh(wait=True)
    env.pause_collecting()
    env.resume_collecting()
    assert env.snapshot()["queries"] is None


def test_a_snapshot_restores_what_steps_get() -> None:
    first, second = (FeedbackVecEnv(make_vec_env(pendulum, 1, seed=0)) for _ in range(2))
    first.reset()
    first.switch_to_true_reward()
    second.restore(first.snapshot())
    assert (first.reward_source, second.reward_source) == ("environment", "environment")


def test_the_return_of_a_monitor_is_replaced_in_a_copy() -> None:
    episode = {"r": -5.0, "l": 20}
    info = {"episode": episode}
    hide_return(info, 1.5)
    assert info == {"episode": {"r": 1.5, "l": 20}}
    assert episode["r"] == -5.0
    for other in ({}, {"episode": 7}, {"episode": {"l": 3}}):
        before = dict(other)
        hide_return(other, 1.5)
        assert other == before


def test_states_are_stacked_or_missed_by_name() -> None:
    infos = [{"state": np.array([1.0, 2.0])}, {"state": np.array([3.0, 4.0])}]
    assert stack_states(infos).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(DataError, match=r"key state.*got keys \['state'\].*RecordsStates"):
        stack_states([infos[0], {}])


def test_rows_are_replaced_in_a_copy() -> None:
    seen = np.zeros((3, 2))
    rows = np.array([2, 0])
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert with_rows(seen, rows, values).tolist() == [[3, 4], [0, 0], [1, 2]]
    parts = with_rows({"a": seen, "b": np.zeros(3)}, rows, {"a": values, "b": np.ones(2)})
    assert parts["a"].tolist() == [[3, 4], [0, 0], [1, 2]]
    assert parts["b"].tolist() == [1, 0, 1]
    assert not seen.any()


KINDS = {
    "FeedbackVecEnv": (FeedbackVecEnv, lambda: make_vec_env(pendulum, 2)),
    "FeedbackVectorEnv": (FeedbackVectorEnv, lambda: SyncVectorEnv([pendulum] * 2)),
    "HumanPreferencesEnvWrapper": (HumanPreferencesEnvWrapper, pendulum),
}


@pytest.mark.parametrize("given", KINDS)
@pytest.mark.parametrize("name", KINDS)
def test_each_wrapper_names_the_one_for_other_environments(name: str, given: str) -> None:
    wrapper = KINDS[name][0]
    make = KINDS[given][1]
    if name == given:
        wrapper(make()).close()
        return
    with pytest.raises(ConfigError, match=rf"environment of {name}: expected .*in {given}\."):
        wrapper(make())


@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_environment_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="something else, a str"):
        KINDS[name][0]("Pendulum-v1")
