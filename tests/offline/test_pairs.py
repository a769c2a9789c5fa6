"""Minibatches of answers: windows, what followed within them, and whose draws they are."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.point_agents import SPACES, mixed_episodes
from preferl.data import Comparisons, Segments
from preferl.errors import DataError
from preferl.evaluation import evaluate_policy
from preferl.feedback import ScriptedTeacher
from preferl.feedback.instant import sample_comparisons
from preferl.offline import Transitions
from preferl.offline.cpl import CPL
from preferl.offline.ipl import IPL
from preferl.offline.learner_configs import CPLConfig, IPLConfig
from preferl.offline.pairs import PairBatches
from preferl.offline.transitions import ActionScale
from preferl.testing import PointWorld, make_comparisons, make_episodes
from preferl.testing.worlds import PUSH_SPACE

SCALE = ActionScale.of(PUSH_SPACE)


def batches(comparisons, preferences=None, seeds=(0, 1), size=8, **how):
    device = torch.device("cpu")
    return PairBatches(comparisons, preferences, SCALE, seeds, size=size, device=device, **how)


def counted():
    """Two windows of three steps, the second padded, over steps that are their own numbers."""
    steps = np.arange(5.0)
    segments = Segments(
        np.stack([steps, -steps], 1),
        np.stack([steps, steps], 1) / 10,
        steps,
        np.array([0, 3]),
        np.array([3, 2]),
        3,
    )
    pairs = np.array([[0, 1], [1, 0]])
    answers = np.array([1.0, np.nan])
    return Comparisons.of(segments, pairs, answers, np.array([0.25, 1.0]))


def test_windows_and_what_followed_within_them():
    batch = batches(counted(), seeds=(7,), size=2)(0)
    assert batch.states.shape == (1, 2 * 2 * 3, 2)
    assert batch.states[0, :6, 0].tolist() == [0, 1, 2, 3, 3, 4]
    assert batch.actions[0, :6, 1].tolist() == pytest.approx([0, 0.1, 0.2, 0.3, 0.3, 0.4])
    assert batch.mask[0, 0].tolist() == [[True, True, True], [False, True, True]]
    assert batch.followed[0, 0].tolist() == [[True, True, False], [False, True, False]]
    real = batch.followed[0, 0].flatten()
    assert batch.following[0, :6, 0][real].tolist() == [1, 2, 4]
    assert batch.preference.tolist() == [[1, 1]]  # the other answer was declined
    assert batch.weight.tolist() == [[1, 1]]  # in multiples of the mean


def test_weights_are_one_in_the_mean(rng):
    comparisons = make_comparisons(rng)
    assert (batches(comparisons)(0).weight == 1).all()
    uneven = replace(comparisons, weight=np.tile([0.1, 0.3], 10))
    found = torch.cat([batches(uneven)(update).weight.flatten() for update in range(300)])
    np.testing.assert_allclose(np.unique(found), [0.5, 1.5], rtol=1e-6)
    assert float(found.mean()) == pytest.approx(1, abs=0.03)
    nothing = replace(comparisons, weight=np.zeros(20))
    assert not batches(nothing)(0).weight.any()


def test_an_agent_s_batches_depend_on_its_seed_and_the_update_alone(rng):
    comparisons = make_comparisons(rng)
    both = batches(comparisons)(5)
    alone = batches(comparisons, seeds=(1,))(5)
    for together, single in zip(both, alone, strict=True):
        torch.testing.assert_close(together[1], single[0])
    assert not torch.equal(both.states[0], both.states[1])
    assert not torch.equal(both.states, batches(comparisons)(6).states)


def test_each_agent_learns_from_what_its_own_answers_imply(rng):
    chain = make_comparisons(rng, pairs=2)
    segments = chain.segments.select(np.array([0, 1, 2]))
    chain = Comparisons.of(segments, np.array([[0, 1], [1, 2]]), np.array([1.0, 1.0]))
    # The second agent calls the middle clip the best, so that nothing follows about the others.
    own = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.5]])
    drawn = batches(chain, own, seeds=(0, 1, 2), size=200, implied=True)(0)
    count = [len(rows.unique(dim=0)) for rows in drawn.states.view(3, 200, -1)]
    assert count == [3, 2, 3]
    assert set(drawn.preference[0].tolist()) == {1.0}
    assert sorted(set(drawn.preference[1].tolist())) == [0.0, 1.0]
    assert (drawn.weight == 1).all()
    asked = batches(chain, own, seeds=(0, 1, 2), size=200)(0)
    assert len(asked.states.view(3, 200, -1)[0].unique(dim=0)) == 2


def test_learning_needs_comparisons(rng, tmp_path):
    agents = CPL(*SPACES, CPLConfig(hidden=(8,)), seeds=[0], steps=2)
    how = {"checkpoint_every": 1, "on_progress": lambda *_: None}
    with pytest.raises(DataError, match="Pass comparisons="):
        agents.learn(make_episodes(rng, [20]), None, tmp_path / "state", **how)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings", "steps"), [(CPL, CPLConfig, 2000), (IPL, IPLConfig, 3000)]
)
def test_answers_teach_and_their_controls_do_not(rng, kind, settings, steps):
    episodes = mixed_episodes(rng)
    comparisons = sample_comparisons(episodes, 500, 10, ScriptedTeacher.oracle(), rng)
    given = comparisons.preference
    conditions = {"given": given, "random": rng.integers(2, size=500), "negated": 1 - given}
    config = settings(hidden=(64, 64), learning_rate=1e-3)
    learner = kind(*SPACES, config, seeds=[0, 1, 2], steps=steps)
    learner.set_answers(comparisons, np.stack(list(conditions.values())).astype(float))
    learner.fit(Transitions.of(episodes), steps)
    returns = {
        name: evaluate_policy(policy, PointWorld, episodes=20, seed=10_000).mean
        for name, policy in zip(conditions, learner.policies(), strict=True)
    }
    assert returns["given"] > returns["random"] + 5, returns
    assert returns["negated"] < returns["random"] - 5, returns
