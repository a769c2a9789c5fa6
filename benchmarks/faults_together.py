"""The page, the reward service and the database die at the same moment, again and again.

    python benchmarks/faults_together.py [--kills 100] [--people 8] [--seed 0]

People answer over HTTP and a program asks, while the page, the service, the asking program and all
processes of a PostgreSQL server are killed with -9 at random moments and started again. What was
acknowledged is held against what is stored, and every published reward is read back. Every tenth
kill waits until the service has published a reward, which takes longer than most kills give it.
Writes `results/faults_together.json`; ends with status 1 where an answer is lost, doubled or
another one.
"""

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from people import checked
from people_site import ASKER, Person, Postgres, Process, Site, clips, show_all
from sqlalchemy import func, select

from preferl.errors import CheckpointError, StorageError
from preferl.runs import versions as package_versions
from preferl.store import Store
from preferl.store.schema import Answer, Query
from preferl.training.publish import read_version, versions

RESULTS = Path(__file__).parent / "results" / "faults_together.json"
LONGEST = 5.0
THINK_SECONDS = 0.02
PUBLISHED_EVERY = 10
PATIENCE = 60.0
SERVE = "import sys; from preferl.cli.main import main; main(sys.argv[1:])"
LITTLE = ("--min-answers", "5", "--max-wait", "1", "--members", "2", "--hidden", "16")
LITTLE += ("--epochs", "3", "--poll-seconds", "0.2", "--keep", "100000")


class Programs:
    """All that is killed: the database, and the three programs that use it."""

    def __init__(self, server: Postgres, files: Path, rewards: Path, project: str) -> None:
        self._server = server
        self._where = (server.url, str(files))
        self.site = Site(*self._where)
        service = ("--store", server.url, "--files", str(files), "--project", project)
        self._service = ("reward", "serve", *service, "--out", str(rewards), *LITTLE)
        self._others: list[Process] = []

    def start(self, number: int) -> None:
        """Start what is down, and wait until the page answers."""
        self._others = [
            Process(SERVE, *self._service),
            Process(ASKER, *self._where, str(number)),
        ]
        self.site.start()

    def kill(self) -> None:
        """Kill everything with -9 at once, and start the database, which the others need."""
        for program in (*self._others, self.site):
            program.kill(wait=False)
        self._server.kill()
        for program in (*self._others, self.site):
            program.kill()
        self._server.start()


def killed_together(server: Postgres, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """So many kills, and what was acknowledged beside what is stored."""
    files = folder / "store"
    rewards = folder / "rewards"
    store = Store.open(server.url, files)
    project = store.projects.create("together", quorum=2)
    rng = np.random.default_rng(options.seed)
    store.queries.ask(project.id, clips(rng, 40), np.arange(40).reshape(20, 2))
    programs = Programs(server, files, rewards, "together")
    people = [
        Person(programs.site, store.people.invite(project.id, f"p{number}").secret, number)
        for number in range(options.people)
    ]
    ended = threading.Event()
    answering = threading.Thread(target=lambda: asyncio.run(_everybody(people, ended)))
    answering.start()
    published: list[int] = []
    try:
        for number in range(options.kills):
            programs.start(number)
            _let_work(store, project.id, float(rng.uniform(0.1, LONGEST)))
            if number % PUBLISHED_EVERY == 0:
                _await_newer(store, project.id, rewards, published)
            programs.kill()
            published = versions(rewards)
            print(f"\rkilled {number + 1} times, {len(published)} rewards", end="", flush=True)
        programs.start(options.kills)  # what was under way is sent again
        _let_work(store, project.id, LONGEST)
    finally:
        ended.set()
        answering.join()
    print()
    programs.kill()
    with store.database.read() as session:
        chosen = select(Answer, Query).join(Query, Query.id == Answer.query_id)
        rows = session.execute(chosen.order_by(Answer.id)).all()
        asked = session.scalar(select(func.count(Query.id)))
    return {
        "kills": options.kills,
        "queries": asked,
        "rewards_published": len(versions(rewards)),
        "rewards_not_whole": sum(not _whole(rewards, number) for number in versions(rewards)),
    } | checked(store, project.id, people, rows)


def _let_work(store: Store, project_id: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(StorageError):  # a connection from before the kill
            show_all(store, project_id)
        time.sleep(0.05)


def _await_newer(store: Store, project_id: int, rewards: Path, published: list[int]) -> None:
    until = time.monotonic() + PATIENCE
    while versions(rewards) == published and time.monotonic() < until:
        _let_work(store, project_id, 0.2)


def _whole(rewards: Path, number: int) -> bool:
    try:
        read_version(rewards, number)
    except CheckpointError:
        return False
    return True


async def _everybody(people: list[Person], ended: threading.Event) -> None:
    async def one(person: Person) -> None:
        while not ended.is_set():
            await person.work(time.monotonic() + 0.5, think=THINK_SECONDS)
        await person.close()

    await asyncio.gather(*(one(person) for person in people))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--people", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="preferl-together-") as folder, Postgres() as server:
        result = killed_together(server, Path(folder), options)
    result["wall_seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(result, indent=2))
    on = package_versions()["packages"] | {"python": platform.python_version()}
    options.out.write_text(json.dumps(result | {"on": on}, indent=2) + "\n")
    if result["lost"] or result["doubled"] or result["differing"] or result["rewards_not_whole"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
