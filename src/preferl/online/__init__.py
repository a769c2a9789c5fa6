"""Learning while acting (stable-baselines3).

Names are imported at their first use, so reading settings loads no torch.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.online.acting import record as record
    from preferl.online.algorithms import make_environments as make_environments
    from preferl.online.callbacks import (
        FeedbackCallback as FeedbackCallback,
        SaveRunCallback as SaveRunCallback,
    )
    from preferl.online.checkpoints.policy_folder import (
        load_policy as load_policy,
        save_policy as save_policy,
    )
    from preferl.online.checkpoints.run_checkpoint import (
        resume_run as resume_run,
        save_run as save_run,
    )
    from preferl.online.configs import (
        DatasetConfig as DatasetConfig,
        OnlineConfig as OnlineConfig,
        PPOConfig as PPOConfig,
        SACConfig as SACConfig,
        SB3Config as SB3Config,
    )
    from preferl.online.dataset import record_dataset as record_dataset
    from preferl.online.learner import SB3Learner as SB3Learner
    from preferl.online.loop import learn_from_preferences as learn_from_preferences
    from preferl.online.run import (
        run_online as run_online,
        train_on_true_reward as train_on_true_reward,
    )
    from preferl.online.supervise import launch as launch
    from preferl.online.wrappers.feedback_config import FeedbackConfig as FeedbackConfig
    from preferl.online.wrappers.feedback_env import (
        FeedbackVecEnv as FeedbackVecEnv,
        RecordsStates as RecordsStates,
    )
    from preferl.online.wrappers.gymnasium_envs import (
        FeedbackVectorEnv as FeedbackVectorEnv,
        HumanPreferencesEnvWrapper as HumanPreferencesEnvWrapper,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
