"""Tables are the same rows in each format, and refuse what is malformed by row and column."""

import csv

import pytest

from preferl.errors import ConfigError, DataError, StorageError
from preferl.store.exchange.tables import cell, cell_of, read_table, table_format, writing_table

COLUMNS = {"name": "text", "count": "whole", "share": "number", "new": "flag", "more": "json"}
ROWS = [
    ('Zoë, "so"\n', 2**53 - 1, 1 / 3, True, {"b": [1, 2.5], "a": None}),
    ("=1+1", -7, 1e-300, False, {}),
    (None, None, None, None, {"": ""}),
]
FORMATS = ["jsonl", "csv", "parquet"]


def write(path, rows=ROWS):
    with writing_table(path, COLUMNS) as add:
        add(rows[:1])
        add(rows[1:])
    return path


def cells(path):
    """The rows of a file, each cell of its column's kind."""
    return [
        tuple(cell_of(row, name, kind, "here") for name, kind in COLUMNS.items())
        for row in read_table(path)
    ]


@pytest.mark.parametrize("ending", FORMATS)
def test_what_is_written_is_read(tmp_path, ending):
    assert cells(write(tmp_path / f"a.{ending}")) == ROWS
    assert cells(write(tmp_path / f"none.{ending}", [])) == []


@pytest.mark.parametrize("ending", FORMATS)
def test_a_block_that_fails_leaves_no_file(tmp_path, ending):
    path = write(tmp_path / f"a.{ending}", ROWS[:1])
    with pytest.raises(ValueError, match="zip"), writing_table(path, COLUMNS) as add:
        add([*ROWS, ("a cell and no others",)])
    assert cells(path) == ROWS[:1], "the file from before"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_the_end_of_a_name_is_the_format(tmp_path):
    assert table_format(tmp_path / "a.b.CSV") == "csv"
    for name in ("a.xlsx", "csv", "a.csv.gz"):
        with pytest.raises(ConfigError, match="one of jsonl, csv, parquet"):
            table_format(tmp_path / name)
    with pytest.raises(ConfigError, match="format"), writing_table(tmp_path / "a.txt", COLUMNS):
        pass


def test_empty_lines_and_byte_order_marks_are_passed_over(tmp_path):
    lines = tmp_path / "a.jsonl"
    table = tmp_path / "a.csv"
    lines.write_text('{"a": 1}\n\n{"a": 2}\n')
    assert list(read_table(lines)) == [{"a": 1}, {"a": 2}]
    table.write_bytes(b"\xef\xbb\xbfa,b\r\n1,\r\n")
    assert list(read_table(table)) == [{"a": "1", "b": None}]


@pytest.mark.parametrize(
    "content",
    [
        'Name,count,SHARE,"New",more\n"A; b",7,0.5,TRUE,"{""b"": 1}"\n,,,,\n',
        'name;Count;share;NEW;more\r\n"A; b";7;0,5;True;"{""b"": 1}"\r\n;;;;\r\n',
        'name\tcount\tshare\tnew\tmore\nA; b\t7.0\t5e-1\ttrue\t"{""b"": 1}"\n',
        'sep=;\n Name ;count;share;new;more\n"A; b";7;0.5;TRUE;{"b": 1}\n',
        ',name,count,share,new,more\n0,A; b,7,0.5,True,"{""b"": 1}"\n',
    ],
    ids=["capitals", "semicolons", "tabs", "a hint", "an index"],
)
def test_what_spreadsheets_save_is_read(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content.encode("utf-8-sig"))
    (tmp_path / "a.tsv").write_bytes(content.encode())
    for path in (tmp_path / "a.csv", tmp_path / "a.tsv"):
        assert cells(path) == [("A; b", 7, 0.5, True, {"b": 1})]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"a": 1}\n\n[2]\n', r"a\.jsonl, row 3: expected an object of JSON, got list"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", r"a\.csv, row 2: expected 2 cells, got more or fewer"),
        ("b.csv", b'a,b\n1,"2\n', r"b\.csv, row 1: expected a row of CSV"),
        ("d.csv", b"a,b,A\n1,2,3\n", r"heads: expected a different name .*'a'"),
        ("c.csv", b"a\n\xff\n", "text in UTF-8.*CSV UTF-8"),
        ("a.parquet", b"PAR1", "expected a Parquet file"),
    ],
)
def test_malformed_files_are_refused_with_the_row(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        list(read_table(tmp_path / name))


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_that_is_not_there_cannot_be_read(tmp_path, ending):
    with pytest.raises(StorageError, match=rf"none\.{ending}: expected a file that can be read"):
        list(read_table(tmp_path / f"none.{ending}"))


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
