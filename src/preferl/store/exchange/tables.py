"""Tables in files, row by row: JSON lines, CSV and Parquet with the same columns."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from sys import float_info
from typing import Any, Final, Literal, cast, get_args

from preferl._optional import require
from preferl.data.sources.parquet import PER_VALUE, unpacked_bytes
from preferl.errors import ConfigError, DataError, StorageError, in_words
from preferl.files import writing
from preferl.reading import Expansion, parse_json

Format = Literal["jsonl", "csv", "parquet"]
Cell = Literal["text", "whole", "number", "flag", "json"]
"""What a column holds; `json` is an object in JSON lines, and its text in CSV and Parquet."""

Rules = Mapping[str, tuple[object, str]]
"""By column: whether its cell is right, and the words for what is expected."""

Write = Callable[[Sequence[Sequence[Any]]], None]
"""Adds rows to a table."""

BATCH: Final = 5_000
"""Number of rows that are read or written at once."""

OBJECT_BYTES: Final = 40
"""Bytes that a Python object takes in a list, in addition to its content."""

_FORMULA: Final = re.compile(r"'*[=+\-@\t\r]")
"""Beginnings of text that a spreadsheet would run. In CSV, an apostrophe is put before it."""

_SEPARATOR_HINT: Final = re.compile(r"sep=(.)", re.IGNORECASE)
"""A first line with which spreadsheets name the delimiter of a CSV file."""

_DECIMAL_COMMA: Final = re.compile(r"^(-?[0-9]+),([0-9]+(?:[eE][+-]?[0-9]+)?)$")
"""Form of a number in the cells of semicolon-separated tables."""

_CELLS: Final[Mapping[Cell, tuple[str, str, float]]] = {
    "text": ("string", "text", 0),
    "whole": ("int64", "a whole number", 2**53),
    "number": ("float64", "a finite number", float_info.max),
    "flag": ("bool_", "true or false", 0),
    "json": ("string", "an object of JSON", 0),
}
"""Arrow's type, the words for it in errors, and a bound of numbers.

Beyond the bound, floats do not hold all whole numbers.
"""


def table_format(path: Path) -> Format:
    """Return the format, from the ending of a file's name.

    Raise `ConfigError` for other endings.
    """
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending not in get_args(Format):
        raise ConfigError(
            f"format: expected one of {', '.join(get_args(Format))} as the ending of the file's "
            f"name, got {ending!r}."
        )
    return cast("Format", ending)


@contextmanager
def writing_table(path: Path, columns: Mapping[str, Cell]) -> Iterator[Write]:
    """Yield a function that adds rows; the file appears if the block ends without an error.

    Rows are cells in the order of `columns`; None is an empty cell. For errors, see `table_format`
    and `writing`. For Parquet without `pyarrow`, `MissingExtraError` is raised.
    """
    writer = {"jsonl": _json_lines, "csv": _csv, "parquet": _parquet}[table_format(path)]
    with writing(Path(path)) as draft, writer(draft, columns) as write:
        yield write


def read_table(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file as dictionaries. Cells of CSV are text, or None if empty.

    Names of columns become lower case, and their spaces become `_`. CSV may have semicolons or tabs
    between its cells. Rows without any value are skipped.

    Raises:
        ConfigError: the format is unknown.
        DataError: a row is malformed; the message names file and row.
        MissingExtraError: the file is Parquet, and the extra `parquet` is not installed.
        StorageError: the file cannot be read.
    """
    path = Path(path)
    reader = {"jsonl": _read_json_lines, "csv": _read_csv, "parquet": _read_parquet}
    tabs = path.suffix.lower() == ".tsv"
    rows = reader["csv" if tabs else table_format(path)](path)
    try:
        for row in rows:
            if any(value is not None for value in row.values()):
                yield {_column_name(name): value for name, value in row.items()}
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: expected text in UTF-8, got {in_words(error)}. Save the file again; in a "
            "spreadsheet, as CSV UTF-8."
        ) from error
    except OSError as error:
        raise StorageError(
            f"{path}: expected a file that can be read, got {in_words(error)}."
        ) from error


@lru_cache(maxsize=1024)
def _column_name(head: str) -> str:
    return "_".join(head.lower().split())


def cell(kind: Cell, value: Any) -> Any:
    """Return the value of a cell. Like in CSV, the cell may be the text of that value.

    Raises:
        ValueError: the value is not of this kind.

    >>> cell("flag", "TRUE"), cell("whole", "7"), cell("number", 1), cell("text", None)
    (True, 7, 1.0, None)
    """
    if value is None:
        return None
    _, expected, most = _CELLS[kind]
    if isinstance(value, str):
        with suppress(ValueError):
            if kind == "text":
                value.encode("utf-8")  # fails for halves of characters, which JSON may escape
                return value
            if kind == "flag":
                value = value.lower()  # spreadsheets write TRUE, Python True
            value = parse_json(value)
    if isinstance(value, {"json": dict, "flag": bool}.get(kind, ())):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and abs(value) < most:
        if kind == "number":
            return float(value)
        if value == int(value):
            return int(value)
    raise ValueError(expected)


def cell_of(row: Mapping[str, Any], name: str, kind: Cell, where: str) -> Any:
    """Return the value of a row's cell, see `cell`.

    Raises:
        DataError: the value is not of this kind; the message names file, row and column.
    """
    try:
        return cell(kind, row.get(name))
    except ValueError as error:
        raise wrong_cell(where, name, error, repr(row.get(name))[:100]) from error


