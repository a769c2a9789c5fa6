"""Episodes as columns of `datasets`: one row per episode, in the layout of the hub's Gym replays.

Beeching and Simonini 2022, "Train your first Decision Transformer".
"""

import struct
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from preferl._optional import require
from preferl.data.columns import as_floats, reading_foreign, require_names
from preferl.data.episodes import Episodes, require_alike
from preferl.data.sources.endings import warn_of_unread
from preferl.data.sources.parquet import MAGIC, unpacked_bytes
from preferl.data.tasks import Task, find_task
from preferl.errors import DataError
from preferl.reading import Expansion
from preferl.shapes import Array, IntArray

COLUMNS: Final = ("observations", "actions", "rewards", "dones")

PREFIX: Final = "hub:"
"""What stands before the name of a data set on the hub."""

ARROW_FILE: Final = b"ARROW1"
ARROW_STREAM: Final = b"\xff\xff\xff\xff"
"""The bytes that files of Arrow begin with."""


def load_hub_dataset(
    source: str | Path, *, split: str = "train", task: str | Task | None = None
) -> Episodes:
    """Read columns `observations`, `actions`, `rewards` and `dones`; a row holds an episode.

    A done at the end of an episode counts as a termination, unless the `task` has a time limit that
    was reached. The data set does not hold the observation after the last step. The last
    observation is repeated in its place, which only matters if the episode did not terminate.

    Args:
        source: a Parquet or Arrow file, a folder of such files, a folder that `save_to_disk` wrote,
            or `hub:OWNER/NAME` or `hub:OWNER/NAME:CONFIG` for a data set of the hub, which is
            downloaded unless it is in the cache of `datasets`.
        split: which split of the data set to read.
        task: row of `preferl.data.TASKS`; its `max_episode_steps` are a time limit.

    Raises:
        ConfigError: the task is unknown.
        DataError: there is no such data set, it is damaged, lacks a column, or has empty rows, the
            columns of a row differ in their number of steps, or steps differ in width.
        MissingExtraError: pyarrow is not installed; or datasets, which data sets of the hub need.
    """
    name = str(source)
    row = None if task is None else find_task(task)
    if name.startswith(PREFIX):
        datasets = require("datasets", extra="hub")
        repository, _, config = name.removeprefix(PREFIX).partition(":")
        fix = "Check the name. Data sets that are scripts are not run: give a Parquet copy."
        # Networks, the hub and scripts raise errors of many kinds.
        with reading_foreign(f"data set {name}", f"one of the hub with a split {split!r}", fix):
            table = datasets.load_dataset(repository, config or None, split=split).data.table
        _check_columns(name, table.column_names)
        return _episodes(table, name, row, Expansion(name, table.nbytes))
    # For a damaged file, pyarrow raises errors of many kinds.
    with reading_foreign(name, "whole Parquet or Arrow files of the same columns"):
        files = _files_of(Path(source), split)
        expansion = Expansion(name, sum(file.stat().st_size for file in files))
        tables = [_read(file, expansion) for file in files]
        table = require("pyarrow", extra="parquet").concat_tables(tables)
        return _episodes(table, name, row, expansion)


def holds_columns(path: Path) -> bool:
    """Whether a file, or the files of a folder, look like Parquet or Arrow."""
    if path.is_dir():
        marker_files = ("dataset_dict.json", "state.json", "dataset_info.json")
        return any((path / file).is_file() for file in marker_files) or bool(_files(path))
    with path.open("rb") as file:
        return file.read(8).startswith((MAGIC, ARROW_FILE, ARROW_STREAM))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".parquet", ".arrow"))


def _files_of(path: Path, split: str) -> Sequence[Path]:
    """Return the files of a path, sorted by name."""
    if not path.is_dir():
        return [path]
    inside = path / split if (path / "dataset_dict.json").is_file() else path
    files = _files(inside) if inside.is_dir() else []
    if not files:
        splits = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
        raise DataError(
            f"{path}: expected Parquet or Arrow files of split {split!r}, got splits {splits}."
        )
    # Files on the hub have such names.
    return [file for file in files if file.name.startswith(f"{split}-")] or files


