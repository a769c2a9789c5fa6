"""The settings of online runs, algorithms, evaluations and recorded data sets (no torch)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any, Final, Literal, Self, cast, final, get_args

from preferl.configs import from_json, require_fields
from preferl.envs.config import EnvConfig, EnvSource, VecEnvKind
from preferl.errors import ConfigError, require_in, require_seed, require_share
from preferl.feedback.preparations import Preparation
from preferl.feedback.protocols import Teacher
from preferl.feedback.schedule import ScheduleName
from preferl.feedback.scripted import ScriptedTeacher
from preferl.models.configs import MLPRewardConfig, RewardModelConfig, members_of
from preferl.online.wrappers.feedback_config import QueryConfig
from preferl.presets import load_preset
from preferl.training.configs import RewardTrainerConfig, require_validation
from preferl.trust import admitted

WRITING: Final = ("tensorboard_log",)
"""Algorithm settings that name files to write; a settings file must not contain them."""

LINEAR: Final = "lin_"
"""Prefix of a value that falls to 0 over the run, as in RL Zoo."""


SB3_CLASSES: Final = {
    **{name.lower(): f"stable_baselines3:{name}" for name in ("A2C", "DDPG", "DQN", "TD3")},
    **{
        name.lower(): f"sb3_contrib:{name}"
        for name in ("ARS", "CrossQ", "MaskablePPO", "QRDQN", "RecurrentPPO", "TQC", "TRPO")
    },
}
"""Classes of algorithms that `SB3Config` takes, by name in lower case."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation (Schulman et al. 2017); defaults are stable-baselines3's.

    Attributes:
        n_steps: steps of each environment per rollout.
        batch_size: steps per gradient step.
        n_epochs: passes over each rollout.
        learning_rate: learning rate of Adam. "lin_0.001" falls from that number to 0 over the run,
            so that the policy settles at the end.
        gamma: discount of future rewards.
        gae_lambda: trade-off of bias and variance in advantages.
        clip_range: how far a policy may move per rollout; "lin_0.2" falls to 0.
        clip_range_vf: how far a value may move per rollout, in units of returns; None sets no
            limit.
        normalize_advantage: whether advantages have mean 0 and deviation 1 in each minibatch.
        ent_coef: weight of the entropy bonus in the loss.
        vf_coef: weight of the value loss relative to the policy loss.
        max_grad_norm: largest norm of the gradient; larger gradients are scaled down.
        use_sde: state-dependent exploration (Raffin et al. 2021), smooth over steps.
        sde_sample_freq: steps between two draws of exploration noise; -1 draws once per rollout.
        target_kl: KL divergence from the rollout's policy at which its passes end early; None never
            ends them early.
        hidden: units of each hidden layer of policy and value function.
    """

    n_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    learning_rate: float | str = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float | str = 0.2
    clip_range_vf: float | None = None
    normalize_advantage: bool = True
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    use_sde: bool = False
    sde_sample_freq: int = -1
    target_kl: float | None = None
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        _require_schedule("learning_rate", self.learning_rate)
        _require_schedule("clip_range", self.clip_range)
        # One step alone has no deviation to normalise its advantage by.
        require_fields(self, batch_size=2 if self.normalize_advantage else 1)
        require_fields(self, n_steps=1, n_epochs=1, sde_sample_freq=-1, ent_coef=0, vf_coef=0)
        require_fields(self, max_grad_norm=1e-12, clip_range_vf=1e-12, target_kl=1e-12)
        require_fields(self, gamma=(0, 1), gae_lambda=(0, 1))


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic (Haarnoja et al. 2018); defaults are stable-baselines3's.

    Attributes:
        buffer_size: steps kept; all are relabelled when the reward changes.
        learning_starts: random steps before learning starts.
        batch_size: steps per gradient step.
        train_freq: vector steps between updates.
        gradient_steps: gradient steps per update; -1 makes as many as steps were taken.
        learning_rate: learning rate of Adam; "lin_0.001" falls from that number to 0 over the run.
        gamma: discount of future rewards.
        tau: share of the target network replaced per update.
        n_steps: how many rewards are summed before the critic's value is added (n-step returns);
            only 1 if observations are dictionaries.
        ent_coef: entropy coefficient (temperature). "auto" learns it, and "auto_0.1" learns it
            beginning at 0.1.
        target_entropy: entropy of the policy that a learned `ent_coef` aims at; "auto" is minus the
            number of action dimensions.
        target_update_interval: gradient steps between two updates of the target network.
        use_sde: state-dependent exploration (Raffin et al. 2021), smooth over steps.
        sde_sample_freq: steps between two draws of exploration noise; -1 draws once per rollout.
        use_sde_at_warmup: whether exploration noise replaces the random steps before learning.
        hidden: units of each hidden layer of policy and critics.
    """

    buffer_size: int = 1_000_000
    learning_starts: int = 100
    batch_size: int = 256
    train_freq: int = 1
    gradient_steps: int = 1
    learning_rate: float | str = 3e-4
    gamma: float = 0.99
    tau: float = 0.005
    n_steps: int = 1
    ent_coef: float | str = "auto"
    target_entropy: float | str = "auto"
    target_update_interval: int = 1
    use_sde: bool = False
    sde_sample_freq: int = -1
    use_sde_at_warmup: bool = False
    hidden: tuple[int, ...] = (256, 256)

    def __post_init__(self) -> None:
        _require_schedule("learning_rate", self.learning_rate)
        require_fields(self, buffer_size=1, learning_starts=0, batch_size=1, train_freq=1)
        require_fields(self, gradient_steps=-1, n_steps=1, target_update_interval=1)
        require_fields(self, sde_sample_freq=-1, gamma=(0, 1), tau=(0, 1))
        entropy = self.ent_coef
        if isinstance(entropy, str):
            start = _number(entropy.removeprefix("auto_")) if entropy.startswith("auto_") else nan
            usable = entropy == "auto" or 0 < start < inf
        else:
            usable = 0 <= entropy < inf
        if not usable:
            raise ConfigError(
                'ent_coef: expected a number of at least 0, "auto", or "auto_" and a number '
                f"above 0, got {entropy!r}."
            )
        target = self.target_entropy
        if target != "auto" and (isinstance(target, str) or not abs(target) < inf):
            raise ConfigError(f'target_entropy: expected a number, or "auto", got {target!r}.')


