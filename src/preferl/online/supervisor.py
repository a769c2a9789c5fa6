"""Looks after programs: each that dies or hangs is said, and started again."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, final

from preferl.errors import PreferlError, StorageError, require_in
from preferl.online.programs import Program, RunningProgram

LOGGER = logging.getLogger(__name__)

Say = Callable[[str], None]
"""Told one line for people."""

Complaint = Callable[[], str | None]
"""What is wrong now, in words, or None."""


@final
@dataclass(frozen=True)
class SuperviseConfig:
    """How programs are looked after.

    Attributes:
        start_seconds: until a program has to be up, on a crowded machine too.
        stop_seconds: until a program that was asked to end is ended by force.
        look_seconds: between two looks at all of them.
        first_pause: seconds before a program that died is started again; doubled with each
            failure in a row.
        longest_pause: but never more than this.
        restarts: failures in a row after which it is given up.
        steady_seconds: after which a program that runs counts as well again.
    """

    start_seconds: float = 120.0
    stop_seconds: float = 10.0
    look_seconds: float = 0.5
    first_pause: float = 1.0
    longest_pause: float = 60.0
    restarts: int = 10
    steady_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("start_seconds", "stop_seconds", "look_seconds", "first_pause"):
            require_in(name, getattr(self, name), 0.001, 86_400)
        require_in("longest_pause", self.longest_pause, self.first_pause, float("inf"))
        require_in("restarts", self.restarts, 0, float("inf"))
        require_in("steady_seconds", self.steady_seconds, 0, float("inf"))


def say_on_terminal(line: str) -> None:
    """One line where people see it, whatever becomes of logs."""
    sys.stderr.write(f"preferl: {line}\n")
    sys.stderr.flush()


@final
class Supervisor:
    """Programs that run while its block does; each that dies or hangs is said and started again.

    What is wrong is said once, within seconds, and stays in `problems` until it is over, so that
    a training script may stop where it would otherwise learn from nothing.

    Args:
        programs: what to run.
        folder: of logs and marks.
        config: how; the defaults if None.
        complaints: what else to look at.
        say: told one line at a time.

    >>> import tempfile
    >>> sleeper = Program("sleeper", (sys.executable, "-c", "import time; time.sleep(60)"))
    >>> with tempfile.TemporaryDirectory() as folder, Supervisor([sleeper], Path(folder)) as both:
    ...     both.problems
    []
    """

    def __init__(
        self,
        programs: Sequence[Program],
        folder: Path,
        config: SuperviseConfig | None = None,
        *,
        complaints: Sequence[Complaint] = (),
        say: Say = say_on_terminal,
    ) -> None:
        self.config = config or SuperviseConfig()
        self._programs = [RunningProgram(program, folder) for program in programs]
        self._complaints: dict[Complaint, str | None] = dict.fromkeys(complaints)
        self._say = say
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    @property
    def problems(self) -> list[str]:
        """What is wrong now: programs that do not run, and other complaints."""
        found = [*(running.problem for running in self._programs), *self._complaints.values()]
        return [problem for problem in found if problem]

    def __enter__(self) -> Self:
        try:
            for running in self._programs:
                if running.end_leftover(self.config.stop_seconds):
                    self._tell(f"{running.name} of a run that was killed is ended.")
                running.start()
            self._wait_until_up()
        except BaseException:
            self._end_all()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._end_all()

    def _wait_until_up(self) -> None:
        waited_for = self._programs
        while waited_for:  # at all each time: the page tells its link while the others still start
            waited_for = [running for running in waited_for if not self._has_come_up(running)]
            time.sleep(min(0.05, self.config.look_seconds))

    def _has_come_up(self, running: RunningProgram) -> bool:
        if running.is_up:
            return True
        code = running.exit_code
        if code is not None or running.age > self.config.start_seconds:
            late = f"nothing in {self.config.start_seconds:g} s"
            ended = f"its end with status {code}"
            raise StorageError.mismatch(
                f"program {running.name}",
                expected="to be up",
                got=f"{late if code is None else ended}: {running.last_words}",
                fix=f"All it said is in {running.log}.",
            )
        return False

    def _end_all(self) -> None:
        for running in self._programs:  # all at once, so that they share the time
            running.ask_to_end()
        until = time.monotonic() + self.config.stop_seconds
        for running in self._programs:
            running.end(max(0.1, until - time.monotonic()))

    def _watch(self) -> None:
        looks: list[Callable[[], None]] = [
            partial(self._look_after, running) for running in self._programs
        ]
        looks.append(self._complain)
        while not self._stopping.wait(self.config.look_seconds):
            for look in looks:
                try:
                    look()
                except PreferlError as error:  # who watches over others must not die of it
                    LOGGER.warning("%s", error)
                except Exception:  # nor of a fault of its own, which is told whole
                    LOGGER.exception("Looking after programs failed, and goes on.")

    def _look_after(self, running: RunningProgram) -> None:
        """Start what has to be started again; say what was found."""
        config = self.config
        if running.given_up:
            return
        if running.restart_at is not None:
            if time.monotonic() >= running.restart_at:
                running.start()
            return
        code = running.exit_code
        if code is not None:
            ended = f"status {code}" if code >= 0 else f"signal {-code}"
            self._failed(
                running, f"{running.name} ended with {ended}: {running.last_words.rstrip('.')}"
            )
        elif not running.is_up:
            if running.age > config.start_seconds:
                self._failed(running, f"{running.name} is not up after {running.age:.0f} s")
        elif (why := running.program.lost(running.age)) is not None:
            self._failed(running, f"{running.name} {why}")
        else:
            if running.problem is not None:
                self._tell(f"{running.name} is up again.")
                running.problem = None
            if running.age > config.steady_seconds:
                running.failures = 0

    def _failed(self, running: RunningProgram, what: str) -> None:
        config = self.config
        running.end(config.stop_seconds)
        running.failures += 1
        if running.failures > config.restarts:
            running.given_up = True
            running.problem = f"{what}. It is given up after {config.restarts} restarts in a row"
        else:
            pause = min(config.first_pause * 2.0 ** (running.failures - 1), config.longest_pause)
            running.restart_at = time.monotonic() + pause
            running.problem = f"{what}. It is started again in {pause:g} s"
        self._tell(f"{running.problem}; its log is {running.log}.")

    def _complain(self) -> None:
        for complaint, before in self._complaints.items():
            self._complaints[complaint] = line = complaint()
            if line is not None and line != before:
                self._tell(line)

    def _tell(self, line: str) -> None:
        LOGGER.info("%s", line)
        self._say(line)
