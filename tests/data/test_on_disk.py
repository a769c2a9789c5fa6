import numpy as np
import pytest

from preferl.data import Comparisons, Segments, load_comparisons, save_comparisons
from preferl.data.arrays import load_segments, save_segments
from preferl.data.on_disk import OnDisk, concatenate_rows, select_rows, stays_on_disk
from preferl.data.segments import join_segments
from preferl.errors import DataError

SHAPE = (32, 32, 2)


@pytest.fixture
def pictures(rng):
    return rng.integers(0, 256, (30, *SHAPE), dtype=np.uint8)


@pytest.fixture
def files(pictures, tmp_path):
    """The same in three files, the middle one laid out by columns."""
    parts = [pictures[:10], np.asfortranarray(pictures[10:15]), pictures[15:]]
    for number, part in enumerate(parts):
        np.save(tmp_path / f"{number}.npy", part)
    return [np.load(tmp_path / f"{number}.npy", mmap_mode="r") for number in range(3)]


@pytest.mark.parametrize(
    "rows",
    [
        4,
        slice(8, 17),
        slice(None, None, -3),
        np.array([29, 0, 29, 12]),
        np.array([[[3, 14], [15, 9]]]),
        np.arange(30) % 4 == 1,
        np.array([], int),
    ],
)
def test_rows_are_those_of_the_arrays_end_to_end(pictures, files, rows):
    joined = OnDisk.of(files)
    assert (joined.shape, joined.dtype, joined.ndim, len(joined)) == ((30, *SHAPE), np.uint8, 4, 30)
    assert np.array_equal(joined[rows], pictures[rows])


def test_a_selection_of_a_selection_is_still_on_disk(pictures, files):
    chosen = OnDisk.of(files).select(np.array([20, 3, 11, 3])).select(np.array([3, 0]))
    assert stays_on_disk(chosen)
    assert np.array_equal(np.asarray(chosen), pictures[[3, 20]])
    again = OnDisk.of([chosen, files[0]])
    assert np.array_equal(again[:], np.concatenate([pictures[[3, 20]], pictures[:10]]))


def test_parts_of_a_file_and_arrays_in_memory_may_be_among_them(pictures, files):
    joined = concatenate_rows([files[2][5:8], pictures[:2], files[1]])
    assert isinstance(joined, OnDisk)
    expected = np.concatenate([pictures[20:23], pictures[:2], pictures[10:15]])
    assert np.array_equal(joined[:], expected)


def test_only_pictures_in_files_stay_there(pictures, files, tmp_path):
    np.save(tmp_path / "small.npy", pictures[:, :4, :4])
    np.save(tmp_path / "floats.npy", pictures.astype(np.float32))
    assert stays_on_disk(files[0])
    for other in (
        pictures,
        *(np.load(tmp_path / f"{n}.npy", mmap_mode="r") for n in ("small", "floats")),
    ):
        assert not stays_on_disk(other)
        assert type(select_rows(other, np.array([1]))) is np.ndarray


def test_a_file_that_was_replaced_is_not_read(pictures, files, tmp_path):
    joined = OnDisk.of(files)
    np.save(tmp_path / "new.npy", pictures[::-1])
    (tmp_path / "new.npy").replace(tmp_path / "0.npy")
    assert np.array_equal(joined[12], pictures[12])
    with pytest.raises(DataError, match=r"0\.npy: expected the file .* Load the folder again"):
        joined[3]
    (tmp_path / "1.npy").unlink()
    with pytest.raises(DataError, match=r"1\.npy"):
        joined[12]


def segments(pictures, start):
    steps = len(pictures)
    block = np.arange(steps, dtype=np.float32)[:, None]
    real = np.full(len(start), 4)
    return Segments(pictures, block, np.arange(steps, dtype=np.float64), start, real, 4)


def test_segments_from_many_folders_are_gathered_as_if_in_memory(pictures, tmp_path):
    parts = [segments(pictures, np.array([0, 3])), segments(pictures[::-1], np.array([20]))]
    for number, part in enumerate(parts):
        save_segments(tmp_path / f"{number}", part)
    stored = join_segments([load_segments(tmp_path / f"{number}") for number in range(2)])
    whole = join_segments(parts)
    assert stays_on_disk(stored.observations)
    for lazy, eager in ((stored, whole), (stored.select(np.array([2, 1])), whole.select([2, 1]))):
        assert stays_on_disk(lazy.observations)
        rows = np.array([[1, 0]])
        assert np.array_equal(lazy[rows].observations, eager[rows].observations)
        assert np.array_equal(lazy[rows].actions, eager[rows].actions)
    episodes = stored.episodes()
    assert stays_on_disk(episodes.observations)
    assert np.array_equal(np.asarray(episodes.observations), whole.episodes().observations)


def test_comparisons_are_written_from_disk_to_disk(pictures, tmp_path):
    pairs = np.array([[0, 1], [1, 2]])
    comparisons = Comparisons.of(
        segments(pictures, np.array([0, 8, 20])), pairs, np.array([1.0, 0.0])
    )
    save_comparisons(tmp_path / "first", comparisons)
    stored = load_comparisons(tmp_path / "first")[np.array([1])]
    save_comparisons(tmp_path / "second", stored)
    save_comparisons(tmp_path / "none", stored[np.array([], int)])
    assert load_comparisons(tmp_path / "none").segments.steps == 0
    again = load_comparisons(tmp_path / "second")
    assert again.segments.steps == 8
    expected = comparisons.segments[comparisons.pairs[1]].observations
    assert np.array_equal(again.segments[again.pairs[0]].observations, expected)
