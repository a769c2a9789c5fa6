"""Environments of tasks, put right where they are off."""

import pickle

import gymnasium
import numpy as np
import pytest

from preferl.evaluation.rollout import CORRECTIONS, make_task_env, task_env


def test_ordinary_ids_are_gymnasium_s_own():
    env = make_task_env("Pendulum-v1", max_episode_steps=7)
    assert env.spec == gymnasium.make("Pendulum-v1", max_episode_steps=7).spec


def test_makers_can_be_sent_to_other_processes():
    env = pickle.loads(pickle.dumps(task_env("Pendulum-v1")))(max_episode_steps=3)
    assert env.spec.max_episode_steps == 3


@pytest.mark.parametrize("env_id", sorted(CORRECTIONS))
def test_only_the_reward_is_corrected(env_id):
    pytest.importorskip("gymnasium_robotics")
    corrected = make_task_env(env_id)
    plain = gymnasium.make(env_id)
    stage = plain.unwrapped
    corrected.reset(seed=3)
    plain.reset(seed=3)
    action = np.full(plain.action_space.shape, 0.3, np.float32)
    ours = corrected.step(action)
    theirs = plain.step(action)
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[2:4] == theirs[2:4]
    sites = stage.data.site_xpos
    bodies = stage.data.xpos
    door = env_id == "AdroitHandDoor-v1"
    palm = sites[stage.grasp_site_id if door else stage.S_grasp_site_id]
    thing = sites[stage.handle_site_id] if door else bodies[stage.obj_body_id]
    assert ours[1] == pytest.approx(float(theirs[1]) - 0.2 * np.linalg.norm(palm - thing))
