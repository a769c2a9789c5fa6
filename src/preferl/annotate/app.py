"""The app over one store: its settings, its routes, and the guard around them."""

import hashlib
import hmac
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from preferl.annotate import admin, answers_page, api, news, pages
from preferl.annotate.limits import (
    Limits,
    MemoryLimits,
    SharedLimits,
    rates,
)
from preferl.annotate.overviews import Overviews
from preferl.annotate.sessions import Sessions
from preferl.configs import require_fields
from preferl.errors import ConfigError, DataError, FeedbackError, StorageError
from preferl.store.store import SHORTEST, Store

DAY: Final = 24 * 3600  # seconds
FETCHES: Final = 16  # videos that may be fetched from object storage at the same time

# A page needs only our own files, so nothing else may run in it, frame it or learn its address.
# Same-origin referrers are sent. Without them, browsers send a page's forms with a null origin.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@final
@dataclass(frozen=True)
class AnnotateSettings:
    """How the page is served.

    Attributes:
        host: address to listen at. Only this machine reaches the default; any other address needs
            a `secret`.
        port: port to listen at; 0 takes any that is free.
        hosts: names under which people reach the page, besides `localhost`, numeric addresses and
            the name in `public_url`. Requests for other names are refused, so that no other website
            reaches a server on this machine by DNS rebinding.
        public_url: the page's address for people if it differs from the listening one, as behind a
            proxy: `https://label.example.org`. With `https`, cookies are sent over https only.
        poll_seconds: how often the server looks for news to send to the open pages.
        session_days: days after which a person has to open their link again.
        requests_per_second: how many changes a second one person may send over a long time; a burst
            may be eight times as large. A person may request the overview a tenth as often, and
            files of answers a hundredth as often.
        largest_request: most bytes of a request's body.
        shared_limits: whether a person's requests are counted in the database. Several servers of
            one page need this. One in eight requests then takes a few milliseconds longer.
        secret: signs sessions; at least 32 characters, and required if other machines can reach the
            page. It comes from the environment variable `PREFERL_SECRET`, so that no command line
            shows it; None uses the key in the store.

    Raises:
        ConfigError: a number is out of its range, an address is malformed, or other machines can
            reach the page without a long secret.

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
    shared_limits: bool = False
    secret: str | None = field(
        default_factory=lambda: os.environ.get("PREFERL_SECRET") or None, repr=False
    )

    def __post_init__(self) -> None:
        require_fields(self, port=(0, 65535), poll_seconds=(0.02, 3600))
        require_fields(self, session_days=(1e-3, 3650), requests_per_second=(0.1, 1e6))
        require_fields(self, largest_request=(1024, 2**30))
        scheme = "http" if self.public_url is None else urlsplit(self.public_url).scheme
        if scheme not in ("http", "https"):
            raise ConfigError(f"public_url: expected http:// or https://, got {self.public_url}.")
        length = len(self.secret or "")
        if length < SHORTEST and (self.secret is not None or not self.only_here):
            reach = "" if self.only_here else f", as {self.host} is open to other machines"
            raise ConfigError(
                f"PREFERL_SECRET{reach}: expected at least {SHORTEST} characters in the "
                f"environment, got {length}. Make one: export PREFERL_SECRET=$(python3 -c "
                "'import secrets; print(secrets.token_urlsafe(32))')"
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

        Numeric addresses are always admitted, since DNS rebinding needs a name.
        """
        named = urlsplit(self.public_url).hostname if self.public_url else None
        names = {"localhost", self.host, named, *self.hosts} - {None, ""}
        return host.lower() in {str(name).lower() for name in names} or (
            is_address(host) and (host.startswith("[") or ":" not in host)
        )


def is_address(host: str) -> bool:
    """Whether a host is a numeric address without a zone; `[::1]` is one.

    >>> is_address("127.0.0.1"), is_address("[::1]"), is_address("[127.0.0.1]")
    (True, True, False)
    """
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return False
    return "%" not in host and (address.version == 6 or not bracketed)


