"""Evaluate rewards and policies against controls, with intervals, and report on them.

Import `plots` and `report` by name: they load matplotlib and Jinja2.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily
from preferl.evaluation.rollout import rollout as rollout

if TYPE_CHECKING:
    from preferl.evaluation.filming import film as film
    from preferl.evaluation.policies import (
        Policy as Policy,
        RandomPolicy as RandomPolicy,
        ReturnConditionedPolicy as ReturnConditionedPolicy,
        on_raw_observations as on_raw_observations,
    )
    from preferl.evaluation.policy import (
        PolicyReport as PolicyReport,
        evaluate_policies as evaluate_policies,
        evaluate_policy as evaluate_policy,
    )
    from preferl.evaluation.reward_report import (
        Calibration as Calibration,
        RewardReport as RewardReport,
        calibration as calibration,
        epic_distance as epic_distance,
        evaluate_reward as evaluate_reward,
    )
    from preferl.evaluation.rollout import (
        SeededEpisodes as SeededEpisodes,
        Step as Step,
        make_task_env as make_task_env,
        task_env as task_env,
    )
    from preferl.feedback.step_rewards import (
        Reward as Reward,
        negated as negated,
        oracle as oracle,
        random as random,
        step_rewards as step_rewards,
        zero as zero,
    )
    from preferl.runs.summary import Finding as Finding
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
