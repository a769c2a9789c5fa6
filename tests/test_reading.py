"""Files from elsewhere: one error for whatever is wrong with them, and no name leads out."""

import pytest

from preferl.errors import CheckpointError, ConfigError, DataError
from preferl.reading import (
    FLOOR,
    MOST_JSON,
    Expansion,
    allow_large,
    inside,
    parse_json,
    parse_yaml,
    read_bytes,
    read_json,
    read_object,
    reading,
)


@pytest.mark.parametrize(
    ("fault", "got"),
    [
        (ValueError("no number."), "no number"),
        (KeyError("weights"), "'weights'"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (RecursionError("too deep"), "too deep"),
        (OSError(28, "disk full"), "disk full"),
        (DataError("rows"), "rows"),
    ],
)
def test_whatever_is_wrong_becomes_one_error(fault, got):
    expected = f"^model: expected weights, got {got}. Copy it again.$"
    with (
        pytest.raises(CheckpointError, match=expected) as raised,
        reading("model", expected="weights", fix="Copy it again."),
    ):
        raise fault
    assert raised.value.__cause__ is fault


def test_errors_of_the_kind_stay_as_they_are():
    own = ConfigError("own words")
    with pytest.raises(ConfigError) as raised, reading("x", expected="y", error=ConfigError):
        raise own
    assert raised.value is own
    with pytest.raises(KeyboardInterrupt), reading("x", expected="y"):
        raise KeyboardInterrupt


def test_a_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "it").write_bytes(b"abc")
    assert read_bytes(tmp_path / "it", 3) == b"abc"
    with pytest.raises(ValueError, match="more than 2 bytes"):
        read_bytes(tmp_path / "it", 2)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none", 2)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1] 2", b"[" * 200_000])
def test_what_is_no_json_is_a_value_error(tmp_path, content):
    (tmp_path / "it").write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011
        read_json(tmp_path / "it")
    with pytest.raises(ValueError):  # noqa: PT011
        parse_json(content)


def test_json_has_an_end_and_objects_are_objects(tmp_path):
    (tmp_path / "it").write_text('{"é": [1, null]}', encoding="utf-8")
    assert read_object(tmp_path / "it") == read_json(tmp_path / "it") == {"é": [1, None]}
    (tmp_path / "it").write_text("[1]")
    with pytest.raises(ValueError, match=r"^list, not an object of JSON$"):
        read_object(tmp_path / "it")
    with (tmp_path / "it").open("wb") as file:
        file.truncate(MOST_JSON + 1)  # sparse, so that it takes no disk
    with pytest.raises(ValueError, match="more than 67,108,864 bytes"):
        read_json(tmp_path / "it")


def test_names_stay_inside_of_their_folder(tmp_path):
    folder = tmp_path / "run"
    other = tmp_path / "run2"
    folder.mkdir()
    other.mkdir()
    assert inside(folder, "a/b") == folder / "a/b"
    assert inside(folder, "a/../b") == folder / "a/../b"
    (folder / "within").symlink_to(folder / "a")
    (folder / "link").symlink_to(other)
    assert inside(folder, "within") == folder / "within"
    for name in ("../run2/x", str(other), "a\0b", "link/x", "link"):
        with pytest.raises(ValueError, match="points out of its folder"):
            inside(folder, name)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1e-3, 1E5, 1.e3, .5e3, 1.5e3, +1e+3, -1e0]", [1e-3, 1e5, 1e3, 500.0, 1500.0, 1e3, -1.0]),
        ("['1e-3', 1e, e5, 1e-3s]", ["1e-3", "1e", "e5", "1e-3s"]),
        ("{a: &a {b: 1}, c: {<<: *a, d: 2}}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("", None),
    ],
)
def test_yaml_is_read_with_the_numbers_of_json(text, value):
    assert parse_yaml(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("[", "- 1\n--- 2", "!!int ''", "!!bool maybe", "!!timestamp x", "2001-99-99"),
        *("? [a]\n: 1", "a: {<<: 1}", "!!python/name:os.system ''", '"\\x1b"', "\x1b"),
        *("0x" + "f" * 3000, "9" * 5000, "1" + ":1" * 9000, "[" * 40 + "]" * 40, "{" * 3000),
        *("&a [*a]", "&a {b: *a}", "a" * 70_000),
    ],
)
def test_what_is_no_plain_yaml_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_yaml(text)


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
