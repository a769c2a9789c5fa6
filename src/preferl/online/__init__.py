"""Learning while acting (stable-baselines3)."""

from preferl.online.acting import record
from preferl.online.algorithm_configs import PPOConfig, SACConfig
from preferl.online.algorithms import build_algorithm, make_environments, use_threads
from preferl.online.callbacks import FeedbackCallback, SaveRunCallback
from preferl.online.checkpoint import Resumed, resume_run, save_run
from preferl.online.config import OnlineConfig
from preferl.online.dataset import record_dataset
from preferl.online.dataset_config import DatasetConfig
from preferl.online.exploration import ExplorationPolicy, Predictor, random_actions
from preferl.online.feedback_config import (
    BeforeFirstReward,
    FeedbackConfig,
    VariableLengthWarning,
)
from preferl.online.feedback_core import FeedbackCore
from preferl.online.feedback_env import (
    EpisodeRecorder,
    FeedbackVecEnv,
    LearnedRewardVecEnv,
    RecordsStates,
)
from preferl.online.gymnasium_envs import FeedbackVectorEnv, HumanPreferencesEnvWrapper
from preferl.online.learner import PolicyLearner, SB3Learner
from preferl.online.loop import learn_from_preferences
from preferl.online.query_worker import Handover, HandoverCounts, QueryCounts, QueryWorker
from preferl.online.replay import relabel_replay
from preferl.online.report import IterationReport, OnlineReport, TurnReport
from preferl.online.reward_computer import StateEntropyBonus, WindowReward
from preferl.online.run import JudgeConfig, run_online, train_on_true_reward
from preferl.online.saving import load_policy, save_policy
from preferl.online.service import serve_reward
from preferl.online.service_config import ServiceConfig
from preferl.online.supervise import launch
from preferl.online.supervisor import SuperviseConfig, Supervisor
from preferl.training.checkpoint_folder import has_run
from preferl.worlds.atari import make_atari

__all__ = [
    "BeforeFirstReward",
    "DatasetConfig",
    "EpisodeRecorder",
    "ExplorationPolicy",
    "FeedbackCallback",
    "FeedbackConfig",
    "FeedbackCore",
    "FeedbackVecEnv",
    "FeedbackVectorEnv",
    "Handover",
    "HandoverCounts",
    "HumanPreferencesEnvWrapper",
    "IterationReport",
    "JudgeConfig",
    "LearnedRewardVecEnv",
    "OnlineConfig",
    "OnlineReport",
    "PPOConfig",
    "PolicyLearner",
    "Predictor",
    "QueryCounts",
    "QueryWorker",
    "RecordsStates",
    "Resumed",
    "SACConfig",
    "SB3Learner",
    "SaveRunCallback",
    "ServiceConfig",
    "StateEntropyBonus",
    "SuperviseConfig",
    "Supervisor",
    "TurnReport",
    "VariableLengthWarning",
    "WindowReward",
    "build_algorithm",
    "has_run",
    "launch",
    "learn_from_preferences",
    "load_policy",
    "make_atari",
    "make_environments",
    "random_actions",
    "record",
    "record_dataset",
    "relabel_replay",
    "resume_run",
    "run_online",
    "save_policy",
    "save_run",
    "serve_reward",
    "train_on_true_reward",
    "use_threads",
]
