"""The settings of a whole online run."""

from dataclasses import dataclass, field
from math import inf
from typing import Literal, get_args

from preferl.configs import takes_old_names
from preferl.errors import ConfigError, require_in, require_one_of
from preferl.feedback.schedule import ScheduleName
from preferl.feedback.scripted import ScriptedTeacher
from preferl.models.configs import MLPRewardConfig, RewardModelConfig, members_of
from preferl.online.algorithm_configs import AlgorithmConfig, PPOConfig
from preferl.online.feedback_config import QueryConfig
from preferl.training.configs import RewardTrainerConfig, require_validation

Reference = Literal["answers", "experience"]


@takes_old_names
@dataclass(frozen=True)
class OnlineConfig(QueryConfig):
    """A whole run of learning from preferences while acting.

    Attributes:
        env: id of a registered gymnasium environment.
        environments: how many copies act in parallel.
        steps: environment steps in all, exploration included.
        comparisons: questions in all.
        iterations: times the policy learns; questions are asked before the first and between them.
        initial_steps: of the untrained policy, about which the first questions are.
        initial_fraction: share of the questions that are asked then.
        initial_epochs: passes of the first fit, which has the most to learn; None as any other.
        schedule: how the other questions are spread over the run; `learn_from_preferences` also
            takes a function.
        algorithm: what improves the policy.
        exploration_fraction: share of steps in which a random policy takes over now and then.
        random_probability: of taking over, whenever it is drawn who acts.
        switch_probability: per step, of drawing again who acts.
        model: shape of the reward model.
        trainer: how it is fitted.
        teacher: answers by the environment's own reward, unless a feedback of yours is given.
        max_comparisons: answers kept, the newest; None keeps all.
        pessimism: deviations over members taken off the mean; 0 is the mean.
        reference: the steps over which rewards are normalised: of the clips that were "answers" are
            about, which change little from one iteration to the next, or of all recent
            "experience", which follows the agent.
        reward_deviation: of the rewards, for each member before they are combined.
        centre: whether rewards have zero mean. A shift matters where episodes end early.
        device: of all networks: "cpu", "cuda" or "auto".

    Raises:
        ConfigError: a number out of its range, a word that is none of those above, or settings that
            do not go together.
    """

    env: str = "Pendulum-v1"
    environments: int = 4
    steps: int = 100_000
    comparisons: int = 200
    iterations: int = 10
    initial_steps: int = 4_000
    initial_fraction: float = 0.25
    initial_epochs: int | None = 50
    schedule: ScheduleName = "hyperbolic"
    algorithm: AlgorithmConfig = field(default_factory=PPOConfig)
    exploration_fraction: float = 0.05
    random_probability: float = 0.5
    switch_probability: float = 0.5
    model: RewardModelConfig = field(default_factory=lambda: MLPRewardConfig(members=3))
    trainer: RewardTrainerConfig = field(default_factory=RewardTrainerConfig)
    teacher: ScriptedTeacher = field(default_factory=ScriptedTeacher)
    max_comparisons: int | None = None
    pessimism: float = 0.0
    reference: Reference = "answers"
    reward_deviation: float = 1.0
    centre: bool = True
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "comparisons", "iterations", "initial_steps"):
            require_in(name, getattr(self, name), 1, inf)
        require_one_of("reference", self.reference, get_args(Reference))
        members = members_of(self.model)
        if self.sampler == "informative" and self.acquisition != "entropy" and members < 2:
            raise ConfigError.mismatch(
                "sampler",
                expected='"informative" with several members, which disagree',
                got="one network",
                fix='Give the model several members, ask by acquisition="entropy", or "uniform".',
            )
        require_validation(self.trainer, members=members)
