"""Reports of programs to each other and to people: frozen records and their JSON form.

The reward service and the agent report through the store, with each heartbeat and each published
version. The annotation page reports into a file that only its owner can read, because its link lets
people in.
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
    """Return the name of an agent's program: `agent`, then the agent's own name if it has one."""
    return AGENT if agent is None else f"{AGENT} {agent}"


def kind_of(program: str) -> str:
    """Return the kind of a program of preferl, with which its name begins.

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
    """The state and progress of a program; fields that it does not report are None.

    `state` is a word, such as `"starting"`, `"waiting"`, `"fitting"`, `"healthy"`, `"paused"`,
    `"failed"`, `"stuck"` or `"stopped"`. Other programs have other words. The reward service
    reports the fields from `version` to `seconds`, and the agent those from `steps` to
    `waiting_steps`.
    """

    state: str = "starting"
    problem: str | None = None  # why the program cannot continue now
    idle: float | None = None  # seconds since the program last made progress
    version: int | None = None  # newest version; 0 before the first
    behind: int | None = None  # answers, except skips, since the fit of that version began
    # revision of the answers when the service last decided whether to fit
    looked_at: int | None = None
    first_at: int | None = None  # answers that the first version needs
    next_at: int | None = None  # revision at which the next version is fitted
    answers: int | None = None  # answers in the newest version
    accuracy: float | None = None  # accuracy of the newest version on held-out answers
    decided: int | None = None  # held-out answers behind that accuracy
    seconds: float | None = None  # seconds that the fit of the newest version took
    steps: int | None = None  # recorded steps, including exploration
    reward_version: int | None = None  # version of the reward in use; 0 for none
    mean_return: float | None = None  # mean of the latest episodes, by the environment's own reward
    asked: int | None = None  # queries asked
    answered: int | None = None  # answers that its scripted teacher gave
    dropped_episodes: int | None = None  # episodes that left the experience buffer before any query
    dropped_segments: int | None = None  # whole clips in dropped episodes
    waiting_steps: int | None = None  # steps in the experience buffer
    link: str | None = None  # the owner's link to the annotation page; never in the store


@final
@dataclass(frozen=True)
class FitMetrics:
    """The outcome of a fit of the reward service, published beside the version."""

    answers: int = 0  # comparisons in the fit: one per query, or one per answer
    trained_on: int | None = None  # answers in the training set; None if not reported
    left_out: int = 0  # answers neither trained on nor held out
    train_accuracy: float | None = None  # share of the training answers that the model predicts
    train_loss: float | None = None  # cross-entropy of the training answers, in nats
    epochs: int = 0  # passes over the training answers
    seconds: float = 0.0  # seconds that the fit took
    noise: float | None = None  # share of answers that the likelihood takes to be random
    scale: float | None = None  # factor of differences of returns in the likelihood
    held_out: int = 0  # answers in the validation set
    decided: int = 0  # held-out answers that are not ties
    # share of the decided ones that the model predicts; None if there are none
    accuracy: float | None = None
    low: float | None = None  # lower end of the accuracy's 95 % interval
    high: float | None = None  # upper end of that interval
    loss: float | None = None  # cross-entropy of the held-out answers, in nats
    revision: int = 0  # revision of the answers when the fit began
    data: str | None = None  # digest of the answers
    trust: dict[str, dict[str, float]] | None = None  # trust in each annotator, by name


@final
@dataclass(frozen=True)
class ServiceState:
    """The last heartbeat of a program.

    A program is not `alive` if three heartbeats are overdue, or if the last one is from the future.
    In the second case the clock was set back, and a running program soon sends another heartbeat.
    """

    name: str
    status: Status
    age: float  # seconds since the last heartbeat
    alive: bool
    every: float  # seconds between two heartbeats

    @property
    def works(self) -> bool:
        """Whether the program runs: its heartbeats are on time and it has not stopped."""
        return self.alive and self.status.state != "stopped"


def to_json(record: Status | FitMetrics) -> dict[str, Any]:
    """Return a record as JSON. A status leaves out the fields that it does not report.

    >>> to_json(Status("fitting", first_at=20))
    {'state': 'fitting', 'first_at': 20}
    """
    whole = isinstance(record, FitMetrics)
    return {name: value for name, value in asdict(record).items() if whole or value is not None}


def from_json(kind: type[Record], data: Mapping[str, Any]) -> Record:
    """Return the record that `to_json` wrote, perhaps in another version. Ignore unknown keys.

    >>> from_json(Status, {"state": "healthy", "steps": 7, "of a newer version": 1}).steps
    7
    """
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in data.items() if name in known})


def write_status(path: Path, status: Status) -> None:
    """Write a status into a file that only its owner may read, or raise `StorageError`."""
    with writing(path, durable=False, private=True) as draft:
        draft.write_text(json.dumps(to_json(status)), encoding="utf-8")


def read_status(path: Path) -> Status | None:
    """Return the status in a file; None if the file is missing or incomplete."""
    try:
        return from_json(Status, read_object(path))
    except (OSError, ValueError):
        return None
