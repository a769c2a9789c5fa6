"""Settings of the offline learners: IQL, IPL, CPL, cloning and Decision Transformers."""

from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf, isfinite, nan
from typing import Any, ClassVar, Literal, NamedTuple, Self, final

from preferl.configs import require_fields
from preferl.errors import ConfigError, require_in, require_one_of, require_share
from preferl.models.configs import CNNRewardConfig
from preferl.models.spaces import Channels
from preferl.training.configs import Precision

Decrement = Literal["received", "even"]  # how a target return goes down, see `DTConfig`
ActionLoss = Literal["squares", "gaussian"]  # losses of continuous actions, see `DTConfig`

PRESETS: dict[str, dict[str, float]] = {
    "mujoco": {},
    "antmaze": {"expectile": 0.9, "temperature": 10.0},
    "adroit": {"temperature": 0.5, "dropout": 0.1},
}


def parsed_target(target: float | str) -> tuple[float, bool]:
    """Parse a target return into a number and whether it is a quantile of recorded returns.

    Raises:
        ConfigError: the target is neither a finite number nor a quantile.

    >>> parsed_target("q0.9"), parsed_target("-120")
    ((0.9, True), (-120.0, False))
    """
    text = str(target)
    number = nan
    with suppress(ValueError):
        number = float(text.removeprefix("q"))
    if not isfinite(number):
        raise ConfigError(
            f"target return: expected a number, or a quantile such as q0.95, got {target}."
        )
    if text.startswith("q"):
        require_in(f"quantile {text}", number, 0, 1)
    return number, text.startswith("q")


class TrainingCurve(NamedTuple):
    """A metric that a run's report draws over the updates, and the words of the report for it."""

    metric: str
    unit: str
    alt: str
    caption: str


@dataclass(frozen=True)
class LearnerConfig:
    """Settings of an offline learner, and how runs use its agents.

    For a learner of your own, make a subclass, and register both as one entry of
    `preferl.registry.OFFLINE_LEARNERS`.
    """

    words: ClassVar[str]  # name of the algorithm in reports
    prefix: ClassVar[str] = ""  # prefix of metrics; "" means the name of the policy
    # Agents that learn only from actions are clones, the controls of all others.
    learns_from: ClassVar[Literal["rewards", "answers", "actions"]] = "rewards"
    has_target: ClassVar[bool] = False  # whether policies have target returns
    together: ClassVar[bool] = True  # whether agents are one batched computation
    # a tenth of the papers' updates, enough for some thousand steps
    updates: ClassVar[int] = 100_000
    every: ClassVar[int] = 1_000  # most updates between two reports of progress

    @classmethod
    def of_run(cls, run: Any) -> "LearnerConfig":  # noqa: ARG003  # for others to look at
        """Return the settings of agents in a run of an `OfflineConfig`; here the defaults."""
        return cls()

    def curve(self, *, discrete: bool) -> TrainingCurve | None:  # noqa: ARG002  # as above
        """Return the training metric that a run's report draws, if any."""
        return None


@dataclass(frozen=True)
class GaussianConfig(LearnerConfig):
    """Settings that learners of Gaussian policies share.

    Attributes:
        dropout: share of the policy's hidden units dropped in training, in [0, 1).
        hidden: units of each hidden layer.
        learning_rate: learning rate of Adam.
        batch_size: transitions per update and agent.
        decay: whether the policy's learning rate falls to 0 over the planned updates, along half a
            cosine.
        log_std_bounds: bounds of the policy's log standard deviations.
        precision: precision of products between hidden layers. "bfloat16" is nearly twice as fast
            on processors that have it. Parameters and everything else keep 32 bits.
    """

    dropout: float = 0.0
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    batch_size: int = 256
    decay: bool = True
    log_std_bounds: tuple[float, float] = (-5.0, 2.0)
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if not all(units >= 1 for units in self.hidden):
            raise ConfigError(f"hidden: expected units of at least 1, got {self.hidden}.")
        require_share("dropout", self.dropout)
        require_fields(self, learning_rate=0, batch_size=1)
        low, high = self.log_std_bounds
        if not -inf < low < high < inf:
            raise ConfigError(
                f"log_std_bounds: expected a low bound and a higher one, got {(low, high)}."
            )


