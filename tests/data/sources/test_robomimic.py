"""robomimic files: the order of demonstrations and of observations, success without cuts."""

import json

import numpy as np
import pytest

from preferl.data.sources import OBSERVATION_KEYS, check_observation_order, load_robomimic
from preferl.errors import DataError

h5py = pytest.importorskip("h5py", reason="the extra preferl[d4rl] is not installed")

WIDTHS = dict(zip(OBSERVATION_KEYS, (10, 7, 7, 7, 7, 3, 4, 2, 2), strict=True))


def _file(folder, lengths=None, *, dones=(3, 4), about=True, change=None):
    """Demonstration `k` holds `100 k + step` everywhere; frames `dones` are flagged."""
    lengths = lengths or {"demo_0": 5, "demo_1": 3, "demo_10": 4, "demo_2": 2}
    path = folder / "low_dim.hdf5"
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        if about:
            data.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_version": "1.2"})
        for name, length in lengths.items():
            steps = 100.0 * int(name.split("_")[1]) + np.arange(length)
            demo = data.create_group(name)
            for at, (key, width) in enumerate(WIDTHS.items()):
                demo[f"obs/{key}"] = np.repeat(steps[:, None] + at / 10, width, axis=1)
            demo["actions"] = steps[:, None].repeat(2, axis=1)
            demo["rewards"] = np.isin(np.arange(length), dones).astype(int)
            demo["dones"] = np.isin(np.arange(length), dones).astype(int)
            demo["states"] = steps[:, None]
        if change is not None:
            change(data)
    return path


def test_demonstrations_in_the_order_of_labels(tmp_path):
    episodes = load_robomimic(_file(tmp_path))
    assert episodes.lengths.tolist() == [4, 2, 3, 1]
    assert episodes.actions[:, 0].tolist() == [0, 1, 2, 3, 100, 101, 1000, 1001, 1002, 200]
    assert episodes.final_observations[:, 0].tolist() == [4, 102, 1003, 201]
    assert episodes.observations.shape == (10, sum(WIDTHS.values()))
    assert episodes.observations.dtype == np.float64
    columns = np.repeat(np.arange(9) / 10, list(WIDTHS.values()))
    np.testing.assert_allclose(episodes.observations[0], columns)
    assert episodes.states[:, 0].tolist() == episodes.actions[:, 0].tolist()


def test_demonstrations_by_number(tmp_path):
    episodes = load_robomimic(_file(tmp_path), order="numeric")
    assert episodes.actions[episodes.starts, 0].tolist() == [0, 100, 200, 1000]


def test_frames_of_success_do_not_cut(tmp_path):
    episodes = load_robomimic(_file(tmp_path, {"demo_0": 6, "demo_1": 6}, dones=(2, 3, 4, 5)))
    assert episodes.lengths.tolist() == [5, 5]
    assert np.flatnonzero(episodes.terminated).tolist() == [4, 9]
    assert episodes.rewards.tolist() == [0, 0, 1, 1, 1] * 2
    late = load_robomimic(_file(tmp_path, {"demo_0": 6}, dones=(5,)))
    assert not late.terminated.any()  # the flagged frame is the one that was given up


def test_chosen_keys(tmp_path):
    episodes = load_robomimic(_file(tmp_path), observation_keys=("robot0_eef_quat", "object"))
    np.testing.assert_allclose(episodes.observations[0], [0.6] * 4 + [0.0] * 10)


@pytest.mark.parametrize(("about", "named"), [(True, r"Lift 1\.2"), (False, "without env_args")])
def test_an_order_that_cannot_be_checked_gives_a_warning(tmp_path, about, named):
    with pytest.warns(UserWarning, match=f"{named}.*environment"):
        check_observation_order(_file(tmp_path, about=about))


def test_an_order_is_compared(tmp_path):
    path = _file(tmp_path)
    check_observation_order(path, WIDTHS)
    with pytest.raises(DataError, match="order of observations"):
        check_observation_order(path, dict(reversed(WIDTHS.items())))
    with pytest.raises(DataError, match="'object': 14"):
        check_observation_order(path, WIDTHS | {"object": 14})
    kept = ("object", "robot0_eef_pos")
    check_observation_order(path, {key: WIDTHS[key] for key in kept}, observation_keys=kept)
