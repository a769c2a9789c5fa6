"""The annotation page and the reward service beside a training script, for as long as it runs."""

import http.client
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, final
from urllib.parse import SplitResult, urlsplit

from preferl.errors import StorageError
from preferl.online.supervisor import (
    Complaint,
    Program,
    Say,
    SuperviseConfig,
    Supervisor,
    say_on_terminal,
)
from preferl.store.status import PAGE, REWARD_SERVICE, ServiceState, Status
from preferl.store.store import Store
from preferl.trust import preferl_program, trust_options

LOGS: Final = "logs"

HERE: Final = ("localhost", "127.0.0.1", "::1")
"""Hosts of this machine, on which the page is probed."""

LEEWAY_SECONDS: Final = 10.0
"""For which many answers may wait: the service looks, starts to learn, and publishes meanwhile."""

FIT_SLACK: Final = 3.0
"""Times as long as the last fit that the one under way may take, from more answers."""


@contextmanager
def launch(
    store: Path | str,
    project: str,
    rewards: Path | str,
    *,
    page: bool = True,
    files: Path | str | None = None,
    page_options: Sequence[str] = (),
    reward_options: Sequence[str] = (),
    trust: Collection[str] = (),
    stale_answers: int = 50,
    stale_seconds: float = 600.0,
    config: SuperviseConfig | None = None,
    say: Say = say_on_terminal,
) -> Iterator[Supervisor]:
    """Run the annotation page and the reward service while a block trains an agent.

    Each is a process of its own with a log in `rewards/logs`. One that dies, or gives no
    heartbeat, is reported within seconds and started again, each time after a longer pause; so is
    a reward that falls behind the answers reported. On leaving, both are asked to end, and ended
    by force if they do not. If this program is killed they stay, and people may go on answering;
    the next launch ends them and starts its own. The agent's reward stays the latest that was
    published.

    Args:
        store: folder of the labels, or the URL of a database; the project has to be there.
        project: its short name.
        rewards: folder of published rewards.
        page: whether to serve the page; people may also answer at one that runs elsewhere.
        files: folder of clips and videos beside a PostgreSQL database.
        page_options: more options of `preferl annotate serve`, such as `("--port", "9000")`.
        reward_options: more options of `preferl reward serve`, such as `("--model", "pt")`.
        trust: modules that the project's `frames` may import to draw clips (see `preferl.trust`).
        stale_answers: report a reward that is so many answers behind while nothing is learned from
            them, or for longer than that should take by the last time.
        stale_seconds: report a reward that is behind by any answer for so long.
        config: how they are looked after; the defaults if None.
        say: called with one line at a time, at first that it starts; the terminal by default.

    Yields:
        The supervisor; its `problems` are empty while all is well.

    Raises:
        StorageError: a program does not come up, with its last line; or another launch uses the
            same folder.
    """
    say(f"Starting {'the page and ' if page else ''}the reward service ...")
    opened = Store.open(store, files)
    try:
        number = opened.projects.get(project).id
        beats = _Heartbeats(opened, number)
        shared = ["--store", str(store), *(("--files", str(files)) if files else ())]
        shared += ["--project", project]
        serving = preferl_program(
            "reward", "serve", *shared, "--out", str(rewards), *reward_options
        )
        is_up, lost = partial(beats.since, REWARD_SERVICE), partial(beats.lost, REWARD_SERVICE)
        programs = [Program(REWARD_SERVICE, serving, is_up, lost)]
        if page:
            more = ("--no-browser", *trust_options(trust), *page_options)
            programs.append(page_program(shared, more, say))
        complaints = (beats.failing, _stale(opened, number, stale_answers, stale_seconds))
        logs = Path(rewards) / LOGS
        with Supervisor(programs, logs, config, complaints=complaints, say=say) as supervisor:
            yield supervisor
    finally:
        opened.close()


def page_program(shared: Sequence[str], options: Sequence[str], say: Say) -> Program:
    """The annotation page of a store and project, with options of `preferl annotate serve`."""
    command, probe = preferl_program("annotate", "serve", *shared, *options), PageProbe(say)
    return Program(PAGE, command, probe.is_up, lambda _age: probe.lost())


