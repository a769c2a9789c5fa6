"""Serve the page: the server, the program that draws videos, and a log of bounded size."""

import logging
import socket
import subprocess
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final, final

import uvicorn
from fastapi import FastAPI

from preferl.annotate.app import AnnotateSettings, create_app
from preferl.annotate.connections import ACCEPTED_AT_ONCE, BACKLOG, patient_protocol
from preferl.annotate.news import HELD
from preferl.errors import ConfigError, in_words
from preferl.files import writing
from preferl.printing import get_logger
from preferl.store.schema import Project
from preferl.store.status import Status, write_status
from preferl.store.store import Store
from preferl.trust import preferl_program

log = get_logger(__name__)

IDLE_SECONDS: Final = 75
"""Seconds for which an idle connection stays open.

Most proxies close an idle connection after a minute, and should do so first. If the server closes a
connection while a proxy sends a request, the proxy cannot know whether it arrived.
"""

REST_SECONDS: Final = 2.0  # pause before a program that died is restarted, as the fault may last
MESSAGES_PER_MINUTE: Final = 30  # most messages logged; an attack mostly repeats one message


def serve(
    store: Store,
    project: Project,
    settings: AnnotateSettings | None = None,
    *,
    render: Sequence[str] = (),
    open_browser: bool = True,
    on_message: Callable[[str], None] = lambda _: None,
    status_file: Path | None = None,
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        store: keeps the labels; it stays open.
        project: the project whose owner's link is shown.
        settings: how the page is served.
        render: arguments of `preferl` for the program that draws videos, such as `("annotate",
            "render", "--store", "labels")`. This program runs beside the server, and is restarted
            if it dies. Empty if another machine draws the videos.
        open_browser: whether to open the owner's link on this machine.
        on_message: called with each line that people should read.
        status_file: file for the page's status and link, for the program that started the page.

    Raises:
        ConfigError: the address is taken, or does not belong to this machine.
    """
    settings = settings or AnnotateSettings()
    listening = bind(settings)
    app = create_app(store, settings)
    secret = store.people.owner(project.id).secret
    page = address(settings, listening)
    link = f"{page}/join/{secret}"
    # Invitations use this address from now on.
    store.reports.add_event(None, "served", detail={"url": page})
    if status_file is not None:
        write_status(status_file, Status("serving", link=link))
    on_message(f"Answer here: {link}")
    on_message(f"Overview (open the link above first): {page}/admin")
    if undrawn := store.progress(project.id).pairs_undrawn:
        count = f"{undrawn:,} pairs" if undrawn != 1 else "1 pair"
        drawn = "; answer those that are ready, the others appear by themselves."
        not_drawn = ", which this program does not: run `preferl annotate render`."
        on_message(f"{count} still to draw{drawn if render else not_drawn}")
    if not settings.only_here:
        on_message("Others need a link of their own: invite them on the page's overview.")
    on_message("Stop with Ctrl-C.")
    drawing = restarting(preferl_program(*render)) if render else nullcontext()
    opening = private_redirect(link) if open_browser else nullcontext()
    # At Ctrl-C uvicorn stops the server, then raises KeyboardInterrupt.
    with suppress(KeyboardInterrupt), listening, drawing, bounded(), opening as redirect:
        if redirect is not None:
            threading.Timer(0.5, webbrowser.open, [redirect.as_uri()]).start()
        Server(configured(app), app).run(sockets=[listening])
    answered = store.progress(project.id).answered
    on_message(f"Stopped. Everything is saved: {answered:,} answers in {store.synced}.")


@contextmanager
def private_redirect(link: str) -> Iterator[Path]:
    """Write a private file that redirects to a link. Others could read a command line."""
    with TemporaryDirectory(prefix="preferl-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "open.html"
        with writing(file, private=True) as draft:
            to = escape(link)
            draft.write_text(
                '<!doctype html><html lang="en"><meta charset="utf-8"><title>preferl</title>'
                f'<meta http-equiv="refresh" content="0; url={to}"><a href="{to}">Open</a></html>',
                encoding="utf-8",
            )
        yield file


def configured(app: FastAPI, *, log_level: str = "warning") -> uvicorn.Config:
    """Return uvicorn's settings for the app. With these, no connection can keep others out."""
    protocol, most = patient_protocol()
    app.state.news.room = min(HELD, most // 4)
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=IDLE_SECONDS,
        log_level=log_level,
        access_log=False,
        timeout_graceful_shutdown=5,
        lifespan="on",
    )


def address(settings: AnnotateSettings, listening: socket.socket) -> str:
    """Return the address at which people find the page."""
    if settings.public_url:
        return settings.public_url.rstrip("/")
    port = listening.getsockname()[1]
    wild = settings.host in ("0.0.0.0", "::")
    host = "localhost" if wild else settings.host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bind(settings: AnnotateSettings) -> socket.socket:
    """Listen at the address of the page, before anything else starts.

    Raises:
        ConfigError: the address is taken, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        where = (settings.host, settings.port)
        listening = socket.create_server(where, family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"{settings.host}:{settings.port}: expected a free address and port, got "
            f"{in_words(error)}. Perhaps the page is served already. Choose another port, or 0 for "
            "any."
        ) from error
    # asyncio sets this for its own sockets only. Without it, the body of a reply waits 40 ms until
    # the browser acknowledges the head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@final
class Server(uvicorn.Server):
    """A server that ends the streams of open pages when it stops."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._news = app.state.news

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server. More connections may wait than are accepted at once."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal, and end open streams, which would otherwise keep the server running."""
        self._news.close()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Stop the server; other threads may call this."""
        self._news.close()
        self.should_exit = True


@contextmanager
def restarting(command: Sequence[str], pause: float = REST_SECONDS) -> Iterator[None]:
    """Run a program beside the block; if it dies, start it again after `pause` seconds."""
    stopping = threading.Event()
    thread = threading.Thread(target=_watch, args=(command, stopping, pause), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(10)


def _watch(command: Sequence[str], stopping: threading.Event, pause: float) -> None:
    """Restart a program whenever it ends. When `stopping` is set, end it, by force if needed."""
    while not stopping.is_set():
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and not stopping.wait(0.2):
            pass
        if stopping.is_set():
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return
        message = "The program that draws videos ended with status %s and is started again."
        log.warning(message, process.returncode)
        stopping.wait(pause)


@final
class BoundedLog(logging.Filter):
    """Logs a number of messages per minute, and counts the others; `clock` returns seconds."""

    def __init__(
        self, per_minute: int = MESSAGES_PER_MINUTE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._clock = clock
        self._minute_start = clock()
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a message.

        A minute's last message says that others are left out.
        """
        seconds = self._clock()
        if seconds - self._minute_start >= 60:
            if (left_out := self._count - self._per_minute) > 0:
                _add(record, f"{left_out:,} messages before this one were left out")
            self._minute_start = seconds
            self._count = 0
        self._count += 1
        if self._count == self._per_minute:
            _add(record, "further messages of this minute are left out")
        return self._count <= self._per_minute


def _add(record: logging.LogRecord, words: str) -> None:
    record.msg = f"{record.getMessage()} ({words})"
    record.args = ()


@contextmanager
def bounded(loggers: tuple[str, ...] = ("", "uvicorn", "uvicorn.error")) -> Iterator[None]:
    """During the block, limit what these loggers' handlers and Python's last resort log."""
    handlers = {handler for name in loggers for handler in logging.getLogger(name).handlers}
    fallback = {logging.lastResort} if logging.lastResort is not None else set()
    bounds = {handler: BoundedLog() for handler in handlers | fallback}
    for handler, bound in bounds.items():
        handler.addFilter(bound)
    try:
        yield
    finally:
        for handler, bound in bounds.items():
            handler.removeFilter(bound)
