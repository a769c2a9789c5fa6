"""The pickle reader: arrays of any protocol come through, nothing else does."""

import contextlib
import os
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from preferl.data.sources import load_pickle
from preferl.errors import DataError, UnsafePickleError

ARRAYS = [
    np.arange(6).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.zeros((0, 3), np.float32),
    np.array(3.5),
    np.array([True, False]),
    np.array(["a", "bc"]),
    np.array([b"ab"]),
    np.arange(3, dtype=">i4"),
    np.array([1, "x", None], object),
    np.float32(0.25),
    np.bool_(True),
]


class Attack:
    """What a hostile file asks the reader to call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def _write(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("array", ARRAYS, ids=repr)
def test_arrays_of_every_protocol(tmp_path, protocol, array):
    file = _write(tmp_path / "a.pkl", pickle.dumps({"key": [array]}, protocol))
    loaded = np.asarray(load_pickle(file)["key"][0])
    np.testing.assert_array_equal(loaded, array)
    assert loaded.dtype.kind == np.asarray(array).dtype.kind
    assert loaded.dtype.itemsize == np.asarray(array).dtype.itemsize
    assert loaded.shape == np.shape(array)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_containers(tmp_path, protocol):
    value = {"a": [1, -2.5, None, True], 3: ("é", b"\x00\xff", b"", {"deep": [[]]}), "big": 2**70}
    file = _write(tmp_path / "a.pkl", pickle.dumps(value, protocol))
    assert load_pickle(file) == value


def test_python_2_files(tmp_path):
    """The words that Python 2 and its numpy write, with an alignment flag that numpy deprecates."""
    content = (
        b"\x80\x02}q\x00U\x01xq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\n"
        b"q\x03K\x00\x85U\x01b\x87Rq\x04(K\x01K\x02\x85cnumpy\ndtype\nq\x05U\x02f8K\x00K\x01\x87R"
        b"q\x06(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x10"
        + np.array([1.0, -np.pi]).tobytes()
        + b"tbs."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_pickle(_write(tmp_path / "a.pickle", content))
    assert loaded["x"].tolist() == [1.0, -np.pi]


def test_loaded_arrays_can_be_written_to(tmp_path):
    for protocol in (2, 5):
        loaded = load_pickle(_write(tmp_path / "a", pickle.dumps(np.zeros(3), protocol)))
        loaded[1] = 7
        assert loaded.tolist() == [0, 7, 0]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("function", "name"),
    [(os.system, "system"), (eval, "eval"), (getattr, "getattr"), (np.load, "load")],
)
def test_hostile_files_run_nothing(tmp_path, protocol, function, name):
    trace = tmp_path / "trace"
    arguments = (f"touch {trace}",) if function is os.system else ("1", "real")
    attack = pickle.dumps([np.zeros(2), Attack(function, *arguments)], protocol)
    with pytest.raises(UnsafePickleError, match=rf"global \S+\.{name}\. Nothing was executed"):
        load_pickle(_write(tmp_path / "a.pkl", attack))
    assert not trace.exists()


def test_known_functions_cannot_be_changed(tmp_path):
    content = b"\x80\x02cnumpy\ndtype\n}U\x0b__wrapped__K\x01sb."
    with pytest.raises(UnsafePickleError, match="change a function"):
        load_pickle(_write(tmp_path / "a.pkl", content))


@pytest.mark.parametrize("dtype", [[("a", "O"), ("b", "i4")], "V8", "M8[s]"])
def test_records_are_refused(tmp_path, dtype):
    content = pickle.dumps(np.zeros(2, dtype))
    with pytest.raises(DataError, match=r"a\.pkl.*expected numbers or strings"):
        load_pickle(_write(tmp_path / "a.pkl", content))


def test_objects_cannot_be_made_of_bytes(tmp_path):
    """An array of objects whose content is bytes would be an array of chosen addresses."""
    content = pickle.dumps(np.zeros(2), 4).replace(b"f8", b"O8")
    with pytest.raises(DataError):
        load_pickle(_write(tmp_path / "a.pkl", content))


@pytest.mark.parametrize("content", [b"\x80\x02Nr\x00\x00\x00\x10.", b"Np268435456\n."])
def test_a_memo_index_costs_nothing(tmp_path, content):
    tracemalloc.start()
    assert load_pickle(_write(tmp_path / "a.pkl", content)) is None
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def _twice(depth):
    """A tuple that holds the one before it twice, so many times over."""
    content = b"K\x01\x85"
    for number in range(depth):
        place = bytes([number])
        content += b"q" + place + b"0" + (b"h" + place) * 2 + b"\x86"
    return content


@pytest.mark.parametrize(
    "around", [b"}%sK\x01s", b"}(%sK\x01u", b"(%sK\x01d", b"\x8f(%s\x90", b"(%s\x91"]
)
def test_keys_that_would_be_hashed_for_ever_are_refused(tmp_path, around):
    for key, fits in ((b"(" + b"K\x01" * 90 + b"t", True), (_twice(5), True), (_twice(60), False)):
        file = _write(tmp_path / "a.pkl", b"\x80\x04" + around % key + b".")
        if fits:
            assert len(load_pickle(file)) == 1
        else:
            with pytest.raises(DataError, match="at most 100 parts"):
                load_pickle(file)


def test_no_more_room_is_made_than_a_file_fills(tmp_path):
    content = b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"."
    with pytest.raises(DataError):
        load_pickle(_write(tmp_path / "a.pkl", content))


@settings(max_examples=150, derandomize=True)
@given(
    place=st.integers(0, 10_000),
    byte=st.sampled_from(sorted(set(range(256)) - set(b"pr"))),  # p and r may ask for much memory
    protocol=st.integers(0, 5),
)
def test_changed_bytes_never_raise_anything_else(tmp_path_factory, place, byte, protocol):
    content = bytearray(pickle.dumps([np.arange(4.0), np.array([1, "x"], object)], protocol))
    content[place % len(content)] = byte
    file = _write(tmp_path_factory.getbasetemp() / "changed.pkl", bytes(content))
    with contextlib.suppress(DataError):
        load_pickle(file)
