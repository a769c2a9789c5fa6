"""What a program remembers comes back as it was, and nothing in the files is run."""

import json
from collections import deque

import numpy as np
import pytest
import torch

from preferl.errors import CheckpointError, ConfigError
from preferl.training.checkpoint_folder import LARGE_BYTES, read_state, write_state


def back(value, folder):
    write_state(folder, value)
    return read_state(folder)


@pytest.mark.parametrize(
    "value",
    [
        2**90,
        float("inf"),
        [1, (2, [3.5, None])],
        {"a": {"b": ()}},
        {0: "zero", None: 1},
        {"$": "not a tag"},
        deque([1, 2], maxlen=5),
    ],
)
def test_plain_values_come_back(tmp_path, value):
    found = back(value, tmp_path)
    assert found == value
    assert type(found) is type(value)


def test_arrays_and_tensors_come_back(tmp_path):
    columns = np.arange(12, dtype=np.float32).reshape(3, 4).T
    state = {
        "turned": columns,
        "none": np.zeros((0, 3), np.uint8),
        "alone": np.array(3.5),
        "scalar": np.float32(1.25),
        "mask": np.array([True, False]),
        "large": np.ones(LARGE_BYTES // 8 + 1),
        "tensor": torch.ones(2, dtype=torch.bfloat16),
        "nan": float("nan"),
    }
    found = back(state, tmp_path)
    for name in ("turned", "none", "alone", "mask", "large"):
        np.testing.assert_array_equal(found[name], state[name])
        assert found[name].dtype == state[name].dtype
        assert found[name].shape == state[name].shape
        assert found[name].flags.writeable
    assert isinstance(found["scalar"], np.float32)
    assert found["scalar"] == 1.25
    assert found["tensor"].dtype == torch.bfloat16
    assert np.isnan(found["nan"])
    assert len(list((tmp_path / "large").iterdir())) == 1


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_generators_go_on(tmp_path, kind):
    rng = np.random.Generator(kind(3))
    rng.normal(size=5)
    rng.integers(7, size=3, dtype=np.uint8)
    found = back([rng], tmp_path)[0]
    np.testing.assert_array_equal(found.normal(size=5), rng.normal(size=5))
    np.testing.assert_array_equal(found.integers(9, size=3), rng.integers(9, size=3))


@pytest.mark.parametrize("value", [object(), {"a": [1, print]}, np.array(["word"]), {1, 2}])
def test_what_cannot_be_written_is_named(tmp_path, value):
    with pytest.raises(ConfigError, match=r"^state.*: expected numbers, text, arrays"):
        write_state(tmp_path, value)


def test_damaged_states_are_refused(tmp_path):
    write_state(tmp_path, {"a": np.ones(3)})
    file = tmp_path / "state.json"
    contents = json.loads(file.read_text())
    file.write_text(json.dumps(contents | {"b": {"$": "large", "is": "../../secret"}}))
    with pytest.raises(CheckpointError, match="is no name in a state"):
        read_state(tmp_path)
    file.write_text(json.dumps({"$": "something new"}))
    with pytest.raises(CheckpointError, match="whole state"):
        read_state(tmp_path)
    file.unlink()
    with pytest.raises(CheckpointError, match="whole state"):
        read_state(tmp_path)
