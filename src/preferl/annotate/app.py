"""The app: one store, its routes, and what stands around them."""

import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from preferl.annotate import admin, api, live, pages
from preferl.annotate.guard import Guard, Sessions
from preferl.annotate.learning import Tally
from preferl.annotate.limits import Limits, MemoryLimits, rates
from preferl.annotate.settings import AnnotateSettings
from preferl.errors import ConfigError, DataError, FeedbackError, StorageError
from preferl.store.store import Store

DAY = 24 * 3600


def create_app(
    store: Store, settings: AnnotateSettings | None = None, limits: Limits | None = None
) -> FastAPI:
    """The page on which people compare clips, as an ASGI app over one store.

    Nothing is global: several apps may live in one process. Handlers run in threads, since the
    store blocks; only `POST` changes anything.

    Args:
        store: open, and closed by whoever opened it.
        settings: how it is served; the default is for this machine only.
        limits: how much one person may ask; counted in this process by default.
    """
    settings = settings or AnnotateSettings()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        news.close()

    app = FastAPI(
        title="preferl",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # an address is right or it is nothing
        lifespan=lifespan,
    )
    news = live.News(store, settings.poll_seconds)
    static = Path(str(files("preferl.annotate").joinpath("static")))
    version = _digest_of(static)
    app.state.store = store
    app.state.settings = settings
    app.state.news = news
    app.state.tally = Tally(store)
    app.state.limits = limits or MemoryLimits(rates(settings.requests_per_second))
    app.state.templates = _templates(version)
    for part in (pages, api, live, admin):
        app.include_router(part.router)
    app.mount(f"/static/{version}", _Static(directory=static))
    _handle_errors(app)
    _add_sessions(app, store, settings)
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


def _templates(version: str) -> Environment:
    environment = Environment(
        loader=PackageLoader("preferl.annotate"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["static"] = f"/static/{version}"
    environment.filters["prose"] = prose
    return environment


def _add_sessions(app: FastAPI, store: Store, settings: AnnotateSettings) -> None:
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


def _handle_errors(app: FastAPI) -> None:
    async def refusal(request: Request, error: Exception) -> Response:  # blocks nothing
        status, words = _wording(error)
        headers = error.headers if isinstance(error, AnyHTTPException) else None
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": words}, status, headers)
        return pages.message(request, status, words, headers)

    for kind in (
        AnyHTTPException,
        RequestValidationError,
        FeedbackError,
        ConfigError,
        DataError,
        StorageError,
    ):
        app.add_exception_handler(kind, refusal)


def _wording(error: Exception) -> tuple[int, str]:
    """The status of an error and what to tell people of it."""
    if isinstance(error, AnyHTTPException):
        words = {404: "There is nothing at this address.", 405: "That is not how to ask for this."}
        own = isinstance(error, HTTPException)
        return error.status_code, error.detail if own else words.get(
            error.status_code, error.detail
        )
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        place = place.encode("utf-8", "replace").decode()  # half a character cannot be sent back
        return 422, f"The request is not understood: {place}: {first['msg']}."
    if isinstance(error, FeedbackError):
        return 409, "This pair is no longer with you. Here is the next one."
    if isinstance(error, StorageError):
        return 503, "The labels cannot be reached at the moment."
    return 400, str(error)


BULLET = re.compile(r"^\s*[-*•]\s+(.*)$")
NUMBER = re.compile(r"^\s*\d{1,3}[.)]\s+(.*)$")


def prose(text: str) -> Markup:
    r"""Blocks between blank lines as paragraphs; lines with a dash or number as lists.

    Everything is escaped before anything is added.

    >>> print(prose("Watch <both>.\n\n- the door\n- the hand"))
    <p>Watch &lt;both&gt;.</p>
    <ul><li>the door</li><li>the hand</li></ul>
    """
    blocks = [block.splitlines() for block in re.split(r"\n\s*\n", text.strip()) if block.strip()]
    return Markup("\n").join(Markup("").join(_runs(block)) for block in blocks)


def _runs(lines: list[str]) -> list[Markup]:
    """The lists and paragraphs of one block, in which a list may follow a line of text."""
    parts: list[Markup] = []
    held: list[Markup] = []
    tag = "p"
    for line in lines:
        bullet, number = BULLET.match(line), NUMBER.match(line)
        found = bullet or number
        now = "ul" if bullet else "ol" if number else "p"
        if now != tag and held:
            parts.append(_wrapped(tag, held))
            held = []
        tag = now
        held.append(escape(found[1] if found else line.strip()))
    return [*parts, _wrapped(tag, held)] if held else parts


def _wrapped(tag: str, items: list[Markup]) -> Markup:
    if tag == "p":
        return Markup("<p>") + Markup(" ").join(items) + Markup("</p>")
    inside = Markup("").join(Markup("<li>") + item + Markup("</li>") for item in items)
    return Markup(f"<{tag}>") + inside + Markup(f"</{tag}>")
