"""The app: one store, its routes, and what stands around them."""

import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from preferl.annotate import admin, api, news, pages
from preferl.annotate.limits import Limits, MemoryLimits, rates
from preferl.annotate.progress import Tally
from preferl.annotate.sessions import Sessions
from preferl.annotate.settings import AnnotateSettings
from preferl.errors import ConfigError, DataError, FeedbackError, StorageError
from preferl.store.store import Store

DAY: Final = 24 * 3600

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
"""All that a page needs is ours, so nothing else may run in it, frame it or learn of it.

Browsers take a page's forms for those of no origin where it sends no referrer to anybody."""


def create_app(
    store: Store, settings: AnnotateSettings | None = None, limits: Limits | None = None
) -> FastAPI:
    """The page on which people compare clips, as an ASGI app over one store.

    Nothing is global: several apps may live in one process. Handlers run in threads, since the
    store blocks; only `POST` changes anything.

    Args:
        store: open; whoever opened it closes it.
        settings: how it is served; the default is for this machine only.
        limits: how much one person may ask; counted in this process by default.
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
        redirect_slashes=False,  # an address is right or it is nothing
        lifespan=lifespan,
    )
    folder = Path(str(files("preferl.annotate").joinpath("static")))
    static = f"/static/{_digest_of(folder)}"
    app.state.store = store
    app.state.settings = settings
    app.state.news = news.News(store, settings.poll_seconds)
    app.state.tally = Tally(store)
    app.state.limits = limits or MemoryLimits(rates(settings.requests_per_second))
    app.state.templates = pages.templates(static)
    for part in (pages, api, news, admin):
        app.include_router(part.router)
    app.mount(static, _Static(directory=folder))
    for kind in (RequestValidationError, AnyHTTPException, *STATUS):
        app.add_exception_handler(kind, _refusal)
    key = settings.secret.encode() if settings.secret else store.key()
    # Cookies are shared between the ports of a host, so the name tells stores apart.
    name = hmac.new(key, b"name of the cookie", hashlib.sha256).hexdigest()[:8]
    app.add_middleware(
        Sessions,
        secret_key=hmac.new(key, b"sessions", hashlib.sha256).hexdigest(),
        session_cookie=f"preferl-{name}",
        max_age=round(settings.session_days * DAY),
        https_only=settings.secure,
    )
    app.add_middleware(Guard, settings=settings)  # the last one added is the outermost
    return app


class _Static(StaticFiles):
    """Files under an address that changes with them, so that browsers may keep them for good."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _digest_of(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(folder.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


STATUS: Final[dict[type[Exception], tuple[int, str]]] = {
    FeedbackError: (409, "This pair is no longer with you. Here is the next one."),
    StorageError: (503, "The labels cannot be reached at the moment."),
    ConfigError: (400, ""),
    DataError: (400, ""),
}
"""The status of our errors and the words for people, by default those of the error."""

PLAIN: Final = {
    404: "There is nothing at this address.",
    405: "That is not how to ask for this.",
}
"""The words for errors of the framework itself."""


async def _refusal(request: Request, error: Exception) -> Response:  # blocks nothing
    headers = None
    if isinstance(error, AnyHTTPException):
        own = isinstance(error, HTTPException)
        status, headers = error.status_code, error.headers
        words = error.detail if own else PLAIN.get(status, error.detail)
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        place = place.encode("utf-8", "replace").decode()  # half a character cannot be sent back
        status, words = 422, f"The request is not understood: {place}: {first['msg']}."
    else:
        status, words = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": words or str(error)}, status, headers)
    return pages.message(request, status, words or str(error), headers)


class Guard:
    """The outermost layer: checks names, sizes and forms, and adds safe headers.

    Args:
        app: behind it.
        settings: have the names that are admitted, and the largest request.
    """

    def __init__(self, app: ASGIApp, settings: AnnotateSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        size = headers.get("content-length", "")
        known = size.isascii() and size.isdecimal() and len(size) < 19
        refusal: PlainTextResponse | None = None
        if not self._settings.admits(name):
            refusal = PlainTextResponse("This server does not go by that name.", 400)
        elif known and int(size) > self._settings.largest_request:
            refusal = PlainTextResponse("Too large.", 413)
        elif headers.get("content-type", "").strip().lower().startswith("multipart/"):
            words = "Forms come as application/x-www-form-urlencoded here."
            refusal = PlainTextResponse(words, 415)
        # Who only reads sends no body; a long answer that meets one would be cut off by an error.
        reads = refusal is not None or scope["method"] in ("GET", "HEAD")
        counted = receive if reads else self._counted(receive)
        return await (refusal or self._app)(scope, counted, _with_headers(send))

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
