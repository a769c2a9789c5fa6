"""A labelling site of its own for each try: a database, a server process, and people as clients."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self
from uuid import uuid4

import httpx2
import numpy as np
import psutil

from preferl.data.segments import Segments
from preferl.store import Store

KINDS = ("left", "right", "equal", "cannot_tell")

SERVER = """
import sys
from preferl.annotate.serve import serve
from preferl.annotate import AnnotateSettings
from preferl.store import Store
location, files, port, rate, *shared = sys.argv[1:]
store = Store.open(location, files)
settings = AnnotateSettings(
    port=int(port), requests_per_second=float(rate), shared_limits=bool(shared)
)
serve(store, store.projects.only(), settings, open_browser=False)
"""

ASKER = """
import sys
import numpy as np
from people_site import clips
from preferl.store import Store, StoredFeedback
location, files, seed = sys.argv[1:]
feedback = StoredFeedback(Store.open(location, files))
rng = np.random.default_rng(int(seed))
while True:
    feedback.ask(clips(rng, 8), rng.permutation(8).reshape(4, 2))
"""


def clips(rng: np.random.Generator, count: int, length: int = 10) -> Segments:
    """Windows over as many made-up steps as they need, none like another."""
    steps = count * length
    return Segments(
        observations=rng.normal(size=(steps, 4)).astype(np.float32),
        actions=rng.normal(size=(steps, 2)).astype(np.float32),
        rewards=rng.normal(size=steps),
        start=np.arange(0, steps, length),
        real=np.full(count, length),
        length=length,
    )


@contextmanager
def databases(kind: str) -> Iterator[tuple[str, Path]]:
    """`(location, files)` of a new store on SQLite or on a PostgreSQL server made for it."""
    with tempfile.TemporaryDirectory(prefix="preferl-people-") as folder:
        files = Path(folder) / "store"
        if kind == "sqlite":
            yield str(files), files
            return
        with postgres() as server:
            yield server, files


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server that is gone afterwards; `PREFERL_TEST_POSTGRES` names one."""
    if address := os.environ.get("PREFERL_TEST_POSTGRES"):
        yield address
        return
    with Postgres() as server:
        yield server.url


class Postgres:
    """A PostgreSQL server of its own, which can be killed and started again."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        if not found:
            sys.exit("PostgreSQL is not installed: apt-get install postgresql")
        self._programs = found[0]
        self._folder = Path("/tmp") / f"preferl-postgres-{uuid4().hex[:8]}"
        self.url = f"postgresql://preferl@/postgres?host={self._folder}"

    def __enter__(self) -> Self:
        self._folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres")
        self._run("initdb", "-U", "preferl", "-A", "trust")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run("pg_ctl", "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until it has recovered and answers."""
        options = f"-k {self._folder} -c listen_addresses='' -c max_connections=200"
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def kill(self) -> None:
        """Kill all its processes with -9, and see them gone."""
        server = psutil.Process(
            int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        )
        processes = [server, *server.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)

    def _run(self, program: str, *arguments: str) -> None:
        as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        data = str(self._folder / "data")
        command = [*as_user, str(self._programs / program), "-D", data, *arguments]
        subprocess.run(command, check=True, cwd=self._folder, stdout=subprocess.DEVNULL)


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def show_all(store: Store, project_id: int) -> None:
    """Let every query be shown, as if its clips had been drawn."""
    while clip_ids := store.clips.without_video(project_id, 400):
        store.clips.video_ready(project_id, clip_ids)


