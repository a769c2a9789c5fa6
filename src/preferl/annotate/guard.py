"""What every request passes: the name it asks for, its size, safe headers, and signed sessions."""

from typing import Any, Final, final

from itsdangerous import TimestampSigner
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from preferl.annotate.settings import AnnotateSettings

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


class Guard:
    """The outermost layer of the app.

    Args:
        app: what is guarded.
        settings: names that are admitted, and the largest request.
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
        safe = _with_headers(send)
        if not self._settings.admits(name):
            refusal = PlainTextResponse("This server does not go by that name.", 400)
            return await refusal(scope, receive, safe)
        if int(_digits(headers.get("content-length"))) > self._settings.largest_request:
            return await PlainTextResponse("Too large.", 413)(scope, receive, safe)
        if headers.get("content-type", "").strip().lower().startswith("multipart/"):
            words = "Forms come as application/x-www-form-urlencoded here."
            return await PlainTextResponse(words, 415)(scope, receive, safe)
        # Who only reads sends no body; a long answer that meets one would be cut off by an error.
        counted = receive if scope["method"] in ("GET", "HEAD") else self._counted(receive)
        return await self._app(scope, counted, safe)

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


def _digits(text: str | None) -> str:
    return text if text and text.isascii() and text.isdecimal() and len(text) < 19 else "0"


def _with_headers(send: Send) -> Send:
    async def safe(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return safe


@final
class Sessions(SessionMiddleware):
    """Starlette's sessions, for machines whose clock may be set back while people answer.

    Args:
        app: that has sessions.
        secret_key: signs them.
        session_cookie: its name.
        max_age: seconds that a session lasts.
        https_only: whether the cookie is never sent without TLS.
    """

    def __init__(
        self, app: ASGIApp, secret_key: str, session_cookie: str, max_age: int, https_only: bool
    ) -> None:
        super().__init__(
            app,
            secret_key,
            session_cookie,
            max_age,
            same_site="lax",  # links to the page from a chat find the person signed in
            https_only=https_only,
        )
        self.signer = _Signer(secret_key)


@final
class _Signer(TimestampSigner):
    def unsign(
        self,
        signed_value: str | bytes,
        max_age: int | None = None,
        return_timestamp: bool = False,
    ) -> Any:
        """Take what was signed at a later time than now for as good as what is signed now."""
        value, signed_at = super().unsign(signed_value, return_timestamp=True)
        if signed_at <= self.timestamp_to_datetime(self.get_timestamp()):
            super().unsign(signed_value, max_age)
        return (value, signed_at) if return_timestamp else value
