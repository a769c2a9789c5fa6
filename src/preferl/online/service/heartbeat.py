"""A program's heartbeats, from a separate thread that does not wait for the program's work."""

import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Self, final

from preferl.errors import StorageError
from preferl.printing import get_logger
from preferl.store.status import Status
from preferl.store.store import Store

LOGGER = get_logger(__name__)

LAST_SECONDS = 10.0  # most seconds for the last heartbeat, before the program ends


@final
@dataclass
class Heartbeat:
    """Writes into the store every few seconds that a program is alive, and the program's status.

    It uses a separate thread. The program calls `pulse` while its work goes on. After `stuck_after`
    seconds without a pulse, the state becomes `"stuck"`.
    """

    store: Store
    project_id: int
    name: str  # name of the program, such as `"reward"`
    every: float = 5.0  # seconds between two heartbeats
    stuck_after: float = 300.0

    def __post_init__(self) -> None:
        self._status = Status()
        self._ended = False
        self._pulse = time.monotonic()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"{self.name}-beats", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _: object) -> None:
        if error is not None and not isinstance(error, KeyboardInterrupt):
            self.report("failed", problem=f"{type(error).__name__}: {error}")
        else:
            self._status = replace(self._status, state="stopped")
        self._ended = True
        self._changed.set()
        self._thread.join(LAST_SECONDS)

    def pulse(self) -> None:
        """Note that the work goes on."""
        self._pulse = time.monotonic()

    def report(self, state: str, **changes: Any) -> None:
        """Change fields of the program's `Status`; a change of state is written at once."""
        self.pulse()
        before = self._status
        self._status = replace(before, state=state, **changes)
        if state != before.state:
            self._changed.set()

    def _beat(self) -> None:
        last = False
        while not last:
            self._changed.clear()
            last = self._ended
            idle = time.monotonic() - self._pulse
            status = replace(self._status, idle=round(idle, 1))
            if idle > self.stuck_after and status.state != "stopped":
                status = replace(status, state="stuck")
            try:
                self.store.reports.beat(self.project_id, self.name, status, every=self.every)
            except StorageError as error:  # no program ends because a heartbeat failed
                LOGGER.debug("No heartbeat of %s: %s", self.name, error)
            if not last:
                self._changed.wait(self.every)