def _read(file: Path, expansion: Expansion) -> Any:
    """Read the four columns of a file as an Arrow table, after counting their size."""
    with file.open("rb") as opened:
        head = opened.read(8)
    if head.startswith(MAGIC):
        parquet = require("pyarrow.parquet", extra="parquet")
        expansion.add(unpacked_bytes(file, columns=COLUMNS))
        with parquet.ParquetFile(file) as opened:
            _check_columns(file, opened.schema_arrow.names)
            return opened.read(columns=list(COLUMNS))
    ipc = require("pyarrow.ipc", extra="parquet")
    # An Arrow file is eight bytes and a stream. Its footer is not used, as it might give false
    # positions.
    start = 8 if head.startswith(ARROW_FILE) else 0
    with require("pyarrow", extra="parquet").memory_map(str(file)) as mapped:
        mapped.seek(start)
        for message in ipc.MessageReader.open_stream(mapped):
            expansion.add(_unpacked_message(message))
        mapped.seek(start)
        table = ipc.open_stream(mapped).read_all()
    _check_columns(file, table.column_names)
    table = table.select(list(COLUMNS))
    table.validate(full=True)
    return table


def _check_columns(source: object, names: Collection[str]) -> None:
    require_names(source, COLUMNS, names, "columns")
    rule = "a done at the end of an episode terminates it, except at the time limit of `task`"
    warn_of_unread(source, names, COLUMNS, rule)


def _unpacked_message(message: Any) -> int:
    """Return the unpacked size of a `pyarrow.ipc.Message`.

    A compressed buffer begins with its unpacked size.

    A table of FlatBuffers holds the positions of buffers, see Message.fbs of Apache Arrow.
    """
    if message.type not in ("record batch", "dictionary") or message.body is None:
        return 0
    metadata = memoryview(message.metadata)
    body = memoryview(message.body)
    try:
        batch = _follow(metadata, _field(metadata, _follow(metadata, 0), 2))
        if message.type == "dictionary":
            batch = _follow(metadata, _field(metadata, batch, 1))
        buffers = _field(metadata, batch, 2)
        compression = _field(metadata, batch, 3)
        if not (buffers and compression):
            return 0
        vector = _follow(metadata, buffers)
        (count,) = struct.unpack_from("<I", metadata, vector)
        positions = struct.iter_unpack("<qq", metadata[vector + 4 : vector + 4 + 16 * count])
        sizes = (
            struct.unpack_from("<q", body, position)[0]
            for position, length in positions
            if length >= 8
        )
        return sum(max(size, 0) for size in sizes)
    except struct.error as error:
        raise ValueError(f"a message with positions outside of itself: {error}") from error


def _follow(table: memoryview, position: int) -> int:
    """Return the position to which the offset at a position points."""
    return position + int(struct.unpack_from("<I", table, position)[0])


def _field(table: memoryview, position: int, number: int) -> int:
    """Return the position of a table's field; 0 if the field has its default."""
    fields = position - int(struct.unpack_from("<i", table, position)[0])
    (size,) = struct.unpack_from("<H", table, fields)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", table, fields + 4 + 2 * number)
    return position + int(offset) if offset else 0


def _episodes(table: Any, name: str, task: Task | None, expansion: Expansion) -> Episodes:
    flat = {column: _flat(table[column], f"{name}, {column}", expansion) for column in COLUMNS}
    lengths = flat["rewards"][1]
    if not len(lengths):
        raise DataError(f"{name}: expected rows of at least one step, got no row.")
    if not lengths.all():
        raise DataError(
            f"{name}: expected rows of at least one step, got none in row {int(lengths.argmin())}."
        )
    for column, (_, counts) in flat.items():
        k = int((counts != lengths).argmax())
        if counts[k] != lengths[k]:
            raise DataError(
                f"{name}, {column} of episode {k}: expected {lengths[k]} steps, the number of "
                f"rewards, got {counts[k]}."
            )
    ends = np.cumsum(lengths)
    observations = flat["observations"][0]
    terminated = flat["dones"][0].astype(bool)
    if task is not None:
        terminated[ends[lengths >= task.max_episode_steps] - 1] = False
    return Episodes(
        observations=observations,
        actions=flat["actions"][0],
        rewards=as_floats(flat["rewards"][0]),
        terminated=terminated,
        final_observations=observations[ends - 1],
        lengths=lengths,
    )


