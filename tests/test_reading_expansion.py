"""What a file may become in memory, by the size that it has."""

import pytest

from preferl.errors import DataError
from preferl.reading import FLOOR, Expansion, allow_large


def test_a_small_file_may_become_the_floor_and_a_large_one_a_hundred_times_itself(tmp_path):
    assert Expansion("it", stored=0).left == FLOOR == 33_554_432
    assert Expansion("it", stored=1_000_000).left == 100_000_000
    (tmp_path / "it").write_bytes(b"x" * 500_000)
    assert Expansion.of(tmp_path / "it").left == 50_000_000


def test_bytes_add_up_to_what_is_refused():
    counted = Expansion("it", stored=1_000_000)
    counted.add(60_000_000)
    counted.add(40_000_000)
    assert counted.left == 0
    expected = "it: expected at most 100,000,000 bytes in memory of a file of 1,000,000, got "
    with pytest.raises(DataError, match=f"{expected}100,000,001 or more.*--allow-large"):
        counted.add(1)
    assert counted.left == 0, "what was refused does not count"


def test_large_files_are_allowed_in_a_block_alone():
    def fill():
        Expansion("it", stored=1).add(10**12)

    with pytest.raises(KeyError), allow_large():  # noqa: PT012
        with allow_large():
            fill()
        fill()
        raise KeyError
    with pytest.raises(DataError, match="allow_large"):
        fill()
