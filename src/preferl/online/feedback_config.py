"""What is asked about, and how wrapped environments collect it: the words that all runs share."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import get_args

from preferl.configs import takes_old_names
from preferl.data.segments import Short
from preferl.errors import require_in, require_one_of
from preferl.online.lengths import VariableLength
from preferl.registry import ACQUISITIONS, SAMPLERS


class BeforeFirstReward(StrEnum):
    """What steps get until the first learned reward is there.

    Attributes:
        ZERO: nothing.
        ENTROPY: a bonus for new states, see `StateEntropyBonus`.
        ENVIRONMENT: the environment's own reward, which gives the agent the answer.
    """

    ZERO = "zero"
    ENTROPY = "entropy"
    ENVIRONMENT = "environment"


@dataclass(frozen=True)
class QueryConfig:
    """What is asked about: the settings of the loop and of wrapped environments alike.

    Attributes:
        segment_length: steps of a clip. 50 are one or two seconds of most tasks; the DRLHP paper
            shows that long.
        sampler: "uniform" pairs, or "informative" ones, about which members of the reward in use
            disagree most, as in DRLHP.
        acquisition: what "informative" means: most variance over members of the pair's "logit",
            "probability" (the DRLHP paper's) or "label", or most "entropy" of their answers.
        oversampling: candidate pairs for each query: for the informative sampler, and for one of
            your own that does not say how many segments it wants. 10 as in B-Pref.
        short: episodes with fewer steps than a clip are left out ("drop") or padded ("pad").
        variable_length: "allow" episodes of different length, with one warning, or "refuse".
        buffer_steps: environment steps of the latest experience that clips are cut from; the
            oldest episodes go first.
        states: record `info["state"]`, what it takes to draw steps again (see `RecordsStates`), for
            people to be shown clips of environments whose observations do not say all.
        seed: of everything random.

    Raises:
        ConfigError: a number out of its range, or a word that is none of these.
    """

    segment_length: int = 50
    sampler: str = "uniform"
    acquisition: str = "probability"
    oversampling: float = 10.0
    short: Short = "drop"
    variable_length: VariableLength = "allow"
    buffer_steps: int = 50_000
    states: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_in("segment_length", self.segment_length, 1, inf)
        require_in("buffer_steps", self.buffer_steps, 1, inf)
        require_in("oversampling", self.oversampling, 1, inf)
        require_one_of("sampler", self.sampler, SAMPLERS.names())
        require_one_of("acquisition", self.acquisition, ACQUISITIONS.names())
        require_one_of("short", self.short, get_args(Short))
        require_one_of("variable_length", self.variable_length, get_args(VariableLength))


@takes_old_names
@dataclass(frozen=True)
class FeedbackConfig(QueryConfig):
    """How wrapped environments collect and ask, and what their steps get before there is a reward.

    Attributes:
        before: what steps get until the first learned reward is there.
        max_pending: questions that wait for people at a time; more are asked as they are
            answered. Few keep questions fresh, many keep people busy.
        max_questions: of the project in all, those of earlier runs included; None is no end.
        ask_every: environment steps of experience for each question. None takes twice the length
            of a clip, so that steps are shown about once; more spreads a budget over the run.
        buffer_megabytes: the limit of the experience in memory, whichever is less; pixels are
            large.
        longest_piece: steps after which an episode under way is handed over as if it had ended,
            so that tasks without an end are asked about, too.
        episode_every: seconds between whole episodes that the page shows; None shows none.
        refresh_every: vector steps after which a newer reward is taken up; the length of a
            rollout. None takes it up only when `refresh` is called, as `FeedbackCallback` does.
        hide_true_reward: leave the environment's own reward out of what the agent's program sees;
            in `info["episode"]` of a monitor inside, the return is the learned one.

    Raises:
        ConfigError: a number out of its range, or a word that is none of these.
    """

    before: BeforeFirstReward = BeforeFirstReward.ZERO
    max_pending: int = 20
    max_questions: int | None = None
    ask_every: int | None = None
    buffer_megabytes: float = 256.0
    longest_piece: int = 1_000
    episode_every: float | None = 60.0
    refresh_every: int | None = None
    hide_true_reward: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_in("max_pending", self.max_pending, 1, inf)
        require_in("buffer_megabytes", self.buffer_megabytes, 0.001, inf)
        require_in("longest_piece", self.longest_piece, self.segment_length, inf)
        for name in ("max_questions", "ask_every", "refresh_every", "episode_every"):
            if getattr(self, name) is not None:
                require_in(name, getattr(self, name), 0 if name == "episode_every" else 1, inf)
        require_one_of("before", self.before, map(str, BeforeFirstReward))
