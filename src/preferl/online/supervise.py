"""The annotation page and the reward service beside a training script, for as long as it runs."""

import http.client
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

from preferl.errors import StorageError
from preferl.online.service.supervisor import (
    OnMessage,
    Program,
    SuperviseConfig,
    Supervisor,
    write_to_terminal,
)
from preferl.remote import Location, SyncedFolder
from preferl.store.status import PAGE, REWARD_SERVICE, ServiceState, Status
from preferl.store.store import Store
from preferl.trust import preferl_program, trust_options

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""Hosts of this machine, on which the page is probed."""

LEEWAY_SECONDS: Final = 10.0
"""Seconds, besides fitting, that the service may take to find new answers and publish a reward."""

FIT_SLACK: Final = 3.0
"""How many times as long as the last fit the current one may take, since it has more answers."""


@contextmanager
def launch(
    store: Path | str,
    project: str,
    rewards: Location,
    *,
    page: bool = True,
    files: Location | None = None,
    page_options: Sequence[str] = (),
    reward_options: Sequence[str] = (),
    trust: Collection[str] = (),
    stale_answers: int = 50,
    stale_seconds: float = 600.0,
    config: SuperviseConfig | None = None,
    on_message: OnMessage = write_to_terminal,
) -> Iterator[Supervisor]:
    """Run the annotation page and the reward service while a block trains an agent.

    Each is a process with a log in `rewards/logs`. If a process dies or gives no heartbeat, this is
    reported within seconds, and the process is started again, each time after a longer pause. A
    reward that falls behind the answers is reported, too; the agent keeps the latest one. At the
    end of the block, both processes are asked to end, and killed if they do not. If this program is
    killed, both processes go on, and people can go on answering. The next launch ends them and
    starts new ones.

    Args:
        store: folder of the labels, or the URL of a database; the project has to exist in it.
        project: short name of the project.
        rewards: folder of published rewards, or its URL. The programs' logs are in it, or in its
            copy on this machine.
        page: whether to serve the page; people may also answer on a page that another program
            serves.
        files: folder of clips and videos beside a PostgreSQL database, or its URL.
        page_options: more options of `preferl annotate serve`, such as `("--port", "9000")`.
        reward_options: more options of `preferl reward serve`, such as `("--model", "pt")`.
        trust: modules that the project's `frames` may import to draw clips (see `preferl.trust`).
        stale_answers: number of new answers at which the reward is reported as stale, unless a fit
            of usual length is running.
        stale_seconds: seconds after which even a single new answer makes the reward stale.
        config: pauses and time limits of the supervisor.
        on_message: called with one line at a time; by default, lines go to the terminal.

    Yields:
        The supervisor. Its `problems` are empty while all is well.

    Raises:
        StorageError: a program does not start, or another launch uses the same folder.
    """
    on_message(f"Starting {'the page and ' if page else ''}the reward service ...")
    with closing(Store.open(store, files)) as opened_store:
        project_id = opened_store.projects.get(project).id
        service = RewardServiceProbe(opened_store, project_id, stale_answers, stale_seconds)
        shared_options = ["--store", str(store), *(("--files", str(files)) if files else ())]
        shared_options += ["--project", project]
        service_options = ("--out", str(rewards), *reward_options)
        service_command = preferl_program("reward", "serve", *shared_options, *service_options)
        programs = [Program(REWARD_SERVICE, service_command, service.is_up, service.failure)]
        if page:
            page_settings = ("--no-browser", *trust_options(trust), *page_options)
            programs.append(page_program(shared_options, page_settings, on_message))
        logs = SyncedFolder(rewards).path / "logs"
        complaints = (service.failing, service.stale)
        with Supervisor(
            programs, logs, config, complaints=complaints, on_message=on_message
        ) as supervisor:
            yield supervisor


def page_program(shared: Sequence[str], options: Sequence[str], on_message: OnMessage) -> Program:
    """Describe the annotation page of a project as a program, with options for its command."""
    command = preferl_program("annotate", "serve", *shared, *options)
    probe = PageProbe(on_message)
    return Program(PAGE, command, probe.is_up, probe.failure)


@final
@dataclass
class PageProbe:
    """Probes whether the page answers, and reports the links of the page and its overview.

    A page behind a proxy is not probed, since the proxy itself may fail.
    """

    on_message: OnMessage
    interval: float = 5.0  # seconds between two probes
    patience: float = 30.0  # seconds without an answer after which the page counts as lost
    timeout: float = 2.0  # seconds to wait for one answer
    _link: str | None = field(default=None, init=False)
    _probed_at: float = field(default=0.0, init=False)
    _answered_at: float = field(default=0.0, init=False)

    def is_up(self, status: Status | None, _age: float) -> bool:
        """Return whether the page has reported its link."""
        link = None if status is None else status.link
        if link is None:
            return False
        if link != self._link:
            self._link = link
            self.on_message(f"Answer here: {link}")
            overview = f"{link.partition('/join/')[0]}/admin"
            self.on_message(f"Overview (open the link above first): {overview}")
        self._answered_at = time.monotonic()
        return True

    def failure(self, _age: float = 0.0) -> str | None:
        """Return why the page counts as lost, or None."""
        address = urlsplit(self._link or "")
        host = address.hostname
        is_due = time.monotonic() - self._probed_at >= self.interval
        if host not in LOCAL_HOSTS or not is_due:
            return None
        connection = http.client.HTTPConnection(host, address.port, timeout=self.timeout)
        with closing(connection), suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self._answered_at = time.monotonic()  # any reply counts, even an error
        self._probed_at = time.monotonic()
        silence = self._probed_at - self._answered_at
        return f"has not answered for {silence:.0f} s" if silence > self.patience else None


@final
@dataclass
class RewardServiceProbe:
    """Probes the reward service through the store. While the store is away, it counts as running.

    While answers come fast, many may wait for the current fit. This is reported only if the fit
    takes much longer than the last one (`FIT_SLACK`).
    """

    store: Store
    project: int
    stale_answers: int
    stale_seconds: float
    clock: Callable[[], float] = time.monotonic
    _writable_since: float | None = None  # time of the clock; None if not known
    _behind_since: dict[tuple[int, str], float] = field(default_factory=dict)  # by version

    def _beat(self) -> ServiceState | None:
        with suppress(StorageError):
            services = self.store.reports.services(self.project)
            return next((service for service in services if service.name == REWARD_SERVICE), None)
        return None

    def is_up(self, _status: Status | None, age: float) -> bool:
        """Return whether the service has given a heartbeat since its process was started."""
        beat = self._beat()
        return beat is not None and beat.works and beat.age < age

    def failure(self, age: float) -> str | None:
        """Return why the service counts as lost although its process runs, or None."""
        beat = self._beat()
        if beat is None or beat.age > age:  # the heartbeat is older than the process
            return None
        if beat.alive:
            self._writable_since = None
            return "is stuck in its work" if beat.status.state == "stuck" else None
        try:  # while another program locks the store, no heartbeat can be written
            self.store.reports.require_writable()
        except StorageError:
            self._writable_since = None
            return None
        if self._writable_since is None:
            self._writable_since = self.clock()
        # A service that has just failed to write a heartbeat tries again after `beat.every`.
        if self.clock() - self._writable_since <= 1.5 * beat.every:
            return None
        since = f"for {beat.age:.0f} s" if beat.age > 0 else "since the clock was set back"
        return f"has given no heartbeat {since}"

    def failing(self) -> str | None:
        """Return the problem that the service reports while it keeps trying, or None."""
        beat = self._beat()
        if beat is None or not beat.alive or beat.status.state != "failed":
            return None
        return f"The reward service has a problem: {beat.status.problem}"

    def stale(self) -> str | None:
        """Return a message if the newest reward is far behind the answers, otherwise None."""
        rewards = self.store.reports.rewards(self.project)
        beat = self._beat()
        if not rewards:
            return None
        version = rewards[-1].version
        fit = rewards[-1].metrics
        revision_seen = 0 if beat is None else beat.status.looked_at or 0
        new_answers = self.store.reports.revision(self.project) - max(fit.revision, revision_seen)
        is_fitting = beat is not None and beat.alive and beat.status.state == "fitting"
        patience = LEEWAY_SECONDS + (FIT_SLACK * fit.seconds if is_fitting else 0.0)
        if new_answers <= 0:
            self._behind_since.clear()
        is_late = False
        time_now = self.clock()
        limits = {"any": (1, self.stale_seconds), "many": (max(1, self.stale_answers), patience)}
        for limit_name, (answers, seconds) in limits.items():
            if new_answers < answers:
                self._behind_since.pop((version, limit_name), None)
            else:
                since = self._behind_since.setdefault((version, limit_name), time_now)
                is_late = is_late or time_now - since >= seconds
        if not is_late:
            return None
        return f"The reward is stale: people have gone on answering since version {version}."
