"""Keys that contradict the assumed layout are read rightly, refused, or warned of by name."""

import pickle

import numpy as np
import pytest

from preferl.data.sources import load_d4rl, load_demonstrations, load_source
from preferl.errors import DataError

h5py = pytest.importorskip("h5py", reason="the extra preferl[d4rl] is not installed")
STEPS = 6


def trajectory(**changes):
    """As the Decision Transformer's data are: seven observations of six steps, and a reward."""
    seen = np.arange(STEPS + 1.0)[:, None] * np.ones(3)
    ends = np.arange(STEPS) == STEPS - 1
    whole = {
        "observations": seen[:-1],
        "next_observations": seen[1:],
        "actions": np.ones((STEPS, 2)),
        "rewards": ends.astype(float),
        "terminals": ends,
    }
    return {key: value for key, value in (whole | changes).items() if value is not None}


def pickled(folder, **changes):
    path = folder / "data"
    path.write_bytes(pickle.dumps([trajectory(**changes)], 2))
    return path


ENDS = np.arange(STEPS) == STEPS - 1


@pytest.mark.parametrize("key", ["terminals", "dones", "terminations"])
@pytest.mark.parametrize("form", [np.asarray, list, lambda ends: ends[:, None].astype(np.float32)])
def test_trajectories_keep_their_last_step(tmp_path, key, form):
    episodes = load_source(pickled(tmp_path, **{"terminals": None, key: form(ENDS)}))
    assert episodes.lengths.tolist() == [STEPS]
    assert episodes.returns.tolist() == [1]
    assert episodes.terminated.tolist() == [False] * 5 + [True]
    assert episodes.final_observations.tolist() == [[6, 6, 6]]


def test_trajectories_that_did_not_terminate(tmp_path):
    episodes = load_demonstrations(pickled(tmp_path, terminals=np.zeros(STEPS, bool)))
    assert episodes.lengths.tolist() == [STEPS]
    assert not episodes.terminated.any()
    assert episodes.final_observations.tolist() == [[6, 6, 6]]
    episodes = load_demonstrations(
        pickled(tmp_path, terminals=np.zeros(STEPS, bool), next_observations=None)
    )
    assert episodes.lengths.tolist() == [STEPS - 1]
    assert episodes.final_observations.tolist() == [[5, 5, 5]]


@pytest.mark.parametrize("limit", ["timeouts", "truncations"])
def test_dones_by_a_time_limit_do_not_terminate(tmp_path, limit):
    path = pickled(tmp_path, terminals=None, dones=ENDS, **{limit: ENDS})
    assert not load_demonstrations(path).terminated.any()
    path = pickled(tmp_path, terminals=~ENDS & False, dones=ENDS)
    assert not load_demonstrations(path).terminated.any()


def test_terminations_need_no_next_observations(tmp_path):
    episodes = load_demonstrations(pickled(tmp_path, next_observations=None))
    assert episodes.lengths.tolist() == [STEPS]
    assert episodes.terminated[-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"terminals": ~ENDS}, "terminals: expected none before the last step, got one in step 0"),
        ({"dones": np.ones(STEPS)}, "dones: expected none before the last step"),
        ({"terminals": np.zeros((STEPS, 2))}, "terminals: expected one number per row"),
        ({"terminals": ENDS[:-1]}, "expected arrays of one length"),
        ({"terminals": "yes"}, "terminals"),
        ({"next_observations": trajectory()["observations"]}, "next_observations: .* 5 of 5 rows"),
        (
            {"next_observations": np.zeros((STEPS, 2))},
            r"next_observations: expected shape \(6, 3\)",
        ),
    ],
)
def test_contradicting_keys_are_refused(tmp_path, changes, words):
    with pytest.raises(DataError, match=f"demonstration 0.*{words}"):
        load_demonstrations(pickled(tmp_path, **changes))


@pytest.mark.parametrize("key", ["next_obs", "terminated", "done"])
def test_other_names_in_pickles_are_warned_of(tmp_path, key):
    path = pickled(tmp_path, terminals=None, next_observations=None, **{key: ENDS})
    with pytest.warns(UserWarning, match=f"demonstration 0: {key} is not read"):
        assert load_demonstrations(path).lengths.tolist() == [STEPS - 1]


def hdf5(folder, rows=400, marked=(), **changes):
    """Two episodes, in whose 200th row the next observation is not that of the next row."""
    seen = np.arange(rows, dtype=np.float32)[:, None] * np.ones(2, np.float32)
    following = seen + 1
    following[199] = -7
    ends = np.isin(np.arange(rows), [199])
    whole = {"observations": seen, "next_observations": following, "actions": seen}
    whole |= {"rewards": np.ones(rows), "terminals": ends & ("terminals" in marked)}
    whole |= {"timeouts": ends & ("timeouts" in marked)}
    path = folder / "data.hdf5"
    with h5py.File(path, "w") as file:
        for key, value in (whole | changes).items():
            file[key] = value
    return path


def test_next_observations_that_agree_with_marked_ends(tmp_path):
    episodes = load_d4rl(hdf5(tmp_path, marked=["terminals"]))
    assert episodes.lengths.tolist() == [200, 199]
    assert episodes.final_observations[:, 0].tolist() == [-7, 399]
    episodes = load_d4rl(hdf5(tmp_path, marked=["timeouts"]))
    assert episodes.lengths.tolist() == [199, 199]
    assert episodes.final_observations[:, 0].tolist() == [199, 399]


def test_an_end_that_nobody_marked_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="next_observations: .*1 of 399 rows, first in row 199"):
        assert load_d4rl(hdf5(tmp_path)).lengths.tolist() == [399]


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8])
def test_rows_in_another_order_are_refused(rng, tmp_path, kind):
    order = rng.permutation(200)
    seen = np.arange(200)[:, None].astype(kind)
    changes = {"observations": seen[order], "next_observations": (seen + 1)[order]}
    with pytest.raises(DataError, match=r"next_observations.*Put the rows in the order of time"):
        load_d4rl(hdf5(tmp_path, rows=200, **changes))
