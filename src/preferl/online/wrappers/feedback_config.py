"""Settings of queries, and of how wrapped environments collect experience for queries."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, final

from preferl.configs import require_fields
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import Short, windows_of
from preferl.errors import ConfigError, DataError, require_one_of, require_seed
from preferl.printing import get_logger
from preferl.registry import ACQUISITIONS, SAMPLERS

LOGGER = get_logger(__name__)

MAX_TIMES_SHOWN: Final = 2.0
"""How often a recorded step may be shown on average before a warning.

If many clips show the same steps, more answers teach less.
"""

VariableLength = Literal["allow", "refuse"]
"""What happens if episodes differ in length: one warning, or an error."""


class BeforeFirstReward(StrEnum):
    """The reward of steps before the first learned reward.

    It is zero, a bonus for new states (see `StateEntropyBonus`), or the environment's own reward.
    With the environment's own reward, the agent does not learn from people at first.
    """

    ZERO = "zero"
    ENTROPY = "entropy"
    ENVIRONMENT = "environment"


@dataclass(frozen=True)
class QueryConfig:
    """Settings of queries, which the loop and wrapped environments share.

    Attributes:
        segment_length: steps of a clip. In most tasks, 50 steps last one or two seconds, as long as
            the clips of the DRLHP paper.
        sampler: how pairs are chosen, a name of `preferl.registry.SAMPLERS`. "uniform" draws any
            pairs. "informative" takes pairs about which members of the reward disagree most, as in
            DRLHP. B-Pref's six samplers are "uniform", "disagreement", "entropy", "k_center",
            "k_center_disagreement" and "k_center_entropy". "k_center", also called "covering",
            takes pairs that lie far from one another and from earlier ones. The last two choose
            such pairs from the more informative half.
        acquisition: measure of "informative" pairs: the variance over members of the pair's
            "logit", "probability" (as in the DRLHP paper) or "label", or the "entropy" of the
            members' answers. B-Pref's samplers do not use it.
        oversampling: candidate pairs for each query; 10 as in B-Pref. "uniform" does not use it,
            and neither does a sampler of your own that states how many segments it wants.
        short: how clips are cut from episodes that are shorter than a clip. "drop" cuts none.
            "auto" cuts some only if all episodes are too short. With "pad", a clip may end early
            with its episode. Answers can then show how good it is to go on, so choose "pad" if
            longer episodes are better. See `preferl.data.sample_segments`.
        variable_length: "allow" episodes of different length, with one warning, or "refuse".
        buffer_steps: environment steps of the latest experience that clips are cut from; the oldest
            episodes are dropped first.
        states: record `info["state"]`, from which videos of steps can be drawn later (see
            `RecordsStates`). Environments need this if their observations are not enough to draw a
            step.
        seed: seed of all random choices.

    Raises:
        ConfigError: a number is out of its range, or a word is not one of those above.
    """

    segment_length: int = 50
    sampler: Annotated[str, SAMPLERS] = "uniform"
    acquisition: Annotated[str, ACQUISITIONS] = "probability"
    oversampling: float = 10.0
    short: Short = "auto"
    variable_length: VariableLength = "allow"
    buffer_steps: int = 50_000
    states: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_fields(self, segment_length=1, buffer_steps=1, oversampling=1)
        require_seed(self.seed)

    @property
    def needs_members(self) -> bool:
        """Whether the sampler compares members of an ensemble, and therefore needs several."""
        by_variance = self.sampler == "informative" and self.acquisition != "entropy"
        return by_variance or self.sampler in ("disagreement", "k_center_disagreement")


@dataclass(frozen=True)
class FeedbackConfig(QueryConfig):
    """Settings of how wrapped environments collect experience and ask about it.

    Attributes:
        before: reward of steps before the first learned reward.
        max_pending: most unanswered queries at a time; further queries are asked as people answer.
            A small number keeps queries up to date, a large one keeps people busy.
        max_queries: most queries of the project, including those of earlier runs; None sets no
            limit.
        ask_every: environment steps of experience for each query. None takes twice the length of a
            clip, so that steps are shown about once. A larger number spreads a budget over the run.
        buffer_megabytes: another limit of the experience in memory, since pixels are large.
        longest_piece: steps after which a running episode is cut and asked about, so that tasks
            without an end are asked about, too.
        episode_every: seconds between whole episodes that the annotation page shows; None shows
            none.
        refresh_every: vector steps after which the agent switches to a newer reward; for example
            the length of a rollout. None switches only in `refresh`, which `FeedbackCallback`
            calls.
        hide_true_reward: hide the environment's own reward from the agent's program. If a monitor
            is wrapped inside, its `info["episode"]` then gives the learned return.

    Raises:
        ConfigError: a number is out of its range, or a word is not one of those above.
    """

    before: BeforeFirstReward = BeforeFirstReward.ZERO
    max_pending: int = 20
    max_queries: int | None = None
    ask_every: int | None = None
    buffer_megabytes: float = 256.0
    longest_piece: int = 1_000
    episode_every: float | None = 60.0
    refresh_every: int | None = None
    hide_true_reward: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fields(self, max_pending=1, max_queries=1, ask_every=1, refresh_every=1)
        require_fields(self, buffer_megabytes=0.001, longest_piece=self.segment_length)
        require_fields(self, episode_every=0)
        require_one_of("before", self.before, map(str, BeforeFirstReward))


def settings_of(config: FeedbackConfig | None, more: Mapping[str, Any]) -> FeedbackConfig:
    """Replace fields of a config by those in `more`; refuse keywords that are no fields."""
    if not isinstance(config, FeedbackConfig | None):
        raise ConfigError(
            f"config: expected a FeedbackConfig or None, got a {type(config).__name__}. Pass "
            "`config=FeedbackConfig(...)`, or its fields as keywords."
        )
    names = {field.name for field in fields(FeedbackConfig)}
    if not more.keys() <= names:
        raise ConfigError(f"settings: expected {sorted(names)}, got {sorted({*more} - names)}.")
    return replace(config or FeedbackConfig(), **more)


class VariableLengthWarning(UserWarning):
    """Episodes differ in length, so an episode's end may tell the agent about its reward."""


