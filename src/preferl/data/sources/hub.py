"""Episodes as columns of `datasets`: one row per episode, in the layout of the hub's Gym replays.

Beeching and Simonini 2022, "Train your first Decision Transformer".
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from preferl._optional import require
from preferl.bounds import Expansion
from preferl.data.columns import as_floats, require_names
from preferl.data.episodes import Episodes, require_alike
from preferl.data.sources.packed_columns import unpacked_message, unpacked_parquet
from preferl.data.tasks import Task, find_task
from preferl.errors import DataError
from preferl.reading import reading
from preferl.shapes import Array, BoolArray, IntArray

COLUMNS: Final = ("observations", "actions", "rewards", "dones")

PREFIX: Final = "hub:"
"""Before the name of a data set on the hub."""

PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
"""The bytes that files of columns begin with."""


def load_hub_dataset(
    source: str | Path, *, split: str = "train", task: str | Task | None = None
) -> Episodes:
    """Read columns `observations`, `actions`, `rewards` and `dones`, a list of steps in each row.

    Numbers go from Arrow's buffers to arrays as they are, whatever their number. A done at the
    end of an episode counts as a termination, unless `task` says that time was up. Nothing is
    known about what followed the last step: its observation is repeated as the final one, which
    only matters where an episode did not terminate.

    Args:
        source: a Parquet or Arrow file, a folder of such, a folder that `save_to_disk` wrote, or
            `hub:OWNER/NAME` or `hub:OWNER/NAME:CONFIG` for one of the hub, which is downloaded
            unless it is in the cache of `datasets`.
        split: of a data set that has several.
        task: row of `preferl.data.TASKS`, whose `max_episode_steps` are a time limit and no end.

    Raises:
        ConfigError: an unknown task.
        DataError: nothing of the kind, damaged, without one of the columns, with empty rows, with
            columns of unequal numbers of steps, or with steps of unequal widths.
        MissingExtraError: pyarrow, or for the hub datasets, is not installed.
    """
    name, row = str(source), None if task is None else find_task(task)
    if name.startswith(PREFIX):
        table = _from_hub(name, split)
        return _episodes(table, name, row, Expansion(name, table.nbytes))
    # Nothing a damaged file makes pyarrow do may pass for something else: most of it is words.
    expected = "whole Parquet or Arrow files of the same columns"
    fix = "Check the path, and that it was copied whole."
    with reading(name, expected=expected, fix=fix, error=DataError):
        files = _files_of(Path(source), split)
        expansion = Expansion(name, sum(file.stat().st_size for file in files))
        return _episodes(_from_disk(files, expansion), name, row, expansion)


def holds_columns(path: Path) -> bool:
    """Whether a file or folder looks like columns."""
    if path.is_dir():
        known = ("dataset_dict.json", "state.json", "dataset_info.json")
        return any((path / file).is_file() for file in known) or bool(_files(path))
    with path.open("rb") as file:
        head = file.read(8)
    return head.startswith((PARQUET, ARROW_FILE, ARROW_STREAM))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".parquet", ".arrow"))


def _from_hub(name: str, split: str) -> Any:
    datasets = require("datasets", extra="hub")
    repository, _, config = name.removeprefix(PREFIX).partition(":")
    try:
        found = datasets.load_dataset(repository, config or None, split=split)
    except Exception as error:  # a network, a hub and scripts have errors of every kind
        raise DataError.mismatch(
            f"data set {name}",
            expected=f"one of the hub with a split {split!r}",
            got=f"{type(error).__name__}: {error}",
            fix="Check the name. One that is a script is not run: give a Parquet copy of it.",
        ) from error
    return found.data.table


def _from_disk(files: Sequence[Path], expansion: Expansion) -> Any:
    pyarrow = require("pyarrow", extra="parquet")
    return pyarrow.concat_tables([_read(file, expansion) for file in files])


def _files_of(path: Path, split: str) -> Sequence[Path]:
    """The files of a path, in the order of their names."""
    if not path.is_dir():
        return [path]
    inside = path / split if (path / "dataset_dict.json").is_file() else path
    files = _files(inside) if inside.is_dir() else []
    named = [file for file in files if file.name.startswith(f"{split}-")]  # as on the hub
    if not files:
        splits = sorted(one.name for one in path.iterdir() if one.is_dir())
        raise DataError.mismatch(
            f"{path}",
            expected=f"Parquet or Arrow files of split {split!r}",
            got=f"splits {splits}" if splits else "none",
        )
    return named or files


def _read(file: Path, expansion: Expansion) -> Any:
    """The four columns of a file, as an Arrow table, once their size is counted."""
    with file.open("rb") as opened:
        head = opened.read(8)
    if head.startswith(PARQUET):
        parquet = require("pyarrow.parquet", extra="parquet")
        with parquet.ParquetFile(file) as opened:
            require_names(file, COLUMNS, opened.schema_arrow.names, "columns")
            expansion.add(unpacked_parquet(file, COLUMNS))
            return opened.read(columns=list(COLUMNS))
    ipc = require("pyarrow.ipc", extra="parquet")
    # A file is a stream behind eight bytes; what its footer says of itself is not believed.
    start = 8 if head.startswith(ARROW_FILE) else 0
    with require("pyarrow", extra="parquet").memory_map(str(file)) as mapped:
        mapped.seek(start)
        for message in ipc.MessageReader.open_stream(mapped):
            expansion.add(unpacked_message(message))
        mapped.seek(start)
        table = ipc.open_stream(mapped).read_all()
    require_names(file, COLUMNS, table.column_names, "columns")
    table = table.select(list(COLUMNS))
    table.validate(full=True)
    return table


def _episodes(table: Any, name: str, task: Task | None, expansion: Expansion) -> Episodes:
    require_names(name, COLUMNS, table.column_names, "columns")
    flat = {column: _flat(table[column], f"{name}, {column}", expansion) for column in COLUMNS}
    lengths = flat["rewards"][1]
    for column, (_, counts) in flat.items():
        if not np.array_equal(counts, lengths):
            k = int((counts != lengths).argmax())
            raise DataError.mismatch(
                f"{name}, {column} of episode {k}",
                expected=f"{lengths[k]} steps, as there are rewards",
                got=f"{counts[k]}",
            )
    if not len(lengths) or not lengths.all():
        where = "no row" if not len(lengths) else f"none in row {int(lengths.argmin())}"
        raise DataError.mismatch(name, expected="rows of at least one step", got=where)
    observations = flat["observations"][0]
    return Episodes(
        observations=observations,
        actions=flat["actions"][0],
        rewards=as_floats(flat["rewards"][0]),
        terminated=_terminated(flat["dones"][0].astype(bool), lengths, task),
        final_observations=observations[np.cumsum(lengths) - 1],
        lengths=lengths,
    )


def _terminated(dones: BoolArray, lengths: IntArray, task: Task | None) -> BoolArray:
    """`[T]`, without those that a time limit ended."""
    if task is None:
        return dones
    out_of_time = np.cumsum(lengths)[lengths >= task.max_episode_steps] - 1
    dones = dones.copy()
    dones[out_of_time] = False
    return dones


def _flat(column: Any, name: str, expansion: Expansion) -> tuple[Array, IntArray]:
    """`[T, ...]` numbers of all rows end to end, and `[K]` how many steps each row has."""
    parts = [_flat_chunk(chunk, name, expansion) for chunk in column.chunks if len(chunk)]
    if not parts:
        return np.zeros(0), np.zeros(0, np.int64)
    require_alike(f"{name}, chunks of the file", [numbers for numbers, _ in parts])
    numbers, lengths = zip(*parts, strict=True)
    return (numbers[0] if len(numbers) == 1 else np.concatenate(numbers)), np.concatenate(lengths)


def _flat_chunk(lists: Any, name: str, expansion: Expansion) -> tuple[Array, IntArray]:
    if not _is_list(lists.type):
        raise DataError.mismatch(
            name, expected="a list of steps in each row", got=f"{lists.type} in each row"
        )
    lengths, values = _split_off(lists, name, expansion)
    shape = []
    while _is_list(values.type):
        widths, values = _split_off(values, name, expansion)
        if (widths != widths[:1]).any():
            step = int((widths != widths[0]).argmax())
            raise DataError.mismatch(
                f"{name}, list {step}",
                expected=f"{widths[0]} numbers, as in the first",
                got=f"{widths[step]}",
            )
        shape.append(int(widths[0]) if len(widths) else 0)
    if values.null_count or not _is_number(values.type):
        got = f"{values.null_count} nulls" if values.null_count else values.type
        raise DataError.mismatch(name, expected="numbers alone", got=got)
    numbers = values.to_numpy(zero_copy_only=False)
    return numbers.reshape(int(lengths.sum()), *shape), lengths


def _split_off(lists: Any, name: str, expansion: Expansion) -> tuple[IntArray, Any]:
    """How many values each list has, and the values end to end."""
    if lists.null_count:
        raise DataError.mismatch(name, expected="lists", got=f"{lists.null_count} nulls")
    expansion.add(8 * len(lists))  # lists of nothing lie nowhere, in any number
    compute = require("pyarrow.compute", extra="parquet")
    lengths = compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64), lists.flatten()


def _is_list(kind: Any) -> bool:
    types = require("pyarrow", extra="parquet").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    types = require("pyarrow", extra="parquet").types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))