@final
@dataclass
class PageProbe:
    """Asks the page whether it is there; passes on the link that it reports, and the overview's.

    A page that people reach through a proxy is not asked, since the proxy may be what fails.
    """

    say: Say
    every: float = 5.0  # seconds between two probes
    patience: float = 30.0  # seconds without an answer after which the page counts as lost
    timeout: float = 2.0  # seconds to wait for one answer
    _link: str | None = field(default=None, init=False)
    _asked: float = field(default=0.0, init=False)
    _answered: float = field(default=0.0, init=False)

    def is_up(self, status: Status | None, _age: float) -> bool:
        """Whether the page has reported its link."""
        link = None if status is None else status.link
        if link is None:
            return False
        if link != self._link:
            self._link = link
            self.say(f"Answer here: {link}")
            self.say(f"Overview, once that was opened: {link.partition('/join/')[0]}/admin")
        self._answered = time.monotonic()
        return True

    def lost(self) -> str | None:
        """Why the page counts as lost, or None."""
        address = urlsplit(self._link or "")
        if address.hostname not in HERE or time.monotonic() - self._asked < self.every:
            return None
        if self._answers(address):
            self._answered = time.monotonic()
        self._asked = time.monotonic()
        silent = self._asked - self._answered
        return f"has not answered for {silent:.0f} s" if silent > self.patience else None

    def _answers(self, address: SplitResult) -> bool:
        """Whether anything comes back, be it an error."""
        host = address.hostname or ""
        there = http.client.HTTPConnection(host, address.port, timeout=self.timeout)
        try:
            there.request("GET", "/healthz")
            there.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            there.close()
        return True


@final
class _Heartbeats:
    """Heartbeats in the store; while it cannot be read nobody counts as lost."""

    def __init__(self, store: Store, project_id: int) -> None:
        self._store, self._project = store, project_id
        self._writable_since: float | None = None  # of time.monotonic(); None: not known

    def _of(self, name: str) -> ServiceState | None:
        try:
            services = self._store.live.services(self._project)
        except StorageError:
            return None
        return next((service for service in services if service.name == name), None)

    def since(self, name: str, _status: Status | None, age: float) -> bool:
        """Whether a program has given a heartbeat that is younger than itself."""
        beat = self._of(name)
        return beat is not None and beat.works and beat.age < age

    def lost(self, name: str, age: float) -> str | None:
        """Why a program that runs is lost."""
        beat = self._of(name)
        if beat is None or beat.age > age:  # older than the program
            return None
        if beat.alive:
            self._writable_since = None
            return "is stuck in its work" if beat.status.state == "stuck" else None
        since = f"for {beat.age:.0f} s" if beat.age > 0 else "since the clock was set back"
        return f"has given no heartbeat {since}" if self._could_have_beaten(beat) else None

    def _could_have_beaten(self, beat: ServiceState) -> bool:
        """Whether a program that is alive would have written a heartbeat by now.

        While others lock the store nobody can, so that silence means nothing; a program whose try
        has just failed comes again after its pause between heartbeats.
        """
        try:
            self._store.live.require_writable()
        except StorageError:
            self._writable_since = None
            return False
        if self._writable_since is None:
            self._writable_since = time.monotonic()
        return time.monotonic() - self._writable_since > 1.5 * beat.every

    def failing(self) -> str | None:
        """What the reward service cannot do now, and tries again."""
        beat = self._of(REWARD_SERVICE)
        if beat is None or not beat.alive or beat.status.state != "failed":
            return None
        return f"The reward service has a problem: {beat.status.problem}"


def _stale(
    store: Store,
    project_id: int,
    most_answers: int,
    most_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Complaint:
    """Complain when a reward has fallen behind the answers, once for each version.

    Where answers come fast, many wait for each fit; that is as it should be while the fit takes no
    longer than the last one lets expect.
    """
    since: dict[tuple[int, bool], float] = {}  # by version, and by whether many are behind

    def waited(version: int, many: bool) -> float:
        return clock() - since.setdefault((version, many), clock())

    def complaint() -> str | None:
        rewards = store.live.rewards(project_id)
        if not rewards:
            return None
        version, fit = rewards[-1].version, rewards[-1].metrics
        services = store.live.services(project_id)
        service = next((one for one in services if one.name == REWARD_SERVICE), None)
        looked_at = 0 if service is None else service.status.looked_at or 0
        behind = store.live.revision(project_id) - max(fit.revision, looked_at)
        if behind <= 0:
            since.clear()
            return None
        late = waited(version, many=False) >= most_seconds
        if behind < most_answers:
            since.pop((version, True), None)
        else:
            fits = service is not None and service.alive and service.status.state == "fitting"
            patience = FIT_SLACK * fit.seconds if fits else 0.0
            late = late or waited(version, many=True) >= LEEWAY_SECONDS + patience
        if not late:
            return None
        return f"The reward is stale: people have gone on answering since version {version}."

    return complaint
