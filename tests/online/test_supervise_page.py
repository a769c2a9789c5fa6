"""A page that runs and serves nobody is lost; one behind a proxy, or one with errors, is not."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helpers.waiting import SECONDS
from preferl.online import supervise
from preferl.online.supervise import PageProbe
from preferl.store.status import Status


class Unwell(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(503)

    def log_message(self, *_):
        pass


@pytest.fixture
def port():
    with ThreadingHTTPServer(("127.0.0.1", 0), Unwell) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class Clock:
    """Time as a probe sees it."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(supervise, "time", clock)
    return clock


def probe_of(link, lines, **more):
    probe = PageProbe(lines.append, **({"interval": 0.0, "patience": 0.2, "timeout": 0.1} | more))
    assert not probe.is_up(None, 1)
    assert not probe.is_up(Status("starting"), 1)
    assert probe.is_up(Status("serving", link=link), 1)
    return probe


def test_the_link_is_printed_once_and_again_when_it_changes():
    lines = []
    probe = probe_of("http://localhost:1/join/a", lines)
    probe.is_up(Status("serving", link="http://localhost:1/join/a"), 1)
    probe.is_up(Status("serving", link="http://localhost:2/join/a"), 1)
    assert lines == [
        "Answer here: http://localhost:1/join/a",
        "Overview (open the link above first): http://localhost:1/admin",
        "Answer here: http://localhost:2/join/a",
        "Overview (open the link above first): http://localhost:2/admin",
    ]


def test_whatever_answers_is_not_lost(port, clock):
    probe = probe_of(f"http://127.0.0.1:{port}/join/a", [], timeout=SECONDS)
    clock.now += 0.3
    assert probe.failure() is None


def test_silence_is_lost_after_a_while(clock):
    with socket.create_server(("127.0.0.1", 0)) as listening:  # which nobody serves
        link = f"http://127.0.0.1:{listening.getsockname()[1]}/join/a"
        probe = probe_of(link, [], patience=0.5)
        assert probe.failure() is None
        clock.now += 0.6
        assert probe.failure().startswith("has not answered for ")
        patient = probe_of(link, [], interval=60.0, patience=0.0, timeout=0.1)
        clock.now += 0.1
        assert patient.failure() is not None
        assert patient.failure() is None, "it is not asked all the time"


def test_nobody_asks_through_a_proxy(clock):
    probe = probe_of("https://labels.example.org/join/a", [])
    clock.now += 0.3
    assert probe.failure() is None
