"""The table of tasks, and returns on the scale between a random policy and an expert."""

import numpy as np
import pytest

from preferl.data import TASKS, Task, find_task, normalised_score


@pytest.mark.parametrize(
    ("name", "returns", "score"),
    [  # 100 * (returns - random) / (expert - random), by hand
        ("hopper-medium-replay-v2", 3234.3, 100.0),
        ("hopper-medium-expert-v2", 1607.013848, 50.0),  # the middle of -20.27 and 3234.3
        ("Walker2d-v5", 1.629008, 0.0),
        ("halfcheetah-medium-v2", 5927.410524, 50.0),
        ("ant-expert-v2", 4300.23, 110.0),
        ("door-human-v1", 794.0, 28.9577),
        ("AdroitHandDoor-v1", 172.5748, 7.8000),
        ("pen-cloned-v1", 96.262799, 0.0),
        ("hammer-human-v1", 6259.639124, 50.0),
        ("relocate-expert-v1", -6.425911, 0.0),
        ("antmaze-large-play-v2", 0.42, 42.0),
        ("Lift_ph", 0.9175, 91.75),
    ],
)
def test_scores_are_between_random_and_expert(name, returns, score):
    assert normalised_score(name, returns) == pytest.approx(score, abs=2e-4)


def test_arrays_come_back_in_their_shape():
    returns = np.array([[0, 1], [1, 0]], np.int64)
    scores = normalised_score("antmaze-umaze-v0", returns)
    np.testing.assert_array_equal(scores, [[0.0, 100.0], [100.0, 0.0]])
    assert isinstance(normalised_score("antmaze-umaze-v0", 1), float)
    assert isinstance(normalised_score("antmaze-umaze-v0", np.float32(1)), float)


def test_a_task_of_ones_own():
    task = Task("reach", random=-10, expert=10, max_episode_steps=50)
    assert find_task(task) is task
    assert normalised_score(task, 0.0) == 50


def test_every_published_label_set_has_a_row(shared):
    folders = sorted((shared / "data/preference-transformer-human-labels").iterdir())
    assert len(folders) == 18
    for folder in folders:
        lengths = {file.name.partition("_q")[2] for file in folder.glob("indices*")}
        assert lengths <= {"", str(TASKS[folder.name].query_length)}
