"""One episode of a policy: recorded and drawn alike."""

import gymnasium
import numpy as np

from preferl.evaluation.filming import show
from preferl.offline import BehaviourCloning, OfflinePolicy


def fresh(env_id: str) -> OfflinePolicy:
    """A policy that has learned nothing."""
    env = gymnasium.make(env_id)
    learner = BehaviourCloning(env.observation_space, env.action_space, seeds=[0], steps=1)
    return learner.policies()[0]


def test_frames_are_those_of_the_recorded_steps():
    policy = fresh("Pendulum-v1")
    shown = show(policy, "Pendulum-v1", seed=3, max_steps=6)
    episode = shown.episode
    assert len(episode) == 1
    assert episode.steps == 6
    assert not episode.terminated.any()
    chosen, _ = policy.predict(episode.observations)
    np.testing.assert_allclose(episode.actions, chosen, rtol=1e-5)
    env = gymnasium.make("Pendulum-v1", render_mode="rgb_array")
    observation, _ = env.reset(seed=3)
    np.testing.assert_array_equal(episode.observations[0], observation)
    np.testing.assert_array_equal(shown.frames[0], env.render())
    for action in episode.actions:
        observation, *_ = env.step(action)
    np.testing.assert_array_equal(episode.final_observations[0], observation)
    assert shown.frames.shape[0] == 6
    assert shown.rate == 30


def test_what_cannot_be_drawn_is_left_out(monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("no display")

    monkeypatch.setattr("preferl.evaluation.filming.film", fail)
    shown = show(fresh("Pendulum-v1"), "Pendulum-v1", seed=3, max_steps=2)
    assert shown.frames is None
    assert "no display" in caplog.text
