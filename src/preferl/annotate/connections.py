"""Closes connections that keep the server waiting, so that nobody can hold up the server.

uvicorn itself would wait without a limit for the rest of a request, and for a slow reader.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast, final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds in which a request must arrive, from its first byte. For the first request, they begin
# with the connection.
REQUEST_SECONDS: Final = 10.0
READ_SECONDS: Final = 60.0  # seconds for which a client may leave data unread
SPREAD: Final = 0.2  # share taken off both at random, so that clients do not all return at once
ACCEPTED_AT_ONCE: Final = 8  # in a pass of asyncio's loop, so that other requests get their turn
# connections that may wait in the kernel to be accepted, if the kernel permits so many
BACKLOG: Final = 2048
RESERVED_FILES: Final = 320  # for the database, videos, and connections of a few passes
FEWEST_CONNECTIONS: Final = 64


def patient_protocol(
    *, request_seconds: float = REQUEST_SECONDS, read_seconds: float = READ_SECONDS
) -> tuple[type[asyncio.Protocol], int]:
    """Return the `http` protocol for `uvicorn.Config`, and how many connections it keeps at once.

    This raises the limit of open files. For `seconds`, see `PatientProtocol`.
    """
    most = max(FEWEST_CONNECTIONS, raise_file_limit() - RESERVED_FILES)
    seconds = {"request_seconds": request_seconds, "read_seconds": read_seconds}
    protocol = partial(PatientProtocol, **seconds, most=most, waiting={})
    return cast(type[asyncio.Protocol], protocol), most  # uvicorn only calls it


def raise_file_limit(most: int = 65_536) -> int:
    """Raise this process's limit of open files to at most `most`; return the new limit."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return most
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (most if limit == resource.RLIM_INFINITY else min(limit, most) for limit in limits)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, limits[1]))
        except (OSError, ValueError):  # macOS permits less than it reports
            return soft
    return hard


@final
class PatientProtocol(H11Protocol):
    """HTTP/1.1 on one connection, which is closed if the client takes too long.

    `REQUEST_SECONDS` limits how long a request takes to arrive, and `READ_SECONDS` how long the
    client reads nothing. The app's own time and the length of streams are not limited. uvicorn's
    `timeout_keep_alive` limits the pause between two requests. With more than `most` connections,
    the one in `waiting` that has waited longest for a request is closed for the newest one.
    """

    def __init__(
        self,
        *,
        request_seconds: float,
        read_seconds: float,
        most: int,
        waiting: dict["PatientProtocol", None],
        **uvicorn: Any,
    ) -> None:
        super().__init__(**uvicorn)
        self._request_seconds = request_seconds * (1 - SPREAD * random.random())
        self._read_seconds = read_seconds
        self._most = most
        self._waiting = waiting
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request. If there is no room for the connection, make room."""
        super().connection_made(transport)
        self._waiting[self] = None
        self._close_after("arriving", self._request_seconds, transport.close)
        if len(self.connections) > self._most:
            oldest = next((each for each in self._waiting if each is not self), self)
            self._waiting.pop(oldest)
            self.connections.discard(oldest)  # the transport only reports this in a later pass
            oldest.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request; keep waiting while the request is incomplete."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request; a part of it may already be here."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a client that has gone."""
        super().connection_lost(exc)
        self._waiting.pop(self, None)
        self._stop("arriving")
        self._stop("reading")

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._close_after("reading", self._read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting for the client to read."""
        super().resume_writing()
        self._stop("reading")

    def _look(self) -> None:
        """Start the clock when a request has begun, and stop it when the request is complete."""
        state = self.conn.their_state
        if state not in (h11.IDLE, h11.SEND_BODY):
            self._waiting.pop(self, None)
        elif not self.transport.is_closing():
            self._waiting.setdefault(self)
        if state is h11.SEND_BODY or (state is h11.IDLE and self.conn.trailing_data[0]):
            self._close_after("arriving", self._request_seconds, self.transport.close)
        else:
            self._stop("arriving")

    def _close_after(self, name: str, seconds: float, close: Callable[[], None]) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, close)

    def _stop(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()
