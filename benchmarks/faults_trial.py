"""One run for `faults.py`: people answer, a reward is fitted and an agent learns, as programs."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from faults_agent import digest
from people import checked
from people_site import Person
from sqlalchemy import select

from preferl.errors import CheckpointError, StorageError
from preferl.online.service.supervisor import SuperviseConfig, is_running
from preferl.online.supervise import launch
from preferl.store import Store
from preferl.store.schema import Answer, Query
from preferl.training.publish import read_version, versions

HERE = Path(__file__).parent
PEOPLE = 3
THINK_SECONDS = 0.3
SERVICE = ("--min-answers", "50", "--max-wait", "2", "--members", "2", "--hidden", "32")
SERVICE += ("--epochs", "20", "--poll-seconds", "0.2", "--keep", "100000")
PATIENT = SuperviseConfig(first_pause=0.2, longest_pause=1.0, restarts=1000)
"""Kills come every few seconds here; in life programs are given up sooner."""


class Trial:
    """Labels, the page, the reward service, people and a training script, in one folder.

    Attributes:
        training: the script's process.
        rng: of when things happen.
        kills: that there are to be, where one fault is programs that are killed.
        messages: messages on the terminal.
        whole: digests of versions before they were harmed.
    """

    def __init__(self, folder: Path, seed: int, steps: int, kills: int) -> None:
        self.folder = folder
        self.rewards = folder / "rewards"
        self.kills = kills
        self.rng = np.random.default_rng(seed)
        self.messages: list[str] = []
        self.whole: dict[int, str] = {}
        self.training = Training(folder, seed, steps)
        self.store = Store.open(folder / "store")
        self.project = self.store.projects.create("point", repeat_share=0.0, known_share=0.0).id
        self._returns: dict[str, float] = {}
        self._ended = threading.Event()
        self._open = ExitStack()
        site = SimpleNamespace(url=f"http://127.0.0.1:{_free_port()}")
        self.port = site.url.rpartition(":")[2]
        invited = [self.store.people.invite(self.project, f"p{n}").secret for n in range(PEOPLE)]
        self._people = [
            Person(site, secret, 100 * seed + n, self._better) for n, secret in enumerate(invited)
        ]

    def __enter__(self) -> Self:
        services = launch(
            self.folder / "store",
            "point",
            self.rewards,
            page_options=("--no-render", "--port", self.port),
            reward_options=SERVICE,
            config=PATIENT,
            on_message=self._say,
        )
        self._open.enter_context(services)
        for work in (self._draw, lambda: asyncio.run(self._answer())):
            thread = threading.Thread(target=work)
            thread.start()
            self._open.callback(thread.join)
        self._open.callback(self._ended.set)
        self._open.callback(self.training.kill)
        self.training.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it comes true within so many seconds."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def wait_for_version(self, number: int) -> int:
        """Wait until that version, or a later one, is published; returns the newest."""
        if not self.wait_for(lambda: max(versions(self.rewards), default=0) >= number, 120):
            sys.exit(f"Version {number} does not come.")
        return max(versions(self.rewards))

    def kill(self, name: str) -> bool:
        """Kill a program with -9; whether it ran."""
        if name == "training":
            self.training.kill()
            self.training.start()
            return True
        try:
            mark = json.loads((self.rewards / "logs" / f"{name}.process.json").read_text())
        except FileNotFoundError:  # not yet started again
            return False
        if not mark["process"] or not is_running(mark["process"]):
            return False
        os.kill(int(mark["process"].split()[1]), signal.SIGKILL)
        return True

    def finish(self) -> dict[str, Any]:
        """See the training to its end, let everything be learned from, and check the run."""
        result = self.training.see_to_the_end()
        left = lambda: self.store.progress(self.project).open  # noqa: E731
        self.wait_for(lambda: not left(), 30)
        learned = self.wait_for(self._all_learned, 60)
        return result | {"all_answers_learned_from": learned, "open_questions": left()}

    def check(self) -> dict[str, Any]:
        """What was acknowledged beside what is stored, and what was taken up beside what is whole.

        For when everything has ended.
        """
        with self.store.database.read() as session:
            chosen = select(Answer, Query).join(Query, Query.id == Answer.query_id)
            rows = session.execute(chosen.order_by(Answer.id)).all()
        taken = [json.loads(line) for line in (self.folder / "taken.jsonl").open()]
        whole = {number: self._digest(number) for number in versions(self.rewards)} | self.whole
        drafts = [p.name for p in self.rewards.iterdir() if re.match(r"\.\d", p.name)]
        return {
            "versions": len(whole),
            "taken_up": len(taken),
            "taken_up_not_whole": sum(whole.get(t["version"]) != t["digest"] for t in taken),
            "drafts_left": len(drafts),
            "signed_out": sum(person.signed_out for person in self._people),
            "said": distinct(self.messages, self.training.messages(), *self._logs()),
        } | checked(self.store, self.project, self._people, rows)

    def _digest(self, number: int) -> str | None:
        try:
            return digest(read_version(self.rewards, number).reward.model)
        except CheckpointError:
            return None

    def _all_learned(self) -> bool:
        try:
            rewards = self.store.reports.rewards(self.project)
            answered = self.store.progress(self.project).answered
        except StorageError:
            return False
        return bool(rewards) and rewards[-1].answers == answered

    def _say(self, line: str) -> None:
        self.messages.append(line)

    def _logs(self) -> list[list[str]]:
        """What the services have written that is more than news."""
        logs = [(self.rewards / "logs" / f"{name}.log") for name in ("page", "reward")]
        lines = [log.read_text(errors="replace").splitlines() for log in logs]
        return [
            [line for line in log if re.search(r"Error|expected|tried again", line)]
            for log in lines
        ]

    def _better(self, left: str, right: str) -> str:
        a = self._returns[left]
        b = self._returns[right]
        return "equal" if a == b else ("left" if a > b else "right")

    def _draw(self) -> None:
        """Clips need no pictures here; whoever distinguishes them looks at their returns."""
        clips = self.store.clips
        while not self._ended.wait(0.1):
            try:
                names = list(clips.without_video(self.project, 400))
                returns = clips.segments(self.project, names).returns() if names else []
                self._returns |= dict(zip(names, map(float, returns), strict=True))
                clips.video_ready(self.project, names)
            except StorageError:  # locked
                continue

    async def _answer(self) -> None:
        async def one(person: Person) -> None:
            while not self._ended.is_set():
                await person.work(time.monotonic() + 1.0, THINK_SECONDS)
            await person.close()

        await asyncio.gather(*(one(person) for person in self._people))


class Training:
    """The training script, a process that may be killed and started again."""

    def __init__(self, folder: Path, seed: int, steps: int) -> None:
        self._folder = folder
        self._command = [sys.executable, str(HERE / "faults_agent.py"), str(folder)]
        self._command += ["--seed", str(seed), "--steps", str(steps)]
        self._process: subprocess.Popen[bytes] | None = None
        self.ended: list[str] = []

    def start(self) -> None:
        """Begin, or go on."""
        with (self._folder / "training.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill it with -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return (self._folder / "result.json").exists()

    def see_to_the_end(self, restarts: int = 5) -> dict[str, Any]:
        """Wait for its result; where it stops by itself, note why and start it again."""
        while not self.over:
            status = self._process.wait()
            if self.over:
                break
            self.ended.append(f"status {status}: {(self.messages() or ['nothing'])[-1]}")
            if len(self.ended) > restarts:
                sys.exit(f"Training does not go on: {self.ended}")
            self.start()
        self._process.wait()
        return json.loads((self._folder / "result.json").read_text()) | {"stopped": self.ended}

    def messages(self) -> list[str]:
        """What it has written that is more than news."""
        lines = (self._folder / "training.log").read_text(errors="replace").splitlines()
        return [line for line in lines if not line.startswith("INFO")]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def distinct(*sources: list[str], most: int = 12) -> list[str]:
    """Lines that differ in more than numbers, places and times, each once; no links."""
    known: dict[str, str] = {}
    for line in (line for source in sources for line in source):
        if "/join/" not in line:
            plain = re.sub(r"^[\d-]+ [\d:,]+ ", "", line)
            plain = re.sub(r"/\S*/(?=[\w.-]+)", "", plain)
            known.setdefault(re.sub(r"\d+", "#", plain), plain)
    return list(known.values())[:most]
