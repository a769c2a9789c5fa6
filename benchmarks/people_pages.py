"""One server of the page and two behind a proxy, with the same people."""

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
import numpy as np
from people_site import Person, Site, clips, free_port, show_all

from preferl.store import Store

THINK_SECONDS = 3.0
CONFIG = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/a; uwsgi_temp_path {folder}/b; scgi_temp_path {folder}/c;
  upstream pages {{ {servers} keepalive 256; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://pages; proxy_http_version 1.1; proxy_buffering off;
      proxy_set_header Host $http_host; proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $remote_addr;
    }}
  }}
}}
"""


class Address(NamedTuple):
    """Where people find a page."""

    url: str


@contextmanager
def proxy(sites: list[Site]) -> Iterator[Address]:
    """An nginx that gives each request to the next server."""
    if (program := shutil.which("nginx")) is None:
        sys.exit("nginx is not installed: apt-get install nginx-light")
    port = free_port()
    servers = " ".join(f"server 127.0.0.1:{site.port};" for site in sites)
    with tempfile.TemporaryDirectory(prefix="preferl-nginx-") as folder:
        config = Path(folder) / "nginx.conf"
        config.write_text(CONFIG.format(folder=folder, servers=servers, port=port))
        process = subprocess.Popen([program, "-c", str(config), "-p", folder])
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(100):
                try:
                    httpx2.get(f"{url}/healthz", timeout=2)
                    break
                except httpx2.HTTPError:
                    time.sleep(0.1)
            yield Address(url)
        finally:
            process.terminate()
            process.wait(10)


def pages(location: str, files: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Answers of people who think, then claims of people who do not, on one server and on two."""
    store = Store.open(location, files)
    project = store.projects.create("pages", repeat_share=0.0)
    rng = np.random.default_rng(0)
    queries = options.claims + 10_000
    segments = clips(rng, 1_000)
    known = rng.permutation(1_000 * 999 // 2)[:queries]
    for some in np.array_split(np.stack(np.triu_indices(1_000, 1), 1)[known], 20):
        store.queries.ask(project.id, segments, some)
    show_all(store, project.id)
    found: dict[str, Any] = {}
    for count in (1, 2):
        with ExitStack() as stack:
            sites = [Site(location, files, shared=count > 1) for _ in range(count)]
            for site in sites:
                site.start()
                stack.callback(site.kill)
            address = stack.enter_context(proxy(sites)) if count > 1 else Address(sites[0].url)
            people = [
                Person(address, store.people.invite(project.id, f"{count}-{n}").secret, n)
                for n in range(options.people)
            ]
            claims = options.claims // (10 if count == 1 else 1)  # enough for its times
            found[f"{count} server{'s' * (count > 1)}"] = _measured(people, options.seconds, claims)
        print(count, found, flush=True)
    store.close()
    return {"people": options.people, **found}


def _measured(people: list[Person], seconds: float, claims: int) -> dict[str, Any]:
    handed: Counter[str] = Counter()

    async def everybody() -> None:
        for one in people:
            await one.arrive()
            one.claims.clear()
        until = time.monotonic() + seconds
        await asyncio.gather(*(one.work(until, think=THINK_SECONDS) for one in people))
        share = -(-claims // len(people))
        await asyncio.gather(*(_claims(one, share, handed) for one in people))
        await asyncio.gather(*(one.close() for one in people))

    asyncio.run(everybody())
    errors = [error for one in people for error in one.errors]
    return {
        "answer": _times([second for one in people for second in one.seconds]),
        "claim": _times([second for one in people for second in one.claims]),
        "handed_out": sum(handed.values()),
        "handed_out_twice": sum(number > 1 for number in handed.values()),
        "errors": len(errors),
        "first_error": errors[0] if errors else None,
    }


async def _claims(person: Person, count: int, handed: Counter[str]) -> None:
    """Claim so often, as fast as it goes, and answer what is claimed."""
    seen: set[str] = set()
    answered = person.seconds
    person.seconds = []
    person.claims = []
    for _ in range(count):
        state = await person.post("claim", {"count": 2})
        fresh = [one for one in state["queries"] if one["token"] not in seen]
        seen.update(one["token"] for one in fresh)
        handed.update("|".join(sorted((one["left"], one["right"]))) for one in fresh)
        token = state["queries"][0]["token"]
        await person.post("answer", {"token": token, "key": uuid4().hex, "kind": "left"})
    person.seconds = answered


def _times(seconds: list[float]) -> dict[str, Any]:
    taken = 1e3 * np.array(seconds)
    p50, p99 = np.percentile(taken, (50, 99))
    return {"count": len(taken), "p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}
