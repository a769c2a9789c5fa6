"""Run programs beside this one: start them, restart those that die or hang, and end them."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, final

from preferl.configs import require_fields
from preferl.errors import PreferlError, StorageError
from preferl.files import write_json
from preferl.printing import get_logger, harmless
from preferl.reading import read_object, reading
from preferl.runs.lock import boot_id
from preferl.store.status import STATUS_FILE, Status, read_status

LOGGER = get_logger(__name__)

KILLED_SECONDS: Final = 10.0
"""Seconds to wait for a process after ending it by force."""

OnMessage = Callable[[str], None]
"""Called with one line of text for people."""


@final
@dataclass(frozen=True)
class SuperviseConfig:
    """Settings of supervision: when a program is started again, ended or given up.

    Attributes:
        start_seconds: seconds within which a program has to be up, even on a crowded machine.
        stop_seconds: seconds after which a program that was asked to end is ended by force.
        look_seconds: seconds between two looks at all programs.
        first_pause: seconds before a restart; doubled with each failure in a row.
        longest_pause: largest number of seconds before a restart.
        restarts: failures in a row after which a program is given up.
        steady_seconds: seconds after which a running program counts as well again.
    """

    start_seconds: float = 120.0
    stop_seconds: float = 10.0
    look_seconds: float = 0.5
    first_pause: float = 1.0
    longest_pause: float = 60.0
    restarts: int = 10
    steady_seconds: float = 60.0

    def __post_init__(self) -> None:
        seconds = (0.001, 86_400)
        require_fields(self, start_seconds=seconds, stop_seconds=seconds, look_seconds=seconds)
        require_fields(self, first_pause=seconds, longest_pause=self.first_pause)
        require_fields(self, restarts=0, steady_seconds=0)


@final
@dataclass(frozen=True)
class Program:
    """A command to run, and functions that tell whether it is up or lost.

    `is_up` gets the status that the program has written, and the seconds since its start. The
    status is in the file that `PREFERL_STATUS_FILE` names; it is None if there is none. `failure`
    gets the seconds since the start. It returns why a program counts as lost although it runs and
    was up, or None.
    """

    name: str
    command: tuple[str, ...]
    is_up: Callable[[Status | None, float], bool] = lambda _status, _age: True
    failure: Callable[[float], str | None] = lambda _age: None


@final
class RunningProgram:
    """The current process of a program: its log, its status, and a mark of its launcher."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self.name = program.name
        self.log = folder / f"{program.name}.log"
        self._mark = folder / f"{program.name}.process.json"
        self._status = folder / f"{program.name}.status.json"
        self.process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._log_begins = 0
        self._was_up = False
        self.failures = 0  # failures in a row
        self.restart_at: float | None = None  # time of `time.monotonic`; infinite after giving up
        self.problem: str | None = None  # the current problem, in words

    @property
    def age(self) -> float:
        """Seconds since the process was started."""
        return time.monotonic() - self._began

    @property
    def exit_code(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self.process.poll() if self.process else None

    @property
    def is_up(self) -> bool:
        """Whether the process runs, and has been up since it was started."""
        if self.exit_code is not None:
            return False
        self._was_up = self._was_up or self.program.is_up(read_status(self._status), self.age)
        return self._was_up

    @property
    def last_line(self) -> str:
        """The last line of the log since the process was started."""
        lines: list[str] = []
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(self._log_begins)
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].rstrip(".") if lines else "nothing"

    def start(self) -> None:
        """Start a new process; raise `StorageError` if its log or command cannot be used."""
        self.restart_at = None
        self._was_up = False
        status = {"PYTHONUNBUFFERED": "1", STATUS_FILE: str(self._status.resolve())}
        with reading(f"program {self.name}", expected="one that starts", error=StorageError):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._status.unlink(missing_ok=True)
            # The annotation page writes links into the log that let people in.
            handle = os.open(self.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "ab") as log:
                self._log_begins = log.seek(0, os.SEEK_END)
                self.process = subprocess.Popen(
                    self.program.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=os.environ | status,
                    # Ctrl-C reaches only the launcher, which ends the process
                    start_new_session=True,
                )
        self._began = time.monotonic()
        mark = {"process": identity(self.process.pid), "launcher": identity(os.getpid())}
        write_json(self._mark, mark)

    def end(self, seconds: float) -> None:
        """End the process, by force if it takes longer than `seconds`."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            _kill(self.process.pid)
            self.process.wait()
        with suppress(OSError):
            self._mark.unlink(missing_ok=True)
            self._status.unlink(missing_ok=True)

    def end_leftover(self, seconds: float) -> bool:
        """End a process whose launcher was killed, if any. Refuse one whose launcher runs."""
        mark: dict[str, str | None] = {}
        with suppress(OSError, ValueError):
            mark = read_object(self._mark)
        process = mark.get("process")
        launcher = mark.get("launcher")
        if not process or not is_running(process):
            return False
        if launcher and is_running(launcher):
            raise StorageError(
                f"{self._mark.parent}: expected no programs of another launcher, got {self.name} "
                f"of process {launcher.split()[1]}, which runs. End that process, or use another "
                "folder."
            )
        number = int(process.split()[1])
        until = time.monotonic() + seconds
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)
        while is_running(process) and (left := until - time.monotonic()) > -KILLED_SECONDS:
            if left <= 0:
                _kill(number)
            time.sleep(0.05)
        return True


def identity(pid: int) -> str | None:
    """Return text that names one process only; None if it has ended, or without `/proc`."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    if state in "ZX":  # ended, but its parent has not waited for it
        return None
    return f"{boot_id()} {pid} {rest[18]}"


