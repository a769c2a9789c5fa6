"""Processes that share a fit or relabelling come to what one alone does."""

import signal
from functools import cache

import numpy as np
import pytest

from helpers import shared_work
from helpers.shared_work import LENGTHS
from preferl.errors import ConfigError
from preferl.training import World
from preferl.training.distributed import launched

KINDS = ("perceptrons", "transformer", "pictures", "dropout", "relabel", "exchange")
CURVES = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Numbers of a kind, a number of processes and a rank."""

    @cache
    def of_size(size):
        folder = tmp_path_factory.mktemp("shared")
        assert shared_work.run(folder, size, *KINDS) == [0] * size
        return folder

    def of(kind, size, rank=0):
        return dict(np.load(of_size(size) / f"{kind}.{size}.{rank}.npz"))

    return of


@pytest.mark.parametrize(
    ("kind", "rtol"),
    # Sums of floats in another order. Adam makes whole steps of gradients that are nearly 0, which
    # the convolutions' rectifiers have; there, what is rounded differently moves differently.
    [("perceptrons", 2e-6), ("transformer", 2e-6), ("pictures", 2e-4)],
)
def test_a_shared_fit_has_the_curves_of_one_process(found, kind, rtol):
    alone = found(kind, 1)
    shared = found(kind, 2)
    for name in CURVES:
        np.testing.assert_allclose(shared[name], alone[name], rtol=rtol, err_msg=name)
    for name in ("best_epoch", "epochs", "decided", "pairs", "penalty"):
        assert shared[name] == alone[name], name
    np.testing.assert_allclose(shared["trust"], alone["trust"], rtol=1e-4)
    np.testing.assert_allclose(shared["likelihood"], alone["likelihood"], rtol=1e-2)


@pytest.mark.parametrize("kind", ["perceptrons", "transformer", "pictures", "dropout"])
def test_all_processes_end_with_the_same_numbers(found, kind):
    first = found(kind, 2)
    other = found(kind, 2, 1)
    differ = [name for name in first if first[name].tobytes() != other[name].tobytes()]
    assert differ in ([], ["seconds"])


@pytest.mark.parametrize("kind", ["perceptrons", "transformer"])
def test_shared_relabelling_is_that_of_one_process_bit_by_bit(found, kind):
    alone = found("relabel", 1)[kind]
    assert len(alone) == sum(LENGTHS)
    assert len(np.unique(alone)) == len(alone), "every step has a reward of its own"
    for rank in (0, 1):
        assert found("relabel", 2, rank)[kind].tobytes() == alone.tobytes()


def test_exchanges_by_hand(found):
    bits = np.array([0.0, -0.0, np.nan, 1e-45, -np.inf, 0.1], np.float32)
    for rank in (0, 1):
        got = found("exchange", 2, rank)
        expected = [[3, 3], [np.nan, np.nan], [1, 1]]  # nobody has the second
        np.testing.assert_array_equal(got["gradients"], expected)
        np.testing.assert_array_equal(got["bits"], bits.view(np.uint32))
        assert got["mean"] == pytest.approx(11)  # of 1, 4, 9, 16, 25
        np.testing.assert_allclose(got["slope"], 2 * np.arange(1, 6) / 5 / 11, rtol=1e-6)
        assert got["choice"].tolist() == [True, False]


def test_shared_fits_that_were_killed_resume_to_the_last_bit(tmp_path, found):
    for epoch in (2, 4):
        first, second = shared_work.run(tmp_path, 2, f"resumed {epoch}")
        assert first == -signal.SIGKILL
        assert second == 1
        message = (tmp_path / f"resumed {epoch}.2.1.txt").read_text()
        assert "expected an answer from all processes, got none" in message, (
            "it does not wait for the first one"
        )
    assert shared_work.run(tmp_path, 2, "resumed 0") == [0, 0]
    for rank in (0, 1):
        resumed = np.load(tmp_path / f"resumed 0.2.{rank}.npz")
        whole = found("dropout", 2, rank)
        differ = [name for name in whole if resumed[name].tobytes() != whole[name].tobytes()]
        assert differ == ["seconds"]


@pytest.mark.parametrize("kind", ["seeds", "normalised"])
def test_processes_that_cannot_share_a_fit_are_refused(tmp_path, kind):
    assert shared_work.run(tmp_path, 2, kind) == [1, 1]
    words = {
        "seeds": "seed of the fit: expected the same in all 2 processes, got differences",
        "normalised": "batch normalisation: expected a model without it if processes share",
    }
    for rank in (0, 1):
        assert words[kind] in (tmp_path / f"{kind}.2.{rank}.txt").read_text()


def test_parts_are_all_rows_once():
    for size in (1, 2, 3, 7):
        for count in (0, 1, 5, 12):
            rows = [
                row for rank in range(size) for row in range(count)[World(rank, size).part(count)]
            ]
            assert rows == list(range(count))


def test_an_environment_of_no_numbers_is_refused(monkeypatch):
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match="RANK and WORLD_SIZE"):
        launched()
