from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.data import Segments
from preferl.models import CNNReward, MLPReward
from preferl.testing import make_episodes
from preferl.training.batches import Windows, crop_pairs, draw_crops, gather_windows, to_tensors

LENGTH = 4
PLAIN = spaces.Box(-np.inf, np.inf, (3,), np.float32)
NESTED = spaces.Dict({"arm": PLAIN, "hand": spaces.Discrete(2)})
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)


def segments(rng, *, padded=False, nested=False, steps=30, count=6):
    episodes = make_episodes(rng, [steps], NESTED if nested else PLAIN, ACTIONS)
    real = rng.integers(1, LENGTH + 1, count) if padded else np.full(count, LENGTH)
    start = rng.integers(0, steps - LENGTH + 1, count)
    return Segments(episodes.observations, episodes.actions, episodes.rewards, start, real, LENGTH)


def model(*, nested=False):
    return MLPReward(NESTED if nested else PLAIN, ACTIONS, seed=0)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_windows_are_the_features_of_segments_laid_out(rng, padded, nested):
    clips = segments(rng, padded=padded, nested=nested)
    judge = model(nested=nested)
    rows = np.array([2, 0, 2, 5])
    features, mask = Windows(judge, clips, observe=True)(torch.from_numpy(rows))
    shown = clips[rows]
    expected = judge.encoder(*(to_tensors(a, "cpu") for a in (shown.observations, shown.actions)))
    assert np.array_equal(mask.numpy(), shown.mask)
    torch.testing.assert_close(features, expected)


@pytest.mark.parametrize("padded", [False, True])
def test_pictures_are_gathered_from_where_they_are(rng, padded, tmp_path):
    frames = spaces.Box(0, 255, (32, 32, 2), np.uint8)
    judge = CNNReward(frames, spaces.Discrete(3), seed=0)
    clips = segments(rng, padded=padded)
    np.save(tmp_path / "pictures.npy", rng.integers(0, 256, (30, 32, 32, 2), dtype=np.uint8))
    pictures = np.load(tmp_path / "pictures.npy", mmap_mode="r")
    clips = replace(clips, observations=pictures, actions=rng.integers(0, 3, 30))
    windows = gather_windows(judge, clips, observe=True)
    rows = np.array([2, 0, 2, 5])
    features, mask = windows(torch.from_numpy(rows))
    shown = clips[rows]
    assert np.array_equal(features["pictures"].numpy(), shown.observations)
    assert features["pictures"].dtype == torch.uint8
    assert np.array_equal(mask.numpy(), shown.mask)


def one_less(start, real):
    """The second of three steps cut, as a crop of 2 and a place of 1 would."""
    return start + 1, real - 2


def test_cropped_windows_are_padded_on_the_left(rng):
    block = np.arange(30.0, dtype=np.float32)[:, None]
    clips = Segments(block, block, block[:, 0], np.array([10]), np.array([6]), 6)
    judge = MLPReward(spaces.Box(-99, 99, (1,)), spaces.Box(-1, 1, (1,)), seed=0)
    features, mask = Windows(judge, clips, observe=False)(
        torch.zeros(1, dtype=torch.int64), one_less
    )
    assert mask.tolist() == [[False, False, True, True, True, True]]
    expected = clips.observations[[11, 11, 11, 12, 13, 14]]
    torch.testing.assert_close(
        features[0], judge.encoder(torch.from_numpy(expected), torch.from_numpy(expected))
    )


def test_both_clips_of_a_pair_lose_as_many_steps_from_places_of_their_own():
    generator = torch.Generator().manual_seed(0)
    start = torch.tensor([10, 20, 30, 40]).repeat(300)
    real = torch.tensor([6, 6, 6, 2]).repeat(300)
    first, left = crop_pairs(*draw_crops(600, most=3, generator=generator), start, real)
    skipped = (first - start).view(-1, 2, 2)  # [300, 2, 2]
    cut = (real - left).view(-1, 2, 2)
    assert (cut[..., 0] == cut[..., 1]).all()
    assert set(cut[:, 0, 0].tolist()) == {0, 1, 2, 3}
    assert set(cut[:, 1, 0].tolist()) == {0, 1}  # one step remains
    assert (skipped >= 0).all()
    assert (skipped <= cut).all()
    assert set(map(tuple, skipped[cut[:, 0, 0] == 1][:, 0].tolist())) == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }
