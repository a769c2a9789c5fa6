"""Units of work in separate processes. Each is done once, even if processes are killed.

A unit is done if its folder has `done.json`, and is then not run again. A killed unit has no such
file. The next start runs it again, and its work resumes from the checkpoints in the folder.
Processes share only units and folders. A cluster with a common disk therefore only needs another
`Executor`, whose machines call `run_here`.
"""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol, final

from preferl.configs import plain
from preferl.errors import ConfigError, StorageError, require_in
from preferl.files import write_json
from preferl.printing import get_logger
from preferl.reading import read_object, reading
from preferl.runs.lock import FolderLock
from preferl.threads import usable_cores
from preferl.trust import named_object, safe_children

LOGGER = get_logger(__name__)

UNIT = "unit.json"
DONE = "done.json"
LOG = "log.txt"
"""Files in a unit's folder: its work and settings, its result, and all that it printed."""

UNIT_LOCK: Final = "unit.lock"

LOG_LINES: Final = 5
"""Last lines of a failed unit's log in messages; a traceback ends with the error."""

INTERRUPT_SECONDS: Final = 30.0
"""Seconds that interrupted units have to write a checkpoint before they are killed."""

POLL_SECONDS: Final = 0.2
"""Seconds between two looks at a process."""

OnDone = Callable[["Unit", Any], None]
"""Called with each unit that is done and its result. For units that were done before, at once."""


@final
@dataclass(frozen=True)
class Unit:
    """A piece of work that depends on no other unit.

    Attributes:
        name: unique name for messages.
        work: `module:function`. The function is called with the settings and the folder, and
            returns a value that JSON can hold.
        settings: everything that decides the result, in a form that JSON can hold.
        folder: this unit's own folder, in which its work keeps checkpoints.
    """

    name: str
    work: str
    settings: Mapping[str, Any]
    folder: Path


class Executor(Protocol):
    """A function that runs units on any machines."""

    def __call__(self, units: Sequence[Unit], on_done: OnDone = ...) -> dict[str, str]:
        """Run the units that are not done; return why units failed, by name."""


def run_units(
    units: Sequence[Unit],
    on_done: OnDone = lambda *_: None,
    *,
    processes: int | None = None,
) -> dict[str, str]:
    """Run units on this machine, each in a separate process with one processor thread.

    A unit that fails or is killed is logged, and the others continue. Ctrl-C interrupts the running
    units, and is raised again when they have ended. If this program is killed, their
    processes end, too. Scripts need `if __name__ == "__main__":`.

    Args:
        units: units in the order in which they begin.
        on_done: called in this process, with one unit at a time.
        processes: number of units that run at the same time; None takes one per processor core.

    Returns:
        The last lines of the logs of units that failed, by name. The next start runs these units
        again.

    Raises:
        ConfigError: two units have the same name or folder, or a unit with other settings was begun
            in a folder. Nothing is run then.
        StorageError: a folder cannot be read or written.
    """
    limit = usable_cores() if processes is None else processes
    require_in("processes", limit, 1, float("inf"))
    waiting = deque(pending_units(units, on_done))
    failures = dict[str, str]()
    running: dict[int, tuple[SpawnProcess, Unit]] = {}  # keys are sentinels of processes
    try:
        while waiting or running:
            while waiting and len(running) < limit:
                process = _started_process(waiting[0])
                running[process.sentinel] = process, waiting.popleft()
            for sentinel in connection.wait([*running]):
                # All sentinels are numbers, since they belong to processes of this program.
                process, unit = running.pop(int(sentinel))  # type: ignore[arg-type]
                process.join()
                failures |= unit_failures(unit, process.exitcode or 0, on_done)
    finally:
        _end([process for process, _ in running.values()])
    return {unit.name: failures[unit.name] for unit in units if unit.name in failures}


def perform(unit: Unit) -> None:
    """Run a unit in this process, unless it is done.

    An earlier program may have been killed while its process still works on the unit. This process
    then has `INTERRUPT_SECONDS` to end.

    Raises:
        ConfigError: the unit's work does not exist.
        StorageError: another process works on the unit, or its folder cannot be written to.
    """
    with FolderLock(unit.folder, UNIT_LOCK, "unit", patience=INTERRUPT_SECONDS):
        if (unit.folder / DONE).is_file():
            return
        started_at = time.perf_counter()
        work = named_object(unit.work, f"work of {unit.name}")
        result = work(unit.settings, unit.folder)
        seconds = round(time.perf_counter() - started_at, 2)
        write_json(unit.folder / DONE, plain({"seconds": seconds, "result": result}))


