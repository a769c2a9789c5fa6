"""News for all open pages: one task reads the store, and all streams get the changes."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, final

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import StreamingResponse

from preferl.annotate.limits import limited
from preferl.annotate.progress import Tally, live_view
from preferl.annotate.sessions import Anyone, whoever
from preferl.errors import StorageError
from preferl.printing import get_logger
from preferl.store.store import Store

router = APIRouter(prefix="/api")
log = get_logger(__name__)

# After so long without news, a stream sends a heartbeat. It tells pages that the server still runs,
# and keeps proxies from closing the connection.
QUIET_SECONDS: Final = 5.0
BACKLOG: Final = 32  # messages that wait for a slow reader; more drop the oldest
STREAMS: Final = 4  # per person; browsers keep six connections to a server over plain HTTP
HELD: Final = 1024  # refused pages that may wait for their reply at the same time
# how long they wait, at random half more or less, so that not all return at once
HOLD_SECONDS: Final = 5.0

Message = tuple[str, dict[str, Any]]
GIVE_WAY: Final[Message] = ("elsewhere", {})  # last message to a page that newer pages replace


class _Reader(NamedTuple):
    """The person whose page listens, and the project whose news it gets."""

    project_id: int
    annotator_id: int


@final
class News:
    """Reads the store every few seconds while anybody listens, and sends what has changed."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self.tally = Tally(
            store, self.present
        )  # for all pages, so that no reply is older than the news
        self._seconds = seconds
        self._readers: dict[asyncio.Queue[Message | None], _Reader] = {}
        self._last: dict[int, dict[str, dict[str, Any]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._ending = asyncio.Event()
        self._held = 0
        self.room = HELD

    @property
    def listeners(self) -> int:
        """How many pages are open."""
        return len(self._readers)

    def present(self, project_id: int) -> set[int]:
        """Return the numbers of people who have a page of this project open.

        Any thread may call.
        """
        readers = list(self._readers.values())
        return {reader.annotator_id for reader in readers if reader.project_id == project_id}

    def close(self) -> None:
        """End all streams, so that the server can stop. Any thread may call this."""
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # the loop closes at this moment, and its streams too
                self._loop.call_soon_threadsafe(self._end)

    async def listen(self, project_id: int, annotator_id: int) -> AsyncIterator[Message | None]:
        """Yield messages about a project as they come, and None sometimes while there are none.

        Only the newest `STREAMS` pages of a person listen. Older ones end with `GIVE_WAY`.
        """
        if self._closed:
            return
        reader: asyncio.Queue[Message | None] = asyncio.Queue(BACKLOG)
        self._loop = asyncio.get_running_loop()
        self._readers[reader] = _Reader(project_id, annotator_id)
        own_streams = [
            queue
            for queue, other_reader in self._readers.items()
            if other_reader.annotator_id == annotator_id
        ]
        for oldest in own_streams[:-STREAMS]:
            for message in (GIVE_WAY, None):
                _put(oldest, message)
        for last_message in self._last.get(project_id, {}).items():
            reader.put_nowait(last_message)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            while True:
                try:
                    message = await asyncio.wait_for(reader.get(), QUIET_SECONDS)
                except TimeoutError:
                    if self._ending.is_set():
                        return
                    yield None
                    continue
                if message is None:
                    return
                yield message
        finally:
            self._readers.pop(reader, None)

    async def hold(self, seconds: float) -> None:
        """Delay the refusal of a page, unless more pages wait than there is `room` for.

        Refused pages can then not keep the server busy by asking again at once.
        """
        if self._held >= self.room or self._closed:
            return
        self._loop = asyncio.get_running_loop()
        self._held += 1
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), seconds)
        finally:
            self._held -= 1

    def _end(self) -> None:
        self._ending.set()
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._send_last())

    async def _send_last(self) -> None:
        """Send what changed last, for example that the run has ended, and end all streams."""
        try:
            await self._send_changes()
        finally:
            for reader in self._readers:
                _put(reader, None)

    async def _look(self) -> None:
        while self._readers and not self._closed:
            await self._send_changes()
            await asyncio.sleep(self._seconds)
        self._last.clear()  # the next listener must not get old news

    async def _send_changes(self) -> None:
        for project_id in sorted({reader.project_id for reader in self._readers.values()}):
            try:
                snapshot = await asyncio.to_thread(self._snapshot, project_id)
            except StorageError as error:
                log.warning("The store cannot be read for now: %s", error)
                continue
            self._send(project_id, snapshot)

    def _snapshot(self, project_id: int) -> dict[str, dict[str, Any]]:
        progress = self.tally.of(project_id)
        counts = {name: progress[name] for name in ("open", "pairs_undrawn", "wanted")}
        return {
            "progress": {k: v for k, v in progress.items() if not k.startswith("mine")},
            "reward": live_view(self._store, project_id),
            "queries": {"paused": self._store.projects.get(project_id).paused, **counts},
        }

    def _send(self, project_id: int, snapshot: dict[str, dict[str, Any]]) -> None:
        last = self._last.get(project_id, {})
        self._last[project_id] = snapshot
        changed = [message for message in snapshot.items() if last.get(message[0]) != message[1]]
        for queue, reader in self._readers.items():
            for message in changed if reader.project_id == project_id else ():
                _put(queue, message)


def _put(reader: asyncio.Queue[Message | None], message: Message | None) -> None:
    if reader.full():
        reader.get_nowait()
    reader.put_nowait(message)


async def _in_time(request: Request) -> None:
    try:
        await limited("stream")(request)
    except HTTPException:
        await request.app.state.news.hold(HOLD_SECONDS * random.uniform(0.5, 1.5))
        raise


@router.get("/stream", dependencies=[Depends(_in_time)])
async def stream(request: Request, person: Anyone) -> StreamingResponse:
    """Stream server-sent events `progress`, `reward`, `queries` and `here`, first the current ones.

    The newest few streams of a person stay open. An older one ends with `elsewhere`.
    """
    news: News = request.app.state.news

    async def lines() -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        async for message in news.listen(person.project_id, person.id):
            if await asyncio.to_thread(whoever, request) is None:
                return  # the person has signed out
            kind, content = message or ("here", {})
            yield f"event: {kind}\ndata: {json.dumps(content)}\n\n"

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)
