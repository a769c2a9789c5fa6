"""The settings of a whole online run."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from preferl.data.segments import Short
from preferl.errors import ConfigError, require_in
from preferl.feedback.schedule import ScheduleName
from preferl.feedback.scripted import ScriptedTeacher
from preferl.models.configs import MLPRewardConfig, RewardModelConfig, members_of
from preferl.online.algorithm_configs import AlgorithmConfig, PPOConfig
from preferl.online.lengths import VariableLength
from preferl.training.configs import RewardTrainerConfig, require_judges


@dataclass(frozen=True)
class OnlineConfig:
    """A whole run of learning from preferences while acting.

    Attributes:
        env: id of a registered gymnasium environment.
        environments: how many copies act in parallel.
        steps: environment steps in all, exploration included.
        comparisons: questions in all.
        turns: times the policy learns; questions are asked before the first and between them.
        segment_length: steps per clip.
        initial_steps: of the untrained policy, about which the first questions are.
        initial_fraction: share of the questions that are asked then.
        initial_epochs: passes of the first fit, when there are few answers; None as any other.
        schedule: how the other questions are spread over the run; `learn_from_preferences` also
            takes a function.
        sampler: "uniform" pairs, or "informative" ones, about which members disagree most.
        acquisition: what "informative" means: most variance over members of the pair's "logit",
            "probability" (the DRLHP paper's) or "label", or most "entropy" of their answers.
        oversampling: candidate pairs per question for the informative sampler, and for one of
            your own that does not say how many segments it wants.
        memory: environment steps of the latest experience that clips are cut from; older ones
            are forgotten.
        states: keep what it takes to draw steps again (see `RecordsStates`), for people to be
            shown clips of environments whose observations do not say all.
        short: what becomes of episodes shorter than a clip: "drop" or "pad".
        variable_length: "allow" episodes of different length, with one warning, or "refuse".
        algorithm: what improves the policy.
        exploration_fraction: share of steps in which a random policy takes over now and then.
        random_probability: of taking over, whenever it is drawn who acts.
        switch_probability: per step, of drawing again who acts.
        model: shape of the reward model.
        trainer: how it is fitted.
        teacher: answers by the environment's own reward, unless a feedback of yours is given.
        max_comparisons: answers kept, the newest; None keeps all.
        pessimism: deviations over members taken off the mean; 0 pays the mean.
        reference: the steps over which rewards paid are normalised: of the clips that were
            "answers" are about, which change little from turn to turn, or of all recent
            "experience", which follows the agent.
        reward_deviation: of the rewards paid, for each member before they are combined.
        centre: whether rewards paid have zero mean. A shift matters where episodes end early.
        seed: of everything.
        device: of all networks: "cpu", "cuda" or "auto".
    """

    env: str = "Pendulum-v1"
    environments: int = 4
    steps: int = 100_000
    comparisons: int = 200
    turns: int = 10
    segment_length: int = 50
    initial_steps: int = 4_000
    initial_fraction: float = 0.25
    initial_epochs: int | None = None
    schedule: ScheduleName = "hyperbolic"
    sampler: Literal["uniform", "informative"] = "uniform"
    acquisition: Literal["logit", "probability", "label", "entropy"] = "probability"
    oversampling: float = 10.0
    memory: int = 50_000
    states: bool = False
    short: Short = "drop"
    variable_length: VariableLength = "allow"
    algorithm: AlgorithmConfig = field(default_factory=PPOConfig)
    exploration_fraction: float = 0.05
    random_probability: float = 0.5
    switch_probability: float = 0.5
    model: RewardModelConfig = field(default_factory=lambda: MLPRewardConfig(members=3))
    trainer: RewardTrainerConfig = field(default_factory=RewardTrainerConfig)
    teacher: ScriptedTeacher = field(default_factory=ScriptedTeacher)
    max_comparisons: int | None = None
    pessimism: float = 0.0
    reference: Literal["answers", "experience"] = "answers"
    reward_deviation: float = 1.0
    centre: bool = True
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("steps", "comparisons", "turns", "segment_length", "initial_steps", "memory"):
            require_in(name, getattr(self, name), 1, float("inf"))
        for name, choices in (
            ("sampler", ("uniform", "informative")),
            ("acquisition", ("logit", "probability", "label", "entropy")),
            ("short", ("drop", "pad")),
            ("reference", ("answers", "experience")),
            ("variable_length", get_args(VariableLength)),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError.mismatch(
                    name, expected=f"one of {choices}", got=getattr(self, name)
                )
        if self.sampler == "informative" and self.acquisition != "entropy":
            _require_members(self.model)
        require_judges(self.trainer, members=members_of(self.model))


def _require_members(model: RewardModelConfig) -> None:
    if members_of(model) < 2:
        raise ConfigError.mismatch(
            "sampler",
            expected='"informative" with several members, which disagree',
            got="one network",
            fix='Give the model several members, ask by acquisition="entropy", or "uniform".',
        )
