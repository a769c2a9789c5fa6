"""Demonstrations: the view of the published label files, and what is refused."""

import hashlib
import pickle

import numpy as np
import pytest

from preferl.data.sources import load_demonstrations
from preferl.errors import DataError


def _demonstration(steps=4, *, start=0):
    number = np.arange(start, start + steps)
    return {
        "observations": number[:, None] * np.ones(3),
        "actions": number[:, None] * np.ones(2),
        "rewards": number.astype(float),
        "init_state_dict": {"qpos": np.zeros(5)},
    }


def _save(path, demonstrations):
    path.write_bytes(pickle.dumps(demonstrations, 2))
    return path


def test_the_last_observation_becomes_the_final_one(tmp_path):
    file = _save(tmp_path / "a.pickle", [_demonstration(4), _demonstration(3, start=10)])
    episodes = load_demonstrations(file)
    assert episodes.lengths.tolist() == [3, 2]
    assert episodes.rewards.tolist() == [0, 1, 2, 10, 11]
    assert episodes.final_observations[:, 0].tolist() == [3, 12]
    assert not episodes.terminated.any()
    assert episodes.next_observations[:, 0].tolist() == [1, 2, 3, 11, 12]
    assert type(episodes.observations) is np.ndarray


def test_every_step_can_be_kept(tmp_path):
    file = _save(tmp_path / "a.pickle", [_demonstration(4), _demonstration(3, start=10)])
    episodes = load_demonstrations(file, drop_last=False)
    assert episodes.lengths.tolist() == [4, 3]
    assert episodes.final_observations[:, 0].tolist() == [3, 12]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"actions": None}, "demonstration 1, actions: expected numbers"),
        ({"actions": np.zeros((3, 2))}, "demonstration 1: expected arrays of one length.*3"),
        ({"actions": np.zeros((4, 5))}, r"actions.*\(2,\), as in .* 0.*\(5,\) in demonstration 1"),
        ({"rewards": np.zeros((4, 1))}, r"demonstration 1, rewards.*\(4, 1\)"),
        ({"observations": [[1.0], [1.0, 2.0]]}, "demonstration 1, observations"),
        ({"observations": np.array(["a"] * 4)}, "demonstration 1, observations.*<U1"),
        ({"observations": 3.0}, "demonstration 1, observations.*axis of steps"),
        ({key: v[:1] for key, v in _demonstration().items() if key[0] != "i"}, "at least 2 steps"),
        ({"rewards": np.array([0, np.nan, 0, 0])}, "finite"),
    ],
)
def test_errors_name_the_demonstration(tmp_path, change, match):
    file = _save(tmp_path / "a.pickle", [_demonstration(), {**_demonstration(), **change}])
    with pytest.raises(DataError, match=match):
        load_demonstrations(file)


def test_the_door_demonstrations(shared):
    file = shared / "data" / "adroit-door-human" / "door-v0_demos.pickle"
    assert hashlib.sha256(file.read_bytes()).hexdigest().startswith("d6ec9a09")
    episodes = load_demonstrations(file)
    assert (len(episodes), episodes.steps) == (25, 6704)
    assert (episodes.lengths.min(), episodes.lengths.max()) == (222, 299)
    assert episodes.observations.shape[1:] == (39,)
    assert episodes.actions.shape[1:] == (28,)
    whole = load_demonstrations(file, drop_last=False)
    assert whole.steps == 6729
    assert whole.returns.mean() == pytest.approx(794, abs=0.5)
