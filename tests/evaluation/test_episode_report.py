"""Scores of episodes: returns with intervals, worst parts, and contradicted answers."""

import numpy as np
import pytest

from preferl.data import Comparisons, Episodes, cut
from preferl.errors import ConfigError, DataError
from preferl.evaluation.episode_report import episode_rows, score_episodes
from preferl.evaluation.report import number
from preferl.models import MLPReward, MLPRewardConfig, infer_spaces
from preferl.statistics import mean_interval
from preferl.training import RewardFunction

LENGTHS = np.array([4, 2, 5])


@pytest.fixture
def scored(rng):
    observations = rng.normal(size=(11, 2))
    episodes = Episodes(observations, np.zeros((11, 1)), np.zeros(11), np.zeros(11, bool),
                        observations[LENGTHS.cumsum() - 1], LENGTHS)  # fmt: skip
    spaces = infer_spaces(episodes.observations, episodes.actions)
    reward = RewardFunction(MLPReward(*spaces, MLPRewardConfig(members=3), seed=1))
    return episodes, reward.scaled(episodes)


def test_returns_and_worst_parts(scored):
    episodes, reward = scored
    scores = score_episodes(reward, episodes, part=3)
    rewards = reward.scaler(reward.member_rewards(episodes))
    begin = 0
    for k, length in enumerate(LENGTHS):
        of_episode = rewards[:, begin : begin + length]
        np.testing.assert_allclose(scores.returns[:, k], of_episode.sum(axis=1), rtol=1e-5)
        part = min(3, length)
        sums = [of_episode[:, t : t + part].sum() for t in range(length - part + 1)]
        assert scores.worst[k] == np.argmin(sums)
        assert scores.part[k] == part
        begin += length
    assert scores.mean[scores.worst_first].tolist() == sorted(scores.mean.tolist())
    worst = scores.worst_first[0]
    rows = episode_rows(scores, scores.worst_first, ["push"] * 3, fps=2)
    assert rows[0][:2] == (f"{worst}", "push")
    low, high = mean_interval(scores.returns[:, worst])
    assert rows[0][4] == f"{number(low)} to {number(high)}"
    with pytest.raises(ConfigError, match="part"):
        score_episodes(reward, episodes, part=0)


def test_answers_against_the_reward_are_counted_once_for_an_episode(scored):
    episodes, reward = scored
    clips = cut(episodes, np.array([0, 2, 4, 6, 9]), 2)
    better = reward.scores(clips).mean(axis=0)
    pairs = np.array([[0, 1], [0, 2], [3, 4], [2, 3]])
    agreeing = (better[pairs[:, 0]] > better[pairs[:, 1]]).astype(float)
    answers = agreeing.copy()
    answers[0] = 1 - answers[0]  # of two clips of episode 0
    answers[3] = 0.5
    scores = score_episodes(reward, episodes, comparisons=Comparisons.of(clips, pairs, answers))
    assert scores.answers.tolist() == [2, 1, 1]
    assert scores.contradicted.tolist() == [1, 0, 0]
    assert scores.disputed.tolist() == [0]
    with pytest.raises(DataError, match="expected clips of these episodes"):
        score_episodes(reward, episodes[:1], comparisons=Comparisons.of(clips, pairs, answers))
