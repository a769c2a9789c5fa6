"""The page over plain HTTP at an address that is not this machine's own loopback.

Browsers trust `localhost`, and tell a server there more of a request than one elsewhere. The
address, a documentation address of RFC 5737, exists in a network of this test alone.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from helpers.waiting import SECONDS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ADDRESS = "192.0.2.1"
NETWORK = [
    "ip link set lo up",
    f"ip addr add {ADDRESS}/32 dev lo",  # for browsers it is as foreign as any other
]
INSIDE = f"""
import json, os, socket, sys, threading
from playwright.sync_api import sync_playwright
from preferl.annotate import AnnotateSettings, create_app
from preferl.annotate.serve import Server, configured
from preferl.store.store import Store

folder, program = sys.argv[1:]
seen = []
with Store.open(folder) as store:
    project = store.projects.create("door", question="Which?")
    owner = store.people.owner(project.id).secret
    once = store.people.invite(project.id, "cleo", uses=1).secret
    app = create_app(store, AnnotateSettings(host="{ADDRESS}", port=0, secret="x" * 32))

    @app.middleware("http")
    async def note(request, call_next):
        response = await call_next(request)
        if request.method == "POST":
            heads = ("origin", "sec-fetch-site")
            headers = [request.headers.get(name) for name in heads]
            seen.append([request.url.path, *headers, response.status_code])
        return response

    listening = socket.create_server(("{ADDRESS}", 0))
    server = Server(configured(app, log_level="error"), app)
    thread = threading.Thread(target=server.run, kwargs={{"sockets": [listening]}}, daemon=True)
    thread.start()
    address = f"http://{ADDRESS}:{{listening.getsockname()[1]}}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        # A connection waits until the server has started.
        page.set_default_timeout(1000 * {SECONDS})
        page.goto(f"{{address}}/join/{{owner}}")
        page.goto(f"{{address}}/admin")
        page.get_by_label("Name").fill("Ben")
        page.get_by_role("button", name="Make a link").click()
        link = page.get_by_label("Personal link of Ben").input_value()
        page.goto(f"{{address}}/admin")
        page.get_by_role("button", name="Ben: menu").or_(page.locator(".menu summary")).click()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_selector("text=link of their own")
        left = page.url
        page.goto(f"{{address}}/join/{{once}}")
        page.get_by_role("button", name="Continue as cleo").click()
        page.wait_for_selector("text=Which?", state="attached")
        # A page of another origin, with a form that posts here and hides where it comes from.
        form = f"<form method=post action={{address}}/leave><input name=csrf value=x><button>Go"
        page.goto("data:text/html," + form)
        with page.expect_response("**/leave"):
            page.get_by_role("button", name="Go").click()
        browser.close()
    server.stop()
    thread.join({SECONDS})
print(json.dumps({{"seen": seen, "link": link, "left": left, "address": address}}))
"""


@pytest.fixture
def inside():
    """Begins a command in a network of its own, which ends with it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("making a network needs Linux, and root")
    if which("ip") is None or which("unshare") is None:
        pytest.skip("no programs to make a network: apt-get install iproute2 util-linux")
    made = ["unshare", "--net", "sh", "-ec", "; ".join([*NETWORK, 'exec "$@"']), "sh"]
    tried = subprocess.run([*made, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no network can be made here: {tried.stderr.strip()}")
    return made


def test_forms_name_their_origin_over_plain_http(inside, tmp_path):
    program = which("chromium") or which("google-chrome")
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    command = [*inside, sys.executable, "-c", INSIDE, str(tmp_path / "store"), program]
    kept = {name: value for name, value in os.environ.items() if name != "PREFERL_SECRET"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, cwd=Path(__file__).parent, env=kept
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    address = printed["address"]
    assert printed["link"].startswith(f"{address}/join/")
    forms = [each for each in printed["seen"] if not each[0].startswith("/api/")]
    # Chromium sends the page's origin only where it trusts the address.
    assert [(path.split("/")[1], origin, site, status) for path, origin, site, status in forms] == [
        ("admin", address, None, 200),
        ("leave", address, None, 303),
        ("join", address, None, 303),
        ("leave", "null", None, 403),
    ]
    assert all(
        origin == address for path, origin, *_ in printed["seen"] if path.startswith("/api/")
    )
