"""Array folders: whole or not there, read as memory maps, named by content."""

import json
from dataclasses import fields

import numpy as np
import pytest

from preferl.data import (
    Comparisons,
    Episodes,
    Segments,
    allow_large,
    content_id,
    load_comparisons,
    load_episodes,
    sample_segments,
    save_comparisons,
    save_episodes,
)
from preferl.data.arrays import load_arrays, save_arrays
from preferl.errors import DataError, StorageError
from preferl.shapes import leaves


def _episodes(*, dictionary=False):
    steps = np.arange(20.0)
    block = steps.reshape(10, 2)
    final = np.ones((2, 2))
    return Episodes(
        {"wrist": block, "arm/angle": steps[:10]} if dictionary else block,
        steps[:10, None].astype(np.float32),
        steps[:10],
        np.zeros(10, bool),
        {"wrist": final, "arm/angle": np.ones(2)} if dictionary else final,
        np.array([4, 6]),
        states=steps[:10, None],
    )


def _comparisons(rng):
    segments = sample_segments(_episodes(), 5, 3, rng)
    return Comparisons(
        segments,
        np.array([[0, 4], [2, 4]]),
        np.array([1.0, np.nan]),
        np.array([1.0, 0.5]),
        np.array([0, 7]),
    )


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_arrays_come_back_in_order_as_memory_maps(tmp_path):
    arrays = {"b": np.arange(3), "a/x.y": np.zeros((2, 0)), "a/w": np.array(["é", "long"])}
    save_arrays(tmp_path / "new" / "folder", arrays, {"kind": "test", "length": 3})
    loaded, about = load_arrays(tmp_path / "new" / "folder")
    assert list(loaded) == ["b", "a/x.y", "a/w"]
    assert about == {"format": 1, "kind": "test", "length": 3}
    assert isinstance(loaded["b"], np.memmap)
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype
    assert not isinstance(load_arrays(tmp_path / "new/folder", memory_map=False)[0]["b"], np.memmap)


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StorageError, match="holds something else"):
        save_arrays(tmp_path, {"a": np.zeros(1)}, {})
    assert (tmp_path / "thesis.tex").exists()


def test_objects_and_names_outside_are_refused(tmp_path):
    with pytest.raises(DataError, match="Python objects"):
        save_arrays(tmp_path / "it", {"a": np.array([None])}, {})
    for name in ("../a", "/a", "a//b", "", ".", "a/"):
        with pytest.raises(DataError, match="array name"):
            save_arrays(tmp_path / "it", {name: np.zeros(1)}, {})
    assert _names(tmp_path) == []


@pytest.mark.parametrize("dictionary", [False, True])
def test_episodes_round_trip(tmp_path, dictionary):
    episodes = _episodes(dictionary=dictionary)
    save_episodes(tmp_path / "it", episodes)
    loaded = load_episodes(tmp_path / "it")
    for field in fields(Episodes):
        before = getattr(episodes, field.name)
        after = getattr(loaded, field.name)
        if dictionary and "observations" in field.name:
            assert list(after) == list(before) == ["wrist", "arm/angle"]
        if before is None:
            assert after is None
            continue
        for one, other in zip(leaves(before), leaves(after), strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype


def test_comparisons_round_trip_with_only_their_steps(tmp_path, rng):
    comparisons = _comparisons(rng)
    save_comparisons(tmp_path / "it", comparisons)
    loaded = load_comparisons(tmp_path / "it")
    np.testing.assert_array_equal(
        loaded.segments[loaded.pairs].observations,
        comparisons.segments[comparisons.pairs].observations,
    )
    np.testing.assert_array_equal(loaded.preference, comparisons.preference)
    np.testing.assert_array_equal(loaded.weight, comparisons.weight)
    np.testing.assert_array_equal(loaded.annotator, [0, 7])
    assert len(loaded.segments) == 3
    assert loaded.segments.length == 3


def test_a_folder_can_be_saved_onto_itself(tmp_path, rng):
    save_comparisons(tmp_path / "it", _comparisons(rng))
    loaded = load_comparisons(tmp_path / "it")
    save_comparisons(tmp_path / "it", loaded[:1])
    assert len(load_comparisons(tmp_path / "it")) == 1
    assert loaded.segments.observations.shape[1:] == (2,)


def test_content_ids_are_equal_in_every_process():
    found = content_id(np.arange(6.0).reshape(2, 3), np.array([True]))
    assert found == "d839ce2bb7b9bee4ef7c97bb55474af5", "as another process found it"


def test_content_ids_differ_for_other_content():
    array = np.arange(6)
    others = [
        array.reshape(2, 3),
        array.reshape(3, 2),
        array.astype(np.int32),
        array[::-1],
        array + 1,
    ]
    ids = {content_id(a) for a in [array, *others, np.zeros((0, 3)), np.zeros((0, 4)), np.array(1)]}
    assert len(ids) == 9
    assert content_id(array, array) != content_id(np.concatenate([array, array]))


def test_content_ids_look_through_memory_layout(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert content_id(array) == content_id(np.asfortranarray(array)) == content_id(mapped)


def _windows(windows, length):
    steps = np.arange(windows)
    block = np.zeros((windows, 3))
    segments = Segments(block, block, block[:, 0], steps, np.ones(windows, int), length)
    return Comparisons.of(segments, steps.reshape(-1, 2), np.ones(windows // 2))


@pytest.mark.parametrize("length", [2**20, 2**40])
def test_clips_of_more_padding_than_their_folder_explains(tmp_path, length):
    save_comparisons(tmp_path / "it", _windows(400, 4))
    about = json.loads((tmp_path / "it" / "about.json").read_text())
    (tmp_path / "it" / "about.json").write_text(json.dumps(about | {"length": length}))
    with pytest.raises(DataError, match="bytes in memory of a file of"):
        load_comparisons(tmp_path / "it")
    with allow_large():
        assert load_comparisons(tmp_path / "it").segments.length == length


def test_many_clips_of_the_same_steps_are_no_padding(tmp_path):
    block = np.zeros((5_000, 3), np.float32)
    start = np.arange(4_800).repeat(2)
    real = np.full(len(start), 100)
    segments = Segments(block, block, block[:, 0].astype(float), start, real, 100)
    pairs = np.arange(len(start)).reshape(-1, 2)
    save_comparisons(tmp_path / "it", Comparisons.of(segments, pairs, np.ones(len(pairs))))
    assert len(load_comparisons(tmp_path / "it")) == 4_800