@dataclass(frozen=True)
class SB3Config:
    """Any algorithm of stable-baselines3, sb3_contrib or sbx, by the name of its class.

    Attributes:
        algorithm: `module:Class`, such as `sb3_contrib:TQC`. Its package has to be installed.
        policy: name of the policy, such as `MlpLstmPolicy`; None chooses `MlpPolicy`, `CnnPolicy`
            or `MultiInputPolicy` by the observations.
        hidden: units of each hidden layer; None leaves them to the algorithm.
        settings: other arguments of the class, by name. Lists stand for tuples, and "lin_0.001" for
            a number that falls to 0. All other arguments have the algorithm's own defaults.

    Raises:
        ConfigError: the name is not `module:Class`, its module may not be imported, or a setting
            names a file to write.
    """

    algorithm: str = "stable_baselines3:TD3"
    policy: str | None = None
    hidden: tuple[int, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if ":" not in self.algorithm:
            raise ConfigError(
                "algorithm: expected module:Class, such as sb3_contrib:TQC, got "
                f"{self.algorithm!r}."
            )
        admitted(self.algorithm, source="the algorithm's config")
        for name in WRITING:
            if name in self.settings:
                raise ConfigError(
                    f"settings of {self.algorithm}: expected none that write files, got {name!r}. "
                    "Metrics are in the folder of the run: choose them with --report-to."
                )
        for name, value in self.settings.items():
            if isinstance(value, str) and value.startswith(LINEAR):
                _require_schedule(name, value)


AlgorithmConfig = PPOConfig | SACConfig | SB3Config
"""Configs of this library; a config in `preferl.registry.ALGORITHMS` works as well."""


def _require_schedule(name: str, value: float | str) -> None:
    if not isinstance(value, str):
        start = value
    elif value.startswith(LINEAR):
        start = _number(value.removeprefix(LINEAR))
    else:
        start = nan
    if not 0 < start < inf:
        raise ConfigError(
            f'{name}: expected a number above 0, or "{LINEAR}" and one, got {value!r}.'
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


Reference = Literal["answers", "experience"]

Before = Literal["zero", "entropy"]
"""The reward of an online run's steps before the first learned reward."""


MOST_COUNTED: Final = 1_000_000
"""Limit of queries, iterations or episodes of an evaluation.

A larger number is taken for a typing mistake, as the plan and the clips of all queries have to fit
into memory.
"""


@final
@dataclass(frozen=True)
class WarmStartConfig:
    """Comparisons and episodes that exist already, and that a run begins with.

    The reward is fitted to these comparisons before the first query, and later to them and the new
    answers together. `max_comparisons` does not count them.

    Attributes:
        comparisons: folders of earlier runs, or of comparisons.
        demonstrations: recorded episodes that the labels are about: a path or name that
            `preferl.data.sources.load_source` reads.
        labels: a folder of Uni-RLHF or Preference Transformer labels for the demonstrations.
        episodes: recorded episodes that queries may also be about while they are among the newest
            `buffer_steps`; read in the same way as the demonstrations.

    Raises:
        ConfigError: there are labels without demonstrations, or demonstrations without labels.
    """

    comparisons: tuple[Path, ...] = ()
    demonstrations: Path | None = None
    labels: Path | None = None
    episodes: Path | None = None

    def __post_init__(self) -> None:
        if (self.labels is None) != (self.demonstrations is None):
            given = "labels" if self.demonstrations is None else "demonstrations"
            raise ConfigError(
                f"warm_start: expected labels and demonstrations together, got only {given}. "
                "Labels are rows of demonstrations."
            )

    @property
    def given(self) -> bool:
        """Return whether there are comparisons or labels to fit a reward to."""
        return bool(self.comparisons) or self.labels is not None


@dataclass(frozen=True)
class OnlineConfig(QueryConfig, EnvConfig):  # fields of the last base come first
    """Settings of a run of learning from preferences while acting.

    Attributes:
        environments: how many copies of the environment act in parallel.
        vec_env: "dummy" steps the copies in turn. "subproc" steps each in its own process, which is
            faster if a step takes milliseconds. Scripts then need `if __name__ == "__main__":`.
        steps: environment steps in all, including exploration. If this and `initial_steps` are 0,
            the run asks only about recorded episodes (see `learn_from_preferences`).
        comparisons: queries in all; 0 if the run learns only from a warm start.
        iterations: how many times the policy learns. Queries are asked before the first time, and
            between any two times.
        initial_steps: steps of the untrained policy, which the first queries are about.
        initial_fraction: share of the queries that are asked before the policy learns.
        initial_epochs: passes of the first fit, which has the most to learn; None makes as many as
            in any later fit.
        schedule: how the other queries are spread over the run. `learn_from_preferences` also takes
            a function.
        algorithm: what improves the policy. None chooses by the spaces: SAC with half an update per
            step for continuous actions, PPO for other actions and for pictures; see
            `preferl.online.algorithms.suited_algorithm`.
        final_queries: whether queries are also asked after the last iteration, for a last fit. The
            saved reward then covers the final behaviour, but the agent has not learned from these
            answers. By default the agent has learned from every answer.
        normalise_observations: whether the policy gets observations normalised by running mean and
            deviation, by stable-baselines3's `VecNormalize`. The reward model and people get them
            unchanged.
        before: what the agent does in its `initial_steps`. With "zero" it explores and learns
            nothing. With "entropy" it learns on a bonus for new states, as in PEBBLE. This needs an
            off-policy algorithm with a critic, such as SAC. The agent keeps the bonus until the
            first answer that prefers a clip. The first learned reward then resets the critic.
        recent_share: share of each batch of the agent's updates that is drawn from the newest
            `buffer_steps`, which are the steps that queries are about. The rest is drawn from all
            experience, as in stable-baselines3. QPA uses 0.5. This needs an algorithm with a replay
            buffer.
        exploration_fraction: share of steps that explore: a random policy takes over for some of
            them.
        exploration_fraction: share of steps that explore: a random policy takes over now and then.
        random_probability: probability that the random policy acts, at each draw of who acts.
        switch_probability: probability, at each exploring step, of drawing anew who acts.
        model: config of the reward model.
        trainer: how the reward model is fitted.
        teacher: answers the queries, unless you pass `feedback`. It answers by the environment's
            own reward, or is another teacher of `preferl.registry.TEACHERS`, which files name by
            `kind`. The default teacher never errs, so that faults of a run are not the teacher's.
        max_comparisons: how many of the newest answers are kept; None keeps all.
        warm_start: comparisons and episodes that exist already.
        validation: share of the answers that are held out of every fit, for validation. Answers are
            held out by clips, and stay held out, as in the reward service. By default no answers
            are held out, and members of an ensemble are validated on their out-of-bag answers. A
            single network has no out-of-bag answers, and stops early by the held-out ones.
            which has no out-of-bag answers, stops by the held-out ones.
        prepare: what happens to the answers before each fit, in this order. In files and commands,
            these are names of `preferl.registry.PREPARATIONS`: "rime" leaves out answers that the
            reward finds unlikely, "surf" adds pseudo-labels.
        pessimism: how many standard deviations over the members are subtracted from the members'
            mean; 0 gives the mean.
        exploration_bonus: how many standard deviations over the members are added to the members'
            mean at the first step. The agent then tries what members disagree about, as in RUNE,
            which uses 0.05.
        bonus_decay: share of the bonus that is lost at each environment step. A reward keeps the
            bonus of the step at which it was fitted.
        reference: the steps over which rewards are normalised. "answers" takes the clips that
            answers are about, which change slowly. "experience" takes all recent experience, which
            follows the agent.
        reward_deviation: standard deviation to which each member's rewards are normalised.
        centre: whether rewards have zero mean. None centres them if all episodes are equally long.
            If some episodes end early, a shift of the reward changes which behaviour is best. The
            mean is then kept, because answers about clips that end with their episode can tell
            whether to survive.
        eval_every: environment steps between two evaluations of the policy while it learns. Each
            evaluation takes whole episodes without exploration, in separate environments, and the
            true reward. None makes about ten evaluations in all, 0 makes none.
        eval_episodes: episodes of each evaluation. 10 show a trend; the report uses more.
        device: device of all networks: "cpu", "cuda" or "auto".

    Raises:
        ConfigError: a setting is out of its range, or settings contradict each other.
    """

    env: EnvSource = "Pendulum-v1"
    environments: int = 4
    vec_env: VecEnvKind = "dummy"
    steps: int = 100_000
    comparisons: int = 200
    iterations: int = 10
    initial_steps: int = 4_000
    initial_fraction: float = 0.25
    initial_epochs: int | None = None
    schedule: ScheduleName = "hyperbolic"
    final_queries: bool = False
    algorithm: AlgorithmConfig | None = None
    normalise_observations: bool = False
    before: Before = "zero"
    recent_share: float = 0.0
    exploration_fraction: float = 0.05
    random_probability: float = 0.5
    switch_probability: float = 0.5
    model: RewardModelConfig = field(default_factory=lambda: MLPRewardConfig(members=3))
    trainer: RewardTrainerConfig = field(default_factory=RewardTrainerConfig)
    teacher: Teacher = field(default_factory=ScriptedTeacher.oracle)
    max_comparisons: int | None = None
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    validation: float = 0.0
    prepare: tuple[Preparation, ...] = ()
    pessimism: float = 0.0
    exploration_bonus: float = 0.0
    bonus_decay: float = 1e-5
    reference: Reference = "answers"
    reward_deviation: float = 1.0
    centre: bool | None = None
    eval_every: int | None = None
    eval_episodes: int = 10
    device: str = "cpu"

    def __post_init__(self) -> None:
        EnvConfig.__post_init__(self)
        QueryConfig.__post_init__(self)
        require_fields(self, iterations=(1, MOST_COUNTED), comparisons=(0, MOST_COUNTED))
        require_fields(self, eval_episodes=(1, MOST_COUNTED), eval_every=0)
        require_fields(self, environments=1, initial_epochs=1, reward_deviation=1e-12)
        require_fields(self, exploration_bonus=0, bonus_decay=(0, 1), recent_share=(0, 1))
        require_fields(self, initial_fraction=(0, 1), exploration_fraction=(0, 1))
        require_fields(self, random_probability=(0, 1), switch_probability=(0, 1))
        if not isfinite(self.pessimism):
            raise ConfigError(f"pessimism: expected a number, got {self.pessimism}.")
        self._require_budget()
        require_share("validation", self.validation)
        members = members_of(self.model)
        if self.needs_members and members < 2:
            raise ConfigError(
                f'sampler: "{self.sampler}" needs a model of several members, which disagree, got '
                'one network. Give the model several members, or choose sampler="entropy" or '
                'sampler="uniform".'
            )
        require_validation(self.trainer, members=members, held_out=self.validation > 0)
        if self.exploration_bonus > 0 and members < 2:
            raise ConfigError(
                f"exploration_bonus: expected 0 with one network, got {self.exploration_bonus}. "
                "Give the model several members, which disagree."
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """Return the settings of a preset, such as "pendulum", with the given fields changed.

        `preferl.presets.preset_names()` lists the names.

        Raises:
            ConfigError: no preset of that name, or a setting out of its range.

        >>> OnlineConfig.preset("pendulum", comparisons=100).steps
        15000
        """
        return replace(from_json(cls, load_preset(name)), **changes)

    def pessimism_after(self, steps: int) -> float:
        """Return the pessimism minus the exploration bonus of a reward fitted after `steps`.

        The result is below 0 while the bonus is larger than the pessimism.

        >>> round(OnlineConfig(exploration_bonus=0.05).pessimism_after(100_000), 4)
        -0.0184
        """
        return self.pessimism - self.exploration_bonus * (1 - self.bonus_decay) ** steps

    def _require_budget(self) -> None:
        """Raise `ConfigError` if an iteration has less than one step for each environment."""
        if self.steps == 0 and self.initial_steps == 0:
            return
        require_fields(self, initial_steps=self.environments)
        least = self.initial_steps + self.iterations * self.environments
        if not self.steps >= least:
            raise ConfigError(
                f"steps: expected at least {least:,}: {self.initial_steps:,} initial_steps, and "
                f"one step of each of {self.environments} environments in each of "
                f"{self.iterations} iterations, got {self.steps:,}. Allow more steps, or fewer "
                "initial_steps or iterations; or set steps and initial_steps to 0 to ask only "
                "about recorded episodes."
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """How a run is evaluated after learning.

    Attributes:
        episodes: episodes of each policy; the environment's own reward evaluates them.
        oracle: whether the same algorithm is also trained on the true reward for as many steps.
            This shows how much is lost by learning from comparisons.
        queries: number of queries for evaluating the reward. They are about new experience, and the
            true return answers them.
        clip_steps: length in steps of the films of the policy before and after learning; 0 makes no
            films. Environments whose `render_modes` have no pictures are not filmed.
    """

    episodes: int = 50
    oracle: bool = True
    queries: int = 500
    clip_steps: int = 200

    def __post_init__(self) -> None:
        require_fields(self, episodes=1, queries=1, clip_steps=0)


Tier = Literal["random", "medium", "expert", "replay"]
"""A quality of behaviour.

"random" takes uniformly random actions. "medium" is the policy whose return is a third of the way
to the best, "expert" the best policy. "replay" are the episodes of training.
"""

ALL: Final = 2**62
"""Amount of a tier that means all of its episodes."""

Unit = Literal["episodes", "steps"]


@final
@dataclass(frozen=True)
class DatasetConfig(EnvConfig):
    """Settings of a recorded data set of mixed quality: which policies act, and for how long.

    A *medium* policy is the checkpoint whose mean return is nearest to
    `random + (expert - random) / 3`, among checkpoints before the expert's. The *expert* is the
    checkpoint with the best mean return, the earliest one if several are equal. *Replay* takes
    whole episodes of training, spread evenly from the first to the last.

    Attributes:
        mix: how much of each tier, such as `random:200,medium:200,expert:200,replay:100`. Tiers are
            recorded and stored in this order. `replay:all` takes all episodes of training.
        unit: what the mix counts. With `"steps"`, a tier may get more steps, since episodes are
            always whole.
        train_steps: largest number of environment steps of training.
        target_return: training ends at the first checkpoint whose mean return is at least this;
            None trains to the end.
        checkpoint_every: steps between two checkpoints. Training can be resumed from each, and
            tiers are chosen among them. 10,000 steps are ten episodes of locomotion.
        eval_episodes: episodes by which each checkpoint is evaluated, with its most likely actions.
        algorithm: settings of the algorithm. None takes soft actor-critic for continuous actions,
            and PPO for other actions and for pictures, with stable-baselines3's settings.
        training_environments: number of environments in training. None takes one for soft
            actor-critic, which updates after each step of all of them, and eight for PPO.
        environments: number of environments while recording.
        vec_env: "dummy" steps environments in turn, "subproc" each in a process of its own.
        pictures: record the environment's picture at each step, for people. This is needed if the
            state is not enough to draw the step again. 1,000 steps take 8 MB.
        deterministic: record the most likely actions instead of random draws; a tier then varies
            less.
        policy: a policy to use as the expert instead of training one: a policy folder of a preferl
            run, or a `.zip` of stable-baselines3. There is then no medium and no replay tier.
        trust_pickle: open a `.zip`, which can run any code that its maker put into it.
        vecnormalize: statistics of observations for a `.zip`, as `VecNormalize.save` writes them.
            No code in this file is run. None takes `vecnormalize.pkl` or `vec_normalize.pkl` beside
            the `.zip`.
        seed: seed of networks, actions and environments.
        device: device of the networks.

    Raises:
        ConfigError: a setting is out of its range, or the mix names no tier or names one twice.

    >>> DatasetConfig("Pendulum-v1", mix="random:20,expert:5").amounts
    {'random': 20, 'expert': 5}
    """

    env: EnvSource = field()  # required
    mix: str = "random:200,medium:200,expert:200,replay:200"
    unit: Unit = "episodes"
    train_steps: int = 200_000
    target_return: float | None = None
    checkpoint_every: int = 10_000
    eval_episodes: int = 5
    algorithm: AlgorithmConfig | None = None
    training_environments: int | None = None
    environments: int = 8
    vec_env: VecEnvKind = "dummy"
    pictures: bool = False
    deterministic: bool = False
    policy: Path | None = None
    trust_pickle: bool = False
    vecnormalize: Path | None = None
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_seed(self.seed)
        require_fields(self, train_steps=1, checkpoint_every=1, eval_episodes=1)
        require_fields(self, environments=1, training_environments=1)
        for tier, amount in self.amounts.items():
            require_in(f"mix, {tier}", amount, 1, inf)
        if self.policy is not None:
            self.require_no_training()

    @property
    def amounts(self) -> Mapping[Tier, int]:
        """Return how much of each tier to record, in the order of the mix."""
        amounts: dict[Tier, int] = {}
        for part in [word.strip() for word in self.mix.split(",") if word.strip()] or [self.mix]:
            name, _, amount = part.partition(":")
            is_all = part == "replay:all"
            is_tier = name in get_args(Tier) and name not in amounts
            if not is_tier or not (is_all or amount.isdecimal()):
                raise ConfigError(
                    "mix: expected TIER:AMOUNT between commas, each of "
                    f"{', '.join(get_args(Tier))} at most once, got {part!r}. For example "
                    "random:200,medium:200,expert:200."
                )
            amounts[cast("Tier", name)] = ALL if is_all else int(amount)
        return amounts

    def require_no_training(self) -> None:
        """Raise `ConfigError` if a tier of the mix needs more than a given expert."""
        if not self.amounts.keys() <= {"random", "expert"}:
            raise ConfigError(
                f"mix: expected only random and expert with a given policy, got {self.mix}. The "
                "policy has no checkpoints: leave out medium and replay, or train a policy."
            )
