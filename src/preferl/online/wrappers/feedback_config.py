"""Settings of queries, and of how wrapped environments collect the experience for them."""

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
"""If each recorded step is shown more often than this on average, there is a warning: many clips
then show the same steps, so that more answers teach less."""

VariableLength = Literal["allow", "refuse"]
"""Whether episodes of different length give one warning, or an error."""


class BeforeFirstReward(StrEnum):
    """The reward of steps until the first learned reward is there.

    It is zero, a bonus for new states (see `StateEntropyBonus`), or the environment's own reward,
    from which the agent then learns instead of from people.
    """

    ZERO = "zero"
    ENTROPY = "entropy"
    ENVIRONMENT = "environment"


@dataclass(frozen=True)
class QueryConfig:
    """Settings of what is asked about, which the loop and wrapped environments share.

    Attributes:
        segment_length: steps of a clip. In most tasks 50 steps last one or two seconds, as long as
            the clips of the DRLHP paper.
        sampler: how pairs are chosen, a name of `preferl.registry.SAMPLERS`. "uniform" draws any
            pairs; "informative" takes those about which members of the reward disagree most, as in
            DRLHP. B-Pref's six samplers are "uniform", "disagreement", "entropy", "k_center" (pairs
            that lie far from one another and from earlier ones; also called "covering"), and
            "k_center_disagreement" and "k_center_entropy", which choose such pairs from the more
            informative half.
        acquisition: measure of "informative" pairs: the variance over members of the pair's
            "logit", "probability" (as in the DRLHP paper) or "label", or the "entropy" of their
            answers. B-Pref's samplers do not use it.
        oversampling: candidate pairs for each query, 10 as in B-Pref. "uniform" does not use it,
            nor does a sampler of your own that says how many segments it wants.
        short: how clips are cut from episodes that are shorter than a clip. "drop" cuts none.
            "auto" cuts some only if all episodes are too short. With "pad", a clip may end early
            with its episode, so that answers can show how good it is to go on; choose that where
            longer episodes are better. See `preferl.data.sample_segments`.
        variable_length: "allow" episodes of different length, with one warning, or "refuse".
        buffer_steps: environment steps of the latest experience that clips are cut from; the
            oldest episodes go first.
        states: record `info["state"]`, from which videos of steps can be drawn later (see
            `RecordsStates`), for environments whose observations do not suffice for that.
        seed: seed of all random choices.

    Raises:
        ConfigError: a number is out of its range, or a word is not listed here.
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
        """Whether the sampler compares members of an ensemble, and so needs several."""
        by_variance = self.sampler == "informative" and self.acquisition != "entropy"
        return by_variance or self.sampler in ("disagreement", "k_center_disagreement")


@dataclass(frozen=True)
class FeedbackConfig(QueryConfig):
    """Settings of how wrapped environments collect and ask, and of rewards before the first fit.

    Attributes:
        before: reward of steps until the first learned reward is there.
        max_pending: most unanswered queries at a time; further ones are asked as people answer. A
            small number keeps queries up to date, a large one keeps people busy.
        max_queries: most queries of the project, those of earlier runs included; None sets no
            limit.
        ask_every: environment steps of experience for each query. None takes twice the length of
            a clip, so that steps are shown about once; a larger number spreads a budget over the
            run.
        buffer_megabytes: another limit of the experience in memory, since pixels are large.
        longest_piece: steps after which a running episode is handed over as if it had ended, so
            that tasks without an end are asked about, too.
        episode_every: seconds between whole episodes that the annotation page shows; None shows
            none.
        refresh_every: vector steps after which the agent switches to a newer reward; the length of
            a rollout. None switches only in `refresh`, which `FeedbackCallback` calls.
        hide_true_reward: leave the environment's own reward out of what the agent's program sees;
            if a monitor is wrapped inside, its `info["episode"]` gives the learned return.

    Raises:
        ConfigError: a number out of its range, or a word that is none of these.
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
    """Replace the fields in `more` of a config; refuse keywords that are no fields."""
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
    """Episodes differ in length, so that their ends may tell an agent about its reward."""


@final
class LengthGuard:
    """Checks that all episodes have the same length; warns once, or raises, if they have not.

    If lengths differ, the end of an episode tells the agent what no answer did: staying alive gains
    if learned rewards are positive, and ending early gains if they are negative. Kreutzer et al.
    and imitation's documentation call this a variable horizon. With `variable` None nothing is
    checked. `differ` is whether two lengths have been seen.
    """

    def __init__(self, variable: VariableLength | None) -> None:
        self._variable = variable
        self.warned = self.differ = False

    def check(self, shortest: int | None, longest: int, remark: str = "") -> None:
        """Compare the shortest length of an ended episode (None before one ends) with the longest.

        Raises:
            DataError: their lengths differ, and that is refused; `remark` ends the message.
        """
        if self._variable is None or shortest is None or shortest >= longest:
            return
        self.differ = True
        text = (
            f"Episodes differ in length ({shortest} to {longest} steps). Where an episode ends may "
            "tell the agent what its reward should: positive learned rewards favour survival, "
            f"negative ones an early end.{remark}"
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
    """Warns once if experience has too few steps for the clips of the queries."""

    def __init__(self, config: QueryConfig) -> None:
        self._config = config
        self.warned = False

    def check(self, episodes: Episodes, queries: int, *, asked: int, steps: int) -> None:
        """Check that the next queries, and all queries so far, show different steps.

        Args:
            episodes: experience that the next queries are about.
            queries: number of the next queries.
            asked: number of all queries, the next ones included.
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