@final
@dataclass(frozen=True)
class CloningConfig(GaussianConfig):
    """Settings of `BehaviourCloning`: those of `GaussianConfig`, with the values of IQL."""

    words = "cloning"
    prefix = "cloning"
    learns_from = "actions"

    @classmethod
    def of_run(cls, run: Any) -> Self:
        """Return the settings of implicit Q-learning's policies in the run."""
        agent = run.settings if run.kind.learns_from == "answers" else IQLConfig.of_run(run)
        return cls(**{field.name: getattr(agent, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class IQLConfig(GaussianConfig):
    """Settings of `IQL` in addition to `GaussianConfig`; the defaults are for MuJoCo locomotion.

    Attributes:
        expectile: expectile of the values, in (0, 1). 0.5 learns the value of the recorded policy;
            numbers towards 1 learn the value of the best recorded actions.
        temperature: inverse temperature, at least 0. 0 clones; larger numbers trust advantages
            more.
        discount: discount per step, in [0, 1].
        target_rate: share by which the target networks move per update, in (0, 1].
        max_weight: largest weight of one action in the policy's loss.
    """

    words = "implicit Q-learning"

    expectile: float = 0.7
    temperature: float = 3.0
    discount: float = 0.99
    target_rate: float = 0.005
    max_weight: float = 100.0

    def __post_init__(self) -> None:
        if not 0 < self.expectile < 1:
            raise ConfigError(f"expectile: expected in (0, 1), got {self.expectile}.")
        require_fields(self, temperature=0, discount=(0, 1))
        require_fields(self, target_rate=(1e-9, 1), max_weight=1e-9)
        super().__post_init__()

    @classmethod
    def of_run(cls, run: Any) -> Self:
        """Return the run's settings, or those published for its task."""
        return run.iql or cls.preset(run.row.hyperparameters if run.row else "mujoco")

    def curve(self, *, discrete: bool) -> TrainingCurve:  # noqa: ARG002  # as above
        """Return the curve of the returns that agents expect."""
        return TrainingCurve(
            "value",
            "expected return",
            "Returns that agents of each condition expect, over updates.",
            "Mean over seeds of the value of a minibatch. Each condition has the scale of its own "
            "reward.",
        )

    @classmethod
    def preset(cls, name: Literal["mujoco", "antmaze", "adroit"]) -> Self:
        """Return the paper's settings for a family of tasks; "adroit" is also for robosuite.

        Raises:
            ConfigError: the name is unknown.

        >>> IQLConfig.preset("antmaze").expectile
        0.9
        """
        require_one_of("preset", name, PRESETS)
        # The presets have the names and types of the fields.
        return cls(**PRESETS[name])  # type: ignore[arg-type]


@final
@dataclass(frozen=True)
class IPLConfig(IQLConfig):
    """Settings of `IPL` in addition to `IQLConfig`.

    Attributes:
        regulariser: weight `λ` of the mean square of implied rewards, at least 0. The paper uses
            0.5 for locomotion and 3 for Meta-World.
        pairs: number of answers per update and agent.
    """

    words = "inverse preference learning"
    learns_from = "answers"

    regulariser: float = 0.5
    pairs: int = 16

    def __post_init__(self) -> None:
        require_fields(self, regulariser=0, pairs=1)
        super().__post_init__()

    @classmethod
    def of_run(cls, run: Any) -> Self:
        """Return the run's settings, or those published for implicit Q-learning on its task."""
        return run.ipl or cls.preset(run.row.hyperparameters if run.row else "mujoco")


@final
@dataclass(frozen=True)
class CPLConfig(GaussianConfig):
    """Settings of `CPL` in addition to `GaussianConfig`; most defaults are the paper's.

    Attributes:
        dropout: see `GaussianConfig`; without dropout, policies memorise few answers.
        decay: see `GaussianConfig`; the learning rate starts again with the first answers.
        temperature: factor `α` of log likelihoods, above 0.
        bias: `λ` of `contrastive_loss`, in [0, 1].
        cloning: share of the updates that clone all recorded steps before any answer, in [0, 1).
        pairs: number of answers per update and agent; the paper's 96 take three times as long.
    """

    words = "contrastive preference learning"
    learns_from = "answers"

    dropout: float = 0.25
    temperature: float = 0.1
    bias: float = 0.5
    cloning: float = 0.4
    pairs: int = 32

    def __post_init__(self) -> None:
        require_fields(self, temperature=1e-12, bias=(0, 1), pairs=1)
        require_share("cloning", self.cloning)
        super().__post_init__()

    @classmethod
    def of_run(cls, run: Any) -> Self:
        """Return the run's settings, or the paper's."""
        return run.cpl or cls()

    def curve(self, *, discrete: bool) -> TrainingCurve:  # noqa: ARG002  # as above
        """Return the curve of how many answers the policies explain."""
        return TrainingCurve(
            "accuracy",
            "share of answers",
            "Share of answers that policies of each condition explain, over updates.",
            "Share of a minibatch's decided answers whose preferred actions are more likely.",
        )


@final
@dataclass(frozen=True)
class DTRConfig:
    """Settings of the regulariser of a Decision Transformer (DTR).

    Attributes:
        weight: weight of the critics' values in the policy's loss at the end of training, `η_max`.
            It grows from 0 in proportion to the updates made ("learn to walk before you can run").
            It is divided by the mean size of the values, so that it does not depend on the scale of
            rewards.
            With 0, critics only choose among candidates.
        discount: discount of rewards per step, in [0, 1].
        hidden: units of each layer of a critic.
        learning_rate: learning rate of the critics.
        target_rate: share by which target critics move per update, in (0, 1].
        candidates: target returns, in multiples of the policy's own. Each target gives an action,
            and the critics choose among these actions.
    """

    weight: float = 1.0
    discount: float = 0.99
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    target_rate: float = 0.005
    candidates: tuple[float, ...] = (0.5, 0.75, 1.0, 1.5, 2.0)

    def __post_init__(self) -> None:
        require_fields(self, weight=0, discount=(0, 1))
        require_fields(self, learning_rate=1e-12, target_rate=(1e-9, 1))
        if not (self.hidden and min(self.hidden) >= 1 and self.candidates):
            raise ConfigError(
                "hidden and candidates: expected at least one of each, and at least one unit per "
                f"layer, got {(self.hidden, self.candidates)}."
            )


@final
@dataclass(frozen=True)
class PixelEncoderConfig:
    """Shape of a Decision Transformer's pixel encoder; the defaults are those of `CNNRewardConfig`.

    Attributes:
        kernels: side of each convolution's kernel, in pixels.
        strides: step of each convolution, in pixels.
        filters: number of filters of each convolution.
        size: number of features of a picture.
        channels: where the pictures' channels are, "last" or "first"; "auto" infers this from the
            shape.
    """

    kernels: tuple[int, ...] = (7, 5, 3, 3)
    strides: tuple[int, ...] = (3, 2, 1, 1)
    filters: int = 16
    size: int = 64
    channels: Channels = "auto"

    def __post_init__(self) -> None:
        require_fields(self, size=1)
        self.network()

    def network(self) -> CNNRewardConfig:
        """Return the settings as a `CNNRewardConfig`, which checks their ranges."""
        settings = asdict(self)
        return CNNRewardConfig(hidden=settings.pop("size"), **settings)


@final
@dataclass(frozen=True)
class TokenShape:
    """The settings of a Decision Transformer that its parameters' shapes do not show."""

    layers: int
    heads: int
    squashed: bool  # whether actions end in a tanh
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require_fields(self, layers=1, heads=1)
        require_share("dropout", self.dropout)


@dataclass(frozen=True)
class DTConfig(LearnerConfig):
    """Settings of `DecisionTransformer`; the defaults are the paper's for locomotion.

    The defaults are those in appendix A of Chen et al. 2021, with two changes. After its warm-up,
    the learning rate falls to 0; in the paper it stays. Biases and norms do not decay.

    Attributes:
        context: `H`, the number of steps of history that the transformer sees.
        width: numbers per token.
        layers: number of layers of the transformer.
        heads: number of attention heads of each layer; they share the width.
        dropout: share of embeddings, attention and residuals dropped in training, in [0, 1).
        discount: discount of returns-to-go, in (0, 1]. With 1, as in the paper, they are sums.
        scale: number by which returns are divided. None takes the largest recorded return; the
            paper uses 1000 for locomotion.
        horizon: number of timesteps with their own embedding; later timesteps use the last one.
        batch_size: windows per update, over all processes.
        learning_rate: highest learning rate; it rises over `warmup`, then falls linearly to 0.
        weight_decay: weight decay of matrices.
        warmup: share of the updates during which the learning rate rises, in [0, 1).
        max_grad_norm: norm to which larger gradients are scaled down.
        target: target return of a policy, unless another is given: a number, or a quantile of the
            recorded returns such as `"q0.95"`.
        decrement: how a policy lowers its target return as it acts. `"received"` lowers it by the
            rewards that the policy receives. `"even"` lowers it evenly over the steps of the
            longest episode, and needs no reward.
        action_loss: loss of continuous actions. `"squares"` is the mean square error, as in the
            paper. `"gaussian"` is the negative log likelihood under a Gaussian. For each number of
            an action, its standard deviation is the likeliest for the minibatch. Numbers that
            people repeat to a hundredth are then fitted as well as numbers that they vary by a
            tenth.
        precision: precision of products; `"bfloat16"` takes less time on processors that have it.
        regulariser: settings of critics that draw actions towards higher values (DTR); None for no
            critics.
        pixel_encoder: shape of the pixel encoder; ignored if states are numbers.
    """

    words = "Decision Transformers"
    prefix = "dt"
    has_target = True
    together = False
    updates = 10_000  # each minibatch has twenty times as many steps
    every = 100
    has_critics: ClassVar[bool] = False

    context: int = 20
    width: int = 128
    layers: int = 3
    heads: int = 1
    dropout: float = 0.1
    discount: float = 1.0
    scale: float | None = None
    horizon: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    warmup: float = 0.1
    max_grad_norm: float = 0.25
    target: str = "q0.95"
    decrement: Decrement = "received"
    action_loss: ActionLoss = "squares"
    precision: Precision = "float32"
    regulariser: DTRConfig | None = None
    pixel_encoder: PixelEncoderConfig = field(default_factory=PixelEncoderConfig)

    def __post_init__(self) -> None:
        require_fields(self, context=1, width=1, layers=1, heads=1, horizon=1, batch_size=1)
        require_fields(self, scale=1e-12, learning_rate=1e-12, max_grad_norm=1e-12)
        require_fields(self, discount=(1e-12, 1), weight_decay=0)
        if self.width % self.heads != 0:
            raise ConfigError(
                f"width: expected a multiple of {self.heads} heads, got {self.width}."
            )
        if not (self.regulariser is None or self.context >= 2):
            raise ConfigError(
                "context: expected at least 2 for the regulariser, since critics learn a step "
                f"from the steps after it, got {self.context}."
            )
        for name in ("dropout", "warmup"):
            require_share(name, getattr(self, name))
        parsed_target(self.target)

    @classmethod
    def of_run(cls, run: Any) -> "DTConfig":
        """Return the run's settings, or the published ones; with critics if the policy has them."""
        given = run.dt or DTConfig(horizon=run.max_steps or DTConfig.horizon)
        target = given.target if run.target_return is None else run.target_return
        critics = (given.regulariser or DTRConfig()) if cls.has_critics else None
        return replace(given, target=target, regulariser=critics)

    def curve(self, *, discrete: bool) -> TrainingCurve:
        """Return the curve of the loss of Decision Transformers, in its unit."""
        what = "Mean square error of actions, each number in [−1, 1]"
        unit = "square error"
        if discrete:
            what = "Cross-entropy of actions, in nats"
            unit = "nats"
        elif self.action_loss == "gaussian":
            what = "Negative log likelihood of each number of an action, up to a constant"
            unit = "nats"
        what += ", with the critics' term" if self.regulariser else ""
        alt = "How far predicted actions are from recorded ones, over updates."
        caption = f"{what}. Thin lines are seeds, the others their means."
        return TrainingCurve("loss", unit, alt, caption)


@final
@dataclass(frozen=True)
class CriticDTConfig(DTConfig):
    """Settings of a Decision Transformer that has the regulariser (DTR)."""

    regulariser: DTRConfig | None = field(default_factory=DTRConfig)

    words = "Decision Transformers with critics (DTR)"
    has_critics = True
