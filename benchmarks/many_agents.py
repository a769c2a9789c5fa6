"""Four agents learn from one PostgreSQL store, with clips and rewards in object storage.

    python benchmarks/many_agents.py [--answers 400] [--people 4]

Agents, the page, the reward service and a program that draws clips share a database and an S3
server, and nothing else: each has a folder of copies of its own. People answer over HTTP. An agent,
the page and the service are killed with -9 in turn, and started again. In the end, acknowledged
answers are held against those in the store, and those against what the last reward was fitted to.
The time from the end of each fit to the use of its reward is taken in every agent. Writes
`results/many_agents.json`; ends with status 1 where an answer is lost, doubled or not learned from.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from people import checked
from people_site import Person, Postgres, Process, Site, free_port
from run import machine
from sqlalchemy import func, select

from preferl.store import Store
from preferl.store.schema import DECIDING, Answer, Query
from preferl.store.statements import LATEST
from preferl.training.publish import newest_reward

RESULTS = Path(__file__).parent / "results" / "many_agents.json"
AGENTS = 4
SLOW = 0.25  # seconds that the slowest agent rests after each step of its environments
STORAGE = """
import sys, time
from moto.server import ThreadedMotoServer
ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False).start()
time.sleep(86400)
"""
DRAWER = """
import sys
import numpy as np
from preferl.store import Store
from preferl.store.rendering.videos import RenderWorker
with Store.open(*sys.argv[1:]) as store:
    black = np.zeros((16, 16, 3), np.uint8)
    draw = lambda segments, row: (black for _ in range(segments.real[row]))
    with RenderWorker(store, draw) as worker:
        while True:
            worker.round() or worker.wait(0.2)
"""
SERVICE = """
import json, sys, time
from preferl.online.service import ongoing_fit
from preferl.online.service.reward_service import serve_reward
from preferl.online.service.service_config import ServiceConfig
from preferl.store import Store
from preferl.training.reward_presets import RewardSettings
location, files, rewards, notes = sys.argv[1:]
fit, ended = ongoing_fit.OngoingFit.fit, []
def timed(*about):
    found = fit(*about)
    ended.append(time.time())
    return found
ongoing_fit.OngoingFit.fit = timed
def published(version, metrics):
    with open(notes, "a") as file:
        print(json.dumps({"version": version, "at": ended[-1]}), file=file)
settings = RewardSettings(model="mlp", members=2, hidden=(32, 32), epochs=5)
config = ServiceConfig(
    rewards, settings, min_answers=20, min_new_answers=10, max_wait=2.0, poll_seconds=0.2,
    initial_epochs=5,
)
with Store.open(location, files) as store:
    serve_reward(config, store, on_version=published)
"""
AGENT = """
import json, sys, time
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv
from preferl.online import FeedbackVecEnv
from preferl.store import Store, StoredFeedback
from preferl.testing.worlds import PointWorld
location, files, rewards, notes, name, rest, most = sys.argv[1:]
rng, longest = np.random.default_rng(sum(map(ord, name))), 0.0
with Store.open(location, files) as store:
    feedback = StoredFeedback(store, agent=name)
    env = FeedbackVecEnv(
        DummyVecEnv([PointWorld] * 4), feedback, rewards, segment_length=10, max_pending=5,
        max_queries=int(most), refresh_every=10, episode_every=None,
    )
    version = 0
    env.reset()
    while True:
        began = time.perf_counter()
        env.step(rng.uniform(-1, 1, (4, *env.action_space.shape)).astype(np.float32))
        longest = max(longest, time.perf_counter() - began)
        if env.reward_version != version:
            version = env.reward_version
            note = {"version": version, "at": time.time(), "longest": longest}
            with open(notes, "a") as file:
                print(json.dumps(note), file=file)
        time.sleep(float(rest))
