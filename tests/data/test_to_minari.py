"""Episodes as Minari data sets: back again as they were, with what is known about them."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv

from preferl.data import Episodes, save_minari
from preferl.data.sources import load_minari
from preferl.data.to_minari import require_minari_env, require_new_minari
from preferl.errors import DataError

minari = pytest.importorskip("minari", reason="the extra preferl[minari] is not installed")

NAME = "mine/pendulum/mixed-v0"


@pytest.fixture(autouse=True)
def local_data(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def episodes(width=3, actions=1, states=2):
    rng = np.random.default_rng(0)
    ended = np.zeros(7, bool)
    ended[2] = True
    return Episodes(
        observations=rng.uniform(-1, 1, (7, width)).astype(np.float32),
        actions=rng.uniform(-1, 1, (7, actions)).astype(np.float32),
        rewards=np.arange(7, dtype=np.float32),
        terminated=ended,
        final_observations=rng.uniform(-1, 1, (2, width)).astype(np.float32),
        lengths=np.array([3, 4]),
        states=None if states is None else rng.normal(size=(7, states)),
    )


def same(found, made):
    for name in ("observations", "actions", "rewards", "terminated", "final_observations"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name), err_msg=name)
    np.testing.assert_array_equal(found.lengths, made.lengths)


def test_what_is_written_is_read(tmp_path):
    made = episodes()
    save_minari(made, NAME, env="Pendulum-v1")
    found = load_minari(NAME)
    same(found, made)
    np.testing.assert_array_equal(found.states, made.states)


def test_states_of_mujoco_are_positions_and_speeds():
    pytest.importorskip("mujoco", reason="the extra preferl[mujoco] is not installed")
    made = episodes(width=17, actions=6, states=18)
    made = replace(
        made,
        observations=np.asarray(made.observations, np.float64),
        final_observations=np.asarray(made.final_observations, np.float64),
    )
    save_minari(made, "mine/cheetah/mixed-v0", env="HalfCheetah-v5")
    episode = next(iter(minari.load_dataset("mine/cheetah/mixed-v0")))
    assert episode.infos["qpos"].shape == episode.infos["qvel"].shape == (3, 9)
    np.testing.assert_array_equal(load_minari("mine/cheetah/mixed-v0").states, made.states)


def test_what_is_known_goes_where_minari_has_it():
    about = {
        "references": {"random": -1200.0, "expert": -150.0},
        "tiers": [{"name": "random", "episodes": 1}, {"name": "expert", "episodes": 1}],
        "versions": {"packages": {"gymnasium": "1.4.0", "torch": "2.13.0"}},
    }
    save_minari(episodes(), NAME, env="Pendulum-v1", algorithm="SACConfig", about=about)
    dataset = minari.load_dataset(NAME)
    metadata = dataset.storage.metadata
    assert metadata["algorithm_name"] == "SACConfig"
    assert metadata["preferl"]["tiers"][1]["name"] == "expert"
    assert metadata["requirements"] == ["gymnasium==1.4.0"]
    tiers = [one["tier"] for one in dataset.storage.get_episode_metadata([0, 1])]
    assert tiers == ["random", "expert"]
    assert minari.get_normalized_score(dataset, np.array([-150.0]))[0] == pytest.approx(1.0)
    assert dataset.recover_environment().spec.id == "Pendulum-v1"


CALLED = "preferl-test/Called-v0"


@pytest.fixture
def called():
    """The id of an environment that was registered with a function, as simulators' may be."""
    gymnasium.register(CALLED, entry_point=lambda **options: PendulumEnv(**options))
    yield CALLED
    del gymnasium.registry[CALLED]


def test_an_environment_that_cannot_be_made_again_leaves_its_spaces(called, caplog):
    with caplog.at_level("WARNING", "preferl"):
        require_minari_env(gymnasium.make(called))
    assert "Minari cannot make" in caplog.text
    about = {"references": {"random": -1200.0, "expert": -150.0}}
    save_minari(episodes(), NAME, env=called, about=about)
    dataset = minari.load_dataset(NAME)
    same(load_minari(NAME), episodes())
    assert dataset.env_spec is None
    assert dataset.observation_space == gymnasium.make("Pendulum-v1").observation_space
    assert minari.get_normalized_score(dataset, np.array([-150.0]))[0] == pytest.approx(1.0)


def test_a_wrapper_that_records_no_arguments_makes_no_trouble_at_the_end():
    env = gymnasium.Wrapper(gymnasium.make("Pendulum-v1"))
    save_minari(episodes(), NAME, env=env, about={"references": {"expert": -150.0}})
    assert minari.load_dataset(NAME).env_spec is None


def test_spaces_that_minari_cannot_hold_are_refused_before_anything_is_recorded():
    env = gymnasium.make("Pendulum-v1")
    env.action_space = gymnasium.spaces.Sequence(env.action_space)
    with pytest.raises(DataError, match=r"action_space .* expected a space that Minari can hold"):
        require_minari_env(env)


def test_names_are_refused_before_anything_is_recorded():
    save_minari(episodes(), NAME, env="Pendulum-v1")
    with pytest.raises(DataError, match=f"minari delete {NAME}"):
        require_new_minari(NAME)
    with pytest.raises(DataError, match="such as mine/cheetah/mixed-v0"):
        require_new_minari("not an id")
