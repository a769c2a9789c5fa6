"""Who is asking: sessions, roles, and proof that a change was meant.

A session is a token in a signed cookie, of which the store knows whose it is and whether it has
ended: by signing out, by a new link, or by closing the door to somebody.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, HTTPException, Request
from starlette.datastructures import Headers

from preferl.annotate.learning import Tally
from preferl.annotate.limits import Limits, What, whose
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


def begin_session(request: Request, secret: str) -> Annotator | None:
    """Make the browser that of the person whose link this is; None where it opens nothing."""
    signed = store_of(request).sign_ins.begin(secret, instead_of=_token(request))
    if signed is None:
        return None
    request.session.clear()
    request.session.update(
        annotator=signed.annotator.id,
        token=signed.token,
        csrf=secrets.token_urlsafe(24),
    )
    return signed.annotator


def end_session(request: Request) -> None:
    """Make the browser nobody's; its cookie is good for nothing any more."""
    if (token := _token(request)) is not None:
        store_of(request).sign_ins.end(token)
    request.session.clear()


def whoever(request: Request) -> Annotator | None:
    """The person of this session; None where there is none, or not any more."""
    token = _token(request)
    return None if token is None else store_of(request).sign_ins.person(token)


def _token(request: Request) -> str | None:
    token = request.session.get("token")
    return token if isinstance(token, str) else None


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
    require_own_page(request)


def require_own_page(request: Request) -> None:
    """Raise 403 where another site has sent this."""
    if not _from_here(request.headers):
        raise HTTPException(403, "Another site sent this.")


def _from_here(headers: Headers) -> bool:
    """Whether a page of ours sent this, by what browsers say of it.

    Browsers name the origin of every form. "null" is that of a page that hides it, which may be
    anybody's; those that say whose it is say so only over https and on this machine. Programs that
    are no browsers say neither, and no other site can make them send a session's cookie.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin == "null":
        return site == "same-origin"
    if origin:
        return origin.partition("://")[2] == headers.get("host")
    return site in (None, "same-origin")


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
