"""Arrays recorded from the published implementation of the Preference Transformer."""

import json

import numpy as np
import pytest

from preferl.models.flax import flax_places


def arrays(shared, name):
    file = shared / "golden" / "preference_transformer" / f"{name}.npz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not among the shared arrays")
    golden = dict(np.load(file))
    return golden | {"meta": json.loads(str(golden["meta"]))}


def stored(golden):
    return {name: array for name, array in golden.items() if name.startswith("param:")}


def drawn(model, golden):
    """Parameters from the seed in the file, with the sums it holds."""
    stream = np.random.RandomState(golden["meta"]["param_seed"])
    places = flax_places(model)
    assert sorted(places) == golden["param_names"].tolist()
    found = {}
    for name in sorted(places):
        numbers = stream.standard_normal(places[name].shape)
        match name.split("/")[-1]:
            case "kernel":
                numbers = numbers / np.sqrt(numbers.shape[0])
            case "embedding":
                numbers = numbers / np.sqrt(numbers.shape[1])
            case "scale":
                numbers = 1 + 0.1 * numbers
            case _:
                numbers = 0.1 * numbers
        found[name] = numbers.astype(np.float32)
    sums = [a.sum(dtype=np.float64) for a in found.values()]
    np.testing.assert_allclose(sums, golden["param_sum"], rtol=1e-7, atol=1e-6)
    return found
