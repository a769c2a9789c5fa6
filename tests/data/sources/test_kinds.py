"""Episodes of every kind through one function, recognised by content."""

import hashlib
import pickle

import numpy as np
import pytest

from preferl.data import Episodes, save_episodes
from preferl.data.arrays import save_arrays
from preferl.data.sources import kinds, load_demonstrations, load_source, load_stacked
from preferl.errors import DataError

STEPS = np.arange(6.0)


def _stacked(path):
    dones = np.zeros((1, 6), bool)
    np.savez(path, observations=STEPS[None, :, None], actions=STEPS[None], rewards=STEPS[None],
             dones=dones)  # fmt: skip


def test_folders_of_preferl(tmp_path):
    column = STEPS[:, None]
    episodes = Episodes(column, column, STEPS, np.zeros(6, bool), column[:1], np.array([6]))
    save_episodes(tmp_path / "it", episodes)
    assert load_source(tmp_path / "it").steps == 6
    save_arrays(tmp_path / "other", {}, {"kind": "comparisons"})
    with pytest.raises(DataError, match="expected episodes, got comparisons"):
        load_source(tmp_path / "other")


def test_pickles_and_stacks_whatever_their_names(tmp_path):
    one = {"observations": STEPS[:, None], "actions": STEPS[:, None], "rewards": STEPS}
    (tmp_path / "data").write_bytes(pickle.dumps([one, one]))
    assert load_source(str(tmp_path / "data")).lengths.tolist() == [5, 5]
    (tmp_path / "many").mkdir()
    _stacked(tmp_path / "many" / "a.npz")
    _stacked(tmp_path / "many" / "b.npz")
    assert load_source(tmp_path / "many").lengths.tolist() == [5, 5]
    renamed = (tmp_path / "many" / "a.npz").rename(tmp_path / "stack")
    assert load_source(renamed).lengths.tolist() == [5]


def test_hdf5_of_both_kinds(tmp_path):
    h5py = pytest.importorskip("h5py", reason="the extra preferl[d4rl] is not installed")
    with h5py.File(tmp_path / "d4rl", "w") as file:
        file["observations"] = file["actions"] = STEPS[:, None]
        file["rewards"] = STEPS
        file["terminals"] = STEPS == 2
    assert load_source(tmp_path / "d4rl", task="hopper-medium-v2").lengths.tolist() == [3, 2]
    with h5py.File(tmp_path / "robomimic", "w") as file:
        for key in kinds.load_robomimic.__kwdefaults__["observation_keys"]:
            file[f"data/demo_0/obs/{key}"] = STEPS[:, None]
        for key in ("actions", "rewards", "dones"):
            file[f"data/demo_0/{key}"] = STEPS
    with pytest.warns(UserWarning, match="order of observations"):
        assert load_source(tmp_path / "robomimic").lengths.tolist() == [5]


def test_a_folder_without_episodes_is_named(tmp_path):
    none = np.zeros((0, 1))
    empty = Episodes(none, none, none[:, 0], np.zeros(0, bool), none, np.zeros(0, int))
    save_episodes(tmp_path / "empty", empty)
    with pytest.raises(DataError, match=r"empty: expected at least one episode, got none"):
        load_source(tmp_path / "empty")


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
    whole = load_demonstrations(file, drop_last=False)
    assert whole.lengths.tolist() == [4, 3]
    assert whole.final_observations[:, 0].tolist() == [3, 12]


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


def _arrays(episodes=2, steps=4, first=0.0):
    count = first + np.arange(float(episodes * steps)).reshape(episodes, steps)
    dones = np.zeros((episodes, steps), bool)
    dones[:, -1] = True
    return {
        "observations": np.stack([count, -count], axis=-1),
        "actions": count[..., None],
        "rewards": count,
        "dones": dones,
    }


def _save_stack(path, **changes):
    np.savez(path, **{k: a for k, a in (_arrays() | changes).items() if a is not None})
    return path


def test_rows_before_the_last_are_steps(tmp_path):
    episodes = load_stacked(_save_stack(tmp_path / "a.npz"))
    assert episodes.lengths.tolist() == [3, 3]
    assert episodes.rewards.tolist() == [0, 1, 2, 4, 5, 6]
    assert not episodes.terminated.any()
    assert episodes.final_observations[:, 0].tolist() == [2, 6]  # 3 and 7 belong to a reset
    reached = load_stacked(tmp_path / "a.npz", last_observation="reached")
    assert reached.rewards.tolist() == [0, 1, 2, 4, 5, 6]
    assert reached.final_observations[:, 0].tolist() == [3, 7]


def test_folders_in_the_order_of_names(tmp_path):
    _save_stack(tmp_path / "b.npz", **_arrays(first=100))
    _save_stack(tmp_path / "a.npz", **_arrays(1))
    episodes = load_stacked(tmp_path)
    assert episodes.rewards[episodes.starts].tolist() == [0, 100, 104]
