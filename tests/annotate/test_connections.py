"""Connections that keep the server waiting: closed in time, and nobody else's are."""

import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from urllib.parse import urlsplit

import pytest
import uvicorn

from helpers.running_page import RunningPage
from helpers.waiting import SECONDS, wait_until
from preferl.annotate.connections import PatientProtocol, patient_protocol, raise_file_limit
from preferl.annotate.serve import configured

HALF = {
    "nothing": b"",
    "one letter": b"G",
    "half a head": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
    "half a body": b"POST /api/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    "no last chunk": b"POST /api/claim HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
}
IN_TIME = SECONDS
"""A busy machine may need many times what the server gives, which is at least 0.32 seconds."""

WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def patience(monkeypatch):
    """Shorter than that of a real server."""
    short = partial(patient_protocol, request_seconds=0.4, read_seconds=0.5)
    serving = import_module("preferl.annotate.serve")  # the package's name for it is the function
    monkeypatch.setattr(serving, "patient_protocol", short)
    # uvicorn's own patience, of five seconds, is not what is tested.
    monkeypatch.setattr(uvicorn, "Config", partial(uvicorn.Config, timeout_keep_alive=600))


@pytest.fixture
def connect(patience, app, serving):
    address = urlsplit(serving(app))
    made = []

    def connected(sent=b""):
        made.append(socket.create_connection((address.hostname, address.port), SECONDS))
        made[-1].sendall(sent)
        return made[-1]

    yield connected
    for each in made:
        each.close()


def reply(connection, ends=b"\r\n\r\n", times=1):
    """What arrives until the first response, of which the body is short, is there."""
    got = b""
    while got.count(ends) < times:
        part = connection.recv(65_536)
        if not part:
            raise ConnectionResetError(f"closed after {got!r}")
        got += part
    return got


def replied(connect, sent, **until):
    """A connection, and the reply to what was sent at once.

    The server closes it where something holds this program up before it sends. It then tries again.
    """

    def tried():
        with suppress(ConnectionError):
            connection = connect(sent)
            return connection, reply(connection, **until)

    return wait_until(tried, "no request was in time")


def read_until_closed(connection):
    with suppress(ConnectionError):
        while connection.recv(65_536):
            pass


@pytest.mark.parametrize("sent", HALF.values(), ids=HALF)
def test_half_a_request_is_closed_in_time(connect, sent, caplog):
    began = time.monotonic()
    read_until_closed(connect(sent))
    assert 0.3 < time.monotonic() - began < IN_TIME
    assert not caplog.records


def test_a_request_that_drips_is_closed_too(connect):
    connection = connect(b"GET / HTTP/1.1\r\n")
    began = time.monotonic()
    with suppress(ConnectionError):
        while time.monotonic() - began < IN_TIME:
            connection.sendall(b"X: 1\r\n")
            time.sleep(0.05)  # which is what dripping is
    assert time.monotonic() - began < IN_TIME


@pytest.mark.parametrize("sent", [HALF["half a head"], HALF["half a body"]])
def test_the_second_request_of_a_connection_has_to_arrive_as_well(connect, sent):
    connection, got = replied(connect, WHOLE)
    assert b"200 OK" in got
    began = time.monotonic()
    connection.sendall(sent)
    read_until_closed(connection)
    assert 0.3 < time.monotonic() - began < IN_TIME


def test_who_rests_between_two_requests_is_not_cut(connect):
    connection, got = replied(connect, WHOLE)
    assert b"200 OK" in got
    time.sleep(0.8)  # longer than a request may take to arrive
    connection.sendall(WHOLE)
    assert b"200 OK" in reply(connection)


def test_a_slow_answer_is_not_cut(connect, app):
    @app.get("/slow")
    def slow():
        time.sleep(1.0)  # longer than a request may take to arrive
        return "there"

    _, got = replied(connect, b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in got


def test_two_requests_at_once_are_both_answered(connect):
    began = time.monotonic()
    connection, _ = replied(connect, WHOLE + WHOLE + b"GET /heal", ends=b"200 OK", times=2)
    read_until_closed(connection)
    assert 0.3 < time.monotonic() - began < IN_TIME


def test_a_stream_goes_on(study, connect, ann):
    cookie = "; ".join(f"{name}={value}" for name, value in ann.cookies.items())
    asked = f"GET /api/stream HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n"
    connection, got = replied(connect, asked.encode())
    assert b"200 OK" in got
    time.sleep(1.0)  # longer than a request may take to arrive
    study.ask(2)
    reply(connection, ends=b'"open": 2')


def test_who_never_reads_is_cut(connect, app, monkeypatch):
    from fastapi.responses import PlainTextResponse

    lost = PatientProtocol.connection_lost
    cut = threading.Event()
    monkeypatch.setattr(PatientProtocol, "connection_lost", lambda *a: cut.set() or lost(*a))
    app.get("/much")(lambda: PlainTextResponse("x" * 30_000_000))
    connection = connect(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert cut.wait(SECONDS), "a client that reads nothing for longer than it may"
    got = 0
    with suppress(ConnectionError):
        while part := connection.recv(1 << 20):
            got += len(part)
    assert got < 30_000_000


def test_the_oldest_that_waits_makes_room_for_the_newest(app, patience):
    most = 3
    waiting = {}
    made = partial(
        PatientProtocol, request_seconds=600.0, read_seconds=600.0, most=most, waiting=waiting
    )
    config = uvicorn.Config(app, http=made, log_level="error")
    page = RunningPage(app, config=config)
    held = []
    try:
        for sent in [b"GET /"] * (most + 4) + [WHOLE]:
            held.append(socket.create_connection(page.listening.getsockname(), SECONDS))
            held[-1].sendall(sent)
        assert b"200 OK" in reply(held[-1])
        read_until_closed(held[0])
        assert len(waiting) <= most
    finally:
        for each in held:
            each.close()
        page.stop()


def test_the_limit_of_open_files_is_raised():
    code = (
        "import resource\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 256), min(hard, 512)))\n"
        "from preferl.annotate.connections import raise_file_limit\n"
        "print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["512", "512"]
    assert raise_file_limit() >= 64


def test_the_page_is_served_with_ten_seconds_of_patience(app):
    assert configured(app).http.keywords["request_seconds"] == 10.0
    assert configured(app).timeout_keep_alive > 60, "proxies close theirs first"