class Process:
    """A program that can be killed as a loss of power would, less the disk's cache."""

    def __init__(
        self, code: str, *arguments: str, log: Path | None = None, open_files: int | None = None
    ) -> None:
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        files = f"--nofile={open_files or 1024}:{open_files or ''}"
        with nullcontext() if log is None else log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["prlimit", files, sys.executable, "-c", code, *arguments],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep), "OMP_NUM_THREADS": "1"},
            )

    def kill(self, *, wait: bool = True) -> None:
        """Kill it with -9."""
        self._process.send_signal(signal.SIGKILL)
        if wait:
            self._process.wait()

    def cpu_seconds(self) -> float:
        """Processor time it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Site:
    """A server on a port of its own, which can be killed and started again.

    Its log is a file where one is named. It starts with as many open files as Linux gives programs,
    and may raise that unless `open_files` are the most; `rate` is what one person may ask a second.
    """

    def __init__(
        self,
        location: str,
        files: Path,
        *,
        log: Path | None = None,
        open_files: int | None = None,
        rate: float = 1000.0,
        shared: bool = False,
    ) -> None:
        self._arguments = (location, str(files))
        self._log = log
        self._open_files = open_files
        self._rate = rate
        self._shared = ("shared",) if shared else ()
        self.port = free_port()
        self.process: Process | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = (*self._arguments, str(self.port), str(self._rate), *self._shared)
        self.process = Process(SERVER, *words, log=self._log, open_files=self._open_files)
        for _ in range(600):
            try:
                if httpx2.get(f"{self.url}/healthz", timeout=2).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(0.05)
        sys.exit("The server did not start.")

    def kill(self, *, wait: bool = True) -> None:
        """Kill it with -9."""
        if self.process:
            self.process.kill(wait=wait)


class Person:
    """Somebody in a browser: answers, and sends an answer again until it is acknowledged.

    Answers are drawn at random unless `choose` makes one of the clips on the left and right.
    """

    def __init__(
        self, site: Site, secret: str, seed: int, choose: Callable[[str, str], str] | None = None
    ) -> None:
        self._site = site
        self._secret = secret
        self._choose = choose or (lambda *_: str(self._rng.choice(KINDS)))
        self._rng = np.random.default_rng(seed)
        self._client = httpx2.AsyncClient(base_url=site.url, timeout=10)
        self._headers: dict[str, str] = {}
        self.acknowledged: dict[str, tuple[str, str, str]] = {}  # key to kind, left, right clip
        self.seconds: list[float] = []  # that answers took
        self.claims: list[float] = []  # and claims
        self._state: dict = {"queries": []}
        self._shown: list[str] = []
        self._pending: dict | None = None  # sent, and not yet acknowledged
        self.errors: list[str] = []
        self.signed_out = 0

    async def sign_in(self) -> None:
        """Open the personal link."""
        page = await self._client.get(f"/join/{self._secret}", follow_redirects=True)
        token = re.search(r'name="csrf-token"\s+content="([^"]+)"', page.text)
        if token is None:
            raise RuntimeError(f"{page.status_code}: no page to answer on")
        self._headers = {"X-CSRF-Token": token[1], "Origin": self._site.url}

    @property
    def signed_in(self) -> bool:
        """Whether the link was opened."""
        return bool(self._headers)

    async def arrive(self) -> None:
        """Sign in, and take the first questions."""
        await self.sign_in()
        self._state = await self.post("claim", {"count": 2})

    async def post(self, path: str, body: dict) -> dict:
        """Send what the page's script would; the reply."""
        began = time.perf_counter()
        reply = await self._client.post(f"/api/{path}", json=body, headers=self._headers)
        if reply.status_code != 200:
            raise RuntimeError(f"{reply.status_code} {reply.text[:200]}")
        taken = {"answer": self.seconds, "claim": self.claims}.get(path, [])
        taken.append(time.perf_counter() - began)
        return reply.json()

    async def work(self, until: float, think: float) -> None:
        """Answer until then, each answer about so many seconds after the one before.

        Errors are noted; an answer that was not acknowledged is sent again with its key.
        """
        if think:
            await asyncio.sleep(think * self._rng.random())
        while time.monotonic() < until:
            try:
                if not self._headers:
                    await self.sign_in()
                    await asyncio.sleep(think * self._rng.random())
                if self._pending is None:
                    if not self._state["queries"]:
                        self._state = await self.post("claim", {"count": 2})
                        if not self._state["queries"]:
                            await asyncio.sleep(0.2)
                            continue
                    question = self._state["queries"][0]
                    self._shown = [Path(question[side]).stem for side in ("left", "right")]
                    kind = self._choose(*self._shown)
                    key = uuid4().hex
                    self._pending = {"token": question["token"], "key": key, "kind": kind}
                self._state = await self.post("answer", self._pending)
                self.acknowledged[self._pending["key"]] = (self._pending["kind"], *self._shown)
                self._pending = None
                if think:
                    await asyncio.sleep(think * self._rng.uniform(0.5, 1.5))
            except (httpx2.HTTPError, RuntimeError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                if "409" in str(error):
                    self._pending = None
                    self._state = {"queries": []}
                if "401" in str(error):  # signed out: opens the link again
                    self._headers = {}
                    self.signed_out = self.signed_out + 1
                await asyncio.sleep(0.1)

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()
