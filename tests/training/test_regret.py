"""Linear rewards from answers by return and by regret, where it is known which fit is right."""

import pytest
import torch

from preferl.errors import ConfigError, DataError
from preferl.functional import pool
from preferl.functional.regret import segment_regret
from preferl.training.regret import LinearTask, fit_by_regret, fit_by_return

CELLS = 8
LEFT, RIGHT = 0, 1


def corridor(discount=0.9):
    """Apples lie in the left half. Right of the last cell is the goal, where the episode ends."""
    transitions = torch.zeros(CELLS, 2, CELLS, dtype=torch.float64)
    features = torch.zeros(CELLS, 2, 2, dtype=torch.float64)
    cells = torch.arange(CELLS)
    transitions[cells, LEFT, (cells - 1).clamp(min=0)] = 1
    transitions[cells[:-1], RIGHT, cells[1:]] = 1
    features[: CELLS // 2, LEFT, 0] = 1
    features[-1, RIGHT, 1] = 1
    return LinearTask(transitions, features, discount)


TRUTH = torch.tensor([0.2, 10.0], dtype=torch.float64)


def clips_before_the_goal(pairs=200):
    """Two steps of a random walk from the first cells; none arrives."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(CELLS - 3, (pairs, 2), generator=generator)
    actions = torch.randint(2, (pairs, 2, 2), generator=generator)
    second = (first + 2 * actions[..., 0] - 1).clamp(min=0)
    return torch.stack([first, second], -1), actions, torch.ones_like(actions, dtype=torch.bool)


def preferences(scores):
    return (torch.sign(scores[:, 0] - scores[:, 1]) + 1) / 2


def test_the_goal_that_no_clip_shows_is_learned_from_answers_by_regret_alone():
    task = corridor()
    states, actions, mask = clips_before_the_goal()
    answers = preferences(-segment_regret(task.advantages(TRUTH)[None], states, actions, mask)[0])
    by_regret = fit_by_regret(task, states, actions, mask, answers, policies=8)
    by_return = fit_by_return(task.features[states, actions], mask, answers)
    assert task.optimal_policies(by_regret[None]).tolist() == [[RIGHT] * CELLS]
    assert by_regret[1] > 5 * by_regret[0].abs()
    # By return, the goal is unknown, and apples look bad, since the walk to the goal passes them.
    assert by_return[1].abs() < 1e-3
    assert by_return[0] < 0
    turned_round = fit_by_regret(task, states, actions, mask, 1 - answers, policies=8)
    assert task.optimal_policies(turned_round[None])[0, -1] == LEFT


def test_answers_by_return_are_learned_as_returns():
    task = corridor()
    states, actions, mask = clips_before_the_goal()
    features = task.features[states, actions]
    answers = preferences(pool(features @ TRUTH, mask))
    by_return = fit_by_return(features, mask, answers)
    assert by_return[0] > 1
    fitted = preferences(pool(features @ by_return, mask))
    assert torch.equal(fitted, answers)


def test_fits_repeat_and_leave_declined_answers_out():
    task = corridor()
    states, actions, mask = clips_before_the_goal(20)
    answers = preferences(pool(task.features[states, actions] @ TRUTH, mask))
    once = fit_by_regret(task, states, actions, mask, answers, policies=4)
    assert torch.equal(once, fit_by_regret(task, states, actions, mask, answers, policies=4))
    answers[3] = torch.nan
    assert fit_by_regret(task, states, actions, mask, answers, policies=4).isfinite().all()


def test_what_does_not_fit_the_task_is_refused():
    task = corridor()
    states, actions, mask = clips_before_the_goal(2)
    with pytest.raises(DataError, match="states of fit_by_regret: expected numbers from 0 to 7"):
        fit_by_regret(task, states + 7, actions, mask, torch.ones(2))
    with pytest.raises(DataError, match=r"transitions \[X, U, X\]"):
        LinearTask(task.transitions[:, :, 1:], task.features)
    with pytest.raises(DataError, match="sum to at most 1"):
        LinearTask(2 * task.transitions, task.features)
    for discount in (0, 1, 2):
        with pytest.raises(ConfigError, match="discount: expected a number above 0 and below 1"):
            corridor(discount=discount)
