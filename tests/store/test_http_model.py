import base64
import io
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import numpy as np
import pytest
from matplotlib.image import imread

from preferl.errors import ConfigError, FeedbackError
from preferl.store.http_model import MOST_REPLY, HttpModel
from preferl.store.model_annotator import ModelAnswer, ShownPair

KEY = "sk-0123456789"
ANSWER = (200, {}, b'{"preference": 0.25}')
DROPPED = None  # the server hangs up
SLOW = "slow"


class Scripted(BaseHTTPRequestHandler):
    """Replies from a list, and keeps what was asked."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((dict(self.headers), json.loads(body)))
        reply = self.server.replies.pop(0)
        if reply == SLOW:
            time.sleep(0.5)
        if reply in (DROPPED, SLOW):
            self.close_connection = True
            return
        status, headers, content = reply
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def serve():
    """Starts servers that give these replies."""
    servers = []

    def start(*replies):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
        server.replies = list(replies)
        server.asked = []
        server.url = f"http://127.0.0.1:{server.server_port}/compare"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def shown():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 256, (2, 3, 10, 12, 3), np.uint8)
    steps = np.zeros((2, 4, 1))
    return ShownPair("Which?", "Look.", "lift", (first, second), steps, steps, steps[..., 0] == 0)


def test_pictures_and_texts_are_sent_and_the_answer_comes_back(serve, shown):
    server = serve((200, {}, b'{"preference": 1, "cost": 0.5, "version": "m-2"}'))
    assert HttpModel(server.url, key=KEY)(shown) == ModelAnswer(1, 0.5, "m-2")
    ((headers, pair),) = server.asked
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert headers["Content-Type"] == "application/json"
    clips = pair.pop("clips")
    assert pair == {"question": "Which?", "instructions": "Look.", "task": "lift"}
    for sent, frames in zip(clips, shown.frames, strict=True):
        pictures = [imread(io.BytesIO(base64.b64decode(picture))) for picture in sent]
        np.testing.assert_array_equal(np.rint(255 * np.array(pictures))[..., :3], frames)


def test_passing_faults_are_tried_again_after_what_the_server_asks_for(serve, shown):
    server = serve(DROPPED, (429, {"Retry-After": "1"}, b"later"), ANSWER)
    began = time.monotonic()
    assert HttpModel(server.url)(shown).preference == 0.25
    assert time.monotonic() - began >= 1
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((401, {}, f"no such key:\n {KEY}\x1b".encode()), r"status 401: no such key: \*\*\*\\x1b"),
        ((503, {}, b"busy"), "status 503: busy"),
        ((200, {}, b" " * (MOST_REPLY + 1)), "more than 65,536 bytes"),
        ((200, {}, b"[" * 60_000), "nested too deeply"),
        ((200, {}, b"{}"), "expected an object of JSON with a `preference`"),
        ((200, {}, b'{"preference": 2}'), r"preference: expected in \[0, 1\], got 2"),
        ((200, {}, b'{"preference": NaN}'), "preference"),
        (SLOW, "timed out"),
        (DROPPED, "aborted"),
    ],
)
def test_other_replies_end_with_one_line(serve, shown, reply, message):
    server = serve(reply)
    model = HttpModel(server.url, key=KEY, timeout=0.2, retries=0)
    with pytest.raises(FeedbackError, match=message) as error:
        model(shown)
    assert KEY not in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert len(server.asked) == 1


def test_no_server_leads_elsewhere(serve, shown):
    other = serve(ANSWER)
    server = serve((307, {"Location": other.url}, b""))
    with pytest.raises(FeedbackError, match="status 307"):
        HttpModel(server.url, key=KEY)(shown)
    assert other.asked == []


def test_a_server_that_is_not_there(serve, shown):
    server = serve()
    server.shutdown()
    server.server_close()
    with pytest.raises(FeedbackError, match="refused") as error:
        HttpModel(f"{server.url}?token={KEY}", retries=0)(shown)
    assert KEY not in str(error.value)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://models.example.org/compare", KEY),
        ("http://localhost.example.org/", KEY),
        ("https://models.example.org/compare", "two\nlines"),
        ("https://models.example.org/compare", "…"),
        ("https://models.example.org/compare", ""),
    ],
)
def test_keys_go_where_nobody_reads_them(url, key):
    with pytest.raises(ConfigError, match="key of a model") as error:
        HttpModel(url, key=key)
    assert not key or key not in str(error.value)
