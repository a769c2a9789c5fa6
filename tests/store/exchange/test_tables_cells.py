"""Cells of tables have a kind, and texts that no spreadsheet runs."""

import csv

import pytest

from preferl.errors import DataError
from preferl.store.exchange.tables import (
    cell,
    cell_of,
    read_table,
    writing_table,
)


def test_no_text_is_a_formula_of_a_spreadsheet(tmp_path):
    texts = ["=1", "+1", "-1", "@a", "\ta", "\ra", "'=1", "''=1", "'a", "a=1"]
    path = tmp_path / "a.csv"
    with writing_table(path, {"text": "text"}) as add:
        add([[text] for text in texts])
    with path.open(newline="") as file:
        assert not [row for row in csv.DictReader(file) if row["text"][0] in "=+-@\t\r"]
    assert [row["text"] for row in read_table(path)] == texts


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("whole", "7", 7), ("whole", 7.0, 7), ("number", "1e3", 1000.0), ("flag", "false", False),
        ("flag", "FALSE", False), ("flag", "True", True),
        ("json", '{"a": 1}', {"a": 1}), ("text", "7", "7"), ("text", "", ""), ("whole", None, None),
    ],
)  # fmt: skip
def test_cells_are_read_from_values_and_their_text(kind, value, expected):
    assert cell(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("whole", 1.5), ("whole", True), ("whole", 2**53), ("whole", ""), ("number", "nan"),
        ("number", float("inf")), ("flag", 1), ("flag", "yes"), ("json", "[1]"), ("json", "{"),
        ("text", 7), ("text", "\ud800"),
    ],
)  # fmt: skip
def test_cells_of_another_kind_are_refused_with_their_place(kind, value):
    with pytest.raises(ValueError, match=r"text|number|true|object"):
        cell(kind, value)
    with pytest.raises(DataError, match=r"a\.csv, row 2, column size: expected .*, got "):
        cell_of({"size": value}, "size", kind, "a.csv, row 2")
