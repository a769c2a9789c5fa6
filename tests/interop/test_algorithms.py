"""Algorithms of sb3-contrib and sbx learn from the learned reward in `FeedbackVecEnv`."""

import numpy as np
import pytest

from preferl.online import FeedbackCallback, FeedbackVecEnv, make_environments
from preferl.online.wrappers.replay import relabel_replay, replay_of

pytestmark = pytest.mark.filterwarnings("default")  # theirs are not errors

ON_POLICY = [("sb3_contrib", "TRPO"), ("sb3_contrib", "RecurrentPPO"), ("sbx", "PPO")]
OFF_POLICY = [("sb3_contrib", "TQC"), ("sb3_contrib", "CrossQ"), ("sbx", "SAC"), ("sbx", "TQC")]


def imported(module, name):
    return getattr(pytest.importorskip(module, reason="`make interop` installs it"), name)


@pytest.fixture
def envs(pendulum):
    env = FeedbackVecEnv(
        make_environments("Pendulum-v1", 4, seed=0),
        pendulum.feedback,
        pendulum.rewards,
        segment_length=20,
    )
    yield env
    env.close()


@pytest.mark.parametrize(("module", "name"), ON_POLICY)
def test_on_policy(pendulum, envs, module, name):
    policy = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
    agent = imported(module, name)(policy, envs, n_steps=64, batch_size=64, seed=0)
    agent.learn(512, callback=FeedbackCallback())
    assert envs.reward_source == "learned"
    assert envs.reward_version == 7
    assert envs.save()
    assert pendulum.feedback.pending > 0
    buffer = agent.rollout_buffer
    seen = [np.asarray(part).reshape(256, 1, -1) for part in (buffer.observations, buffer.actions)]
    acted = seen[1].clip(envs.action_space.low, envs.action_space.high)
    learned = pendulum.reward(seen[0], acted, np.ones((256, 1), bool))
    # Sorted, since buffers put steps into another order than rewards while an agent learns.
    np.testing.assert_allclose(np.sort(buffer.rewards.ravel()), np.sort(learned), atol=1e-4)


@pytest.mark.parametrize(("module", "name"), OFF_POLICY)
def test_off_policy(pendulum, envs, module, name):
    agent = imported(module, name)("MlpPolicy", envs, learning_starts=100, seed=0)
    agent.learn(400, callback=FeedbackCallback())
    assert envs.reward_source == "learned"
    assert envs.save()
    assert pendulum.feedback.pending > 0
    buffer = replay_of(agent)
    given = buffer.rewards[: buffer.pos].copy()
    assert given.std() > 0
    relabel_replay(buffer, pendulum.reward)
    np.testing.assert_allclose(given, buffer.rewards[: buffer.pos], atol=1e-5)
