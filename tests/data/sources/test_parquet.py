"""What Parquet files take in memory is counted by their pages, whoever wrote them and however."""

import numpy as np
import pytest

from preferl.data.sources.parquet import PER_VALUE, unpacked_bytes
from preferl.errors import DataError

pa = pytest.importorskip("pyarrow", reason="the extra preferl[parquet] is not installed")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = 1_000


def write(path, column, **settings):
    parquet.write_table(
        pa.table({"kept": column, "other": pa.array(["x"] * ROWS)}), path, **settings
    )
    return path


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("page", [100, 2**20])
def test_numbers_count_once_whatever_their_pages(tmp_path, version, compression, page):
    path = write(
        tmp_path / "a",
        pa.array(np.zeros(ROWS, np.float32)),
        data_page_version=version,
        compression=compression,
        data_page_size=page,
        row_group_size=300,
        use_dictionary=False,
    )
    assert unpacked_bytes(path, columns=("kept",)) == ROWS * (4 + PER_VALUE)


@pytest.mark.parametrize(
    ("kind", "width"),
    [("int8", 4), ("int64", 8), ("float16", 2), ("float64", 8), ("bool_", 1)],
)
def test_every_kind_of_number(tmp_path, kind, width):
    column = pa.array(np.zeros(ROWS, kind.rstrip("_")), getattr(pa, kind)())
    path = write(tmp_path / "a", column, use_dictionary=False)
    size = unpacked_bytes(path, columns=("kept",))
    assert ROWS * (width + PER_VALUE) <= size <= 2 * ROWS * (width + PER_VALUE)


def test_lists_and_structures_count_all_their_values(tmp_path):
    lists = pa.array([[[1.0, 2.0]] * 3] * ROWS)
    assert unpacked_bytes(write(tmp_path / "a", lists), columns=("kept",)) >= ROWS * 6 * 8
    parts = pa.array([{"a": 1, "b": {"c": 2.0}}] * ROWS)
    assert unpacked_bytes(write(tmp_path / "b", parts), columns=("kept",)) >= ROWS * 2 * 8


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_texts_that_repeat_count_as_often_as_they_are_written_out(tmp_path, encoding):
    text = "y" * 1_000
    column = pa.array([text] * ROWS)
    path = write(tmp_path / "a", column, use_dictionary=False, column_encoding={"kept": encoding})
    assert unpacked_bytes(path, columns=("kept",), texts_once=("kept",)) >= ROWS * len(text)
    path = write(tmp_path / "b", column, use_dictionary=True)
    assert unpacked_bytes(path, columns=("kept",)) >= ROWS * len(text)
    assert unpacked_bytes(path, columns=("kept",), texts_once=("kept",)) < 20 * ROWS


def test_a_footer_with_other_counts_than_the_pages(tmp_path):
    path = write(tmp_path / "a", pa.array(np.zeros(ROWS)))
    content = path.read_bytes()
    thousand = b"\xd0\x0f"  # as Thrift writes them
    one = b"\x82\x00"
    path.write_bytes(_in_footer(content, thousand, one))
    with pytest.raises(DataError, match=r"1,000 values in pages of kept, and 1 declared"):
        unpacked_bytes(path)


def _in_footer(content, before, after):
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:footer] + content[footer:].replace(before, after)


def test_damaged_pages_and_footers(tmp_path):
    path = write(tmp_path / "a", pa.array(np.arange(ROWS)))
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for damaged in (
        content[: len(content) // 2],
        content[:4] + bytes(footer - 4) + content[footer:],
        content[:4] + b"\xff" * (footer - 4) + content[footer:],
        content[:footer] + bytes(len(content) - 8 - footer) + content[-8:],
        content[:-8] + b"\xff\xff\xff\x7f" + content[-4:],
        b"",
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="whole Parquet file"):
            unpacked_bytes(path)
