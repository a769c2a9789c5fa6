"""Learning while acting (stable-baselines3).

Names are imported when they are first used, so that settings load no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.envs.atari import make_atari as make_atari
    from preferl.online.acting import record as record
    from preferl.online.algorithms import build_algorithm as build_algorithm
    from preferl.online.algorithms import make_environments as make_environments
    from preferl.online.algorithms import use_threads as use_threads
    from preferl.online.callbacks import FeedbackCallback as FeedbackCallback
    from preferl.online.callbacks import SaveRunCallback as SaveRunCallback
    from preferl.online.checkpoints.policy_folder import load_policy as load_policy
    from preferl.online.checkpoints.policy_folder import save_policy as save_policy
    from preferl.online.checkpoints.run_checkpoint import Resumed as Resumed
    from preferl.online.checkpoints.run_checkpoint import resume_run as resume_run
    from preferl.online.checkpoints.run_checkpoint import save_run as save_run
    from preferl.online.configs import DatasetConfig as DatasetConfig
    from preferl.online.configs import EvaluationConfig as EvaluationConfig
    from preferl.online.configs import OnlineConfig as OnlineConfig
    from preferl.online.configs import PPOConfig as PPOConfig
    from preferl.online.configs import SACConfig as SACConfig
    from preferl.online.dataset import record_dataset as record_dataset
    from preferl.online.learner import PolicyLearner as PolicyLearner
    from preferl.online.learner import SB3Learner as SB3Learner
    from preferl.online.loop import learn_from_preferences as learn_from_preferences
    from preferl.online.report import IterationReport as IterationReport
    from preferl.online.report import OnlineReport as OnlineReport
    from preferl.online.run import run_online as run_online
    from preferl.online.run import train_on_true_reward as train_on_true_reward
    from preferl.online.service.reward_service import serve_reward as serve_reward
    from preferl.online.service.service_config import ServiceConfig as ServiceConfig
    from preferl.online.service.supervisor import SuperviseConfig as SuperviseConfig
    from preferl.online.service.supervisor import Supervisor as Supervisor
    from preferl.online.supervise import launch as launch
    from preferl.online.wrappers.exploration import ExplorationPolicy as ExplorationPolicy
    from preferl.online.wrappers.exploration import Predictor as Predictor
    from preferl.online.wrappers.exploration import random_actions as random_actions
    from preferl.online.wrappers.feedback_config import BeforeFirstReward as BeforeFirstReward
    from preferl.online.wrappers.feedback_config import FeedbackConfig as FeedbackConfig
    from preferl.online.wrappers.feedback_config import (
        VariableLengthWarning as VariableLengthWarning,
    )
    from preferl.online.wrappers.feedback_core import FeedbackCore as FeedbackCore
    from preferl.online.wrappers.feedback_env import EpisodeRecorder as EpisodeRecorder
    from preferl.online.wrappers.feedback_env import FeedbackVecEnv as FeedbackVecEnv
    from preferl.online.wrappers.feedback_env import RecordsStates as RecordsStates
    from preferl.online.wrappers.gymnasium_envs import FeedbackVectorEnv as FeedbackVectorEnv
    from preferl.online.wrappers.gymnasium_envs import (
        HumanPreferencesEnvWrapper as HumanPreferencesEnvWrapper,
    )
    from preferl.online.wrappers.query_worker import QueryCounts as QueryCounts
    from preferl.online.wrappers.query_worker import QueryWorker as QueryWorker
    from preferl.online.wrappers.replay import relabel_replay as relabel_replay
    from preferl.online.wrappers.reward_computer import StateEntropyBonus as StateEntropyBonus
    from preferl.online.wrappers.reward_computer import WindowReward as WindowReward
    from preferl.training.checkpoint_folder import has_run as has_run
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
