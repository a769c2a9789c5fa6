"""A server's log that stays small whatever is done to it."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, final

PER_MINUTE: Final = 30
"""Messages that are logged in a minute; those of an attack are mostly the same."""


@final
class BoundedLog(logging.Filter):
    """Lets some messages pass each minute, and counts the others.

    Args:
        per_minute: how many pass.
        clock: seconds; for tests.
    """

    def __init__(
        self, per_minute: int = PER_MINUTE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._clock = clock
        self._began = clock()
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this message is logged; the last one of a minute says that others are not."""
        now = self._clock()
        if now - self._began >= 60:
            if (missed := self._count - self._per_minute) > 0:
                _add(record, f"{missed:,} messages before this one were left out")
            self._began, self._count = now, 0
        self._count += 1
        if self._count == self._per_minute:
            _add(record, "further messages of this minute are left out")
        return self._count <= self._per_minute


def _add(record: logging.LogRecord, words: str) -> None:
    record.msg, record.args = f"{record.getMessage()} ({words})", ()


@contextmanager
def bounded(loggers: tuple[str, ...] = ("", "uvicorn", "uvicorn.error")) -> Iterator[None]:
    """Bound what is logged through the handlers of these loggers, and of Python itself."""
    handlers = {handler for name in loggers for handler in logging.getLogger(name).handlers}
    handlers |= {logging.lastResort} if logging.lastResort is not None else set()
    bounds = {handler: BoundedLog() for handler in handlers}
    for handler, bound in bounds.items():
        handler.addFilter(bound)
    try:
        yield
    finally:
        for handler, bound in bounds.items():
            handler.removeFilter(bound)
