"""Minari data sets: nested spaces, endings kept apart, states for drawing."""

import json
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from preferl.data.sources import load_minari
from preferl.errors import DataError

minari = pytest.importorskip("minari", reason="the extra preferl[minari] is not installed")
buffers = pytest.importorskip("minari.data_collector")

BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)


@pytest.fixture(autouse=True)
def local_data(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def _buffer(steps, observations, actions, *, terminated=False, infos=None, number=0):
    end = np.arange(steps) == steps - 1
    return buffers.EpisodeBuffer(
        id=number,
        observations=observations,
        actions=actions,
        rewards=np.arange(float(steps)),
        terminations=end & terminated,
        truncations=end & (not terminated),
        infos=infos,
    )


def _create(episodes, observation_space, action_space, name="test/door/human-v0"):
    # minari asks for an author, a permalink and more, one warning each
    with pytest.warns(UserWarning, match=r"env_spec is None|is set to None"):
        return minari.create_dataset_from_buffers(
            name, episodes, observation_space=observation_space, action_space=action_space
        )


def _boxes(**changes):
    return [
        _buffer(3, np.arange(8.0).reshape(4, 2), np.ones((3, 2)), terminated=True, **changes),
        _buffer(2, np.arange(6.0).reshape(3, 2) + 100, np.zeros((2, 2)), number=1, **changes),
    ]


def test_boxes_by_id_and_by_object():
    dataset = _create(_boxes(), BOX, BOX)
    for episodes in (load_minari(dataset), load_minari("test/door/human-v0")):
        assert episodes.lengths.tolist() == [3, 2]
        assert episodes.observations[:, 0].tolist() == [0, 2, 4, 100, 102]
        assert episodes.final_observations.tolist() == [[6, 7], [104, 105]]
        assert episodes.rewards.tolist() == [0, 1, 2, 0, 1]
        assert episodes.actions.shape == (5, 2)
        assert episodes.states is None
        assert episodes.terminated.tolist() == [False, False, True, False, False]
        assert episodes.truncated.tolist() == [False, False, False, False, True]


def test_nested_observations_and_discrete_actions():
    space = gym.spaces.Dict(
        {
            "arm": gym.spaces.Dict({"angle": BOX}),
            "pair": gym.spaces.Tuple([gym.spaces.Discrete(9), BOX]),
        }
    )
    block = np.arange(8.0).reshape(4, 2)
    nested = {"arm": {"angle": block}, "pair": (np.arange(4), block + 1)}
    episode = _buffer(3, nested, np.array([0, 2, 1]))
    episodes = load_minari(_create([episode], space, gym.spaces.Discrete(3)))
    assert sorted(episodes.observations) == ["arm/angle", "pair/0", "pair/1"]
    assert episodes.observations["pair/0"].tolist() == [0, 1, 2]
    assert episodes.final_observations["pair/0"].tolist() == [3]
    np.testing.assert_array_equal(episodes.observations["pair/1"], block[:3] + 1)
    assert episodes.actions.tolist() == [0, 2, 1]


def test_states_come_from_the_infos_and_others_are_not_read():
    positions = np.arange(8.0).reshape(4, 2)
    for infos, states in (
        ({"qpos": positions, "qvel": np.ones((4, 1))}, [[0, 1, 1], [2, 3, 1], [4, 5, 1]]),
        ({"words": ["a", "bc", "d", "e"], "state": positions}, [[0, 1], [2, 3], [4, 5]]),
    ):
        name = f"test/{'-'.join(infos)}-v0"
        one = _buffer(3, np.zeros((4, 2)), np.zeros((3, 2)), infos=infos)
        _create([one], BOX, BOX, name)
        assert load_minari(name).states.tolist() == states


def test_an_environment_that_a_data_set_names_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "evilmod.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    wrapper = WrapperSpec("W", "evilmod:Wrapper", {})
    spec = EnvSpec("evilmod/X-v0", entry_point="evilmod:X", additional_wrappers=(wrapper,))
    dataset = _create(_boxes(), BOX, BOX)
    dataset.storage.update_metadata({"env_spec": spec.to_json()})
    assert minari.load_dataset("test/door/human-v0").env_spec.entry_point == "evilmod:X"
    assert len(load_minari("test/door/human-v0")) == 2
    assert "evilmod" not in sys.modules


@pytest.mark.parametrize("missing", ["observation_space", "action_space"])
@pytest.mark.parametrize(
    "entry_point",
    ["preferl.files:write_text", "gymnasium.envs.classic_control:PendulumEnv", "Pendulum-v1"],
)
def test_a_data_set_without_spaces_calls_nothing(tmp_path, missing, entry_point):
    """Minari would call what the data set names, to ask it for its spaces."""
    mark = tmp_path / "called"
    spec = EnvSpec("X-v0", entry_point=entry_point, kwargs={"path": str(mark), "text": ""})
    dataset = _create(_boxes(), BOX, BOX)
    metadata = dataset.storage.data_path / "metadata.json"
    about = json.loads(metadata.read_text()) | {"env_spec": spec.to_json()}
    del about[missing]
    metadata.write_text(json.dumps(about))
    with pytest.raises(DataError, match=r"expected its observation space and action space in"):
        load_minari("test/door/human-v0")
    assert not mark.exists()


def _frames(count):
    """Smooth pictures, which JPEG keeps nearly as they are."""
    row = np.linspace(0, 200, 32).astype(np.uint8)
    return np.stack(
        [np.stack([row + k, row[::-1], row], 1)[None].repeat(32, 0) for k in range(count)]
    )


@pytest.mark.parametrize("nested", [False, True])
def test_packed_pictures(rng, nested):
    pictures = gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)
    frames = _frames(21)
    frames[3] = rng.integers(0, 255, (32, 32, 3))  # of another length in JPEG
    space = gym.spaces.Dict({"eye": pictures, "arm": BOX}) if nested else pictures
    seen = {"eye": frames, "arm": np.zeros((21, 2))} if nested else frames
    dataset = _create([_buffer(20, seen, np.zeros((20, 2)))], space, BOX)
    episodes = load_minari("test/door/human-v0")
    ours = episodes.observations["eye"] if nested else episodes.observations
    theirs = load_minari(dataset).observations
    np.testing.assert_array_equal(ours, theirs["eye"] if nested else theirs)
    assert np.abs(ours[5].astype(int) - frames[5]).max() < 10


def test_pictures_of_another_size_than_their_space():
    pictures = gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)
    dataset = _create([_buffer(3, _frames(4), np.zeros((3, 2)))], pictures, BOX)
    metadata = dataset.storage.data_path / "metadata.json"
    about = json.loads(metadata.read_text())
    other = gym.spaces.Box(0, 255, (40, 32, 3), np.uint8)
    about["observation_space"] = minari.serialization.serialize_space(other)
    metadata.write_text(json.dumps(about))
    with pytest.raises(DataError, match=r"shape \(40, 32, 3\), .*got 32 x 32 pixels"):
        load_minari("test/door/human-v0")
