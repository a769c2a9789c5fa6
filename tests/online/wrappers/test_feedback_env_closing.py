"""Closing wrapped environments ends what they started, and only that, whatever else goes wrong."""

import threading

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from helpers.waiting import wait_until
from preferl.errors import DataError, SpaceError, StorageError
from preferl.models import MLPRewardConfig, build_reward_model
from preferl.online import FeedbackVecEnv, FeedbackVectorEnv, HumanPreferencesEnvWrapper
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store
from preferl.testing import PointWorld
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction
from preferl.training.publish import PublishedReward, publish

KINDS = ["sb3", "vector", "single"]


class Place(PointWorld):
    """Knows whether it was closed."""

    closed = False

    def close(self):
        self.closed = True


def wrapped(kind, env, **more):
    if kind == "sb3":
        return FeedbackVecEnv(DummyVecEnv([lambda: env]), **more)
    if kind == "vector":
        several = SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.SAME_STEP)
        return FeedbackVectorEnv(several, **more)
    return HumanPreferencesEnvWrapper(env, **more)


def publish_in(folder, place=POINT_SPACE, seed=0):
    model = build_reward_model(MLPRewardConfig(hidden=(8,)), place, PUSH_SPACE, seed=seed)
    publish(folder, RewardFunction(model))


BEFORE = []


@pytest.fixture(autouse=True)
def threads_of_other_tests():
    BEFORE[:] = threading.enumerate()


def begun(name="published-reward"):
    """Threads of this name that the test has begun and that have not ended."""
    return [one for one in threading.enumerate() if one.name == name and one not in BEFORE]


@pytest.fixture
def feedback(tmp_path, empty_store):
    with Store.open(tmp_path / "store") as store:
        store.projects.create("places")
        yield StoredFeedback(store)


def test_who_was_given_a_reader_that_is_watched_leaves_it_so(tmp_path):
    publish_in(tmp_path)
    with PublishedReward(tmp_path).watch(0.01) as reader:
        train, other = (wrapped("sb3", Place(), rewards=reader) for _ in range(2))
        other.close()
        publish_in(tmp_path, seed=1)
        wait_until(lambda: reader.next is not None and reader.next.number == 2)
        assert train.refresh()
        assert train.reward_version == 2
        train.close()
        assert reader.watched
    assert begun() == []


def test_the_one_that_watches_a_reader_stops_it(tmp_path):
    reader = PublishedReward(tmp_path)
    first, second = (wrapped("sb3", Place(), rewards=reader) for _ in range(2))
    second.close()
    assert reader.watched
    first.close()
    assert not reader.watched
    assert begun() == []


@pytest.mark.parametrize("kind", KINDS)
def test_experience_that_cannot_be_saved_stops_no_closing(kind, feedback, tmp_path):
    env = Place()
    asking = wrapped(kind, env, feedback=feedback, rewards=tmp_path / "rewards")
    asking.reset()
    asking.core.recording.present[:] = np.nan
    for _ in range(2):
        asking.step(np.zeros(2 if kind == "single" else (1, 2), np.float32))
    with pytest.raises(DataError):
        asking.close()
    assert env.closed
    assert begun() == []
    assert begun("query-worker") == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_leaves_no_reader(kind, feedback, tmp_path):
    folder = tmp_path / "rewards"
    publish_in(folder, spaces.Box(-9, 9, (7,)))
    with pytest.raises(SpaceError):
        wrapped(kind, Place(), feedback=feedback, rewards=folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):  # no word of its spaces can be left there
        wrapped(kind, Place(), feedback=feedback, rewards=tmp_path / "file")
    assert begun() == []
