"""Stacked episodes: which rows are steps, and what followed the last."""

import numpy as np

from preferl.data.sources import load_stacked


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
