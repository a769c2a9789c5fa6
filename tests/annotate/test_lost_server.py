"""A page that only waits reports within seconds that the server is gone, and goes on with it."""

import threading
from contextlib import suppress

import pytest

from helpers.answering_page import NO_FALLBACK
from helpers.running_page import RunningPage
from helpers.waiting import wait_until
from preferl.annotate import create_app
from preferl.store.status import Status

pytestmark = pytest.mark.browser

EXPECTED = ("ERR_", "Failed to load resource", "Failed to fetch")
SILENT = """
// A connection that stays open and brings nothing, and a clock that only tests put forward.
window.made = [];
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  constructor() { super(); window.made.push(this); }
  close() {}
};
const began = Date.now();
window.ahead = 0;
Date.now = () => began + window.ahead;
"""


class Restarted:
    """A server that can be stopped and started at the same address."""

    def __init__(self, study, settings):
        self._study = study
        self._settings = settings
        self._port = 0

    def _running(self):
        with suppress(OSError):  # another program has taken the port meanwhile
            return RunningPage(create_app(self._study.store, self._settings), self._port)

    def start(self):
        self._page = wait_until(self._running, f"port {self._port} stays taken")
        self._port = self._page.port
        return self._page.address

    def stop(self):
        self._page.stop()


@pytest.fixture
def server(study, settings):
    return Restarted(study, settings)


@pytest.fixture
def address(server):
    yield server.start()
    server.stop()


def gone(page):
    return page.locator("#notice").filter(has_text="No connection to the server.")


@pytest.mark.parametrize("asked", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_lost_server_is_reported_to_who_waits_or_watches(study, server, person, asked):
    study.ask(asked) if asked else None
    page = person(expected=EXPECTED, init=NO_FALLBACK)
    page.wait_for_selector("#pair:visible" if asked else "#waiting:visible")
    page.wait_for_function("() => document.getElementById('bar-text').textContent !== ''")
    server.stop()
    gone(page).wait_for()
    study.ask(2)
    server.start()
    gone(page).wait_for(state="hidden")
    page.wait_for_selector("#pair.may")
    page.keyboard.press("ArrowLeft")
    words = f"1 of {asked + 2} answers"
    page.wait_for_function(
        "words => document.getElementById('bar-text').textContent === words", arg=words
    )


@pytest.mark.slow
def test_a_server_that_stops_after_the_last_answer_is_not_missed(study, server, person):
    study.update(budget=1)
    study.ask(1)
    page = person(expected=EXPECTED)
    page.wait_for_selector("#pair.may")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#done:visible")
    page.wait_for_timeout(200)  # in which it begins to listen for news
    with page.expect_event("requestfailed", lambda request: "claim" in request.url):
        server.stop()
    page.wait_for_timeout(100)  # in which it would report that
    assert page.locator("#done").is_visible()
    assert not page.locator("#notice").is_visible()
    server.start()  # which the fixture stops


def test_a_run_that_ends_says_so_and_its_server_is_not_missed(study, server, person):
    def report(state):
        study.store.reports.beat(study.project.id, "agent", Status(state), every=600.0)

    study.ask(2)
    report("healthy")
    page = person(expected=EXPECTED)
    page.wait_for_selector("#pair.may")
    page.wait_for_function("() => document.getElementById('bar-text').textContent !== ''")
    report("stopped")
    server.stop()
    page.wait_for_selector("#ended:visible")
    assert not page.locator("#pair").is_visible()
    assert not page.locator("#notice").is_visible()
    report("healthy")
    server.start()
    page.wait_for_selector("#pair.may")


def test_an_ended_session_is_reported_instead(study, person):
    page = person(expected=EXPECTED)
    page.wait_for_selector("#waiting:visible")
    page.wait_for_function("() => document.getElementById('bar-text').textContent !== ''")
    study.invite("ann")  # a new link, which ends the old one
    study.ask(1)  # news, with which the stream ends
    page.wait_for_selector("#signed-out:visible")
    assert not page.locator("#notice").is_visible()


@pytest.mark.slow
def test_silence_is_not_taken_for_a_server_that_has_nothing_to_say(study, person):
    cut = threading.Event()
    claims = lambda route: route.abort() if cut.is_set() else route.continue_()  # noqa: E731
    routes = {"**/api/claim": claims}
    page = person(expected=EXPECTED, init=SILENT, routes=routes)
    page.wait_for_selector("#waiting:visible")
    page.wait_for_function("() => window.made.length === 1")
    page.evaluate("window.ahead += 10_000")
    page.wait_for_timeout(1500)
    assert page.evaluate("window.made.length") == 1
    cut.set()
    page.evaluate("window.ahead += 10_000")
    gone(page).wait_for()
    assert page.evaluate("window.made.length") == 2, "it connects anew"
    page.unroute("**/api/claim")
    page.evaluate("window.made[1].dispatchEvent(new Event('open'))")
    gone(page).wait_for(state="hidden")


@pytest.mark.slow
def test_a_page_that_gives_way_to_newer_ones_rests_until_somebody_turns_to_it(study, person):
    page = person(expected=EXPECTED, init=SILENT)
    page.wait_for_selector("#waiting:visible")
    page.wait_for_function("() => window.made.length === 1")
    page.evaluate("window.made[0].dispatchEvent(new Event('elsewhere'))")
    page.evaluate("window.ahead += 60_000")
    page.wait_for_timeout(2500)
    assert page.evaluate("window.made.length") == 1, "it does not come back by itself"
    assert not gone(page).is_visible(), "the server is there"
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    page.wait_for_function("() => window.made.length === 2")