"""


class Programs:
    """All programs, each with a folder of copies of its own, as on machines of their own."""

    def __init__(self, server: str, bucket: str, folder: Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._where = (server, f"{bucket}/labels")
        self._rewards = f"{bucket}/rewards"
        self._most = options.answers + 200
        self.site = Site(*self._where)
        self._running: dict[str, Process] = {}

    def start(self, name: str) -> None:
        """Start a program by its name."""
        os.environ["PREFERL_CACHE"] = str(self._folder / name)
        notes = str(self._folder / f"{name}.jsonl")
        if name == "page":
            self.site.start()
        elif name == "service":
            self._running[name] = Process(SERVICE, *self._where, self._rewards, notes)
        elif name == "drawer":
            self._running[name] = Process(DRAWER, *self._where)
        else:
            rest = SLOW if name == f"agent-{AGENTS - 1}" else 0.02
            about = (self._rewards, notes, name, str(rest), str(self._most))
            self._running[name] = Process(AGENT, *self._where, *about)

    def kill(self, name: str) -> None:
        """Kill a program with -9."""
        (self.site if name == "page" else self._running[name]).kill()

    def kill_all(self) -> None:
        """Kill all that run."""
        for name in ("page", *self._running):
            self.kill(name)

    def notes(self, name: str) -> list[dict[str, Any]]:
        """What a program has noted so far."""
        file = self._folder / f"{name}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def measured(server: str, bucket: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Answers and rewards of one study, with three kills on the way."""
    store = Store.open(server, f"{bucket}/labels")
    project = store.projects.create("many", repeat_share=0.0, budget=options.answers)
    programs = Programs(server, bucket, folder, options)
    began = time.monotonic()
    agents = [f"agent-{number}" for number in range(AGENTS)]
    secrets = [store.people.invite(project.id, f"p{n}").secret for n in range(options.people)]
    people = [Person(programs.site, secret, n) for n, secret in enumerate(secrets)]
    ended = threading.Event()
    answering = threading.Thread(target=lambda: asyncio.run(_everybody(people, ended)))
    try:
        for name in ("page", "service", "drawer", *agents):
            programs.start(name)
        answering.start()
        kills = {0.25: "agent-1", 0.5: "page", 0.75: "service"}
        while (given := store.reports.totals(project.id).given) < options.answers:
            print(f"\r{given} answers", end="", flush=True)
            for share in [one for one in kills if given >= one * options.answers]:
                name = kills.pop(share)
                print(f"\n{name} is killed")
                programs.kill(name)
                time.sleep(1.0)
                programs.start(name)
            time.sleep(0.2)
        minutes = (time.monotonic() - began) / 60
        last = _learned(f"{bucket}/rewards", store, project.id)
        _wait_for(lambda: all(_newest(programs, one) == last.number for one in agents))
        use_it = sum(_newest(programs, one) == last.number for one in agents)
    finally:
        ended.set()
        if answering.ident is not None:
            answering.join()
        programs.kill_all()
    with store.database.read() as session:
        rows = session.execute(select(Answer, Query).join(Query, Query.id == Answer.query_id)).all()
        counted = session.scalars(select(Answer.query_id).where(Answer.kind.in_(DECIDING), LATEST))
        decided = list(counted)
        of = select(Query.agent, func.count()).where(Query.id.in_(decided)).group_by(Query.agent)
        by_agent = dict(session.execute(of).all())
    waits = [wait for agent in agents for wait in _waits(programs, agent)]
    metrics = last.metrics
    return {
        "minutes": round(minutes, 1),
        "decided": len(decided),
        "decided_twice": sum(number > 1 for number in Counter(decided).values()),
        "learned_from": metrics["trained_on"] + metrics["held_out"] + metrics["left_out"],
        "answers_by_agent": by_agent,
        "versions": last.number,
        "agents_that_use_the_last": use_it,
        "uses": len(waits),
        "seconds_from_fit_to_use": {
            "p50": round(float(np.percentile(waits, 50)), 2),
            "p99": round(float(np.percentile(waits, 99)), 2),
            "most": round(max(waits), 2),
        },
        "longest_step_ms": round(
            1e3 * max(note["longest"] for one in agents for note in programs.notes(one)), 1
        ),
    } | checked(store, project.id, people, rows)


def _learned(rewards: str, store: Store, project_id: int) -> Any:
    """The reward of all answers, once it is published."""
    wanted = store.reports.decided(project_id)
    found = [newest_reward(rewards)]

    def all_are_in() -> bool:
        found[0] = newest_reward(rewards)
        return found[0].metrics["answers"] == wanted

    _wait_for(all_are_in)
    return found[0]


def _wait_for(happened: Any, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until:
        time.sleep(0.2)


def _newest(programs: Programs, name: str) -> int:
    return max((note["version"] for note in programs.notes(name)), default=0)


def _waits(programs: Programs, agent: str) -> list[float]:
    """Seconds from the end of fits to the use of their rewards; some are skipped for newer ones.

    What an agent finds when it starts again is none of them.
    """
    ended = {note["version"]: note["at"] for note in programs.notes("service")}
    used: dict[int, float] = {}
    for note in programs.notes(agent):
        used.setdefault(note["version"], note["at"])
    return [at - ended[version] for version, at in used.items() if version in ended]


async def _everybody(people: list[Person], ended: threading.Event) -> None:
    async def one(person: Person) -> None:
        while not ended.is_set():
            await person.work(time.monotonic() + 1.0, think=0.3)
        await person.close()

    await asyncio.gather(*map(one, people))


def storage(stack: ExitStack, folder: Path) -> str:
    """The URL of a bucket on an S3 server of its own."""
    import fsspec

    port = free_port()
    stack.callback(Process(STORAGE, str(port), log=folder / "storage.log").kill)
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "PREFERL_SECRET": "s" * 40,
    }

    def answers() -> bool:
        try:
            return bool(httpx2.get(os.environ["AWS_ENDPOINT_URL"], timeout=2).status_code)
        except httpx2.HTTPError:
            return False

    _wait_for(answers)
    fsspec.filesystem("s3").mkdir("preferl")
    return "s3://preferl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=400)
    parser.add_argument("--people", type=int, default=4)
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="preferl-many-")))
        os.environ["PREFERL_CACHE"] = str(folder / "here")
        server = stack.enter_context(Postgres()).url
        bucket = storage(stack, folder)
        result = measured(server, bucket, folder, options)
    print(json.dumps(result, indent=2))
    if not options.no_write:
        RESULTS.write_text(json.dumps(result | {"machine": machine()}, indent=2) + "\n")
    whole = result["learned_from"] == result["decided"] and not result["decided_twice"]
    whole = whole and result["agents_that_use_the_last"] == AGENTS
    sys.exit(not whole or bool(result["lost"] or result["doubled"] or result["differing"]))


if __name__ == "__main__":
    main()
