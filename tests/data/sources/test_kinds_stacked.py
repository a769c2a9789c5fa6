"""Stacked episodes: which rows are steps, and what followed the last."""

import numpy as np
import pytest

from preferl.data.sources import load_stacked
from preferl.errors import ConfigError, DataError


def _arrays(episodes=2, steps=4, first=0.0) -> dict[str, np.ndarray]:
    count = first + np.arange(float(episodes * steps)).reshape(episodes, steps)
    dones = np.zeros((episodes, steps), bool)
    dones[:, -1] = True
    return {
        "observations": np.stack([count, -count], axis=-1),
        "actions": count[..., None],
        "rewards": count,
        "dones": dones,
    }


def _save(path, **changes):
    np.savez(path, **{k: a for k, a in (_arrays() | changes).items() if a is not None})
    return path


def test_rows_before_the_last_are_steps(tmp_path):
    episodes = load_stacked(_save(tmp_path / "a.npz"))
    assert episodes.lengths.tolist() == [3, 3]
    assert episodes.rewards.tolist() == [0, 1, 2, 4, 5, 6]
    assert not episodes.terminated.any()
    assert episodes.final_observations[:, 0].tolist() == [2, 6]  # 3 and 7 belong to a reset
    reached = load_stacked(tmp_path / "a.npz", last_observation="reached")
    assert reached.rewards.tolist() == [0, 1, 2, 4, 5, 6]
    assert reached.final_observations[:, 0].tolist() == [3, 7]


def test_folders_in_the_order_of_names(tmp_path):
    _save(tmp_path / "b.npz", **_arrays(first=100))
    _save(tmp_path / "a.npz", **_arrays(1))
    episodes = load_stacked(tmp_path)
    assert episodes.rewards[episodes.starts].tolist() == [0, 100, 104]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dones": None}, "no dones among"),
        ({"rewards": np.zeros(8)}, r"rewards: expected shape \[K, T\]"),
        ({"rewards": np.zeros((2, 1))}, "rewards"),
        ({"actions": np.zeros((2, 3, 1))}, r"actions.*\(2, 4\).*\(2, 3, 1\)"),
        ({"actions": np.full((2, 4), "a")}, "actions.*numbers"),
        ({"dones": np.array([[0] * 4, [0, 1, 0, 1]])}, "dones.*inside episode 1"),
        ({"rewards": np.full((2, 4), np.nan)}, "rewards.*finite"),
        ({"rewards": np.full((2, 4), None)}, "a whole .npz file of numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, changes, named):
    with pytest.raises(DataError, match=rf"a\.npz.*{named}"):
        load_stacked(_save(tmp_path / "a.npz", **changes))


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut off", b"no zip", "one array"])
def test_files_that_are_not_whole(tmp_path, content):
    if content == "one array":
        with (tmp_path / "a.npz").open("wb") as file:
            np.save(file, np.zeros(3))
    elif content is not None:
        (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz.*a whole \.npz"):
        load_stacked(tmp_path / "a.npz")


def test_what_cannot_be_read_as_asked(tmp_path):
    with pytest.raises(DataError, match=r"a folder with \.npz"):
        load_stacked(tmp_path)
    with pytest.raises(ConfigError, match="last_observation"):
        load_stacked(tmp_path, last_observation="next")


def test_recorded_sweeps(shared):
    episodes = load_stacked(shared / "data/metaworld-sweep-into")
    assert len(episodes) == 40
    assert set(episodes.lengths) == {499}
    assert episodes.observations.shape == (40 * 499, 39)
    assert not episodes.terminated.any()
    # Each observation repeats the one before; at a reset there is none, so it repeats itself.
    observations = episodes.observations.reshape(40, 499, 39)
    np.testing.assert_array_equal(observations[:, 2:, 18:36], observations[:, 1:-1, :18])
    assert (
        (episodes.final_observations[:, :18] != episodes.final_observations[:, 18:36]).any(1).all()
    )