def _flat(column: Any, name: str, expansion: Expansion) -> tuple[Array, IntArray]:
    """Return the numbers `[T, ...]` of all rows end to end, and `[K]` steps of each row."""
    parts = [_flat_chunk(chunk, name, expansion) for chunk in column.chunks if len(chunk)]
    if not parts:
        return np.zeros(0), np.zeros(0, np.int64)
    require_alike(f"{name}, chunks of the file", [numbers for numbers, _ in parts])
    numbers, lengths = zip(*parts, strict=True)
    return (numbers[0] if len(numbers) == 1 else np.concatenate(numbers)), np.concatenate(lengths)


def _flat_chunk(values: Any, name: str, expansion: Expansion) -> tuple[Array, IntArray]:
    if not _is_type(values.type, _LISTS):
        raise DataError(
            f"{name}: expected a list of steps in each row, got {values.type} in each row."
        )
    numbers, (lengths, *inner) = nested_numbers(values, name, expansion)
    shape = (int(size[0]) if len(size) else 0 for size in inner)
    return numbers.reshape(int(lengths.sum()), *shape), lengths


def hub_folder(
    repository: str,
    patterns: Collection[str],
    *,
    kind: Literal["dataset", "model"] = "dataset",
    revision: str | None = None,
) -> Path:
    """Return a folder with files of a repository of the hub; files not in the cache are downloaded.

    Raises:
        DataError: no such repository, or no network.
        MissingExtraError: huggingface_hub is not installed.
    """
    hub = require("huggingface_hub", extra="hub")
    what = f"{kind} {PREFIX}{repository}"
    with reading_foreign(what, "one of the hub", "Check the name and the network."):
        folder = hub.snapshot_download(
            repository, repo_type=kind, revision=revision, allow_patterns=list(patterns)
        )
    return Path(folder)


def nested_numbers(
    values: Any, name: str, expansion: Expansion | None = None
) -> tuple[Array, list[IntArray]]:
    """Return the numbers of an Arrow array end to end, and the lengths of its nested lists.

    There is one array of lengths for each level of nesting, the outermost first. Below the first
    level, all lists must be equally long.

    Raises:
        DataError: there are nulls, lists of unequal lengths, or values that are not numbers.
    """
    compute = require("pyarrow.compute", extra="parquet")
    sizes = list[IntArray]()
    while _is_type(values.type, _LISTS):
        if values.null_count:
            raise DataError(f"{name}: expected lists, got {values.null_count} nulls.")
        if expansion is not None:
            expansion.add(8 * len(values))  # a file may hold very many empty lists in few bytes
        size = compute.list_value_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
        for step in np.flatnonzero(size != size[:1]) if sizes else ():
            raise DataError(
                f"{name}, list {step}: expected {size[0]} numbers, as in the first, got "
                f"{size[step]}."
            )
        sizes.append(size)
        values = values.flatten()
    if not _is_type(values.type, _NUMBERS):
        raise DataError(f"{name}: expected only numbers, got {values.type}.")
    if values.null_count:
        raise DataError(f"{name}: expected only numbers, got {values.null_count} nulls.")
    return values.to_numpy(zero_copy_only=False), sizes


_LISTS: Final = ("list", "large_list", "fixed_size_list")
_NUMBERS: Final = ("integer", "floating", "boolean")


def _is_type(kind: Any, names: Collection[str]) -> bool:
    """Whether a type of Arrow is one of several kinds."""
    types = require("pyarrow", extra="parquet").types
    return any(getattr(types, f"is_{name}")(kind) for name in names)
