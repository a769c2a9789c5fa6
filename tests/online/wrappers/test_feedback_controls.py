"""What all wrappers share: which reward steps get, what infos hold, pauses and snapshots."""

import pytest
from gymnasium.vector import SyncVectorEnv

from helpers.wrapped_pendulums import pendulum, pendulums
from preferl.errors import ConfigError
from preferl.online.wrappers.feedback_env import FeedbackVecEnv
from preferl.online.wrappers.gymnasium_envs import FeedbackVectorEnv, HumanPreferencesEnvWrapper


def test_a_wrapper_that_asks_nothing_has_nothing_to_save():
    env = FeedbackVecEnv(pendulums())
    env.reset()
    assert (env.queries, env.counts, env.learned_reward, env.reward_version) == (None,) * 3 + (0,)
    assert env.save(0.0)
    assert not env.refresh(wait=True)
    env.pause_collecting()
    env.resume_collecting()
    assert env.snapshot()["queries"] is None


def test_a_snapshot_restores_what_steps_get():
    first, second = (FeedbackVecEnv(pendulums()) for _ in range(2))
    first.reset()
    first.switch_to_true_reward()
    second.restore(first.snapshot())
    assert (first.reward_source, second.reward_source) == ("environment", "environment")


KINDS = {
    "FeedbackVecEnv": (FeedbackVecEnv, lambda: pendulums(2)),
    "FeedbackVectorEnv": (FeedbackVectorEnv, lambda: SyncVectorEnv([pendulum] * 2)),
    "HumanPreferencesEnvWrapper": (HumanPreferencesEnvWrapper, pendulum),
}


@pytest.mark.parametrize("given", KINDS)
@pytest.mark.parametrize("name", KINDS)
def test_each_wrapper_names_the_one_for_other_environments(name, given):
    wrapper = KINDS[name][0]
    make = KINDS[given][1]
    if name == given:
        wrapper(make()).close()
        return
    with pytest.raises(ConfigError, match=rf"environment of {name}: expected .*in {given}\."):
        wrapper(make())


@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_environment_is_refused(name):
    with pytest.raises(ConfigError, match="got a str"):
        KINDS[name][0]("Pendulum-v1")
