"""Episodes of every kind through one function, recognised by content."""

import pickle

import numpy as np
import pytest

from preferl.data import Episodes, save_episodes
from preferl.data.arrays import save_arrays
from preferl.data.sources import kinds, load_source
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
