"""How the page is served: where, to whom, and how often it looks for news."""

import os
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import final
from urllib.parse import urlsplit

from preferl.errors import ConfigError, require_in
from preferl.store.store import SHORTEST


@final
@dataclass(frozen=True)
class AnnotateSettings:
    """How the page is served.

    Attributes:
        host: address to listen at. The default is seen by this machine only; any other one needs
            a `secret`.
        port: port to listen at; 0 takes any that is free.
        hosts: names under which people reach the page, beside `localhost`, numeric addresses and
            the name in `public_url`. Requests for others are refused, so that no foreign page gets
            at a server on this machine by renaming itself.
        public_url: where people find the page if that is not where it listens, as behind a proxy,
            such as `https://label.example.org`; with `https` cookies are never sent without it.
        poll_seconds: how often the server looks for news to send to the open pages.
        session_days: days after which a person has to open their link again.
        requests_per_second: lasting rate of one person's changes; bursts may be eight times as
            large. The overview allows a tenth, files of answers a hundredth.
        largest_request: bytes of a request's body.
        secret: signs sessions; of at least 32 characters, and needed where others than this
            machine can reach the page. From the environment's `PREFERL_SECRET`, so that it is on
            no command line; None uses the key beside the labels.

    Raises:
        ConfigError: a number out of its range, a malformed address, or one that others reach
            without a long secret.

    >>> AnnotateSettings(port=0).host
    '127.0.0.1'
    """

    host: str = "127.0.0.1"
    port: int = 8765
    hosts: tuple[str, ...] = ()
    public_url: str | None = None
    poll_seconds: float = 1.0
    session_days: float = 30.0
    requests_per_second: float = 10.0
    largest_request: int = 64 * 1024
    secret: str | None = field(
        default_factory=lambda: os.environ.get("PREFERL_SECRET") or None, repr=False
    )

    def __post_init__(self) -> None:
        for name, low, high in (
            ("port", 0, 65535),
            ("poll_seconds", 0.02, 3600),
            ("session_days", 1e-3, 3650),
            ("requests_per_second", 0.1, 1e6),
            ("largest_request", 1024, 2**30),
        ):
            require_in(name, getattr(self, name), low, high)
        if self.public_url is not None and urlsplit(self.public_url).scheme not in (
            "http",
            "https",
        ):
            raise ConfigError.mismatch(
                "public_url", expected="http:// or https://", got=self.public_url
            )
        length = len(self.secret or "")
        if length < SHORTEST and (self.secret is not None or not self.only_here):
            why = "" if self.only_here else f", as {self.host} is open to other machines"
            raise ConfigError.mismatch(
                f"PREFERL_SECRET{why}",
                expected=f"at least {SHORTEST} characters in the environment",
                got=length,
                fix="Make one: export PREFERL_SECRET=$(python3 -c "
                "'import secrets; print(secrets.token_urlsafe(32))')",
            )

    @property
    def only_here(self) -> bool:
        """Whether only this machine reaches the page."""
        return self.host == "localhost" or (
            is_address(self.host) and ip_address(self.host.strip("[]")).is_loopback
        )

    @property
    def secure(self) -> bool:
        """Whether people reach the page by https."""
        return self.public_url is not None and urlsplit(self.public_url).scheme == "https"

    def admits(self, host: str) -> bool:
        """Whether a request for this name, without its port, is meant for this server.

        Numeric addresses are: a page that renames itself to this server keeps its name.
        """
        named = urlsplit(self.public_url).hostname if self.public_url else None
        known = {"localhost", self.host, named, *self.hosts} - {None, ""}
        return host.lower() in {str(name).lower() for name in known} or (
            is_address(host) and (host.startswith("[") or ":" not in host)
        )


def is_address(host: str) -> bool:
    """Whether this is a numeric address, `[::1]` included, without a zone.

    >>> is_address("127.0.0.1"), is_address("[::1]"), is_address("[127.0.0.1]")
    (True, True, False)
    """
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        found = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return False
    return "%" not in host and (found.version == 6 or not bracketed)
