"""Evaluation of rewards and policies against controls, and reports.

`plots` and `report` are imported by name, since they load matplotlib and Jinja2.
"""

from preferl.data.tasks import normalised_score
from preferl.evaluation.filming import film, frame_rate
from preferl.evaluation.policies import (
    Policy,
    RandomPolicy,
    ReturnConditionedPolicy,
    on_raw_observations,
)
from preferl.evaluation.policy import PolicyReport, evaluate_policies, evaluate_policy
from preferl.evaluation.reward_report import (
    Calibration,
    RewardReport,
    calibration,
    epic_distance,
    evaluate_reward,
    markovian,
)
from preferl.evaluation.rollout import (
    CORRECTIONS,
    SeededEpisodes,
    Step,
    make_task_env,
    rollout,
    task_env,
)
from preferl.feedback.step_rewards import (
    CONTROLS,
    Reward,
    negated,
    oracle,
    random,
    step_rewards,
    zero,
)
from preferl.statistics import bootstrap_interval, spearman, wilson_interval

__all__ = [
    "CONTROLS",
    "CORRECTIONS",
    "Calibration",
    "Policy",
    "PolicyReport",
    "RandomPolicy",
    "ReturnConditionedPolicy",
    "Reward",
    "RewardReport",
    "SeededEpisodes",
    "Step",
    "bootstrap_interval",
    "calibration",
    "epic_distance",
    "evaluate_policies",
    "evaluate_policy",
    "evaluate_reward",
    "film",
    "frame_rate",
    "make_task_env",
    "markovian",
    "negated",
    "normalised_score",
    "on_raw_observations",
    "oracle",
    "random",
    "rollout",
    "spearman",
    "step_rewards",
    "task_env",
    "wilson_interval",
    "zero",
]
