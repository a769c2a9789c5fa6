"""A model behind an HTTP endpoint: two clips are sent as JSON, and a preference is returned."""

import base64
import io
import re
from typing import Final, final

import urllib3
from urllib3.exceptions import HTTPError

from preferl.errors import ConfigError, FeedbackError
from preferl.printing import one_line
from preferl.reading import parse_json, reading
from preferl.shapes import Array
from preferl.store.model_annotator import ModelAnswer, ShownPair

SAFE: Final = r"https:|http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?/"
"""Beginnings of URLs that may get a key: those with TLS, or of this machine."""

AGAIN: Final = (429, 500, 502, 503, 504)
"""HTTP statuses that pass: too many requests, or a server that is busy, restarting or away."""

MOST_REPLY: Final = 2**16  # most bytes of a reply
LONGEST_PAUSE: Final = 120  # seconds between two tries, even if the server asks for more


@final
class HttpModel:
    """A model behind a URL, which gets two clips by `POST` and replies with a preference.

    The request is a JSON object with `question`, `instructions`, `task`, and `clips`. `clips` has a
    list of PNGs in base64 for each of the two clips. The reply is an object with `preference`, the
    probability that the first clip is preferred, or null to decline. It may have `cost`, a number,
    and `version`, a text.

    If a connection fails, or the status is 429, 500, 502, 503 or 504, the request is sent again
    after a pause. The pause doubles each time, with jitter. If the server asks for a pause
    (`Retry-After`), that one is used, but two minutes at most. Redirects are not followed.
    Certificates are checked. Proxies in the environment are not used.

    Args:
        url: URL of the endpoint.
        key: sent as `Authorization: Bearer`. It is not printed or stored anywhere.
        timeout: seconds for connecting, and between two parts of the reply; 60, since large models
            take tens of seconds.
        retries: how often a request is sent again; 5 take about half a minute.

    Raises:
        ConfigError: the key is empty, cannot be sent, or would cross a network without TLS.
    """

    def __init__(
        self, url: str, *, key: str | None = None, timeout: float = 60.0, retries: int = 5
    ) -> None:
        headers = {}
        if key is not None:
            if not (key and key.isascii() and key.isprintable() and re.match(SAFE, url)):
                raise ConfigError(
                    "key of a model: expected characters that HTTP can send, and a URL with https "
                    "or of this machine, got others. Otherwise, people could read the key on its "
                    "way."
                )
            headers["Authorization"] = f"Bearer {key}"
        self._url = url
        self._key = key
        self._connections = urllib3.PoolManager(
            headers=headers,
            timeout=timeout,
            retries=urllib3.Retry(
                total=retries,
                status_forcelist=AGAIN,
                allowed_methods=None,
                backoff_factor=1,
                backoff_jitter=1,
                backoff_max=LONGEST_PAUSE,
                retry_after_max=LONGEST_PAUSE,
                raise_on_status=False,
            ),
        )

    def __call__(self, shown: ShownPair) -> ModelAnswer:
        """Send a pair, and return the answer.

        Raises:
            FeedbackError: the server cannot be reached, or replies with something else.
        """
        pair = {
            "question": shown.question,
            "instructions": shown.instructions,
            "task": shown.task,
            "clips": [[_png(picture) for picture in clip] for clip in shown.frames],
        }
        try:
            response = self._connections.request(
                "POST", self._url, json=pair, redirect=False, preload_content=False
            )
            reply = response.read(MOST_REPLY + 1, decode_content=False)
        except HTTPError as error:
            raise self._error(f"{error.__cause__ or error}") from error  # without the URL
        response.release_conn()
        if response.status != 200:
            raise self._error(f"status {response.status}: {reply.decode(errors='replace')}")
        if len(reply) > MOST_REPLY:
            raise self._error(f"more than {MOST_REPLY:,} bytes")
        expected = "an object of JSON with a `preference` of 0 to 1"
        with reading("reply of the model", expected=expected, error=FeedbackError):
            answer = parse_json(reply)
            return ModelAnswer(
                answer["preference"], answer.get("cost", 0.0), str(answer.get("version", ""))
            )

    def _error(self, got: str) -> FeedbackError:
        """Return the error about a reply. It shows one line of the reply, without the key."""
        if self._key:
            got = got.replace(self._key, "***")
        return FeedbackError(
            f"model: expected an answer from the URL, got {one_line(got)[:300]}. Answers so far "
            "are recorded, and the same command continues from there."
        )


def _png(picture: Array) -> str:
    """Return a picture `[height, width, 3]` of bytes as a PNG in base64."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, picture, format="png")
    return base64.b64encode(file.getvalue()).decode()
