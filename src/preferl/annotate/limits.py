"""Limits on how many requests one person may send.

The app asks a `Limits` object before each request. Several servers of one page may count in their
database (`SharedLimits`). Two servers together then allow a person no more than one server.
"""

import math
import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from ipaddress import IPv6Address, ip_address
from typing import Final, Literal, NamedTuple, Protocol, final

from anyio import CapacityLimiter, to_thread
from fastapi import HTTPException, Request

from preferl.errors import StorageError
from preferl.store.people import People

What = Literal["request", "overview", "stream", "export"]

KINDS: Final[dict[What, tuple[float, str]]] = {
    "request": (1.0, "1"),  # changes and links
    "overview": (0.1, "2"),
    "stream": (0.1, "2"),  # the stream of news
    "export": (0.01, "10"),  # files of answers
}
"""For each kind: its rate as a share of that of changes, and the seconds of `Retry-After`."""

BURST: Final = 8.0  # this many seconds of the lasting rate may come at once
FEWEST: Final = 4.0  # this many requests may come at once, however low the lasting rate is

THREADS: Final = 8  # threads that ask the database about limits; other threads serve requests
TOGETHER: Final = 0.1  # share of a burst that a server takes from the database at once
FORGET_SECONDS: Final = 3600.0  # between two removals of people who have sent no requests for long
MOST_KNOWN: Final = 10_000
"""Most people and addresses that are counted. Those whose last request is oldest are dropped."""


class Rate(NamedTuple):
    """The lasting rate in requests per second, and how many may come at once."""

    per_second: float
    burst: float


class Limits(Protocol):
    """Decides what the app may do, before it does something expensive."""

    async def allows(self, what: What, who: Hashable) -> bool:
        """Count one more request of this kind if it is allowed, and return whether it is.

        The server's loop calls this, so it must not block.
        """


def rates(requests_per_second: float) -> dict[What, Rate]:
    """Return the rate of each kind from that of changes. Expensive kinds have a lower rate.

    >>> rates(10.0)["request"], rates(10.0)["export"]
    (Rate(per_second=10.0, burst=80.0), Rate(per_second=0.1, burst=4.0))
    """
    per_second = {what: share * requests_per_second for what, (share, _) in KINDS.items()}
    shares = {"request": 0.0}
    return {
        w: Rate(rate, max(shares.get(w, FEWEST), rate * BURST)) for w, rate in per_second.items()
    }


@final
class MemoryLimits:
    """Limits that this process counts, with buckets that fill steadily.

    >>> import asyncio
    >>> limits = MemoryLimits(rates(1.0), clock=lambda: 0.0)
    >>> [asyncio.run(limits.allows("request", "a")) for _ in range(10)].count(True)
    8
    >>> asyncio.run(limits.allows("request", "b"))
    True
    """

    def __init__(
        self, rates: dict[What, Rate], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = rates
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[tuple[What, Hashable], tuple[float, float]] = {}

    async def allows(self, what: What, who: Hashable) -> bool:
        """Return whether one more request of this kind is allowed, and count it then."""
        rate = self._rates[what]
        time_now = self._clock()
        with self._lock:
            left, counted_at = self._buckets.pop((what, who), (rate.burst, time_now))
            left = min(rate.burst, left + (time_now - counted_at) * rate.per_second)
            self._buckets[what, who] = (left - 1 if left >= 1 else left, time_now)
            if len(self._buckets) > MOST_KNOWN:
                self._buckets.pop(next(iter(self._buckets)))
        return left >= 1


@final
class SharedLimits:
    """Limits that all servers of a store count together.

    Each person has an allowance that grows steadily. A request takes 1 from it, and a refused
    request takes nothing. A server takes several at once, so that the person's next requests need
    not ask the database.
    """

    def __init__(self, people: People, rates: dict[What, Rate]) -> None:
        self._people = people
        self._rates = rates
        self._own = MemoryLimits(rates)  # keeps floods away from the database
        self._threads = CapacityLimiter(THREADS)
        self._forgot_at = -math.inf
        self._taken: dict[
            tuple[What, str], int
        ] = {}  # tokens for coming requests; only the loop uses them

    async def allows(self, what: What, who: Hashable) -> bool:
        """Return whether one more request of this kind is allowed, and count it then.

        If the database cannot be reached, the request is allowed. It then fails for that reason.
        """
        if not await self._own.allows(what, who):
            return False
        key = (what, str(who))
        if not self._taken.get(key):
            try:
                granted = await to_thread.run_sync(self._take, *key, limiter=self._threads)
            except StorageError:
                return True
            self._taken[key] = self._taken.pop(key, 0) + granted
            if len(self._taken) > MOST_KNOWN:
                self._taken.pop(next(iter(self._taken)))
            if not self._taken[key]:
                return False
        self._taken[key] -= 1
        return True

    def _take(self, what: What, who: str) -> int:
        """Take several requests, or just one, from a person's allowance; return how many."""
        if time.monotonic() - self._forgot_at > FORGET_SECONDS:
            self._forgot_at = time.monotonic()
            self._people.forget_allowances()
        rate = self._rates[what]
        several = max(int(TOGETHER * rate.burst), 1)
        if self._people.take_allowance(what, who, *rate, count=several):
            return several
        return int(several > 1 and self._people.take_allowance(what, who, *rate))


def limited(what: What) -> Callable[[Request], Awaitable[None]]:
    """Return a dependency that raises 429 if a person or address sends too many requests."""

    async def within(request: Request) -> None:
        number = request.session.get("annotator")
        who = number if number is not None else whose(request.client.host if request.client else "")
        limits: Limits = request.app.state.limits
        if not await limits.allows(what, who):
            words = "That was too much at once. Wait a moment."
            raise HTTPException(429, words, {"Retry-After": KINDS[what][1]})

    return within


def whose(address: str) -> str:
    """Return the client that an address counts for; for IPv6, the /64 network of one machine.

    >>> whose("192.0.2.1"), whose("2001:db8::1:2:3:4")
    ('192.0.2.1', '2001:db8::')
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return address
