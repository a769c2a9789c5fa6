"""Whatever is done to a whole file, its reader reads it or words an error, soon and in bounds.

`make test` tries a few damages of each kind of file, `make nightly` hundreds.
"""

import json
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from helpers.measure_hostile import measure
from helpers.valid_files import VALID

NIGHTLY = os.environ.get("PREFERL_NIGHTLY") == "1"
EXAMPLES = 300 if NIGHTLY else 3
MOST_MEGABYTES = 200  # of processor time: the slowest took 1.1 beside other work
MOST_SECONDS = 6

HOSTILE = [
    None,
    True,
    -1,
    0,
    1.5,
    2**31,
    2**63,
    10**400,
    1e308,
    "",
    "x",
    "../x",
    "/etc/passwd",
    "a\x00",
    [],
    {},
    [[]],
    [None],
    {"kind": "Box"},
    "nan",
    "inf",
    float("nan"),
    float("inf"),
]
"""What a field of JSON may be replaced with."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Makes the file or folder of a reader, once."""
    folder = tmp_path_factory.mktemp("whole")
    made = {}

    def make(name):
        if name not in made:
            made[name] = folder / f"{len(made)}"
            VALID[name][0](made[name])
        return made[name]

    return make


def test_whole_files_are_read(whole):
    for name, (_, read) in VALID.items():
        measures = measure(read, whole(name))
        assert measures["end"] == "read", (name, measures)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("name", VALID)
@settings(
    max_examples=EXAMPLES,
    derandomize=not NIGHTLY,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(whole, tmp_path_factory, name, data):
    place = tmp_path_factory.mktemp("damaged") / "it"
    source = whole(name)
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, place)
    files = sorted(f for f in place.rglob("*") if f.is_file()) if place.is_dir() else [place]
    file = data.draw(st.sampled_from(files), label="file")
    file.write_bytes(damaged(file.read_bytes(), data))
    measures = measure(VALID[name][1], place)
    shutil.rmtree(place.parent)
    assert measures["end"].startswith(("read", "refused: ")), measures
    assert measures["megabytes"] <= MOST_MEGABYTES, measures
    assert measures["seconds"] <= MOST_SECONDS, measures


def damaged(content, data):
    """The content with bits flipped, cut off, spliced, or with a field of its JSON replaced."""
    try:
        fields = json.loads(content.split(b"\n")[0] if b"}\n{" in content else content)
    except ValueError:
        fields = None
    kinds = ["flip", "cut", "splice", "fill"] + ["field"] * 6 * isinstance(fields, dict)
    kind = data.draw(st.sampled_from(kinds), label="kind")
    if kind == "field":
        return json.dumps(_replaced(fields, data)).encode() + b"\n"
    at = data.draw(st.integers(0, max(0, len(content) - 1)), label="at")
    if kind == "cut":
        return content[:at]
    if kind == "splice":
        to = data.draw(st.integers(0, max(0, len(content) - 1)), label="to")
        size = data.draw(st.integers(1, 64), label="size")
        return content[:to] + content[at : at + size] + content[to:]
    if kind == "fill":
        size = data.draw(st.integers(1, 16), label="size")
        byte = data.draw(st.sampled_from([b"\x00", b"\xff", b"\x7f"]), label="byte")
        return content[:at] + byte * size + content[at + size :]
    flips = data.draw(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1))
    spoilt = bytearray(content or b"\x00")
    for where, bit in flips:
        spoilt[where % len(spoilt)] ^= 1 << bit
    return bytes(spoilt)


def _replaced(value, data):
    """JSON with one value somewhere replaced, or left out."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    if not keys:
        return data.draw(st.sampled_from(HOSTILE), label="value")
    key = data.draw(st.sampled_from(list(keys)), label="key")
    changed = value.copy()
    if isinstance(value[key], dict | list) and data.draw(st.booleans(), label="deeper"):
        changed[key] = _replaced(value[key], data)
    elif data.draw(st.integers(0, 4), label="gone") == 0:
        del changed[key]
    else:
        changed[key] = data.draw(st.sampled_from(HOSTILE), label="value")
    return changed
