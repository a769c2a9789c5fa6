"""Evaluations while a policy learns: when, by which episodes, and under which names."""

import gymnasium
import numpy as np
import pytest
import scipy
import torch

from preferl.errors import DataError
from preferl.evaluation.curve import Evaluation, Evaluator, in_step
from preferl.evaluation.policy import PolicyReport
from preferl.evaluation.summary import evaluation_curve
from preferl.statistics import mean_interval


def evaluation(step, *returns, success=None):
    lengths = np.full(len(returns), 4)
    happened = None if success is None else np.array(success, bool)
    return Evaluation(step, PolicyReport(np.array(returns, float), lengths, happened))


def test_numbers_have_the_names_of_the_field():
    metrics = evaluation(3, 1.0, 3.0, success=(True, False)).metrics()
    low = metrics.pop("eval/mean_reward_low")
    high = metrics.pop("eval/mean_reward_high")
    assert (low, high) == (1.0, 3.0)
    assert metrics == {
        "eval/mean_reward": 2.0,
        "eval/mean_ep_length": 4.0,
        "eval/episodes": 2,
        "eval/success_rate": 0.5,
    }
    assert "eval/learned/success_rate" not in evaluation(3, 1.0).metrics("eval/learned")


def test_an_evaluation_comes_back_from_json():
    for success in (None, (True, False)):
        before = evaluation(7, -1.5, 0.5, success=success)
        after = Evaluation.from_json(before.to_json())
        assert (after.step, after.to_json()) == (7, before.to_json())
    with pytest.raises(DataError, match="evaluation"):
        Evaluation.from_json({"returns": [1.0]})


def test_agents_are_pooled_at_steps_that_they_share():
    one = [evaluation(10, 1.0, 3.0), evaluation(20, 5.0, 7.0), evaluation(20, 6.0, 8.0)]
    other = [evaluation(20, 0.0, 2.0), evaluation(30, 9.0)]
    ((first, second),) = in_step([one, other])
    assert (first.report.mean, second.report.mean) == (7.0, 1.0)  # the last at a step counts
    pooled = Evaluation.pooled([first, second])
    assert (pooled.step, pooled.report.returns.tolist()) == (20, [6.0, 8.0, 0.0, 2.0])
    assert in_step([]) == in_step([one, []]) == []


def test_a_curve_has_a_line_per_agent_and_the_interval_over_agents():
    runs = [[evaluation(10, 1.0, 3.0), evaluation(20, 5.0)], [evaluation(10, 7.0, 7.0)]]
    curve = evaluation_curve("taught", runs)
    assert curve.steps.tolist() == [10]
    assert curve.values.tolist() == [[2.0], [7.0]]
    expected = scipy.stats.t.interval(0.95, 1, 4.5, scipy.stats.sem([2.0, 7.0]))
    assert curve.interval[:, 0] == pytest.approx(expected)


def test_more_episodes_make_agents_no_surer():
    few = [evaluation(10, *[mean] * 5) for mean in (1.0, 2.0, 3.0)]
    many = [evaluation(10, *[mean] * 500) for mean in (1.0, 2.0, 3.0)]
    few, many = (Evaluation.pooled(several) for several in (few, many))
    assert few.interval == many.interval == mean_interval(np.array([1.0, 2.0, 3.0]))
    metrics = many.metrics()
    assert (metrics["eval/mean_reward_low"], metrics["eval/mean_reward_high"]) == many.interval
    assert many.in_words.endswith("the same 500 episodes each time for each of 3 agents)")


def test_the_curve_of_one_agent_has_the_interval_over_its_episodes():
    one = evaluation(10, 1.0, 3.0, 8.0)
    assert Evaluation.pooled([one]).interval == one.interval == one.report.interval
    curve = evaluation_curve("taught", [[one]])
    assert tuple(curve.interval[:, 0]) == one.report.interval


@pytest.mark.parametrize(
    ("every", "step", "before", "over", "due"),
    [
        (100, 0, None, False, True),  # at the first chance
        (100, 99, 0, False, False),
        (100, 230, 0, False, True),
        (100, 290, 230, False, False),
        (100, 290, 230, True, True),
        (100, 290, 290, True, False),  # just done
        (0, 290, None, True, False),
    ],
)
def test_when_it_is_time(every, step, before, over, due):
    assert Evaluator("Pendulum-v1", every=every, seed=0).due(step, before, over=over) == due


class Careless:
    """Draws from the program's generators, as no policy should that is asked for its mean."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        drawn = torch.rand(len(observation), 1).numpy() + np.random.random()  # noqa: NPY002
        return drawn, state


def test_the_program_draws_on_as_if_nothing_had_happened():
    evaluator = Evaluator("Pendulum-v1", every=1, episodes=2, seed=5, max_steps=3)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first = evaluator(Careless())
    assert torch.rand(1) == expected
    assert first.lengths.tolist() == [3, 3]


def test_episodes_are_the_same_each_time_and_in_environments_of_their_own():
    made = []

    def make():
        made.append(gymnasium.make("Pendulum-v1"))
        return made[-1]

    class Still:
        def predict(self, observation, state=None, *_, **__):
            return np.zeros((len(observation), 1), np.float32), state

    evaluator = Evaluator(make, every=1, episodes=3, seed=5)
    first = evaluator(Still())
    count = len(made)
    second = evaluator(Still())
    np.testing.assert_array_equal(first.returns, second.returns)
    assert len(made) == 2 * count > 0
    assert len(set(first.returns.tolist())) == 3
