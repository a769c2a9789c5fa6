"""Clips of pictures go from the store to a fitted reward without being in memory."""

import numpy as np
from gymnasium import spaces

from helpers.queue_steps import on_sqlite
from preferl.data import Comparisons, sample_segments
from preferl.data.on_disk import stays_on_disk
from preferl.models import CNNReward, CNNRewardConfig
from preferl.store import StoredFeedback
from preferl.testing import make_episodes
from preferl.training import RewardFunction, RewardTrainer, RewardTrainerConfig

FRAMES = spaces.Box(0, 255, (32, 32, 2), np.uint8)
ACTIONS = spaces.Discrete(3)


@on_sqlite
def test_a_reward_is_fitted_to_pictures_that_stay_in_the_store(store, rng):
    feedback = StoredFeedback(store, store.projects.create("dots").id)
    asked = []
    for _ in range(3):  # three shards
        segments = sample_segments(make_episodes(rng, [20], FRAMES, ACTIONS), 4, 5, rng)
        feedback.ask(segments, np.array([[0, 1], [2, 3]]))
        asked.append(segments[np.array([[0, 1], [2, 3]])].observations)
    names = sorted(
        {c for pair in store.queries.pairs(feedback.project.id, [*range(1, 7)]) for c in pair}
    )
    stored = store.clips.segments(feedback.project.id, names)
    assert stays_on_disk(stored.observations)
    shown = {picture.tobytes() for picture in np.concatenate(asked).reshape(-1, 5, 32, 32, 2)}
    assert {clip.tobytes() for clip in stored[np.arange(12)].observations} == shown

    pairs = np.arange(12).reshape(-1, 2)
    answers = Comparisons(stored, pairs, np.ones(6), np.ones(6))
    model = CNNReward(FRAMES, ACTIONS, CNNRewardConfig(filters=4, hidden=8), seed=0)
    report = RewardTrainer(model, RewardTrainerConfig(epochs=2), seed=0).fit(answers)
    assert report.train_loss[1] < report.train_loss[0]
    reward = RewardFunction(model).scaled(stored.episodes())
    assert reward.scores(stored).shape == (1, 12)
