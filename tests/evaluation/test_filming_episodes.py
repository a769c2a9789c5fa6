"""One episode of a policy: recorded and drawn alike."""

import gymnasium

from preferl.evaluation.filming import show
from preferl.offline import BehaviourCloning


def fresh(env_id):
    """A policy that has learned nothing."""
    env = gymnasium.make(env_id)
    learner = BehaviourCloning(env.observation_space, env.action_space, seeds=[0], steps=1)
    return learner.policies()[0]


def test_what_cannot_be_drawn_is_left_out(monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("no display")

    monkeypatch.setattr("preferl.evaluation.filming.film", fail)
    shown = show(fresh("Pendulum-v1"), "Pendulum-v1", seed=3, max_steps=2)
    assert shown.frames is None
    assert "no display" in caplog.text
