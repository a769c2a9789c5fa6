"""Claims of somebody who answers in a large study, alone and beside spectators of its overview."""

import argparse
import asyncio
import multiprocessing
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import numpy as np
from people_site import Person, Site, clips
from sqlalchemy import insert

from preferl.store import Store
from preferl.store.schema import Answer, Prediction, Query

RATE = 10.0  # requests a second that the page allows a person, which is its default
THINK_SECONDS = 0.25
QUORUM = 3
LOOKS = {
    "overview": ("/admin",),
    "lists": ("/admin/answers?show=differing", "/admin/answers?show=surprising"),
}
"""At what the spectators look."""


def overview(location: str, files: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds that claims take without spectators, and while they look as often as they may."""
    store = Store.open(location, files)
    project_id = large_study(store, options.answers)
    site = Site(location, files, rate=RATE)
    site.start()
    secrets = [
        store.people.invite(project_id, f"spectator {number}", "spectator").secret
        for number in range(options.spectators)
    ]
    annotator = store.people.invite(project_id, "annotator").secret
    found: dict[str, Any] = {"answers": options.answers, "spectators": options.spectators}
    found["alone"] = _claims(site, annotator, options.seconds)
    context = multiprocessing.get_context("spawn")
    for name, addresses in LOOKS.items():
        looks = context.Queue()
        arguments = (site.url, secrets, addresses, options.seconds + 5, looks)
        looking = context.Process(target=_look, args=arguments, daemon=True)
        looking.start()
        time.sleep(5)  # what it imports takes seconds
        found[f"beside {name}"] = beside = _claims(site, annotator, options.seconds)
        beside["times_as_long"] = round(beside["p50_ms"] / found["alone"]["p50_ms"], 2)
        beside["looks"] = looks.get(timeout=300)
        looking.join()
    site.kill()
    store.close()
    return found


def large_study(store: Store, answers: int) -> int:
    """A project with so many answers, three to a query, and queries for whoever comes next."""
    project_id = store.projects.create("overview", repeat_share=0.0).id
    rng = np.random.default_rng(0)
    names = store.clips.put(project_id, clips(rng, 60))
    store.clips.video_ready(project_id, names)
    people = [store.people.invite(project_id, f"p{n}").annotator.id for n in range(5)]
    began = time.time() - 1e6
    alike = {"project_id": project_id, "asked_at": began, "ready": True, "purpose": "ask"}
    queries = [
        alike
        | {"first_clip": names[number % 59], "second_clip": names[59]}
        | {"quorum": QUORUM, "needed": 0}
        for number in range(answers // QUORUM)
    ]
    with store.database.write() as session:
        added = insert(Query).returning(Query.id, sort_by_parameter_order=True)
        numbers = list(session.scalars(added, queries))
        preferences = rng.integers(2, size=(len(numbers), QUORUM))
        rows = [
            {
                "project_id": project_id,
                "query_id": number,
                "annotator_id": people[(place + column) % len(people)],
                "key": f"answer-{number}-{column}",
                "kind": "left" if preferences[place, column] else "right",
                "preference": float(preferences[place, column]),
                "swapped": False,
                "answered_at": began + QUORUM * place + column,
                "response_ms": 1000.0,
            }
            for place, number in enumerate(numbers)
            for column in range(QUORUM)
        ]
        session.execute(insert(Answer), rows)
        shares = rng.random(len(numbers)).tolist()
        predictions = [
            {"query_id": number, "version": 1, "preference": share}
            for number, share in zip(numbers, shares, strict=True)
        ]
        session.execute(insert(Prediction), predictions)
    store.reports.announce_reward(project_id, 1, answers=len(rows))
    pairs = [(names[first], names[second]) for second in range(59) for first in range(second)]
    store.queries.ask_stored(project_id, pairs)
    return project_id


def _claims(site: Site, secret: str, seconds: float) -> dict[str, Any]:
    """Claim and answer in turn for so long."""
    person = Person(site, secret, 0)

    async def work() -> None:
        await person.arrive()
        person.claims.clear()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            state = await person.post("claim", {"count": 2})
            await asyncio.sleep(THINK_SECONDS)
            answer = {"token": state["queries"][0]["token"], "key": uuid4().hex, "kind": "left"}
            await person.post("answer", answer)
        await person.close()

    asyncio.run(work())
    taken = 1e3 * np.array(person.claims)
    p50, p95 = np.percentile(taken, (50, 95))
    return {
        "claims": len(taken),
        "p50_ms": round(float(p50), 1),
        "p95_ms": round(float(p95), 1),
        "mean_ms": round(float(taken.mean()), 1),
    }


def _look(
    url: str, secrets: list[str], addresses: tuple[str, ...], seconds: float, looks: Any
) -> None:
    """Spectators load these pages as often as the server lets them."""
    taken: list[float] = []

    async def spectator(secret: str, until: float) -> None:
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            await client.get(f"/join/{secret}")
            while time.monotonic() < until:
                for address in addresses:
                    began = time.perf_counter()
                    try:
                        reply = await client.get(address)
                    except httpx2.TimeoutException:
                        taken.append(time.perf_counter() - began)
                        continue
                    if reply.status_code == 429:
                        await asyncio.sleep(float(reply.headers["Retry-After"]) / 2)
                    else:
                        reply.raise_for_status()
                        taken.append(time.perf_counter() - began)

    async def everybody() -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(spectator(secret, until) for secret in secrets))

    asyncio.run(everybody())
    p50, longest = 1e3 * np.percentile(taken, (50, 100))
    looks.put(
        {"count": len(taken), "p50_ms": round(float(p50), 1), "max_ms": round(float(longest), 1)}
    )
