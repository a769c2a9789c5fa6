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

STATUS_FILE: Final = "PREFERL_STATUS_FILE"
"""Environment variable: the file into which a program writes its status."""

Record = TypeVar("Record", "Status", "FitMetrics")


@final
@dataclass(frozen=True)
class Status:
    """How a program is, and how far; None where it has nothing to report.

    Attributes:
        state: a word, such as `"starting"`, `"waiting"`, `"fitting"`, `"healthy"`, `"paused"`,
            `"failed"`, `"stuck"` or `"stopped"`; other programs have words of their own.
        problem: why its work cannot go on now.
        idle: seconds since its work last went on.
        version: newest version of the reward service; 0 before the first.
        behind: answers that are not in that version.
        looked_at: revision of the answers at which the service last decided whether to fit.
        first_at: answers that the first version takes.
        next_at: revision at which the service fits the next version.
        answers: in the newest version.
        accuracy: of the newest version on held-out answers.
        judged: held-out answers behind that accuracy.
        seconds: that the newest version took to fit.
        steps: that the agent has recorded, exploration included.
        reward_version: that the agent uses; 0 for none.
        asked: queries by the agent.
        answered: answers that the agent's script gave.
        dropped_episodes: that left the experience buffer before a query could be drawn from them.
        dropped_segments: whole clips in those.
        waiting_steps: in the experience buffer.
        link: the owner's link to the annotation page; never in the store.
    """

    state: str = "starting"
    problem: str | None = None
    idle: float | None = None
    version: int | None = None
    behind: int | None = None
    looked_at: int | None = None
    first_at: int | None = None
    next_at: int | None = None
    answers: int | None = None
    accuracy: float | None = None
    judged: int | None = None
    seconds: float | None = None
    steps: int | None = None
    reward_version: int | None = None
    asked: int | None = None
    answered: int | None = None
    dropped_episodes: int | None = None
    dropped_segments: int | None = None
    waiting_steps: int | None = None
    link: str | None = None


@final
@dataclass(frozen=True)
class FitMetrics:
    """The outcome of a fit of the reward service, published beside the version.

    Attributes:
        answers: that there were.
        trained_on: how many of them the model was fitted to; None in early versions.
        left_out: answers neither trained on nor held out.
        train_accuracy: share of the training answers that the model gives as well.
        train_loss: cross-entropy of the training answers, in nats.
        epochs: passes over them.
        seconds: of the fit.
        noise: share of answers that the likelihood takes to be random.
        scale: by which the likelihood multiplies differences of returns.
        held_out: answers in the validation set.
        judged: of these, how many are no ties.
        accuracy: share of the judged ones that the model gives as well; None without any.
        low: lower end of its 95 % interval.
        high: upper end.
        loss: cross-entropy of the held-out answers, in nats.
        revision: of the answers when the fit began.
        data: digest of the answers.
    """

    answers: int = 0
    trained_on: int | None = None
    left_out: int = 0
    train_accuracy: float | None = None
    train_loss: float | None = None
    epochs: int = 0
    seconds: float = 0.0
    noise: float | None = None
    scale: float | None = None
    held_out: int = 0
    judged: int = 0
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    loss: float | None = None
    revision: int = 0
    data: str | None = None


@final
@dataclass(frozen=True)
class ServiceState:
    """The last heartbeat of a program.

    Attributes:
        name: of the program.
        status: as it reported then.
        age: seconds since then.
        alive: false where three heartbeats are overdue, and where the last one is from the future:
            the clock was set back since, and a running program soon sends another.
        every: seconds between two heartbeats.
    """

    name: str
    status: Status
    age: float
    alive: bool
    every: float = 5.0

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
