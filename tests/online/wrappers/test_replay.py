from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from helpers.curious_reward import Curious
from preferl.data.windows import History
from preferl.errors import ConfigError, SpaceError
from preferl.online.wrappers.replay import relabel_replay
from preferl.shapes import map_observations, take

FLAT = spaces.Box(-9, 9, (3,), np.float32)
DICT = spaces.Dict({"at": spaces.Box(-9, 9, (2,), np.float32), "room": spaces.Discrete(7)})
PICTURE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
MOVE = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
PRESS = spaces.Discrete(4)


def random_steps(space, action, steps, environments):
    """Steps of random episodes: observations, actions, dones, one vector step after another."""
    rng = np.random.default_rng(7)
    space.seed(1)
    action.seed(2)

    def batch(of):
        values = [of.sample() for _ in range(environments)]
        return map_observations(lambda *arrays: np.stack(arrays), *values)

    return [(batch(space), batch(action), rng.random(environments) < 0.3) for _ in range(steps)]


def fill(buffer, steps, stored=lambda o: o):
    for observations, actions, dones in steps:
        if isinstance(buffer.action_space, spaces.Box):  # as SB3 scales them
            low = buffer.action_space.low
            high = buffer.action_space.high
            actions = 2.0 * (actions - low) / (high - low) - 1.0
        shown = stored(observations)
        copy = dict(shown) if isinstance(shown, dict) else shown
        buffer.add(copy, copy, actions, np.full(len(dones), 99.0), dones, [{}] * len(dones))


def by_hand(steps, reward, capacity):
    """`[t, V]` rewards of what a buffer still holds, oldest first, one step at a time."""
    held = steps[-capacity:]
    environments = len(held[0][2])
    rewards = np.zeros((len(held), environments))
    for v in range(environments):
        history = History(reward.context, 1)
        for t, (observations, actions, dones) in enumerate(held):
            windows = history.append(take(observations, [v]), actions[[v]])
            rewards[t, v] = reward(*windows)[0]
            if dones[v]:
                history.forget()
    return rewards


@pytest.mark.parametrize("context", [1, 3])
@pytest.mark.parametrize(("steps", "environments"), [(5, 2), (10, 1), (17, 2)])
@pytest.mark.parametrize(("space", "action"), [(FLAT, MOVE), (DICT, PRESS)])
def test_equals_a_loop_over_steps(
    context,
    steps,
    environments,
    space,
    action,
):
    kind = DictReplayBuffer if isinstance(space, spaces.Dict) else ReplayBuffer
    buffer = kind(10 * environments, space, action, "cpu", environments)
    happened = random_steps(space, action, steps, environments)
    fill(buffer, happened)
    reward = Curious(space, action, context)
    relabel_replay(buffer, reward, chunk=4)
    assert reward.rows == 4
    got = np.roll(buffer.rewards, -buffer.pos if buffer.full else 0, axis=0)[: buffer.size()]
    # Scaling an action to [-1, 1] and back rounds in single precision.
    np.testing.assert_allclose(got, by_hand(happened, reward, 10), rtol=0, atol=1e-4)
    assert (buffer.rewards[buffer.size() :] == 0).all()


@pytest.mark.parametrize("in_dict", [False, True])
def test_images_are_given_back_as_the_environment_made_them(in_dict):
    held = spaces.Box(0, 255, (3, 6, 5), np.uint8)
    space = spaces.Dict({"eye": PICTURE}) if in_dict else PICTURE
    happened = random_steps(space, PRESS, 5, 2)
    kind = DictReplayBuffer if in_dict else ReplayBuffer
    buffer = kind(20, spaces.Dict({"eye": held}) if in_dict else held, PRESS, "cpu", 2)
    fill(buffer, happened, partial(map_observations, lambda array: np.moveaxis(array, -1, 1)))
    reward = Curious(space, PRESS, 3)
    relabel_replay(buffer, reward)
    np.testing.assert_allclose(buffer.rewards[:5], by_hand(happened, reward, 10), atol=1e-6)


def test_nothing_happens_to_an_empty_buffer():
    buffer = ReplayBuffer(4, FLAT, PRESS, "cpu")
    relabel_replay(buffer, Curious(FLAT, PRESS, 2))
    with pytest.raises(ConfigError, match="chunk"):
        relabel_replay(buffer, Curious(FLAT, PRESS, 1), chunk=0)


def test_buffers_that_keep_too_little_are_refused():
    frugal = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    with pytest.raises(ConfigError, match="optimize_memory_usage=False"):
        relabel_replay(ReplayBuffer(4, FLAT, PRESS, "cpu", **frugal), Curious(FLAT, PRESS))
    hindsight = HerReplayBuffer.__new__(HerReplayBuffer)
    hindsight.optimize_memory_usage = False
    with pytest.raises(ConfigError, match="DictReplayBuffer"):
        relabel_replay(hindsight, Curious(DICT, PRESS))


@pytest.mark.parametrize(
    ("observations", "actions", "what"),
    [(FLAT, MOVE, "actions"), (DICT, PRESS, "observations")],
)
def test_a_reward_for_other_spaces_is_refused(observations, actions, what):
    buffer = ReplayBuffer(4, FLAT, PRESS, "cpu")
    fill(buffer, random_steps(FLAT, PRESS, 3, 1))
    with pytest.raises(SpaceError, match=f"{what} in the replay buffer: expected"):
        relabel_replay(buffer, Curious(observations, actions, 1))
