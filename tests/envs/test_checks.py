"""What is no environment of gymnasium is refused in one line that names what to change."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from helpers import gardens
from helpers.gardens import Garden
from preferl.envs.checks import callable_as, made_by, require_usable
from preferl.errors import ConfigError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (gardens.OldReset, r"`reset` as gymnasium defines it.*Gymnasium's `reset` returns"),
        (gardens.OldStep, r"from `step`, got 4 values.*shimmy"),
        (lambda: TimeLimit(gardens.OldStep(), 9), r"`step` as gymnasium defines it.*unpack"),
        (gardens.WideView, r"shape \(2,\), as in its space, got \(3,\)"),
        (gardens.NoSpaces, r"a space as `observation_space`"),
        (gardens.FlagInAnArray, r"True or False as `terminated`, got array"),
        (gardens.PairOfRewards, r"one number as the reward"),
    ],
)
def test_wrong_interfaces(make, message):
    with pytest.raises(ConfigError, match=message) as raised:
        require_usable(make, "environment mine")
    assert str(raised.value).startswith("environment mine: expected")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "make", [Garden, lambda: gymnasium.make("CartPole-v1"), lambda: gymnasium.make("FrozenLake-v1")]
)
def test_right_ones_pass_and_are_closed(make):
    closed = []

    def counted():
        env = make()
        env.close = lambda: closed.append(env)
        return env

    require_usable(counted, "mine")
    assert len(closed) == 1


BOX = spaces.Box(-1, 1, (3,), np.float32)


class Odd(Garden):
    """Has other spaces, whose agents it would reset and step with what is in them."""

    def __init__(self, observations=BOX, actions=BOX):
        super().__init__()
        self.observation_space = observations
        self.action_space = actions

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), super().reset(seed=seed)[1]

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple((BOX, spaces.Discrete(2))),
        spaces.Dict({"a": spaces.Dict({"b": BOX})}),
        spaces.Graph(BOX, None),
        spaces.Dict({"a": spaces.Discrete(5, start=-1)}),
        spaces.MultiDiscrete([3, 4], start=[1, -1]),
        spaces.Box(-1, 1, ()),
    ],
)
def test_observations_that_agents_cannot_take_are_refused(space):
    with pytest.raises(ConfigError, match=r"mine: expected observations in a Box with an axis"):
        require_usable(lambda: Odd(observations=space), "mine")


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": BOX}),
        spaces.Discrete(3, start=1),
        spaces.MultiDiscrete([[2, 3], [2, 2]]),
        spaces.Box(0, 9, (2,), np.int64),
    ],
)
def test_actions_that_agents_cannot_give_are_refused(space):
    with pytest.raises(ConfigError, match=r"mine: expected actions in a Box of floats"):
        require_usable(lambda: Odd(actions=space), "mine")


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3), BOX]
)
def test_spaces_that_agents_can_act_in_pass(space):
    require_usable(lambda: Odd(space, space), "mine")
    require_usable(lambda: Odd(spaces.Dict({"a": space, "b": space}), space), "mine")


class Shares(Garden):
    """Observes numbers that its space of bytes cannot hold, from some step on."""

    observation_space = spaces.Box(0, 255, (2,), np.uint8)

    def __init__(self, *views):
        super().__init__()
        self.views = list(views)

    def reset(self, *, seed=None, options=None):
        return self.views[0], super().reset(seed=seed)[1]

    def step(self, action):
        return self.views[1], *super().step(action)[1:]


@pytest.mark.parametrize(
    "views",
    [
        (np.array([0.5, 1.0]), np.zeros(2)),
        (np.zeros(2), np.array([0.5, 1.0])),
        (np.array([0, 256]), np.zeros(2)),
    ],
)
@pytest.mark.filterwarnings("ignore:mine. observations have dtype float64")
def test_observations_that_their_space_cannot_hold_are_refused(views):
    with pytest.raises(ConfigError, match="mine: expected observations of dtype uint8, as in its"):
        require_usable(lambda: Shares(*views), "mine")


def test_whole_floats_in_a_space_of_bytes_warn():
    with pytest.warns(UserWarning, match="mine: observations have dtype float64, but their space"):
        require_usable(lambda: Shares(np.zeros(2), np.ones(2)), "mine")


def test_faults_of_the_environment_itself_keep_their_trace():
    class Broken(Garden):
        def step(self, action):
            raise ValueError("no wheels")

    with pytest.raises(ValueError, match="no wheels"):
        require_usable(Broken, "mine")


class OldGym:
    """As a class of the package gym, which need not be installed."""


OldGym.__module__ = "gym.core"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (OldGym, r"a OldGym of the old gym.*import gymnasium as gym"),
        (lambda: SyncVectorEnv([Garden]), r"SyncVectorEnv, which is several.*`vec_env`"),
        (gardens.nothing, r"got a NoneType.*has to return"),
        (dict, r"an environment of gymnasium, got a dict.*Derive"),
    ],
)
def test_what_is_made_has_to_be_one_environment(source, message):
    with pytest.raises(ConfigError, match=message):
        made_by(source, "mine", {})


def test_arguments_have_to_be_taken():
    assert made_by(Garden, "mine", {"speed": 0.3, "render_mode": "rgb_array"}).render_mode
    assert made_by(gardens.small_garden, "mine", {"render_mode": "rgb_array"}).speed == 0.5
    with pytest.raises(ConfigError, match=r"\(render_mode, speed, hides\), got .*'sped'"):
        made_by(Garden, "mine", {"sped": 0.3})
    with pytest.raises(ConfigError, match="missing a required argument: 'by'"):
        made_by(lambda env, by: env, "mine", {}, Garden())


def test_texts_may_only_name_environments_in_packages_that_need_no_trust():
    assert callable_as(gymnasium.Env, gymnasium.Env, "gymnasium") is gymnasium.Env
    assert callable_as(gymnasium.Env, gymnasium.make, "gymnasium") is None
    assert callable_as(gymnasium.Env, require_usable, "preferl.envs.checks") is None
    assert callable_as(gymnasium.Env, gardens.small_garden, "gardens") is gardens.small_garden
    assert callable_as(gymnasium.Env, 7, "gardens") is None
