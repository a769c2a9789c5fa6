"""Programs as processes of their own: started, ended, and found again by who comes after."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from preferl.errors import StorageError
from preferl.files import write_json
from preferl.reading import read_object
from preferl.runs.lock import boot_id
from preferl.store.status import STATUS_FILE, Status, read_status


@final
@dataclass(frozen=True)
class Program:
    """What to run, and how to tell that it is up, and that it is lost.

    Attributes:
        name: of its log, and of its signs of life.
        command: and its arguments.
        is_up: whether it works, given the status that it has written into the file named by
            `PREFERL_STATUS_FILE` since it was started, if any, and the seconds since then.
        lost: why it counts as lost though it runs and was up, given these seconds, or None.
    """

    name: str
    command: tuple[str, ...]
    is_up: Callable[[Status | None, float], bool] = lambda _status, _age: True
    lost: Callable[[float], str | None] = lambda _age: None


@final
class RunningProgram:
    """One process of a program at a time, with its log, its status and a mark of whose it is.

    Args:
        program: what to run.
        folder: of these files; made if it is not there.

    Attributes:
        failures: in a row.
        restart_at: when it is to be started again, by `time.monotonic`.
        given_up: whether it is started no more.
        problem: what is wrong with it now, in words.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self.log = folder / f"{program.name}.log"
        self._mark = folder / f"{program.name}.process.json"
        self._reported = folder / f"{program.name}.status.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._log_begins = 0
        self._was_up = False
        self.failures = 0
        self.restart_at: float | None = None
        self.given_up = False
        self.problem: str | None = None

    @property
    def name(self) -> str:
        """Of the program."""
        return self.program.name

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def is_up(self) -> bool:
        """Whether it runs and has been up since it was started."""
        if self.exit_code is not None:
            return False
        self._was_up = self._was_up or self.program.is_up(read_status(self._reported), self.age)
        return self._was_up

    @property
    def last_words(self) -> str:
        """The last line of its log, for people."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_begins)
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "nothing"

    def start(self) -> None:
        """Begin a new process.

        Raises:
            StorageError: the log cannot be written, or the command not be run.
        """
        self.restart_at, self._was_up = None, False
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._reported.unlink(missing_ok=True)
            # The page writes links into it that let people in.
            handle = os.open(self.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "ab") as log:
                self._log_begins = log.seek(0, os.SEEK_END)
                self._process = subprocess.Popen(
                    self.program.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=os.environ
                    | {"PYTHONUNBUFFERED": "1", STATUS_FILE: str(self._reported.resolve())},
                    start_new_session=True,  # Ctrl-C is for who started it, who then ends it
                )
        except OSError as error:
            raise StorageError.mismatch(
                f"program {self.program.name}", expected="one that starts", got=error
            ) from error
        self._began = time.monotonic()
        mark = {"process": identity(self._process.pid), "launcher": identity(os.getpid())}
        write_json(self._mark, mark)

    def ask_to_end(self) -> None:
        """Send the polite signal."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self, seconds: float) -> None:
        """End it, by force after so many seconds."""
        if self._process is None:
            return
        self.ask_to_end()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            _force(self._process.pid)
            self._process.wait()
        with contextlib.suppress(OSError):
            self._mark.unlink(missing_ok=True)
            self._reported.unlink(missing_ok=True)

    def end_leftover(self, seconds: float) -> bool:
        """End a process whose launcher was killed; whether there was one.

        Raises:
            StorageError: its launcher is still at work.
        """
        try:
            mark = read_object(self._mark)
        except (OSError, ValueError):
            return False
        process, launcher = mark.get("process"), mark.get("launcher")
        if not process or not lives(process):
            return False
        if launcher and lives(launcher):
            raise StorageError.mismatch(
                f"{self._mark.parent}",
                expected="programs of nobody else",
                got=f"{self.program.name} of process {launcher.split()[1]}, which works",
                fix="End that one, or use another folder.",
            )
        number = int(process.split()[1])
        os.kill(number, signal.SIGTERM)
        until = time.monotonic() + seconds
        while lives(process) and time.monotonic() < until:
            time.sleep(0.05)
        if lives(process):
            _force(number)
        return True


def identity(pid: int) -> str | None:
    """Tells a process from all others, earlier and later ones of its number too.

    None where the system does not say (it is told by `/proc`), or there is no such process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    if state in "ZX":  # ended, though nobody has taken note
        return None
    return f"{boot_id()} {pid} {rest[18]}"


def lives(known: str) -> bool:
    """Whether the process of an identity still runs."""
    return identity(int(known.split()[1])) == known


def _force(pid: int) -> None:
    """Kill a process and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
