"""Goals of Meta-World's tasks: the seed decides them, their distribution is Meta-World's own."""

from contextlib import closing

import gymnasium
import numpy as np
import pytest

from preferl.configs import from_json
from preferl.envs.config import EnvConfig
from preferl.envs.factory import env_factory
from preferl.envs.meta_world import SeededGoals
from preferl.errors import ConfigError
from preferl.online import DatasetConfig
from preferl.presets import load_preset

TASKS = ("button-press-topdown", "handle-pull-side")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")  # of Meta-World's spaces


@pytest.fixture(params=TASKS)
def make(request):
    pytest.importorskip("metaworld", reason="metaworld is not installed")
    return env_factory(from_json(DatasetConfig, load_preset(request.param, "data")))


def played(env, steps, seed):
    """`[T, 40]` observations and rewards of actions at random."""
    actions = np.random.default_rng(seed).uniform(-1, 1, (steps, 4)).astype(np.float32)
    found = [env.step(action)[:2] for action in actions]
    return np.array([[*seen, reward] for seen, reward in found])


def test_a_seed_decides_this_episode_and_those_after_it(make):
    with closing(make()) as one, closing(make()) as other:
        other.reset(seed=9)  # an older copy, its objects somewhere else
        played(other, 500, 1)
        first = one.reset(seed=5)[0]
        np.testing.assert_array_equal(first, other.reset(seed=5)[0])
        np.testing.assert_array_equal(played(one, 200, 2), played(other, 200, 2))
        second = one.reset()[0]
        np.testing.assert_array_equal(second, other.reset()[0])
        assert not np.array_equal(first, second)
        assert not np.array_equal(first, one.reset(seed=6)[0])


def test_goals_are_drawn_as_the_simulator_draws_its_own(make):
    with closing(make()) as env:
        seen = np.array([env.reset(seed=seed)[0] for seed in range(60)])
        assert all(map(env.observation_space.contains, seen))
        box = env.unwrapped._random_reset_space
        drawn = np.array([env.reset()[0] for _ in range(40)])
        spread = np.ptp(np.vstack([seen, drawn])[:, 4:6], axis=0)  # of what is to be moved
        assert np.all(spread > 0.8 * (box.high - box.low)[:2])
        assert np.all(spread <= (box.high - box.low)[:2])
        assert len(np.unique(drawn[:, 4:6], axis=0)) == 40


def test_a_goal_comes_to_the_same_episode_as_a_task_of_meta_world(make):
    with closing(make()) as env:
        first = env.reset(seed=3)[0]
        goal = env.unwrapped._last_rand_vec
        steps = played(env, 100, 4)
        env.unwrapped._freeze_rand_vec = True
        env.unwrapped._last_rand_vec = goal
        np.testing.assert_array_equal(first, env.reset()[0])
        np.testing.assert_array_equal(steps, played(env, 100, 4))


def test_a_copy_leaves_the_global_generator_as_it_was(make):
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    make().close()
    assert np.random.random() == expected  # noqa: NPY002


def test_rewards_follow_the_fingers_after_a_checkpoint_was_restored(make):
    with closing(make()) as one, closing(make()) as other:
        one.reset(seed=5), other.reset(seed=5)
        for side in ("left", "right"):  # what restoring attributes leaves
            name = f"init_{side}_pad"
            setattr(other.unwrapped, name, getattr(other.unwrapped, name).copy())
        np.testing.assert_array_equal(played(one, 100, 2), played(other, 100, 2))


def test_recorded_observations_are_in_the_range_of_these(shared):
    pytest.importorskip("metaworld", reason="metaworld is not installed")
    settings = from_json(DatasetConfig, load_preset("button-press-topdown", "data"))
    with np.load(shared / "data/metaworld-button-press-topdown/sac_seed0.npz") as arrays:
        recorded = arrays["observations"][::500]
    with closing(env_factory(settings)()) as env:
        seen = np.array([env.reset(seed=seed)[0] for seed in range(200)])
    for bound in (np.min, np.max):
        np.testing.assert_allclose(bound(seen, axis=0), bound(recorded, axis=0), atol=0.01)


def test_other_environments_are_refused():
    wrapped = EnvConfig("Pendulum-v1", wrappers=("preferl.envs.meta_world:SeededGoals",))
    with pytest.raises(ConfigError, match="expected the environment Meta-World/MT1"):
        env_factory(wrapped)()
    assert issubclass(SeededGoals, gymnasium.Wrapper)
