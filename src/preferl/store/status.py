"""What programs report to each other and to people: frozen records and their JSON form.

The reward service and the agent report through the store, with each heartbeat and each published
version. The page reports into a file for whoever started it, because its link lets people in.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar, final

from preferl.files import writing
from preferl.reading import read_object

REWARD_SERVICE: Final = "reward"
AGENT: Final = "agent"
PAGE: Final = "page"
"""Names of the programs of preferl, in their heartbeats and logs."""


def agent_program(agent: str | None) -> str:
    """The name of an agent's program: that of all agents, and its own where there are several."""
    return AGENT if agent is None else f"{AGENT} {agent}"


def kind_of(program: str) -> str:
    """Return the kind of a program of preferl, whatever follows in its name.

    >>> kind_of("agent left arm"), kind_of("reward")
    ('agent', 'reward')
    """
    return program.partition(" ")[0]


STATUS_FILE: Final = "PREFERL_STATUS_FILE"
"""Environment variable: the file into which a program writes its status."""

Record = TypeVar("Record", "Status", "FitMetrics")


@final
@dataclass(frozen=True)
class Status:
    """How a program is, and how far; None where it has nothing to report.

    `state` is a word, such as `"starting"`, `"waiting"`, `"fitting"`, `"healthy"`, `"paused"`,
    `"failed"`, `"stuck"` or `"stopped"`; other programs have words of their own. The reward service
    reports `version` to `seconds`, the agent `steps` to `waiting_steps`.
    """

    state: str = "starting"
    problem: str | None = None  # why its work cannot go on now
    idle: float | None = None  # seconds since its work last went on
    version: int | None = None  # newest one; 0 before the first
    behind: int | None = None  # answers that are not in that version
    looked_at: int | None = None  # revision of the answers at which it last decided whether to fit
    first_at: int | None = None  # answers that the first version takes
    next_at: int | None = None  # revision at which it fits the next version
    answers: int | None = None  # in the newest version
    accuracy: float | None = None  # of the newest version on held-out answers
    decided: int | None = None  # held-out answers behind that accuracy
    seconds: float | None = None  # that the newest version took to fit
    steps: int | None = None  # that it has recorded, exploration included
    reward_version: int | None = None  # that it uses; 0 for none
    mean_return: float | None = None  # of its latest episodes, by the environment's own reward
    asked: int | None = None  # queries
    answered: int | None = None  # answers that its script gave
    dropped_episodes: int | None = None  # that left the experience buffer before any query
    dropped_segments: int | None = None  # whole clips in those
    waiting_steps: int | None = None  # in the experience buffer
    link: str | None = None  # the owner's, to the annotation page; never in the store


@final
@dataclass(frozen=True)
class FitMetrics:
    """The outcome of a fit of the reward service, published beside the version."""

    answers: int = 0  # that there were
    trained_on: int | None = None  # how many of them; None in early versions
    left_out: int = 0  # neither trained on nor held out
    train_accuracy: float | None = None  # share of the training answers that the model gives, too
    train_loss: float | None = None  # cross-entropy of the training answers, in nats
    epochs: int = 0  # passes over them
    seconds: float = 0.0  # of the fit
    noise: float | None = None  # share of answers that the likelihood takes to be random
    scale: float | None = None  # by which the likelihood multiplies differences of returns
    held_out: int = 0  # answers in the validation set
    decided: int = 0  # of these, how many are no ties
    accuracy: float | None = None  # share of those that the model gives, too; None without any
    low: float | None = None  # lower end of its 95 % interval
    high: float | None = None  # upper end
    loss: float | None = None  # cross-entropy of the held-out answers, in nats
    revision: int = 0  # of the answers when the fit began
    data: str | None = None  # digest of the answers
    trust: dict[str, dict[str, float]] | None = None  # in each annotator, by name


@final
@dataclass(frozen=True)
class ServiceState:
    """The last heartbeat of a program.

    A program is not `alive` where three heartbeats are overdue, and where the last one is from the
    future: the clock was set back since, and a running program soon sends another.
    """

    name: str
    status: Status
    age: float  # seconds since then
    alive: bool
    every: float  # seconds between two heartbeats

    @property
    def works(self) -> bool:
        """Whether it runs: its heartbeats are on time and it has not stopped."""
        return self.alive and self.status.state != "stopped"


def to_json(record: Status | FitMetrics) -> dict[str, Any]:
    """A record as JSON; a status omits what it does not report.

    >>> to_json(Status("fitting", first_at=20))
    {'state': 'fitting', 'first_at': 20}
    """
    whole = isinstance(record, FitMetrics)
    return {name: value for name, value in asdict(record).items() if whole or value is not None}


def from_json(kind: type[Record], data: Mapping[str, Any]) -> Record:
    """The record that `to_json` wrote, now or in another version; unknown keys are ignored.

    >>> from_json(Status, {"state": "healthy", "steps": 7, "of a newer version": 1}).steps
    7
    """
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in data.items() if name in known})


def write_status(path: Path, status: Status) -> None:
    """Write a status into a file that its owner alone may read, or raise `StorageError`."""
    with writing(path, durable=False, private=True) as draft:
        draft.write_text(json.dumps(to_json(status)), encoding="utf-8")


def read_status(path: Path) -> Status | None:
    """The status in a file; None where there is none, or only a part of it."""
    try:
        return from_json(Status, read_object(path))
    except (OSError, ValueError):
        return None
