import math

import numpy as np
import pytest

from preferl.data import Episodes, window_indices
from preferl.errors import ConfigError, ModelError
from preferl.evaluation import epic_distance, oracle, step_rewards


@pytest.fixture
def episodes(rng):
    observations = rng.normal(size=(600, 3))
    actions = rng.normal(size=(600, 2))
    return Episodes(
        observations,
        actions,
        base(observations, actions, observations),
        np.zeros(600, bool),
        rng.normal(size=(3, 3)),
        np.array([100, 200, 300]),
    )


def base(s, a, following):
    assert isinstance(s, np.ndarray)
    return np.asarray(np.sin(s[:, 0]) * a[:, 0] + a[:, 1])


def shaped(s, a, following):
    assert isinstance(s, np.ndarray)
    assert isinstance(following, np.ndarray)
    shaping = 0.9 * following[:, 1] ** 2 - s[:, 1] ** 2
    return 3 * base(s, a, following) - 7 + 5 * shaping


def unrelated(s, a, following):
    assert isinstance(s, np.ndarray)
    return np.asarray(np.sin(40 * s[:, 2] * a[:, 0] + 20 * a[:, 1] ** 2))


def distance(first, second, episodes, discount=0.9):
    rng = np.random.default_rng(0)
    return epic_distance(first, second, episodes, discount=discount, rng=rng)


def test_scale_shift_and_shaping_do_not_count(episodes):
    assert distance(base, shaped, episodes) == pytest.approx(0, abs=1e-6)
    # with another discount it is no longer shaping
    assert distance(base, shaped, episodes, discount=0.1) > 0.2


def test_negated_is_one_and_unrelated_is_root_half(episodes):
    assert distance(base, lambda *t: -base(*t), episodes) == pytest.approx(1)
    assert distance(base, unrelated, episodes) == pytest.approx(math.sqrt(0.5), abs=0.06)


def test_constant_rewards_have_no_distance(episodes):
    assert math.isnan(distance(base, lambda s, a, f: np.ones(len(a)), episodes))


def test_what_has_no_distance_is_refused(episodes):
    with pytest.raises(ConfigError, match="discount"):
        distance(base, base, episodes, discount=1.5)
    with pytest.raises(ConfigError, match="context"):
        distance(Lookback(), base, episodes)
    with pytest.raises(ConfigError, match="recorded reward"):
        distance(base, oracle(), episodes)


def test_what_followed_is_the_episodes_own(episodes):
    calls = []

    def spy(s, a, following):
        calls.append((s, following))
        return base(s, a, following)

    epic_distance(spy, base, episodes, transitions=600, rng=np.random.default_rng(0))
    seen, following = calls[-1]  # after the expectations, the transitions themselves
    rows = [int(np.flatnonzero((episodes.observations == one).all(1))[0]) for one in seen]
    assert sorted(rows) == list(range(600)), "the last steps of episodes are among them"
    assert isinstance(episodes.next_observations, np.ndarray)
    np.testing.assert_array_equal(following, episodes.next_observations[rows])


class Lookback:
    """Rewards how many of the last three steps there were, plus their first actions' sum."""

    context = 3
    members = 1

    def __call__(self, observations, actions, mask):
        return np.asarray((mask * actions[..., 0]).sum(1) + mask.sum(1))

    def scores(self, segments):
        raise NotImplementedError


def test_step_rewards_give_each_step_its_history(episodes, monkeypatch):
    monkeypatch.setattr("preferl.evaluation.reward_report.CHUNK", 7)
    rows, mask = window_indices(episodes.start_of_step, 3)
    expected = Lookback()(episodes.observations, episodes.actions[rows], mask)
    np.testing.assert_allclose(step_rewards(Lookback(), episodes), expected)
    assert step_rewards(Lookback(), episodes)[100] == pytest.approx(1 + episodes.actions[100, 0])


def test_a_function_gives_a_number_for_each_step(episodes):
    for wrong in (lambda s, a, following: a, lambda s, a, following: 0.0):
        with pytest.raises(ModelError, match="expected one number for each of"):
            distance(wrong, base, episodes)
