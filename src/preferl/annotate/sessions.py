"""Signed sessions, roles, and CSRF tokens, which prove that a person meant a change.

A session is a token in a signed cookie. The store knows the person of a session, and whether it has
ended: by signing out, by a new link, or because the person may not answer any more.
"""

import hmac
import secrets
from collections.abc import Callable
from typing import Annotated, Any, Final, final

from fastapi import Depends, Form, HTTPException, Request
from itsdangerous import TimestampSigner
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp

from preferl.store.schema import Annotator
from preferl.store.store import Store

SIGNED_OUT: Final = "You are signed out. Open your personal link again."


@final
class Sessions(SessionMiddleware):
    """Starlette's sessions, also for machines whose clock is set back while people answer."""

    def __init__(
        self, app: ASGIApp, secret_key: str, session_cookie: str, max_age: int, https_only: bool
    ) -> None:
        # With "lax", a person who follows a link to the page from a chat is signed in.
        super().__init__(app, secret_key, session_cookie, max_age, "/", "lax", https_only)
        self.signer = _Signer(secret_key)


@final
class _Signer(TimestampSigner):
    def unsign(
        self, signed_value: str | bytes, max_age: int | None = None, return_timestamp: bool = False
    ) -> Any:
        """Check a signed value; a signature from the future counts as made now."""
        value, signed_at = super().unsign(signed_value, return_timestamp=True)
        if signed_at <= self.timestamp_to_datetime(self.get_timestamp()):
            super().unsign(signed_value, max_age)
        return (value, signed_at) if return_timestamp else value


def store_of(request: Request) -> Store:
    """Return the store that the app was made for."""
    store: Store = request.app.state.store
    return store


def begin_session(request: Request, secret: str) -> RedirectResponse:
    """Sign this browser in by the secret of a link, then show the page; 401 for an invalid one."""
    signed = store_of(request).people.sign_in(secret, instead_of=_token(request))
    if signed is None:
        words = "This link is not valid (any more). Ask the person who sent it for a new one."
        raise HTTPException(401, words)
    annotator, token = signed
    csrf = secrets.token_urlsafe(24)
    request.session.clear()
    request.session.update(annotator=annotator.id, token=token, csrf=csrf)
    return RedirectResponse("/", 303)


def end_session(request: Request) -> RedirectResponse:
    """Sign this browser out and void its cookie, then show the page."""
    if (token := _token(request)) is not None:
        store_of(request).people.sign_out(token)
    request.session.clear()
    return RedirectResponse("/", 303)


def whoever(request: Request) -> Annotator | None:
    """Return the person of this session; None if there is no session or it has ended."""
    token = _token(request)
    return None if token is None else store_of(request).people.by_token(token)


def _token(request: Request) -> str | None:
    token = request.session.get("token")
    return token if isinstance(token, str) else None


def _with_role(*roles: str) -> Callable[[Request], Annotator]:
    """Return a dependency for a signed-in person of these roles: 401 for nobody, 403 for others."""

    def person(request: Request) -> Annotator:
        annotator = whoever(request)
        if annotator is None:
            raise HTTPException(401, SIGNED_OUT)
        if annotator.role not in roles:
            raise HTTPException(403, f"This is not open to {annotator.role}s.")
        return annotator

    return person


Anyone = Annotated[Annotator, Depends(_with_role("annotator", "admin", "spectator"))]
Answering = Annotated[Annotator, Depends(_with_role("annotator", "admin"))]
Watching = Annotated[Annotator, Depends(_with_role("admin", "spectator"))]
Administering = Annotated[Annotator, Depends(_with_role("admin"))]


def csrf_of(request: Request) -> str:
    """Return the token that proves that a change comes from our page."""
    return str(request.session.get("csrf", ""))


def require_csrf(request: Request, token: str) -> None:
    """Raise 403 unless a change comes from our own page, with the session's token."""
    expected = csrf_of(request)
    if not expected or not hmac.compare_digest(token.encode(), expected.encode()):
        raise HTTPException(403, "This page is out of date. Load it again.")
    require_own_page(request)


def form_csrf(request: Request, csrf: Annotated[str, Form(max_length=100)] = "") -> None:
    """Raise 403 unless the form's field `csrf` holds the session's token."""
    require_csrf(request, csrf)


def opened_elsewhere(request: Request) -> bool:
    """Whether another site may have opened this page.

    Browsers say so in `Sec-Fetch-Site`, over https and on this machine. An address that is typed,
    bookmarked or opened by another program comes from no site.
    """
    return request.headers.get("sec-fetch-site") not in ("none", "same-origin")


def require_own_page(request: Request) -> None:
    """Raise 403 if another site has sent this request, by the headers that browsers add.

    Browsers send `Origin` with every form. A page of any site can hide it: then it is "null", and
    `Sec-Fetch-Site` decides. Browsers send that header only over https and on this machine. Other
    programs send neither header, and no site can make them send a cookie.
    """
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    if origin and origin != "null":
        ours = origin.partition("://")[2] == request.headers.get("host")
    else:
        ours = site == "same-origin" or (site is None and not origin)
    if not ours:
        raise HTTPException(403, "Another site sent this.")
