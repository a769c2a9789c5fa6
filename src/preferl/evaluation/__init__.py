"""How good is it, and is it more than luck: rewards and policies against controls, and a page.

`plots` and `report` are imported by name, since they load matplotlib and Jinja2.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily
from preferl.evaluation.rollout import rollout as rollout

if TYPE_CHECKING:
    from preferl.evaluation.filming import film as film
    from preferl.evaluation.findings import Finding as Finding
    from preferl.evaluation.policies import Policy as Policy
    from preferl.evaluation.policies import RandomPolicy as RandomPolicy
    from preferl.evaluation.policies import ReturnConditionedPolicy as ReturnConditionedPolicy
    from preferl.evaluation.policies import on_raw_observations as on_raw_observations
    from preferl.evaluation.policy import PolicyReport as PolicyReport
    from preferl.evaluation.policy import evaluate_policies as evaluate_policies
    from preferl.evaluation.policy import evaluate_policy as evaluate_policy
    from preferl.evaluation.reward_report import Calibration as Calibration
    from preferl.evaluation.reward_report import RewardReport as RewardReport
    from preferl.evaluation.reward_report import calibration as calibration
    from preferl.evaluation.reward_report import epic_distance as epic_distance
    from preferl.evaluation.reward_report import evaluate_reward as evaluate_reward
    from preferl.evaluation.rollout import SeededEpisodes as SeededEpisodes
    from preferl.evaluation.rollout import Step as Step
    from preferl.evaluation.rollout import make_task_env as make_task_env
    from preferl.evaluation.rollout import task_env as task_env
    from preferl.feedback.step_rewards import Reward as Reward
    from preferl.feedback.step_rewards import negated as negated
    from preferl.feedback.step_rewards import oracle as oracle
    from preferl.feedback.step_rewards import random as random
    from preferl.feedback.step_rewards import step_rewards as step_rewards
    from preferl.feedback.step_rewards import zero as zero
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
