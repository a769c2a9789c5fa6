"""Requests to an app byte for byte: what clients would tidy up or refuse to send goes through."""

import asyncio
from dataclasses import dataclass, field
from urllib.parse import unquote

from helpers.waiting import SECONDS

HOST = (b"host", b"localhost")


@dataclass
class Request:
    """A request as it would be on the wire."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    pieces: int = 1


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def header(self, name):
        return next((value for key, value in self.headers if key == name), None)


class Wire:
    """Speaks ASGI to an app, as a server does that checks nothing."""

    def __init__(self, app):
        self._app = app
        self._loop = asyncio.new_event_loop()

    def send(self, request):
        """The reply to one request; an exception of the app comes through."""
        return self._loop.run_until_complete(asyncio.wait_for(self._send(request), SECONDS))

    def close(self):
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _send(self, request):
        raw, _, query = request.target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(raw),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8765),
            "state": {},
        }
        size = max(1, -(-len(request.body) // request.pieces))
        pieces = [request.body[at : at + size] for at in range(0, len(request.body), size)] or [b""]
        messages = [
            {"type": "http.request", "body": piece, "more_body": number + 1 < len(pieces)}
            for number, piece in enumerate(pieces)
        ]
        sent = []

        async def receive():
            if messages:
                return messages.pop(0)
            return await asyncio.Event().wait()  # the client stays until it has its answer

        async def send(message):
            sent.append(message)

        await self._app(scope, receive, send)
        assert sent[0]["type"] == "http.response.start"
        headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in sent[0]["headers"]]
        return Reply(sent[0]["status"], headers, b"".join(m.get("body", b"") for m in sent[1:]))
