"""Learning while acting (stable-baselines3)."""

from preferl.online.exploration import ExplorationPolicy, Predictor, random_actions
from preferl.online.learner import PolicyLearner, SB3Learner
from preferl.online.recorder import EpisodeRecorder
from preferl.online.replay import relabel_replay
from preferl.online.reward_env import LearnedRewardVecEnv, Reward

__all__ = [
    "EpisodeRecorder",
    "ExplorationPolicy",
    "LearnedRewardVecEnv",
    "PolicyLearner",
    "Predictor",
    "Reward",
    "SB3Learner",
    "random_actions",
    "relabel_replay",
]
