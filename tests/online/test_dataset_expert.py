"""Which checkpoint is the expert, and which is medium."""

import json

import pytest

from preferl.errors import ConfigError, StorageError
from preferl.online.dataset import evaluated, expert, medium


def way(*means: float) -> dict[int, float]:
    return {10 * k: mean for k, mean in enumerate(means, 1)}


def test_the_expert_is_the_best_and_the_earlier_of_equals():
    assert expert(way(1, 9, 9, 4)) == 20


@pytest.mark.parametrize(
    ("random", "means", "step"),
    [
        (0.0, (10, 40, 90, 100), 20),  # a third of 100 is 33.3
        (-300.0, (-280, -90, 150, 300), 20),  # -300 + 600 / 3 = -100
        (0.0, (10, 99, 100, 33), 10),  # what comes after the expert is not on its way
    ],
)
def test_medium_is_a_third_of_the_way_from_random(random, means, step):
    assert medium(way(*means), random) == step


def test_without_a_checkpoint_before_the_expert_nobody_is_medium():
    with pytest.raises(ConfigError, match=r"a checkpoint before the expert's.*after 10 steps"):
        medium(way(5, 4, 3), 0.0)


def test_judgements_are_read_in_the_order_of_training(tmp_path):
    (tmp_path / "judged").mkdir()
    for step, value in (("000000200", 2.0), ("000000100", 1.0), ("000001000", 3.0)):
        report = {"returns": [value, value + 1], "lengths": [5, 5], "success": None}
        (tmp_path / "judged" / f"{step}.json").write_text(json.dumps(report))
    found = evaluated(tmp_path)
    assert list(found.items()) == [(100, 1.5), (200, 2.5), (1000, 3.5)]
    (tmp_path / "judged" / "000000100.json").write_text("{")
    with pytest.raises(StorageError, match="evaluation of a checkpoint"):
        evaluated(tmp_path)
