"""The settings by which wrapped environments ask people and pay what was learned from them."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Literal, get_args

from preferl.data.segments import Short
from preferl.errors import ConfigError, require_in
from preferl.online.lengths import VariableLength


class BeforeFirstReward(StrEnum):
    """What is paid until the first learned reward is there.

    Attributes:
        ZERO: nothing.
        ENTROPY: a bonus for new states, see `preferl.online.entropy_bonus`.
        ENVIRONMENT: the environment's own reward, which gives the agent the answer.
    """

    ZERO = "zero"
    ENTROPY = "entropy"
    ENVIRONMENT = "environment"


Sampling = Literal["uniform", "disagreement"]


@dataclass(frozen=True)
class FeedbackConfig:
    """How wrapped environments collect, ask and pay.

    Attributes:
        segment_length: steps of a clip. 50 are one or two seconds of most tasks; the DRLHP paper
            shows that long.
        before: what is paid until the first learned reward is there.
        max_pending: questions that wait for people at a time; more are asked as they are
            answered. Few keep questions fresh, many keep people busy.
        max_questions: of the project in all, those of earlier runs included; None is no end.
        ask_every: environment steps of experience for each question. None takes twice the length
            of a clip, so that steps are shown about once; more spreads a budget over the run.
        sampling: "uniform", or "disagreement" of the members of the reward in use, as in DRLHP.
        candidates: segments drawn for each question, of which the sampler chooses two; more for
            a sampler that says it wants more.
        short: episodes with fewer steps than a clip are left out ("drop") or padded ("pad").
        buffer_steps: experience from which questions are drawn, the latest; the oldest episodes
            go first.
        buffer_megabytes: the same in memory, whichever is less; pixels are large.
        variable_length: "allow" episodes of different length, with one warning, or "refuse".
        longest_piece: steps after which an episode under way is handed over as if it had ended,
            so that tasks without an end are asked about, too.
        episode_every: seconds between whole episodes that the page shows; None shows none.
        states: record `info["state"]`, what it takes to draw a step again, as `RecordsStates`
            tells it.
        refresh_every: vector steps after which a newer reward is taken up; the length of a
            rollout. None takes it up only when `refresh` is called, as `FeedbackCallback` does.
        hide_true_reward: leave the environment's own reward out of what the agent's program sees;
            in `info["episode"]` of a monitor inside, the return is that of what was paid.
        seed: of what is asked.

    Raises:
        ConfigError: a number out of its range, or a word that is none of these.
    """

    segment_length: int = 50
    before: BeforeFirstReward = BeforeFirstReward.ZERO
    max_pending: int = 20
    max_questions: int | None = None
    ask_every: int | None = None
    sampling: Sampling = "uniform"
    candidates: int = 10
    short: Short = "drop"
    variable_length: VariableLength = "allow"
    buffer_steps: int = 20_000
    buffer_megabytes: float = 256.0
    longest_piece: int = 1_000
    episode_every: float | None = 60.0
    states: bool = False
    refresh_every: int | None = None
    hide_true_reward: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("segment_length", "max_pending", "buffer_steps"):
            require_in(name, getattr(self, name), 1, inf)
        require_in("candidates", self.candidates, 2, inf)
        require_in("buffer_megabytes", self.buffer_megabytes, 0.001, inf)
        require_in("longest_piece", self.longest_piece, self.segment_length, inf)
        for name in ("max_questions", "ask_every", "refresh_every", "episode_every"):
            if getattr(self, name) is not None:
                require_in(name, getattr(self, name), 0 if name == "episode_every" else 1, inf)
        _require_word("before", self.before, tuple(BeforeFirstReward))
        _require_word("sampling", self.sampling, get_args(Sampling))
        _require_word("variable_length", self.variable_length, get_args(VariableLength))
        _require_word("short", self.short, get_args(Short))


def _require_word(name: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise ConfigError.mismatch(name, expected=f"one of {', '.join(words)}", got=repr(word))
