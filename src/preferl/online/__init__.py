"""Learning while acting (stable-baselines3)."""

from preferl.online.algorithms import (
    PPOConfig,
    SACConfig,
    build_algorithm,
    make_environments,
    use_threads,
)
from preferl.online.config import OnlineConfig
from preferl.online.exploration import ExplorationPolicy, Predictor, random_actions
from preferl.online.learner import PolicyLearner, SB3Learner
from preferl.online.loop import VariableLengthWarning, learn_from_preferences
from preferl.online.recorder import EpisodeRecorder
from preferl.online.replay import relabel_replay
from preferl.online.report import OnlineReport, TurnReport
from preferl.online.reward_env import LearnedRewardVecEnv, Reward
from preferl.online.run import JudgeConfig, record, run_online, train_on_true_reward
from preferl.online.saving import load_policy, save_policy

__all__ = [
    "EpisodeRecorder",
    "ExplorationPolicy",
    "JudgeConfig",
    "LearnedRewardVecEnv",
    "OnlineConfig",
    "OnlineReport",
    "PPOConfig",
    "PolicyLearner",
    "Predictor",
    "Reward",
    "SACConfig",
    "SB3Learner",
    "TurnReport",
    "VariableLengthWarning",
    "build_algorithm",
    "learn_from_preferences",
    "load_policy",
    "make_environments",
    "random_actions",
    "record",
    "relabel_replay",
    "run_online",
    "save_policy",
    "train_on_true_reward",
    "use_threads",
]
