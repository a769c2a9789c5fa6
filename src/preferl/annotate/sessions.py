"""Sessions in signed cookies, which a clock that is set back does not end."""

from typing import Any, final

from itsdangerous import TimestampSigner
from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp


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
