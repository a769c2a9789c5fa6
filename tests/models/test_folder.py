"""Folders of networks: round trips, what is refused, and that nothing is lost by replacing them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.errors import CheckpointError, StorageError
from preferl.models.folder import NetworkFolder, bounded_network, require_finite, require_state

KIND = NetworkFolder("network", "weights.safetensors", "about.json", format=3)
SPACES = spaces.Box(-1, 1, (2,)), spaces.Discrete(3)
TENSORS = {"layer.weight": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7)}


def save(path, tensors=TENSORS, kind=KIND, **about):
    with kind.saving(path, about, tensors, *SPACES):
        pass


def test_tensors_that_are_shared_or_transposed_come_back(tmp_path):
    one = torch.arange(4.0).reshape(2, 2)
    save(tmp_path / "it", {"a": one, "b": one, "c": one.T})
    found = KIND.load(tmp_path / "it").tensors
    assert found["a"].tolist() == found["b"].tolist() == [[0, 1], [2, 3]]
    assert found["c"].tolist() == [[0, 2], [1, 3]]


def test_empty_folders_and_those_of_its_kind_are_replaced_and_others_are_not(tmp_path):
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty")
    save(tmp_path / "empty", {"other": torch.zeros(1)})
    assert set(KIND.load(tmp_path / "empty").tensors) == {"other"}
    with pytest.raises(StorageError, match="holds something else"):
        save(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"extra": torch.zeros(1)}, "other names or shapes for .*extra"),
        ({"layer.weight": torch.zeros(3, 2)}, "other names or shapes for .*layer.weight"),
        ({"layer.weight": torch.zeros(2, 3).double()}, "layer.weight: expected torch.float32"),
        ({"layer.weight": torch.full((2, 3), np.nan)}, "6 of 6 NaN or infinite"),
    ],
)
def test_states_of_other_models_are_named(changes, words):
    require_state("file", TENSORS, TENSORS)
    with pytest.raises(CheckpointError, match=words):
        require_state("file", TENSORS | changes, TENSORS)


def test_inputs_are_divided_by_numbers_above_zero_alone():
    require_finite("file", {"encoder.deviation": torch.ones(2), "mean": torch.zeros(2)})
    with pytest.raises(CheckpointError, match=r"encoder\.deviation: expected numbers above 0"):
        require_finite("file", {"encoder.deviation": torch.tensor([1.0, 0.0])})


def test_networks_are_bounded_by_what_was_saved():
    with bounded_network(numbers=30):
        torch.nn.Linear(9, 3)
    torch.nn.Linear(100, 100)
    with bounded_network(numbers=30), pytest.raises(ValueError, match="makes 10,000 numbers"):
        torch.nn.Linear(100, 100)
    with bounded_network(numbers=30), pytest.raises(ValueError, match="belong to different"):
        torch.nn.ParameterList(torch.zeros(0) for _ in range(100))