def cells_of(
    row: Mapping[str, Any], columns: Mapping[str, Cell], needed: Iterable[str], where: str
) -> dict[str, Any]:
    """Return the values of a row's `columns`. Other columns are dropped; missing ones are None.

    Raises:
        DataError: a cell is of another kind, or empty although it is `needed`.
    """
    cells = {name: cell_of(row, name, kind, where) for name, kind in columns.items()}
    for name in needed:
        if cells[name] is None:
            raise wrong_cell(where, name, "a value", "none")
    return cells


def require_right(row: Mapping[str, Any], rules: Rules, where: str) -> None:
    """Raise `DataError` for the first cell of a row that breaks its rule."""
    for name, (is_right, expected) in rules.items():
        if not is_right:
            raise wrong_cell(where, name, expected, repr(row[name]))


def wrong_cell(where: str, column: str, expected: object, got: object, fix: str = "") -> DataError:
    """Return an error that names file, row and column."""
    advice = f" {fix}" if fix else ""
    return DataError(f"{where}, column {column}: expected {expected}, got {got}.{advice}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@contextmanager
def _json_lines(draft: Path, columns: Mapping[str, Cell]) -> Iterator[Write]:
    with draft.open("w", encoding="utf-8", newline="\n") as file:

        def write(rows: Sequence[Sequence[Any]]) -> None:
            named = (dict(zip(columns, row, strict=True)) for row in rows)
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in named)

        yield write


@contextmanager
def _csv(draft: Path, columns: Mapping[str, Cell]) -> Iterator[Write]:
    kinds = columns.values()

    def text(kind: Cell, value: Any) -> str | None:
        if value is None:
            return None
        if kind != "text":
            return _json(value)
        return f"'{value}" if _FORMULA.match(value) else str(value)

    def cells(row: Sequence[Any]) -> list[str | None]:
        return [text(kind, value) for kind, value in zip(kinds, row, strict=True)]

    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        yield lambda rows: writer.writerows(map(cells, rows))


@contextmanager
def _parquet(draft: Path, columns: Mapping[str, Cell]) -> Iterator[Write]:
    arrow, parquet = (require(name, extra="parquet") for name in ("pyarrow", "pyarrow.parquet"))
    schema = arrow.schema(
        [(name, getattr(arrow, _CELLS[kind][0])()) for name, kind in columns.items()]
    )
    with parquet.ParquetWriter(draft, schema) as writer:

        def write(rows: Sequence[Sequence[Any]]) -> None:
            values = [
                [None if v is None else _json(v) for v in column] if kind == "json" else column
                for kind, column in zip(columns.values(), zip(*rows, strict=True), strict=True)
            ]
            arrays = [arrow.array(v, f.type) for v, f in zip(values, schema, strict=True)]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))

        yield lambda rows: write(rows) if rows else None


def _read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = parse_json(line)
            except ValueError as error:
                raise _wrong_row(path, number, error) from error
            if not isinstance(row, dict):
                raise _wrong_row(path, number, type(row).__name__)
            yield row


def _read_csv(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # lists of steps make long cells
    number = 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            heads = file.readline()
            hint = _SEPARATOR_HINT.fullmatch(heads.strip("\r\n"))
            if hint:
                heads = file.readline()
            delimiter = hint[1] if hint else _delimiter(heads)
            reader = csv.DictReader(chain([heads], file), delimiter=delimiter, strict=True)
            _require_different_heads(path, reader.fieldnames or ())
            for number, row in enumerate(reader, 1):
                if None in row or None in row.values():
                    expected = f"{len(reader.fieldnames or ())} cells"
                    raise _wrong_row(path, number, "more or fewer", expected)
                if delimiter == ";":
                    row = {name: _DECIMAL_COMMA.sub(r"\1.\2", text) for name, text in row.items()}
                yield {name: _unescaped(text) if text else None for name, text in row.items()}
        except csv.Error as error:
            raise _wrong_row(path, number + 1, error, "a row of CSV") from error


def _delimiter(heads: str) -> str:
    """Return the delimiter that splits the heads of a table into most columns."""

    def columns(delimiter: str) -> int:
        return len(next(csv.reader([heads], delimiter=delimiter), []))

    return max(",;\t", key=columns)


def _require_different_heads(path: Path, heads: Sequence[str]) -> None:
    names = Counter(_column_name(head) for head in heads if head.strip())
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise DataError(
            f"{path}, heads: expected a different name for each column, got {repeated} repeatedly."
        )


def _unescaped(text: str) -> str:
    return text[1:] if text[0] == "'" and _FORMULA.match(text) else text


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    arrow, parquet = (require(name, extra="parquet") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        expansion = Expansion.of(path)
        kinds = (arrow.string(), arrow.large_string(), arrow.binary())
        schema = parquet.read_schema(path)
        texts = [
            field.name
            for field in schema
            if arrow.types.is_dictionary(field.type) or any(map(field.type.equals, kinds))
        ]
        per_value = PER_VALUE + OBJECT_BYTES
        expansion.add(unpacked_bytes(path, texts_once=texts, per_value=per_value))
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            for batch in file.iter_batches(BATCH):
                for column in batch.columns:
                    expansion.add(_unpacked(arrow, column))
                yield from batch.to_pylist()
    except arrow.ArrowException as error:
        raise DataError(f"{path}: expected a Parquet file, got {in_words(error)}.") from error


def _unpacked(arrow: Any, column: Any) -> int:
    """Return the size of a column's rows in bytes; a dictionary holds repeated text only once."""
    if not arrow.types.is_dictionary(column.type):
        return int(column.nbytes)
    compute = require("pyarrow.compute", extra="parquet")
    lengths = compute.binary_length(column.dictionary).take(column.indices)
    return int(compute.sum(lengths).as_py() or 0)


def _wrong_row(
    path: Path, number: int, got: object, expected: str = "an object of JSON"
) -> DataError:
    return DataError(f"{path}, row {number}: expected {expected}, got {got}.")
