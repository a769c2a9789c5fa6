"""HDF5 files that point to others are refused by the name of what points there."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from preferl.data.sources import load_d4rl
from preferl.data.sources.hdf5 import open_hdf5
from preferl.errors import DataError

ROWS = 12


def _write(path, **replaced):
    """A D4RL file whose arrays are replaced by what functions make of the file."""
    with h5py.File(path, "w") as file:
        for name in ("observations", "actions", "rewards", "terminals", "timeouts"):
            if name in replaced:
                replaced[name](file, name)
            else:
                file[name] = np.zeros((ROWS, 2) if name in ("observations", "actions") else ROWS)
    return path


def _external_storage(file, name):
    file.create_dataset(name, (ROWS, 2), "u1", external=[("/etc/passwd", 0, 2 * ROWS)])


def _external_link(file, name):
    file[name] = h5py.ExternalLink(str(Path(file.filename).with_name("other.h5")), "/observations")


def _group_elsewhere(file, name):
    file["away"] = h5py.ExternalLink(str(Path(file.filename).with_name("other.h5")), "/")
    file[name] = h5py.SoftLink("/away/observations")


def _virtual(file, name):
    layout = h5py.VirtualLayout((ROWS, 2), "f8")
    other = str(Path(file.filename).with_name("other.h5"))
    layout[:] = h5py.VirtualSource(other, "observations", (ROWS, 2))
    file.create_virtual_dataset(name, layout)


def _plug_in(file, name):
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((ROWS, 2))
    settings.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple((ROWS, 2))
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_DOUBLE, space, settings)


@pytest.mark.parametrize(
    ("make", "where", "got"),
    [
        (_external_storage, "/observations", "lies in other files"),
        (_external_link, "/observations", "a link to another one"),
        (_group_elsewhere, "/away", "a link to another one"),
        (_virtual, "/observations", "lies in other files"),
        (_plug_in, "/observations", "filters .32015."),
    ],
)
def test_what_lies_elsewhere_is_refused_by_name(tmp_path, make, where, got):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["observations"] = np.full((ROWS, 2), 7.0)
    file = _write(tmp_path / "it.hdf5", observations=make)
    with pytest.raises(DataError, match=f"it.hdf5, {where}.*{got}"):
        load_d4rl(file)


def test_a_group_that_holds_itself_is_refused(tmp_path):
    file = _write(tmp_path / "it.hdf5")
    with h5py.File(file, "a") as held:
        loop = held.create_group("loop")
        loop["again"] = loop
    with pytest.raises(DataError, match="one inside itself"):
        load_d4rl(file)


@pytest.mark.parametrize(
    "settings",
    [
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"compression": "lzf"},
        {"scaleoffset": 3},
        {"chunks": True},
    ],
    ids=str,
)
def test_what_published_files_use_is_read(tmp_path, rng, settings):
    numbers = rng.normal(size=(ROWS, 2)).round(3)
    file = _write(
        tmp_path / "it.hdf5",
        observations=lambda held, name: held.create_dataset(name, data=numbers, **settings),
    )
    with h5py.File(file, "a") as held:
        held["alias"] = h5py.SoftLink("/observations")
        held["nowhere"] = h5py.SoftLink("/gone")
        held["kind"] = np.dtype("f4")
    with open_hdf5(file) as held:
        np.testing.assert_allclose(held["alias"][()], numbers, atol=1e-3)
    assert load_d4rl(file).steps == ROWS - 1


def test_sparse_arrays_of_a_published_size_need_no_permission(tmp_path):
    """A million zeros compress by a thousand: rewards of an antmaze, beside its observations."""
    file = _write(
        tmp_path / "it.hdf5",
        rewards=lambda held, name: held.create_dataset(
            name, data=np.zeros(10**6, np.float32), compression="gzip"
        ),
    )
    with open_hdf5(file) as held:
        assert len(held["rewards"]) == 10**6