def pending_units(units: Sequence[Unit], on_done: OnDone) -> list[Unit]:
    """Make the folders of units, call `on_done` for units that are done, and return the others.

    Raises:
        ConfigError, StorageError: see `run_units`.
    """
    _require_distinct(units)
    for unit in units:
        _begin(unit)
    done_units = [unit for unit in units if (unit.folder / DONE).is_file()]
    for unit in done_units:
        on_done(unit, _result(unit))
    return [unit for unit in units if unit not in done_units]


def unit_failures(unit: Unit, code: int, on_done: OnDone) -> dict[str, str]:
    """Call `on_done` if a unit is done; otherwise log why it failed, and return name and reason.

    `code` is the exit status of the unit's process, below zero for a signal.
    """
    if (unit.folder / DONE).is_file():
        on_done(unit, _result(unit))
        return {}
    reason = _failure_reason(unit, code)
    LOGGER.error("%s failed: %s", unit.name, reason)
    return {unit.name: reason}


def run_here(unit: Unit) -> int:
    """Run a unit in a separate process and return its exit status.

    Ctrl-C interrupts the process, and is raised again.
    """
    process = _started_process(unit)
    try:
        while process.is_alive():
            # Each wait is short, since a cluster's interrupt arrives only between two calls.
            process.join(POLL_SECONDS)
        return process.exitcode or 0
    finally:
        _end([process])


def _require_distinct(units: Sequence[Unit]) -> None:
    names = [unit.name for unit in units]
    folders = [str(unit.folder.resolve()) for unit in units]
    for title, values in (("names", names), ("folders", folders)):
        repeated = sorted({value for value in values if values.count(value) > 1})
        if repeated:
            raise ConfigError(
                f"{title} of units: expected different ones, got {repeated} more than once."
            )


def _begin(unit: Unit) -> None:
    """Make a unit's folder, or check that an existing one belongs to this unit."""
    work_and_settings = plain({"work": unit.work, "settings": unit.settings})
    file = unit.folder / UNIT
    if not file.is_file():
        write_json(file, work_and_settings)
    with reading(file, expected="the work and settings of a unit", error=StorageError):
        saved = read_object(file)
    if saved != work_and_settings:
        raise ConfigError(
            f"settings of {unit.name} in {unit.folder}: expected the settings with which it was "
            f"begun, {saved}, got {work_and_settings}. Choose another folder, or remove it."
        )


def _result(unit: Unit) -> Any:
    with reading(unit.folder / DONE, expected="the result of a unit", error=StorageError):
        return read_object(unit.folder / DONE)["result"]


def _failure_reason(unit: Unit, code: int) -> str:
    """Return the last lines of a unit's log, and the signal that ended it, if any."""
    text = (unit.folder / LOG).read_text("utf-8", "replace") if (unit.folder / LOG).exists() else ""
    signal_line = [f"ended by {signal.Signals(-code).name}"] if code < 0 else []
    return "\n".join([*text.splitlines()[-LOG_LINES:], *signal_line]) or f"ended with {code}"


def _started_process(unit: Unit) -> SpawnProcess:
    # A fork can hang if its process has used torch's threads.
    process = get_context("spawn").Process(target=_work, args=(unit,), name=unit.name)
    with safe_children(), _one_thread():
        process.start()
    return process


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let programs that the block starts use one thread; numpy and torch read this at import."""
    earlier_value = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        os.environ.update({} if earlier_value is None else {"OMP_NUM_THREADS": earlier_value})


def _work(unit: Unit) -> None:
    """Run a unit as the main function of its process."""
    # A terminal sends Ctrl-C to all processes. Only the first process passes it on, and only once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    Thread(target=_end_with_the_first, daemon=True).start()
    with (unit.folder / LOG).open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    perform(unit)


def _end_with_the_first() -> None:
    """End this process when the program that started it has ended, for any reason."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end(processes: Iterable[SpawnProcess]) -> None:
    """Interrupt processes, and kill them if they continue too long or Ctrl-C comes again."""
    deadline = time.monotonic() + INTERRUPT_SECONDS
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.join()
