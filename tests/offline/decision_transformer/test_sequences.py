"""Windows of a Decision Transformer: the tutorial's batches, drawn evenly and again."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from preferl.data import load_episodes, save_episodes
from preferl.data.on_disk import OnDisk
from preferl.offline.decision_transformer.sequences import (
    SequenceCollator,
    Sequences,
    action_features,
    returns_to_go,
)
from preferl.testing import make_episodes

PUSH = spaces.Box(-1, 1, (2,))


def tutorial_window(episodes, start, context, cap, scale):
    """One sample as the tutorial words it: slices of one trajectory's lists, padded on the left."""
    k = int(np.searchsorted(episodes.ends, start, side="right"))
    rows = slice(int(episodes.starts[k]), int(episodes.ends[k]))
    states = episodes.observations[rows].tolist()
    actions = episodes.actions[rows].tolist()
    rewards = episodes.rewards[rows].tolist()
    mean = np.mean(episodes.observations, axis=0)
    deviation = np.std(episodes.observations, axis=0) + 1e-6
    si = start - rows.start
    real = len(states[si : si + context])
    missing = context - real
    to_go = [sum(rewards[t:]) for t in range(si, si + real)]
    steps = [min(t, cap - 1) for t in range(si, si + real)]
    padded = np.array([[0.0] * len(mean)] * missing + states[si : si + context])
    return {
        "states": (padded - mean) / deviation,
        "actions": [[-10.0] * 2] * missing + actions[si : si + context],
        "rewards": [[r] for r in [0.0] * missing + rewards[si : si + context]],
        "returns_to_go": [[r / scale] for r in [0.0] * missing + to_go],
        "timesteps": [0] * missing + steps,
        "attention_mask": [0] * missing + [1] * real,
    }


def test_a_batch_is_the_tutorials_for_the_same_starts(rng):
    episodes = make_episodes(rng, [7, 3, 30, 1, 12])
    first = rng.permutation(episodes.steps)[:40]
    data = Sequences.of(episodes, PUSH, scale=10.0, horizon=9)
    batch = SequenceCollator(data, 5, seed=0).at(first)
    batch.pop("terminated")  # which only critics need
    expected = [tutorial_window(episodes, int(start), 5, 9, 10.0) for start in first]
    for name, tensor in batch.items():
        wanted = np.stack([np.array(window[name]) for window in expected])
        np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-5, atol=1e-5, err_msg=name)


def test_what_varies_is_kept_beside_a_large_offset(rng):
    episodes = make_episodes(rng, [7, 3, 30])
    seen = episodes.observations.astype(np.float64)
    last = episodes.final_observations.astype(np.float64)
    later = replace(episodes, observations=seen + 1.7e9, final_observations=last + 1.7e9)
    expected = Sequences.of(episodes, PUSH).states[:-1]
    np.testing.assert_allclose(Sequences.of(later, PUSH).states[:-1], expected, atol=1e-4)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_returns_to_go_are_those_of_a_loop(rng, discount):
    lengths = np.array([1, 5, 17, 64, 3])
    rewards = rng.normal(size=lengths.sum())
    expected = []
    start = 0
    for length in lengths:
        ahead = 0.0
        own = []
        for reward in rewards[start : start + length][::-1]:
            ahead = reward + discount * ahead
            own.append(ahead)
        expected += own[::-1]
        start += length
    np.testing.assert_allclose(returns_to_go(rewards, lengths, discount), expected, atol=1e-12)


def test_every_step_begins_a_window_as_often_as_any_other(rng):
    data = Sequences.of(make_episodes(rng, [2, 9, 29]), PUSH)
    collate = SequenceCollator(data, 1, seed=0)
    batch = collate(list(range(40_000)))
    known = {tuple(row): k for k, row in enumerate(data.states[:-1].tolist())}
    counts = np.bincount([known[tuple(row)] for row in batch["states"][:, 0].tolist()])
    assert len(counts) == 40
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_square < 72  # the 99.9 % quantile with 39 degrees of freedom


def test_a_sample_depends_on_its_number_and_the_seed_alone(rng):
    data = Sequences.of(make_episodes(rng, [50, 60]), PUSH)
    numbers = [65_535, 3, 70_000, 65_536]  # of two blocks, in no order
    together = SequenceCollator(data, 4, seed=1)(numbers)
    alone = [SequenceCollator(data, 4, seed=1)([number]) for number in numbers]
    for name, tensor in together.items():
        np.testing.assert_array_equal(tensor, np.concatenate([one[name] for one in alone]))
    other = SequenceCollator(data, 4, seed=2)(numbers)
    assert not np.array_equal(together["states"], other["states"])


def test_ends_say_whether_the_last_step_ended_its_episode(rng):
    episodes = make_episodes(rng, [4, 4])  # the first ends by the rules
    collate = SequenceCollator(Sequences.of(episodes, PUSH), 3, seed=0)
    assert collate.at(np.array([0, 1, 3, 7]))["terminated"].tolist() == [False, True, True, False]


def test_actions_beyond_the_box_count_as_its_edge():
    # What is remembered when acting was cut off by the environment, so it is when learning, too.
    recorded = np.array([[1.25, -3.0], [0.5, 4.0]])
    space = spaces.Box(np.array([-1, -2]), np.array([1, 2]), dtype=np.float64)
    assert action_features(recorded, space).tolist() == [[1.0, -1.0], [0.5, 1.0]]
    free = spaces.Box(-np.inf, np.inf, (2,))
    assert action_features(recorded, free).tolist() == recorded.tolist()


def test_pictures_on_disk_stay_there(rng, tmp_path):
    space = spaces.Box(0, 255, (32, 32, 3), np.uint8)
    episodes = make_episodes(rng, [30, 20], space)
    save_episodes(tmp_path / "episodes", episodes)
    data = Sequences.of(load_episodes(tmp_path / "episodes"), PUSH)
    assert isinstance(data.states, OnDisk)
    first = np.array([28, 3, 45])
    got = SequenceCollator(data, 4, seed=0).at(first)["states"]
    expected = SequenceCollator(Sequences.of(episodes, PUSH), 4, seed=0).at(first)["states"]
    np.testing.assert_array_equal(got, expected)


def test_returns_are_scaled_by_the_largest_by_default(rng):
    episodes = make_episodes(rng, [20, 30])
    data = Sequences.of(episodes, PUSH)
    assert np.abs(data.returns_to_go).max() == pytest.approx(1)
    np.testing.assert_allclose(data.returns, episodes.returns)
    nothing = Sequences.of(episodes, PUSH, rewards=np.zeros(50))
    assert nothing.statistics.scale == 1