@final
class LengthGuard:
    """Checks that all episodes have the same length; warns once, or raises an error, if not.

    If lengths differ, an episode's end gives the agent a reward that no answer asked for. Staying
    alive pays if learned rewards are positive, and ending early pays if they are negative. Kreutzer
    et al. and imitation's documentation call this a variable horizon. `differ` tells whether two
    lengths have been seen. If `variable` is None, nothing is checked.
    """

    def __init__(self, variable: VariableLength | None) -> None:
        self._variable = variable
        self.warned = self.differ = False

    def check(self, shortest: int | None, longest: int, remark: str = "") -> None:
        """Compare the length of the shortest ended episode with that of the longest one.

        `shortest` is None before an episode has ended. `remark` ends the message.

        Raises:
            DataError: the lengths differ, and the settings refuse that.
        """
        if self._variable is None or shortest is None or shortest >= longest:
            return
        self.differ = True
        text = (
            f"Episodes differ in length ({shortest} to {longest} steps). Where an episode ends may "
            "tell the agent what only its reward should: positive learned rewards favour "
            f"survival, negative ones an early end.{remark}"
        )
        if self._variable == "refuse":
            raise DataError(
                f'{text} Pass variable_length="allow", or an environment of fixed length.'
            )
        if not self.warned:
            self.warned = True
            warnings.warn(text, VariableLengthWarning, stacklevel=2)


@final
class RepetitionGuard:
    """Warns once if there are too few recorded steps for the clips of the queries."""

    def __init__(self, config: QueryConfig) -> None:
        self._config = config
        self.warned = False

    def check(self, episodes: Episodes, queries: int, *, asked: int, steps: int) -> None:
        """Check that the next queries, and all queries so far, show different steps.

        Args:
            episodes: experience that the next queries are about.
            queries: number of the next queries.
            asked: number of all queries, including the next ones.
            steps: number of all recorded steps.
        """
        if self.warned or not queries:
            return
        length = self._config.segment_length
        windows = windows_of(episodes, length, self._config.short)
        distinct_windows = int(windows.sum())
        usable_steps = int(episodes.lengths[windows > 0].sum())
        shown_times = 2 * length * max(queries / max(usable_steps, 1), asked / max(steps, 1))
        if distinct_windows < 2 * queries:
            short_episodes = int((episodes.lengths < length).sum())
            text = (
                f"{queries} queries show {2 * queries} clips, and there are {distinct_windows} "
                f"different ones of {length} steps ({short_episodes} of {len(episodes)} episodes "
                "are shorter): some are shown again."
            )
        elif shown_times > MAX_TIMES_SHOWN:
            text = (
                f"Clips repeat one another: each step is shown {shown_times:.1f} times on average "
                f"({asked} queries, clips of {length} steps, {steps:,} steps recorded)."
            )
        else:
            return
        self.warned = True
        LOGGER.warning("%s Ask fewer queries, cut shorter clips, or take more steps.", text)
