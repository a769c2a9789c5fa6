"""What many people, and a server that is killed, do to the store and the page.

    python benchmarks/people.py races [--rounds 1000] [--people 16]
    python benchmarks/people.py crash [--kills 100]
    python benchmarks/people.py load [--people 50] [--seconds 120]
    python benchmarks/people.py denial [--half 1100] [--streams 990] [--seconds 30]
    python benchmarks/people.py pages --database postgres [--people 100] [--claims 10000]
    python benchmarks/people.py overview --database sqlite [--spectators 10] [--answers 90000]

Each takes `--database sqlite|postgres` (both by default) and writes `results/people_NAME.json`.
"""

import argparse
import asyncio
import json
import multiprocessing
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from people_denial import denial
from people_overview import overview
from people_pages import pages
from people_site import ASKER, Person, Process, Site, clips, databases, show_all
from sqlalchemy import func, select

from preferl.runs import versions
from preferl.store import Store, clip_ids
from preferl.store.schema import COUNTED, Answer, Lease, Query

RESULTS = Path(__file__).parent / "results"
PROCESSES = 4


def races(location: str, files: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One query at a time, for which everybody reaches at the same moment."""
    store = Store.open(location, files)
    project = store.projects.create("races", repeat_share=0.0)
    people = [store.people.invite(project.id, f"p{n}").annotator.id for n in range(options.people)]
    rng = np.random.default_rng(0)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(len(people) + 1)
    won = context.Queue()
    shares = [people[n::PROCESSES] for n in range(PROCESSES)]
    reaching = [
        context.Process(
            target=_reach, args=(location, files, project.id, share, options.rounds, start, won)
        )
        for share in shares
    ]
    for process in reaching:
        process.start()
    winners = []
    for number in range(options.rounds):
        segments = clips(rng, 2)
        (query,) = store.queries.ask(project.id, segments, np.array([[0, 1]]))
        show_all(store, project.id)
        start.wait()
        got = [won.get() for _ in people]
        winners.append(sum(query in queries for _, queries in got))
        (annotator,) = [who for who, queries in got if query in queries] or [None]
        if annotator is not None:
            token = store.queue.claim(project.id, annotator, 1).queries[0].token
            store.queue.answer(annotator, token, f"race-{number:08d}", "left")
    for process in reaching:
        process.join()
    with store.database.read() as session:
        left = session.scalar(select(func.count()).select_from(Lease))
    store.close()
    return {
        "rounds": options.rounds,
        "people": len(people),
        "processes": PROCESSES,
        "with_one_winner": winners.count(1),
        "with_none": winners.count(0),
        "with_several": sum(count > 1 for count in winners),
        "leases_left": left,
    }


def _reach(location, files, project_id, people, rounds, start, won) -> None:
    store = Store.open(location, files)

    def one(annotator: int) -> None:
        for _ in range(rounds):
            start.wait()
            claim = store.queue.claim(project_id, annotator, 1)
            won.put((annotator, [question.query_id for question in claim.queries]))

    threads = [threading.Thread(target=one, args=(annotator,)) for annotator in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()


def crash(location: str, files: Path, options: argparse.Namespace) -> dict[str, Any]:
    """People answer and a program asks, while the server and the program are killed at random."""
    store = Store.open(location, files)
    site = Site(location, files)
    project = store.projects.create("crash", quorum=2)
    rng = np.random.default_rng(options.seed)
    store.queries.ask(project.id, clips(rng, 40), np.arange(40).reshape(20, 2))
    people = [
        Person(site, store.people.invite(project.id, f"p{number}").secret, number)
        for number in range(options.people)
    ]
    until = [0.0]
    answering = threading.Thread(target=lambda: asyncio.run(_everybody(people, until)))
    asked = 0
    for number in range(options.kills):
        asker = Process(ASKER, location, str(files), str(number))
        show_all(store, project.id)
        site.start()
        if not answering.is_alive():
            until[0] = time.monotonic() + 3600
            answering.start()
        began = time.monotonic()
        lasting = rng.uniform(0.1, 2.0)
        while time.monotonic() - began < lasting:
            show_all(store, project.id)
            time.sleep(0.05)
        for process in rng.permutation(np.array([site, asker], object)):
            process.kill()
        print(f"\rkilled {number + 1} times", end="", flush=True)
    site.start()  # what was under way is sent again
    time.sleep(3)
    until[0] = 0.0
    answering.join()
    site.kill()
    print()
    with store.database.read() as session:
        rows = session.execute(
            select(Answer, Query).join(Query, Query.id == Answer.query_id).order_by(Answer.id)
        ).all()
        asked = session.scalar(select(func.count(Query.id)))
    return checked(store, project.id, people, rows) | {"kills": options.kills, "queries": asked}


async def _everybody(people: list[Person], until: list[float]) -> None:
    async def one(person: Person) -> None:
        while time.monotonic() < until[0]:
            await person.work(min(until[0], time.monotonic() + 0.5), think=0.0)
        await person.close()

    await asyncio.gather(*(one(person) for person in people))


def checked(store: Store, project_id: int, people: list[Person], rows: list) -> dict[str, Any]:
    """What was acknowledged beside what is stored."""
    acknowledged = {key: answer for person in people for key, answer in person.acknowledged.items()}
    stored = {answer.key: (answer, query) for answer, query in rows}
    differing = 0
    for key in acknowledged.keys() & stored.keys():
        answer, query = stored[key]
        sides = (query.first_clip, query.second_clip)
        shown = (answer.kind, *(sides[::-1] if answer.swapped else sides))
        differing += shown != acknowledged[key]
    counted = [(answer.query_id, answer.annotator_id) for answer, _ in rows]
    names = sorted({name for _, query in rows for name in (query.first_clip, query.second_clip)})
    found = clip_ids(store.clips.segments(project_id, names))
    votes = store.queries.votes(project_id)
    store.close()
    return {
        "acknowledged": len(acknowledged),
        "stored": len(rows),
        "lost": len(acknowledged.keys() - stored.keys()),
        "stored_but_never_acknowledged": len(stored.keys() - acknowledged.keys()),
        "doubled": len(counted) - len(set(counted)) + len(rows) - len(stored),
        "differing": differing,
        "clips": len(names),
        "clips_that_do_not_join": sum(a != b for a, b in zip(names, found, strict=True)),
        "votes": len(votes.query),
        "requests_that_failed": sum(len(person.errors) for person in people),
    }


def load(location: str, files: Path, options: argparse.Namespace) -> dict[str, Any]:
    """People who answer every three seconds, then ever more of them until it breaks."""
    store = Store.open(location, files)
    site = Site(location, files)
    project = store.projects.create("load", quorum=2)
    rng = np.random.default_rng(0)
    segments = clips(rng, 2000)
    pairs = rng.permutation(2000).reshape(1000, 2)
    for _ in range(20):
        store.queries.ask(project.id, segments, rng.permutation(pairs.reshape(-1)).reshape(-1, 2))
    show_all(store, project.id)
    site.start()
    steps = [_step(store, site, project.id, options.people, options.seconds)]
    print(steps[-1], flush=True)
    people = 2 * options.people
    while steps[-1]["p99_ms"] < 150 and not steps[-1]["errors"] and people <= options.most:
        steps.append(_step(store, site, project.id, people, min(options.seconds, 30)))
        print(steps[-1], flush=True)
        people = round(people * 1.5)
    site.kill()
    store.close()
    return {"steps": steps, "breaks_at": None if people > options.most else steps[-1]["people"]}


def _step(store: Store, site: Site, project_id: int, count: int, seconds: float) -> dict[str, Any]:
    mark = f"{count}-{time.time_ns()}"
    people = [
        Person(site, store.people.invite(project_id, f"{mark}-{number}").secret, number)
        for number in range(count)
    ]
    before = _answers(store)
    used = []

    async def everybody() -> None:
        for person in people:
            await person.arrive()
        used.append(site.process.cpu_seconds())
        until = time.monotonic() + seconds
        await asyncio.gather(*(person.work(until, think=3.0) for person in people))
        used.append(site.process.cpu_seconds())
        await asyncio.gather(*(person.close() for person in people))

    asyncio.run(everybody())
    took = np.array([second for person in people for second in person.seconds]) * 1e3
    errors = [error for person in people for error in person.errors]
    return {
        "people": count,
        "seconds": seconds,
        "answers": len(took),
        "answers_stored": _answers(store) - before,
        "p50_ms": round(float(np.percentile(took, 50)), 1),
        "p99_ms": round(float(np.percentile(took, 99)), 1),
        "max_ms": round(float(took.max()), 1),
        "errors": len(errors),
        "first_error": errors[0] if errors else None,
        "server_cpu_share": round((used[1] - used[0]) / seconds, 2),
    }


def _answers(store: Store) -> int:
    with store.database.read() as session:
        return int(session.scalar(select(func.count(Answer.id)).where(Answer.kind.in_(COUNTED))))


PEOPLE = {"races": 16, "crash": 8, "load": 50, "pages": 100}
TRIALS: dict[str, Callable[..., dict[str, Any]]] = {
    "races": races,
    "crash": crash,
    "load": load,
    "denial": denial,
    "pages": pages,
    "overview": overview,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--people", type=int)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--half", type=int, default=1100, help="half-sent requests")
    parser.add_argument("--streams", type=int, default=990, help="streams of one annotator")
    parser.add_argument("--open-files", type=int, help="that the server may have at most")
    parser.add_argument("--most", type=int, default=1000, help="people to try at most")
    parser.add_argument("--claims", type=int, default=10_000, help="of two servers")
    parser.add_argument("--spectators", type=int, default=10, help="of the overview")
    parser.add_argument("--answers", type=int, default=90_000, help="of the overview's study")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    options.people = options.people or PEOPLE.get(options.trial, 0)
    options.seconds = options.seconds or {"denial": 30.0, "pages": 60.0, "overview": 30.0}.get(
        options.trial, 120.0
    )
    results: dict[str, Any] = {}
    for kind in options.database or ["sqlite", "postgres"]:
        with databases(kind) as (location, files):
            began = time.monotonic()
            results[kind] = TRIALS[options.trial](location, files, options)
            results[kind]["wall_seconds"] = round(time.monotonic() - began, 1)
        print(kind, json.dumps(results[kind], indent=2), flush=True)
    if not options.no_write:
        results["on"] = versions()["packages"] | {"python": platform.python_version()}
        file = RESULTS / f"people_{options.trial}.json"
        file.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
