import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from preferl.configs import from_json, to_json
from preferl.errors import ConfigError, StorageError
from preferl.reporting import read_jsonl
from preferl.runs import RunFolder, versions


class Mode(Enum):
    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True)
class Small:
    width: int = 64


@dataclass(frozen=True)
class Large:
    width: int = 256
    heads: int = 4


@dataclass(frozen=True)
class Fit:
    epochs: int
    rate: float = 3e-4
    clip: float = math.inf
    model: Small | Large = field(default_factory=Small)
    extra: Large | None = None
    layers: tuple[int, ...] = (64, 64)
    size: tuple[int, float] = (1, 2.0)
    mode: Mode = Mode.FAST
    side: Literal["left", "right"] = "left"
    folder: Path = Path("runs")
    reader: Callable[[Path], object] | None = None
    prices: dict[str, float] = field(default_factory=dict)
    name: str = "a:b"


def test_config_survives_the_round_trip_through_text() -> None:
    config = Fit(
        3,
        model=Large(heads=2),
        extra=Large(8),
        layers=(1, 2, 3),
        mode=Mode.SLOW,
        reader=read_jsonl,
        prices={"apple": 2.0},
    )
    text = json.dumps(to_json(config), allow_nan=False)
    assert from_json(Fit, json.loads(text)) == config


def test_only_a_union_of_dataclasses_is_tagged() -> None:
    data = to_json(Fit(1, extra=Large()))
    assert data["model"] == {"kind": "Small", "width": 64}
    assert data["extra"] == {"width": 256, "heads": 4}


def test_left_out_keys_keep_their_default() -> None:
    assert from_json(Fit, {"epochs": 2}) == Fit(2)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"epochs": 1, "epoch": 1}, "epoch"),
        ({}, "epochs"),
        ({"epochs": "three"}, "epochs"),
        ({"epochs": True}, "epochs"),
        ({"epochs": 1, "model": {"kind": "Huge"}}, "model.kind"),
        ({"epochs": 1, "model": {"kind": "Small", "heads": 1}}, "heads"),
        ({"epochs": 1, "extra": {"width": "x"}}, "extra.width"),
        ({"epochs": 1, "extra": 3}, "extra"),
        ({"epochs": 1, "layers": 3}, "layers"),
        ({"epochs": 1, "layers": [1, "x"]}, r"layers\[1\]"),
        ({"epochs": 1, "size": [1]}, "size"),
        ({"epochs": 1, "side": "up"}, "side"),
        ({"epochs": 1, "mode": "faster"}, "mode"),
        ({"epochs": 1, "prices": []}, "prices"),
        ({"epochs": 1, "reader": "os:system"}, "function of preferl"),
        ({"epochs": 1, "reader": "preferl.reporting:no_such"}, "reader"),
    ],
)
def test_wrong_data_is_named(data: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        from_json(Fit, data)


def test_what_json_cannot_hold_is_refused() -> None:
    @dataclass
    class Odd:
        value: object = field(default_factory=object)

    with pytest.raises(ConfigError, match="object"):
        to_json(Odd())
    with pytest.raises(ConfigError, match="dataclass"):
        to_json({"epochs": 1})


def test_run_holds_config_versions_and_result(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "a" / "run", config=Fit(3), seed=7)
    assert not run.finished
    assert run.config(Fit) == Fit(3)
    assert run.seed == 7
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
        "versions.json",
    ]


def test_path_makes_the_folders_on_the_way(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", config=Fit(3), seed=0)
    run.path("reward/1/model.bin").write_bytes(b"")
    assert (tmp_path / "run" / "reward" / "1").is_dir()


def test_an_older_run_moves_aside_and_nothing_mixes(tmp_path: Path) -> None:
    for seed in range(3):
        run = RunFolder.create(tmp_path / "run", config=Fit(3), seed=seed)
        run.path(f"only-{seed}").write_text("")
    assert {p.name for p in tmp_path.iterdir()} == {"run", "run.1", "run.2"}
    assert [RunFolder(tmp_path / name).seed for name in ("run.1", "run.2", "run")] == [0, 1, 2]
    assert not run.path("only-0").exists()


def test_overwrite_leaves_one_run(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", config=Fit(3), seed=0).result({})
    run = RunFolder.create(tmp_path / "run", config=Fit(3), seed=1, overwrite=True)
    assert not run.finished
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_is_used_and_a_foreign_one_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", config=Fit(3), seed=0)
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("words")
    for overwrite in (False, True):
        with pytest.raises(StorageError, match="left alone"):
            RunFolder.create(tmp_path / "thesis", config=Fit(3), seed=0, overwrite=overwrite)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "words"


def test_unwritable_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="can be written to"):
        RunFolder.create(tmp_path / "file" / "run", config=Fit(3), seed=0)
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
