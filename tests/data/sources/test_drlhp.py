import collections.abc
import gzip
import os
import pickle
import sys
import zlib
from types import ModuleType

import numpy as np
import pytest

from preferl.data.sources import load_drlhp_preferences
from preferl.errors import DataError, UnsafePickleError


class CompressedDict(collections.abc.MutableMapping):
    """Keeps what it is given as compressed pickles, as the project's own does."""

    def __init__(self):
        self.store = {}

    def __getitem__(self, key):
        return pickle.loads(zlib.decompress(self.store[key]))

    def __setitem__(self, key, value):
        self.store[key] = zlib.compress(pickle.dumps(value))

    def __delitem__(self, key):
        del self.store[key]

    def __iter__(self):
        return iter(self.store)

    def __len__(self):
        return len(self.store)


class PrefDB:
    def __init__(self, maxlen):
        self.segments = CompressedDict()
        self.seg_refs = {}
        self.prefs = []
        self.maxlen = maxlen


@pytest.fixture(params=["pref_db", "drlhp.pref_db"])
def module(request, monkeypatch):
    """Where either version of the project has its classes."""
    made = ModuleType(request.param)
    for cls in (CompressedDict, PrefDB):
        monkeypatch.setattr(cls, "__module__", request.param)
        setattr(made, cls.__name__, cls)
    if "." in request.param:
        monkeypatch.setitem(sys.modules, "drlhp", ModuleType("drlhp"))
    monkeypatch.setitem(sys.modules, request.param, made)


def clip(number, steps=3):
    return np.full((steps, 4, 4, 2), number, np.uint8)


def database(prefs=((-7, 12, (1.0, 0.0)), (12, 5, (0.5, 0.5)), (5, -7, (0.0, 1.0))), **clips):
    made = PrefDB(maxlen=10)
    for key, frames in (clips or {-7: clip(1), 12: clip(2), 5: list(clip(3))}).items():
        made.segments[key] = frames
    made.prefs = list(prefs)
    return made


def written(path, thing, protocol=3):
    with gzip.open(path, "wb") as file:
        pickle.dump(thing, file, protocol)
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_answers_and_pictures_arrive(module, tmp_path, protocol):
    found = load_drlhp_preferences(written(tmp_path / "train.pkl.gz", database(), protocol))
    assert found.pairs.tolist() == [[0, 1], [1, 2], [2, 0]]
    assert found.preference.tolist() == [1.0, 0.5, 0.0]
    segments = found.segments
    assert segments.observations.shape == (9, 4, 4, 2)
    assert segments.observations.dtype == np.uint8
    assert segments.observations[segments.start].max(axis=(1, 2, 3)).tolist() == [1, 2, 3]
    assert not segments.rewards.any()


def test_shorter_clips_are_padded(module, tmp_path):
    pair = [("a", "b", (1.0, 0.0))]
    file = written(tmp_path / "val.pkl.gz", database(pair, a=clip(1, 2), b=clip(2, 3)))
    segments = load_drlhp_preferences(file).segments
    assert (segments.length, segments.real.tolist()) == (3, [2, 3])


class Runs:
    def __reduce__(self):
        return os.mkdir, ("/tmp/preferl-must-not-be-made",)


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_nothing_is_executed(module, tmp_path, place):
    made = database()
    if place == "outside":
        made.maxlen = Runs()
    else:
        made.segments[12] = Runs()
    file = written(tmp_path / "train.pkl.gz", made)
    with pytest.raises(UnsafePickleError, match=r"train\.pkl\.gz.*mkdir"):
        load_drlhp_preferences(file)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"segments": {}}, "expected a PrefDB"),
        (lambda: database(prefs=[]), "at least one preference"),
        (lambda: database(prefs=[(-7, 99, (1.0, 0.0))]), "KeyError: 99"),
        (lambda: database(prefs=[(-7, 12, (3.0, 1.0))]), "preferences"),
        (lambda: database([("a", "b", (1, 0))], a=clip(1), b=clip(1)[:, :2]), "frames of one"),
        (lambda: database([("a", "b", (1, 0))], a="text", b=clip(1)), "a stack of frames"),
    ],
)
def test_what_is_wrong_is_refused(module, tmp_path, make, message):
    with pytest.raises(DataError, match=message):
        load_drlhp_preferences(written(tmp_path / "train.pkl.gz", make()))
