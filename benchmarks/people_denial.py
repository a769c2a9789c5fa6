"""Two ways in which a page once was held down, and the people who go on answering meanwhile.

All of it is between processes of this machine, and ends by itself.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from people_site import Person, Site, clips, show_all

from preferl.store import Store

PEOPLE = 4
CLAIMS_PER_SECOND = 4.0
SETTLED_SECONDS = 10.0
"""After which the page has to be as quick as ever."""

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def denial(location: str, files: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Half-sent requests, and event streams of one annotator, each beside people who claim."""
    store = Store.open(location, files)
    project = store.projects.create("denial", quorum=2)
    rng = np.random.default_rng(0)
    store.queries.ask(project.id, clips(rng, 400), rng.permutation(400).reshape(-1, 2))
    show_all(store, project.id)
    found: dict[str, Any] = {}
    for name, count in (("none", 0), ("half_sent", options.half), ("streams", options.streams)):
        log = Path(files) / f"{name}.log"
        site = Site(location, files, log=log, open_files=options.open_files, rate=10.0)
        site.start()
        secrets = [
            store.people.invite(project.id, f"{name}-{number}").secret for number in range(PEOPLE)
        ]
        attacker = store.people.invite(project.id, f"{name}-attacker").secret
        arguments = (site.port, count, attacker, SETTLED_SECONDS + options.seconds)
        found[name] = _beside(ATTACKS[name], arguments, site, secrets, options.seconds)
        site.kill()
        found[name] |= {"attackers": count, "log_bytes": log.stat().st_size}
        print(name, found[name], flush=True)
    store.close()
    return found | {"open_files": options.open_files}


def _beside(attack, arguments, site: Site, secrets: list[str], seconds: float) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    begins = context.Event()
    process = context.Process(target=_attack, args=(attack, arguments, begins, found), daemon=True)
    process.start()
    begins.wait(300)  # what it imports takes seconds
    began = time.monotonic()
    cpu = site.process.cpu_seconds()
    measured = asyncio.run(_people(site, secrets, began + SETTLED_SECONDS, seconds))
    share = (site.process.cpu_seconds() - cpu) / (time.monotonic() - began)
    with suppress(Exception):  # an attacker that is stuck reports nothing
        measured["attack"] = dict(found.get(timeout=20))
    process.kill()
    process.join()
    return measured | {"server_cpu_share": round(share, 2)}


async def _people(site: Site, secrets: list[str], start: float, seconds: float) -> dict[str, Any]:
    """Claims of people who signed in before, and sign-ins of newcomers, from `start` on."""
    people = [Person(site, secret, number) for number, secret in enumerate(secrets)]
    for person in people:
        with suppress(httpx2.HTTPError, RuntimeError):
            await person.sign_in()
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    until = time.monotonic() + seconds
    claims: list[float] = []
    joined: list[float] = []
    errors: Counter[str] = Counter()

    async def timed(took: list[float], act) -> None:
        began = time.perf_counter()
        try:
            await act()
        except (httpx2.HTTPError, RuntimeError) as error:
            errors[f"{type(error).__name__}: {error}"[:80]] += 1
        took.append(1e3 * (time.perf_counter() - began))

    async def claim(person: Person) -> None:
        if not person.signed_in:
            await person.sign_in()
        await person.post("claim", {"count": 2})

    async def one(person: Person) -> None:
        while time.monotonic() < until:
            await timed(claims, partial(claim, person))
            await asyncio.sleep(1 / CLAIMS_PER_SECOND)

    async def newcomer() -> None:
        while time.monotonic() < until:
            person = Person(site, secrets[0], 0)
            await timed(joined, person.sign_in)
            await person.close()
            await asyncio.sleep(1.0)

    await asyncio.gather(*(one(person) for person in people), newcomer())
    await asyncio.gather(*(person.close() for person in people))
    return {
        **{f"claim_{name}": value for name, value in _spread(claims).items()},
        **{f"sign_in_{name}": value for name, value in _spread(joined).items()},
        "errors": sum(errors.values()),
        "first_errors": list(errors)[:3],
    }


def _spread(took: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(took, [50, 99])
    return {
        "count": len(took),
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "max_ms": round(max(took), 1),
    }


def _attack(attack, arguments, begins, found) -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    begins.set()
    found.put(asyncio.run(attack(*arguments)))


async def half_sent(port: int, count: int, _secret: str, seconds: float) -> Counter[str]:
    """Requests that never become whole, each begun anew as soon as it is closed."""
    seen: Counter[str] = Counter()

    async def one(_: int) -> None:
        while True:
            reader, writer = await _connection(port, seen)
            with suppress(OSError):
                writer.write(HEAD)
                while await asyncio.wait_for(reader.read(1000), 3600):
                    pass
            seen["closed"] += 1
            writer.close()

    return await _all(one, count, seconds, seen)


async def streams(port: int, count: int, secret: str, seconds: float) -> Counter[str]:
    """Event streams of one person, each asked for again one second after it has ended."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        reply = await client.get(f"/join/{secret}")
        cookie = reply.headers["set-cookie"].split(";")[0]
    asked = f"GET /api/stream HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode()
    seen: Counter[str] = Counter()

    async def one(_: int) -> None:
        while True:
            reader, writer = await _connection(port, seen)
            with suppress(OSError, asyncio.IncompleteReadError):
                writer.write(asked)
                seen[(await reader.readline())[9:12].decode() or "hung up"] += 1
                while b"elsewhere" not in (part := await reader.read(10_000)) and part:
                    if b'{"error"' in part:
                        break
            writer.close()
            await asyncio.sleep(1.0)

    return await _all(one, count, seconds, seen)


async def nothing(_port: int, _count: int, _secret: str, seconds: float) -> Counter[str]:
    """The page as it is without an attack."""
    await asyncio.sleep(seconds)
    return Counter()


async def _connection(port: int, seen: Counter[str]):
    while True:
        try:
            opened = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            seen["refused"] += 1
            await asyncio.sleep(0.1)
        else:
            seen["opened"] += 1
            return opened


async def _all(one, count: int, seconds: float, seen: Counter[str]) -> Counter[str]:
    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return seen


ATTACKS = {"none": nothing, "half_sent": half_sent, "streams": streams}