def is_running(known: str) -> bool:
    """Return whether the process with an `identity` still runs."""
    return identity(int(known.split()[1])) == known


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # the program, and all that it has started


def write_to_terminal(line: str) -> None:
    """Write one line to the terminal, even if logs are hidden."""
    sys.stderr.write(harmless(f"preferl: {line}\n"))


@final
class Supervisor:
    """Runs programs during its block, and restarts those that die or hang.

    A problem is reported once, within seconds. It stays in `problems` until it is over, so that a
    training script can stop. The folder holds logs and marks. Each of `complaints` is a function
    that returns another problem in words, or None.

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
        complaints: Sequence[Callable[[], str | None]] = (),
        on_message: OnMessage = write_to_terminal,
    ) -> None:
        self.config = config or SuperviseConfig()
        self.programs = [RunningProgram(program, folder) for program in programs]
        self._complaints: dict[Any, str | None] = dict.fromkeys(complaints)
        self._on_message = on_message
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    @property
    def problems(self) -> list[str]:
        """The current problems: programs that do not run, and complaints."""
        problems = [*(running.problem for running in self.programs), *self._complaints.values()]
        return [problem for problem in problems if problem]

    def __enter__(self) -> Self:
        try:
            for running in self.programs:
                if running.end_leftover(self.config.stop_seconds):
                    self._report(f"{running.name} of a run that was killed has been ended.")
                running.start()
            starting = self.programs
            while starting:  # all at once: one may report its link while others start
                starting = [running for running in starting if not running.is_up]
                for running in starting:
                    if (problem := self._problem_of(running)) is not None:
                        raise StorageError(
                            f"program {running.name}: expected to be up, but it {problem}. Its log "
                            f"is {running.log}."
                        )
                time.sleep(min(0.05, self.config.look_seconds))
        except BaseException:
            self._end_all()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._end_all()

    def _end_all(self) -> None:
        for running in self.programs:  # all at once, so that they share the time
            if running.process:
                running.process.terminate()
        until = time.monotonic() + self.config.stop_seconds
        for running in self.programs:
            running.end(max(0.1, until - time.monotonic()))

    def _watch(self) -> None:
        looks: list[Callable[[], None]] = [partial(self._look_after, r) for r in self.programs]
        looks.append(self._complain)
        while not self._stopping.wait(self.config.look_seconds):
            for look in looks:
                try:
                    look()
                except PreferlError as error:  # the supervisor must survive errors of others
                    LOGGER.warning("%s", error)
                except Exception:  # and its own faults, which are logged in full
                    LOGGER.exception("Supervising the programs failed, and is tried again.")

    def _look_after(self, running: RunningProgram) -> None:
        """Restart a program if that is due, and report problems and their ends."""
        if running.restart_at is not None:
            if time.monotonic() >= running.restart_at:
                running.start()
            return
        if (problem := self._problem_of(running)) is not None:
            self._failed(running, f"{running.name} {problem}")
        elif running.is_up:
            if running.problem is not None:
                running.problem = None
                self._report(f"{running.name} is up again.")
            if running.age > self.config.steady_seconds:
                running.failures = 0

    def _problem_of(self, running: RunningProgram) -> str | None:
        if (code := running.exit_code) is not None:
            ended = f"status {code}" if code >= 0 else f"signal {-code}"
            return f"ended with {ended}: {running.last_line}"
        if running.is_up:
            return running.program.failure(running.age)
        late = running.age > self.config.start_seconds
        return f"is not up after {running.age:.1f} s: {running.last_line}" if late else None

    def _failed(self, running: RunningProgram, what: str) -> None:
        config = self.config
        running.end(config.stop_seconds)
        running.failures += 1
        if running.failures > config.restarts:
            running.restart_at = math.inf
            running.problem = f"{what}. It is given up after {config.restarts} restarts in a row"
        else:
            pause = min(config.first_pause * 2.0 ** (running.failures - 1), config.longest_pause)
            running.restart_at = time.monotonic() + pause
            running.problem = f"{what}. It is started again in {pause:g} s"
        self._report(f"{running.problem}; its log is {running.log}.")

    def _complain(self) -> None:
        for complaint, before in self._complaints.items():
            self._complaints[complaint] = line = complaint()
            if line is not None and line != before:
                self._report(line)

    def _report(self, line: str) -> None:
        LOGGER.info("%s", line)
        self._on_message(line)
