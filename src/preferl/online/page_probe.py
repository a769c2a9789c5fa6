"""Whether the page answers: a server may run and serve nobody."""

import http.client
import re
import time
from typing import Final, final
from urllib.parse import SplitResult, urlsplit

from preferl.online.supervisor import Say

HERE: Final = ("localhost", "127.0.0.1", "::1")
_LINK: Final = re.compile(r"Answer here: (\S+)")


@final
class PageProbe:
    """Asks the page whether it is there; passes on the link that it tells, and the overview's.

    A page that people reach through a proxy is not asked, since the proxy may be what fails.

    Args:
        say: told the link, once it is known and whenever it changes.
        every: seconds between two questions.
        patience: seconds without an answer after which the page counts as lost.
        timeout: seconds to wait for one answer.
    """

    def __init__(
        self, say: Say, *, every: float = 5.0, patience: float = 30.0, timeout: float = 2.0
    ) -> None:
        self._say = say
        self._every = every
        self._patience = patience
        self._timeout = timeout
        self._link: str | None = None
        self._asked = 0.0
        self._answered = 0.0

    def is_up(self, said: str, _age: float) -> bool:
        """Whether the page has told its link."""
        link = _LINK.search(said)
        if link is None:
            return False
        if link[1] != self._link:
            self._link = link[1]
            self._say(f"Answer here: {link[1]}")
            page, _, _ = link[1].partition("/join/")
            self._say(f"Overview, once that was opened: {page}/admin")
        self._answered = time.monotonic()
        return True

    def lost(self) -> str | None:
        """Why the page counts as lost, or None."""
        address = urlsplit(self._link or "")
        if address.hostname not in HERE or time.monotonic() - self._asked < self._every:
            return None
        if self._answers(address):
            self._answered = time.monotonic()
        self._asked = time.monotonic()
        silent = self._asked - self._answered
        return f"has not answered for {silent:.0f} s" if silent > self._patience else None

    def _answers(self, address: SplitResult) -> bool:
        """Whether anything comes back, be it an error."""
        there = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=self._timeout
        )
        try:
            there.request("GET", "/healthz")
            there.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            there.close()
        return True
