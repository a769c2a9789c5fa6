"""Who is asking: sessions, roles, and proof that a change was meant.

A session names a person and carries a short digest of their link's secret, so that a new link, or
closing the door to somebody, ends the old sessions at once.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, HTTPException, Request

from preferl.annotate.learning import Tally
from preferl.annotate.limits import Limits, What, whose
from preferl.errors import ConfigError
from preferl.store.schema import Annotator
from preferl.store.store import Store

RETRY_AFTER: Final[dict[What, str]] = {
    "request": "1",
    "overview": "2",
    "stream": "2",
    "export": "10",
}
"""Seconds after which it is of use to ask again."""

SIGNED_OUT: Final = "You are signed out. Open your personal link again."


def store_of(request: Request) -> Store:
    """The store that the app was made for."""
    store: Store = request.app.state.store
    return store


def tally_of(request: Request) -> Tally:
    """How far the projects of that store are."""
    tally: Tally = request.app.state.tally
    return tally


def begin_session(request: Request, annotator: Annotator) -> None:
    """Make the browser this person's."""
    request.session.clear()
    request.session.update(
        annotator=annotator.id,
        secret=_short(annotator),
        csrf=secrets.token_urlsafe(24),
    )


def whoever(request: Request) -> Annotator | None:
    """The person of this session; None where there is none, or not any more."""
    number = request.session.get("annotator")
    if not isinstance(number, int):
        return None
    try:
        annotator = store_of(request).people.get(number)
    except ConfigError:
        return None
    same = hmac.compare_digest(str(request.session.get("secret")), _short(annotator))
    return annotator if same and annotator.disabled_at is None else None


def csrf_of(request: Request) -> str:
    """What proves that a change comes from our page."""
    return str(request.session.get("csrf", ""))


def anyone(request: Request) -> Annotator:
    """A signed-in person of any role, or 401."""
    annotator = whoever(request)
    if annotator is None:
        raise HTTPException(401, SIGNED_OUT)
    return annotator


def _with_role(*roles: str) -> Callable[[Request], Annotator]:
    def person(request: Request) -> Annotator:
        annotator = anyone(request)
        if annotator.role not in roles:
            raise HTTPException(403, f"This is not open to {annotator.role}s.")
        return annotator

    return person


Anyone = Annotated[Annotator, Depends(anyone)]
Answering = Annotated[Annotator, Depends(_with_role("annotator", "admin"))]
Watching = Annotated[Annotator, Depends(_with_role("admin", "spectator"))]
Administering = Annotated[Annotator, Depends(_with_role("admin"))]


def meant(request: Request, token: str) -> None:
    """Raise 403 unless a change comes from our own page, with the session's token."""
    expected = csrf_of(request)
    if not expected or not hmac.compare_digest(token.encode(), expected.encode()):
        raise HTTPException(403, "This page is out of date. Load it again.")
    origin = request.headers.get("origin")
    if origin and origin != "null":
        own = origin.partition("://")[2] == request.headers.get("host")
    else:  # forms of pages that send no referrer say "null", yet browsers tell whose page it was
        own = request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
    if not own:
        raise HTTPException(403, "Another site sent this.")


def limited(what: What) -> Callable[[Request], Awaitable[None]]:
    """What raises 429 where a person, or an address that is nobody's, asks too often."""

    async def within(request: Request) -> None:  # in the server's loop: it must cost little
        number = request.session.get("annotator")
        who = number if number is not None else whose(request.client.host if request.client else "")
        limits: Limits = request.app.state.limits
        if not limits.allows(what, who):
            words = "That was a lot at once. Wait a moment."
            raise HTTPException(429, words, {"Retry-After": RETRY_AFTER[what]})

    return within


def _short(annotator: Annotator) -> str:
    return annotator.secret_hash[:16]