def create_app(
    store: Store, settings: AnnotateSettings | None = None, limits: Limits | None = None
) -> FastAPI:
    """Create the annotation page, an ASGI app over one store.

    Nothing is global: several apps may live in one process. Handlers run in threads, since the
    store blocks; only `POST` changes anything. The caller closes the store. The default `settings`
    serve this machine only. `limits` decide how often one person may send requests; by default they
    follow the settings.
    """
    settings = settings or AnnotateSettings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.news.close()

    app = FastAPI(
        title="preferl",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # addresses must match exactly
        lifespan=lifespan,
    )
    folder = Path(str(files("preferl.annotate").joinpath("static")))
    static = _static_address(folder)
    app.state.store = store
    app.state.settings = settings
    app.state.news = news.News(store, settings.poll_seconds)
    app.state.fetching = CapacityLimiter(FETCHES)
    app.state.looking = CapacityLimiter(1)
    app.state.overviews = Overviews(store)
    by_kind = rates(settings.requests_per_second)
    usual = SharedLimits(store.people, by_kind) if settings.shared_limits else MemoryLimits(by_kind)
    app.state.limits = limits or usual
    app.state.templates = pages.templates(static)
    for part in (pages, api, news, admin, answers_page):
        app.include_router(part.router)
    app.mount(static, _Static(directory=folder))
    for kind in (RequestValidationError, AnyHTTPException, *STATUS):
        app.add_exception_handler(kind, _refusal)
    _add_sessions(app, settings.secret.encode() if settings.secret else store.key())
    app.add_middleware(Guard, settings=settings)  # the last one added is the outermost
    return app


def _static_address(folder: Path) -> str:
    """Return an address for static files that changes with their content."""
    named = [file.name.encode() + b"\0" + file.read_bytes() for file in sorted(folder.iterdir())]
    return f"/static/{hashlib.blake2b(b''.join(named), digest_size=6).hexdigest()}"


def _add_sessions(app: FastAPI, key: bytes) -> None:
    """Sign the cookies of sessions with a key that is derived from `key`."""
    settings: AnnotateSettings = app.state.settings
    # Cookies are shared between the ports of a host, so the name tells stores apart.
    name = hmac.new(key, b"name of the cookie", hashlib.sha256).hexdigest()[:8]
    app.add_middleware(
        Sessions,
        secret_key=hmac.new(key, b"sessions", hashlib.sha256).hexdigest(),
        session_cookie=f"preferl-{name}",
        max_age=round(settings.session_days * DAY),
        https_only=settings.secure,
    )


class _Static(StaticFiles):
    """Static files. Their address changes with their content, so browsers may keep them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


STATUS: Final[dict[type[Exception], tuple[int, str]]] = {
    FeedbackError: (409, "This pair is no longer with you. Here is the next one."),
    StorageError: (503, "The labels cannot be reached at the moment."),
    ConfigError: (400, ""),
    DataError: (400, ""),
}
"""The HTTP status and text for each of preferl's errors; "" shows the error's own message."""

PLAIN: Final = {
    404: "There is nothing at this address.",
    405: "This address does not take requests of this kind.",
}
"""Texts for the web framework's own errors, by HTTP status."""


async def _refusal(request: Request, error: Exception) -> Response:  # async, as it blocks nothing
    headers = None
    if isinstance(error, AnyHTTPException):
        is_ours = isinstance(error, HTTPException)
        status = error.status_code
        headers = error.headers
        words = error.detail if is_ours else PLAIN.get(status, error.detail)
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        place = place.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent back
        status = 422
        words = f"The request is not understood: {place}: {first['msg']}."
    else:
        status, words = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": words or str(error)}, status, headers)
    return pages.message(request, status, words or str(error), headers)


class Guard:
    """The outermost layer: checks names, sizes and forms, and adds safe headers."""

    def __init__(self, app: ASGIApp, settings: AnnotateSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it here."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        size = headers.get("content-length", "")
        is_number = size.isascii() and size.isdecimal() and len(size) < 19
        reply: ASGIApp = self._app
        if not self._settings.admits(name):
            reply = PlainTextResponse("This server does not have that name.", 400)
        elif is_number and int(size) > self._settings.largest_request:
            reply = PlainTextResponse("Too large.", 413)
        elif headers.get("content-type", "").strip().lower().startswith("multipart/"):
            reply = PlainTextResponse("Forms come as application/x-www-form-urlencoded here.", 415)
        # Bodies of GET requests are not counted: nobody reads them, and an error about a large one
        # would cut off a long response.
        elif scope["method"] not in ("GET", "HEAD"):
            receive = self._counted(receive)
        return await reply(scope, receive, _with_headers(send))

    def _counted(self, receive: Receive) -> Receive:
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._settings.largest_request:
                raise HTTPException(413, "Too large.")
            return message

        return counted


def _with_headers(send: Send) -> Send:
    async def safe(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in ({"Cache-Control": "no-store"} | HEADERS).items():
                headers.setdefault(name, value)
        await send(message)

    return safe
