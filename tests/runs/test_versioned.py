"""Numbered folders are listed in order, distinguished whole from damaged, and removed at once."""

import json

import pytest

from preferl.errors import StorageError
from preferl.runs.versioned import (
    digests,
    names_in,
    remove_versions,
    require_whole,
    version_folder,
    versions,
)

OF_ABC = "cf4ab791c62b8d2b2109c90275287816"
"""BLAKE2b of the letters abc, in 16 bytes."""


@pytest.fixture
def folder(tmp_path):
    for name in ("00001", "00002", "00010", "100000", ".00003.abc", ".00005.old", "key", "0004"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "abc").write_bytes(b"abc")
    return tmp_path


def test_versions_rise_as_numbers_do(folder):
    assert versions(folder) == versions(str(folder)) == [1, 2, 10, 100_000]
    assert versions(folder / "none") == names_in(folder / "none") == []
    assert [version_folder(folder, number).name for number in (7, 100_000)] == ["00007", "100000"]
    assert all(version_folder(folder, number).is_dir() for number in versions(folder))


def test_a_file_is_no_folder_of_versions(folder):
    with pytest.raises(StorageError, match=r"expected a folder that can be read, got .*see that"):
        versions(folder / "key" / "deep" / "abc")


def test_digests_name_all_files(folder):
    (folder / "00001" / "empty").write_bytes(b"")
    found = digests(folder / "00001")
    assert list(found) == ["deep/abc", "empty"]
    assert found["deep/abc"] == OF_ABC


def test_a_whole_version_has_its_digests_and_a_damaged_one_has_not(folder):
    path = folder / "00001"
    listed = json.loads(json.dumps(digests(path)))
    require_whole(path, listed)
    for wrong in ([3, OF_ABC], "0" * 32, None):
        with pytest.raises(ValueError, match="another deep/abc than was written"):
            require_whole(path, {"deep/abc": wrong})
    (path / "deep" / "abc").write_bytes(b"abe")
    with pytest.raises(ValueError, match="another deep/abc than was written"):
        require_whole(path, listed)
    with pytest.raises(ValueError, match="points out of its folder"):
        require_whole(path, {"../00002/deep/abc": OF_ABC})


def test_removing_takes_the_named_versions_and_what_was_left(folder, caplog):
    remove_versions(folder, [1, 10])
    assert sorted(names_in(folder)) == ["00002", "0004", "100000", "key"]
    assert caplog.records == []


def test_what_cannot_be_removed_holds_nothing_else_up(folder, caplog):
    (folder / ".00002.old" / "of an earlier try").mkdir(parents=True)
    remove_versions(folder, [2, 7, 1])  # one of them was never there
    assert versions(folder) == [2, 10, 100_000]
    (record,) = caplog.records
    assert "The earlier version 2 stays for now" in record.getMessage()
