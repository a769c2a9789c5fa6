"""Files and folders are either whole or not there."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from preferl import files
from preferl.errors import StorageError
from preferl.files import remove_drafts, write_json, write_text, writing


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_folder(path, text):
    with writing(path) as draft:
        draft.mkdir()
        (draft / "text").write_text(text)


@pytest.mark.parametrize("name", ["new", "deep/er/new", "with space", ".hidden"])
def test_files_and_folders_appear_whole(tmp_path, name):
    write_text(tmp_path / name, "é")
    assert (tmp_path / name).read_text(encoding="utf-8") == "é"
    write_folder(tmp_path / f"{name} folder", "there")
    assert (tmp_path / f"{name} folder" / "text").read_text() == "there"
    assert len(names((tmp_path / name).parent)) == 2


def test_nothing_is_there_before_the_block_ends(tmp_path):
    with writing(tmp_path / "new") as draft:
        draft.write_text("half")
        assert not (tmp_path / "new").exists()
        assert draft.parent.parent == tmp_path  # on the same disk, so that the exchange is one step
    assert names(tmp_path) == ["new"]


@pytest.mark.parametrize("failure", [RuntimeError("stop"), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_what_was_there(tmp_path, failure):
    write_text(tmp_path / "it", "old")
    for name in ("it", "new"):
        with pytest.raises(type(failure)), writing(tmp_path / name) as draft:  # noqa: PT012
            draft.write_text("half")
            raise failure
    assert names(tmp_path) == ["it"]
    assert (tmp_path / "it").read_text() == "old"


def test_a_folder_that_another_program_made_meanwhile_is_replaced(tmp_path, monkeypatch):
    path = tmp_path / "clips"
    replace = Path.replace

    def late(draft, target):
        if not target.exists():
            target.mkdir()
            (target / "theirs").touch()
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", late)
    with writing(path) as draft:
        draft.mkdir()
        (draft / "ours").touch()
    assert [file.name for file in path.iterdir()] == ["ours"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_exchange_puts_the_old_folder_back(tmp_path, monkeypatch):
    write_folder(tmp_path / "it", "old")

    def refuse(self, target):
        raise PermissionError(f"no {target}")

    with monkeypatch.context() as patch:
        patch.setattr(files, "exchange", lambda *_: False)  # as where a system knows none
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(StorageError, match=r"it: expected a place that can be written to"):
            write_folder(tmp_path / "it", "new")
    assert (tmp_path / "it" / "text").read_text() == "old"
    assert names(tmp_path) == ["it"]


def test_a_full_disk_is_reported(tmp_path):
    with (
        pytest.raises(StorageError, match=r"No space left.*free some space"),
        writing(tmp_path / "it"),
    ):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == []


def test_a_full_disk_is_reported_where_tensors_are_written(tmp_path):
    resource = pytest.importorskip("resource", reason="only Unix limits how large files are")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with (
            pytest.raises(StorageError, match="free some space"),
            writing(tmp_path / "it") as draft,
        ):
            save_file({"weights": np.zeros(1000)}, draft)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []


def test_errors_of_the_tree_pass_unchanged(tmp_path):
    error = StorageError("my own words")
    with pytest.raises(StorageError, match=r"^my own words$"), writing(tmp_path / "it"):
        raise error


def test_places_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "it", tmp_path / "folder"):
        with pytest.raises(StorageError):
            write_text(path, "text")
    with pytest.raises(StorageError):
        write_folder(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "in the way"
    assert names(tmp_path) == ["file", "folder"]


def test_json_is_indented_and_has_no_nan(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1]})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == {"x": [1]}
    assert text.startswith('{\n  "x"')
    assert text.endswith("}\n")
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert (tmp_path / "a.json").read_text() == text


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_private_files_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        with writing(tmp_path / "file", private=True) as draft:
            draft.write_text("x")
        with writing(tmp_path / "folder", private=True) as draft:
            draft.mkdir()
            (draft / "text").write_text("x")
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "file", tmp_path / "folder")]
    assert modes == [0o600, 0o700]
    assert (tmp_path / "folder" / "text").stat().st_mode & 0o777 == 0o600


def test_whoever_is_first_wins(tmp_path):
    with writing(tmp_path / "it", first=True) as one:
        one.write_text("one")
        with writing(tmp_path / "it", first=True) as two:
            two.write_text("two")
    assert (tmp_path / "it").read_text() == "two"
    assert names(tmp_path) == ["it"]


def test_what_killed_writers_left_is_removed_and_what_they_set_aside_is_back(tmp_path):
    write_text(tmp_path / "kept" / "whole", "whole")
    left = tmp_path / "kept" / ".whole.abcd1234"
    left.mkdir()
    (left / "whole").write_text("ha")
    between = tmp_path / ".policy.0a_b1c2d"
    (between / "policy").mkdir(parents=True)
    (between / "old").mkdir()
    (between / "old" / "weights").write_text("old")
    foreign = tmp_path / ".cache.abcd1234"
    foreign.mkdir()
    (foreign / "something").write_text("of somebody else")

    remove_drafts(tmp_path)

    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {"kept/whole", "policy/weights", ".cache.abcd1234/something"}
