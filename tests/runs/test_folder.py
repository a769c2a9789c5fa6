import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from preferl.errors import StorageError
from preferl.runs import RunFolder, open_run, versions


@dataclass(frozen=True)
class Fit:
    epochs: int


def begin(folder: Path, seed: int = 0) -> RunFolder:
    with open_run(folder, config=Fit(3), seed=seed) as run:
        return run


def seed_of(folder: Path) -> int:
    return json.loads((folder / "config.json").read_text())["seed"]


def test_run_holds_config_versions_and_result(tmp_path: Path) -> None:
    run = begin(tmp_path / "a" / "run", seed=7)
    assert not run.finished
    assert run.config(Fit) == Fit(3)
    assert seed_of(run.folder) == 7
    found = json.loads(run.path("versions.json").read_text())
    assert found["packages"]["numpy"] == np.__version__
    assert {"python", "platform", "git"} <= set(found)
    run.result({"return": np.float32(1.5), "lost": math.nan, "curve": np.arange(2)})
    assert run.finished
    assert json.loads(run.path("result.json").read_text()) == {
        "return": 1.5,
        "lost": None,
        "curve": [0, 1],
    }
    assert sorted(p.name for p in run.folder.iterdir()) == [
        "config.json",
        "result.json",
        "summary.json",
        "versions.json",
    ]


def test_path_makes_the_folders_on_the_way(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    run.path("reward/1/model.bin").write_bytes(b"")
    assert (tmp_path / "run" / "reward" / "1").is_dir()


def test_an_older_run_moves_aside_and_nothing_mixes(tmp_path: Path) -> None:
    for seed in range(3):
        run = begin(tmp_path / "run", seed=seed)
        run.path(f"only-{seed}").write_text("")
    assert {p.name for p in tmp_path.iterdir()} == {"run", "run.1", "run.2"}
    assert [seed_of(tmp_path / name) for name in ("run.1", "run.2", "run")] == [0, 1, 2]
    assert not run.path("only-0").exists()


def test_an_empty_folder_is_used_and_a_foreign_one_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    begin(tmp_path / "empty")
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("words")
    with pytest.raises(StorageError, match="left alone"):
        begin(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "words"


def test_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="can be written to"):
        begin(tmp_path / "file" / "run")
    with pytest.raises(StorageError, match="can be written to"):
        RunFolder(tmp_path / "file").result({})
    with pytest.raises(StorageError, match="file of a run"):
        RunFolder(tmp_path).config(Fit)


def test_git_revision_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert versions()["git"] is None
