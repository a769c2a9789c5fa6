"""The server as a program: starts, reports its address, looks after its helper, ends cleanly."""

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helpers.waiting import SECONDS, wait_until
from preferl.annotate import AnnotateSettings, serve
from preferl.annotate.serve import address, bind, restarting

PROGRAM = """
import sys
from preferl.annotate import AnnotateSettings, serve
from preferl.store.store import Store
assert "torch" not in sys.modules
with Store.open(sys.argv[1]) as store:
    settings = AnnotateSettings(port=0, secret=None)
    serve(store, store.projects.only(), settings, open_browser=False,
          on_message=lambda line: print(line, flush=True))
"""


def test_no_reply_waits_until_the_browser_has_acknowledged_its_head():
    with (
        bind(AnnotateSettings(port=0, secret=None)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def opened(opener, link):
    """The text of a page; nothing while nobody serves it."""
    with suppress(OSError):
        return opener.open(link).read().decode()


@pytest.mark.slow
def test_a_program_from_start_to_interrupt(study):
    study.ask(1)
    study.ask(2, video=False)
    command = [sys.executable, "-c", PROGRAM, str(study.store.files)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as made:
        link = made.stdout.readline().split()[-1]
        assert link.endswith(f"/join/{study.owner}")
        overview = made.stdout.readline().split()[-1]
        assert overview == link.replace(f"/join/{study.owner}", "/admin")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page = wait_until(lambda: opened(opener, link), "the page was not served")
        assert study.project.question in page
        assert "Invite somebody" in opener.open(overview).read().decode()
        stream = opener.open(
            link.split("/join")[0] + "/api/stream"
        )  # an open page keeps nothing up
        stream.readline()
        made.send_signal(signal.SIGINT)
        out, err = made.communicate(timeout=SECONDS)
        assert made.returncode == 0, err
        assert out.startswith("2 pairs still to draw, which this program does not")
        assert out.splitlines()[-1].startswith("Stopped. Everything is saved: 0 answers in ")
        assert "Traceback" not in err
        stream.close()


def test_the_owners_link_is_on_no_command_line(study, monkeypatch):
    serving = import_module("preferl.annotate.serve")
    opened = []
    held = threading.Event()

    class Server:
        def __init__(self, *_):
            pass

        def run(self, sockets):
            assert held.wait(SECONDS)

    def browse(address):
        file = Path(urllib.request.url2pathname(urlsplit(address).path))
        modes = [path.stat().st_mode & 0o777 for path in (file, file.parent)]
        opened.append((address, modes, file, file.read_text()))
        held.set()

    monkeypatch.setattr(serving, "Server", Server)
    monkeypatch.setattr(serving.webbrowser, "open", browse)
    serve(study.store, study.project, AnnotateSettings(port=0, secret=None))
    ((address, modes, file, text),) = opened
    assert address.startswith("file:///")
    assert study.owner not in address
    assert 'content="0; url=http://127.0.0.1:' in text
    assert f'/join/{study.owner}"' in text
    assert modes == [0o600, 0o700]
    assert not file.parent.exists()


def test_the_address_is_remembered_for_invitations(study, monkeypatch):
    serving = import_module("preferl.annotate.serve")
    monkeypatch.setattr(serving.Server, "run", lambda self, sockets: None)
    settings = AnnotateSettings(port=0, secret=None)
    messages = []
    serve(study.store, study.project, settings, open_browser=False, on_message=messages.append)
    url = study.store.reports.last_event("served")["url"]
    assert messages[0] == f"Answer here: {url}/join/{study.owner}"
    assert url.startswith("http://127.0.0.1:")


def test_where_people_find_the_page():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert address(AnnotateSettings(secret=None), listening) == f"http://127.0.0.1:{port}"
        everywhere = AnnotateSettings(host="0.0.0.0", secret="x" * 32)
        assert address(everywhere, listening) == f"http://localhost:{port}"
        named = AnnotateSettings(public_url="https://label.example.org/", secret=None)
        assert address(named, listening) == "https://label.example.org"


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_what_makes_videos_is_started_again_if_it_dies(tmp_path, caplog):
    log = tmp_path / "log"
    code = f"import os, time; open({str(log)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(600)"

    def started(count):
        """The first so many processes, once all of them have begun."""
        found = log.read_text().split(" ")[:-1] if log.exists() else []
        return [int(pid) for pid in found] if len(found) == count else None

    with restarting([sys.executable, "-c", code], pause=0.05):
        os.kill(*wait_until(lambda: started(1), "it was not started"), signal.SIGKILL)
        pids = wait_until(lambda: started(2), "it was not started again")
    assert "started again" in caplog.text
    wait_until(lambda: is_gone(pids[1]), "it was not ended")
