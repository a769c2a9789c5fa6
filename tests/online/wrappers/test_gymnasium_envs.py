"""A new project gets the settings to draw what people see, not what the agent sees."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from helpers.clock_world import Clock
from helpers.gardens import Garden
from preferl.errors import ConfigError, SpaceError
from preferl.online.wrappers.feedback_config import FeedbackConfig
from preferl.online.wrappers.gymnasium_envs import FeedbackVectorEnv, HumanPreferencesEnvWrapper
from preferl.store.store import Store

PICTURE = spaces.Box(0, 255, (16, 16, 3), np.uint8)
BODY = spaces.Box(0, 1, (3,), np.float32)


class Looks(gymnasium.Env[dict[str, Any], Any]):
    action_space = spaces.Discrete(2)

    def __init__(self, parts):
        self.observation_space = spaces.Dict(parts)


def frames(folder, parts, **more):
    HumanPreferencesEnvWrapper(Looks(parts), log_dir=folder, **more).close()
    with Store.open(folder) as store:
        return store.projects.get("drlhp").frames


def test_pictures_are_drawn_where_people_see_one(tmp_path):
    cameras = {"front": PICTURE, "hand": PICTURE}
    parts = {"picture": PICTURE, "body": BODY}
    front = {"obs_transform_func": lambda o: o["front"], "transformed_space": PICTURE}
    body = {"obs_transform_func": lambda o: o["body"], "transformed_space": BODY}
    assert frames(tmp_path / "front", cameras, **front) == {"kind": "pixels"}
    assert frames(tmp_path / "both", cameras) is None  # which of them is for people to say
    assert frames(tmp_path / "all", parts) == {"kind": "pixels"}
    assert frames(tmp_path / "body", parts, **body) is None


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # of the checker: bounds, and being a wrapper
@pytest.mark.parametrize("where", ["logs", None])
def test_the_wrapper_passes_gymnasiums_checker(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    env = HumanPreferencesEnvWrapper(
        gymnasium.make("CartPole-v1", render_mode="rgb_array"), log_dir=where, segment_length=5
    )
    check_env(env)
    env.close()
    assert [path.name for path in tmp_path.iterdir()] == ([where] if where else [])


def test_arguments_are_recorded_and_copies_made_from_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = HumanPreferencesEnvWrapper(
        gymnasium.make("CartPole-v1"), collect_prefs=False, segment_length=7, refresh_every=9
    )
    copy = gymnasium.make(env.spec)
    assert isinstance(copy, HumanPreferencesEnvWrapper)
    assert (copy.core.config.segment_length, copy.core.config.refresh_every) == (7, 9)
    env.close(), copy.close()
    assert not list(tmp_path.iterdir())


def test_a_script_without_a_folder_says_what_to_pass():
    with pytest.raises(ConfigError, match=r'log_dir: expected a folder.*log_dir="drlhp_logs"'):
        HumanPreferencesEnvWrapper(gymnasium.make("CartPole-v1"), synthetic_preferences=True)


def test_wrappers_warn_where_nothing_rewards_and_nobody_is_asked(tmp_path, caplog):
    def single(**more):
        caplog.clear()
        HumanPreferencesEnvWrapper(gymnasium.make("CartPole-v1"), **more).close()
        return caplog.text

    assert "asks nobody and has no learned reward" in single()
    assert "'entropy'" in single(before="entropy")
    assert f"no reward in {tmp_path / 'rewards'}" in single(log_dir=tmp_path, collect_prefs=False)
    assert single(log_dir=tmp_path) == ""
    assert single(rewards=lambda observations, actions: np.zeros(len(actions))) == ""
    caplog.clear()
    FeedbackVectorEnv(SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])).close()
    assert "FeedbackVectorEnv asks nobody" in caplog.text


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_recorded_episodes_are_taken_once_and_whole(mode):
    copies = SyncVectorEnv(
        [lambda: TimeLimit(Clock(), 3), lambda: TimeLimit(Clock(), 4)], autoreset_mode=mode
    )
    envs = FeedbackVectorEnv(copies, record=True)
    envs.reset(seed=0)
    episodes = []
    for _ in range(3):
        for _ in range(5):
            _, rewards, *_ = envs.step(envs.action_space.sample())
            assert rewards.tolist() == [0, 0]  # there is no learned one
        episodes += envs.take() or []
    idle = 0 if mode == AutoresetMode.SAME_STEP else 3 + 3  # steps that only begin an episode
    assert envs.steps == 2 * 15 - idle
    assert sorted(int(one.steps) for one in episodes) == [3] * (4 if idle else 5) + [4] * 3
    for one in episodes:
        assert one.observations[:, 1].tolist() == [*range(one.steps)]
        assert one.rewards.tolist() == [*range(1, one.steps + 1)]
        assert one.final_observations[0, 1] == one.steps
    assert envs.take() is None


def test_true_rewards_are_not_rounded():
    single = HumanPreferencesEnvWrapper(gymnasium.make("Pendulum-v1"), before="environment")
    several = FeedbackVectorEnv(SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")]))
    several.switch_to_true_reward()
    for env, action in ((single, np.array([0.3])), (several, np.array([[0.3]]))):
        plain = gymnasium.make("Pendulum-v1")
        plain.reset(seed=7)
        env.reset(seed=7)
        reward = plain.step(np.array([0.3]))[1]
        assert reward != np.float32(reward)
        assert np.ravel(env.step(action)[1])[0] == reward
        env.close()


class Gives(Garden):
    """Gives something of its own in one place of what `step` returns; episodes have 20 steps."""

    def __init__(self, place, make):
        super().__init__()
        self.place = place
        self.make = make

    def step(self, action):
        given = list(super().step(action))
        given[self.place] = self.make(given[self.place])
        return tuple(given)


@pytest.mark.parametrize(
    ("place", "make"),
    [(1, lambda r: np.array([r])), (2, lambda b: np.array([b])), (3, lambda b: np.array([[b]]))],
)
def test_arrays_of_one_number_are_taken_as_the_number(place, make):
    env = HumanPreferencesEnvWrapper(
        Gives(place, make), config=FeedbackConfig(before="environment"), collect_prefs=False
    )
    env.reset(seed=0)
    plain = Garden()
    plain.reset(seed=0)
    for _ in range(20):
        action = env.action_space.sample()
        _, reward, terminated, truncated, info = env.step(action)
        expected = plain.step(action)
        assert (terminated, truncated) == expected[2:4]
        assert reward == pytest.approx(expected[1])
    assert truncated
    assert info["learned_return"] < 0


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (1, np.zeros(2), "reward of `step`: expected one number"),
        (3, "no", "`truncated` of `step`: expected one number, got 'no'"),
        (4, None, "info of `step`: expected a dictionary, got None"),
    ],
)
def test_what_no_step_may_give_is_refused(place, value, message):
    env = HumanPreferencesEnvWrapper(Gives(place, lambda _: value), collect_prefs=False)
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=message):
        env.step(env.action_space.sample())


class Grips(Garden):
    """Takes a dictionary as its action."""

    action_space = spaces.Dict({"move": BODY, "grip": spaces.Discrete(2)})


def test_dictionaries_of_actions_are_refused_when_wrapped(tmp_path):
    with pytest.raises(SpaceError, match="action space: expected Box, Discrete"):
        HumanPreferencesEnvWrapper(Grips(), log_dir=tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SpaceError, match="action space: expected Box, Discrete"):
        FeedbackVectorEnv(SyncVectorEnv([Grips], autoreset_mode=AutoresetMode.SAME_STEP))
