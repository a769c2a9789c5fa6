"""Units of work on the machines of a Ray cluster that share a disk.

Ray chooses a unit's machine, and another machine if that one is lost. Everything else is as on one
machine: each unit has a process, and a folder with its log, checkpoints and result.

This module needs the extra `ray`. Ray documents what it retries at
https://docs.ray.io/en/latest/ray-core/fault_tolerance/tasks.html.
"""

import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from preferl._optional import require
from preferl.errors import ConfigError, StorageError
from preferl.printing import get_logger
from preferl.runs.executor import (
    INTERRUPT_SECONDS,
    UNIT,
    UNIT_LOCK,
    Executor,
    OnDone,
    Unit,
    pending_units,
    run_here,
    run_units,
    unit_failures,
)
from preferl.runs.lock import FolderLock

LOGGER = get_logger(__name__)

LOCAL: Final = "local"
"""Means this machine, instead of a cluster's address."""

LOST_MACHINES: Final = 100
"""Number of machines that a unit may lose before it counts as failed.

A unit that fails by itself is not run again, since it would fail on another machine as well.
"""

LEASE: Final = 300.0
"""Seconds that a unit waits for the lock of a lost machine.

By default, NFS releases such a lock after 90 s.
"""


def executor_of(cluster: str = LOCAL, processes: int | None = None) -> Executor:
    """Return the executor that runs units on this machine or on a Ray cluster.

    Args:
        cluster: `local` for this machine, or the address of a Ray cluster for `ray.init`:
            `ray://HOST:10001`, `HOST:6379`, or `auto` for the cluster of this machine.
        processes: number of units that run at the same time on this machine; None takes one per
            processor core. A cluster runs as many units as it has cores.

    Raises:
        ConfigError: `processes` is given for a cluster.
        MissingExtraError: a cluster is given, and the extra `ray` is not installed.
    """
    if cluster == LOCAL:
        return partial(run_units, processes=processes)
    if processes is not None:
        raise ConfigError(
            "processes: expected none for a cluster, which counts its own cores, got "
            f"{processes}. Leave it out."
        )
    require("ray", extra="ray")
    return partial(run_units_on_ray, address=cluster)


def run_units_on_ray(
    units: Sequence[Unit], on_done: OnDone = lambda *_: None, *, address: str
) -> dict[str, str]:
    """Run units on a Ray cluster, each in a separate process on one core.

    All machines need this version of preferl, and must have the units' folders and the current
    folder under the same paths. Units on a lost machine resume from their last checkpoints. Ctrl-C
    interrupts all units, as on one machine, and is raised again.

    Args:
        units: units in the order in which they begin.
        on_done: called here, with one unit at a time.
        address: address for `ray.init`: `ray://HOST:10001`, `HOST:6379` or `auto`.

    Returns:
        The last lines of the logs of units that failed, by name. The next start runs these units
        again.

    Raises:
        ConfigError: the cluster cannot be reached, or see `preferl.runs.executor.run_units`.
        MissingExtraError: the extra `ray` is not installed.
        StorageError: a folder cannot be read or written.
    """
    ray = require("ray", extra="ray")
    units = [Unit(one.name, one.work, one.settings, one.folder.resolve()) for one in units]
    waiting = pending_units(units, on_done)
    failed = dict[str, str]()
    with _connected(ray, address):
        task = ray.remote(num_cpus=1, max_retries=LOST_MACHINES)(_run_on_this_machine)
        here = str(Path.cwd())
        running = {task.options(name=unit.name).remote(unit, here): unit for unit in waiting}
        try:
            while running:
                (first, *_), _ = ray.wait([*running])
                unit = running.pop(first)
                failed |= _task_failures(ray, first, unit, on_done)
        finally:
            _cancel(ray, [*running])
    return {unit.name: failed[unit.name] for unit in units if unit.name in failed}


def _run_on_this_machine(unit: Unit, current: str) -> int:
    """Run a unit, as a task of Ray, and return the exit status of its process."""
    for folder, what in ((unit.folder / UNIT, "unit"), (Path(current), "program")):
        if not folder.exists():
            raise StorageError(
                f"folder of the {what}, {folder}: expected a folder that all machines of the "
                f"cluster have, got none on {socket.gethostname()}. Put it on a disk that they "
                "share, under the same path."
            )
    os.chdir(current)  # relative paths in settings begin there
    with FolderLock(unit.folder, UNIT_LOCK, "unit", patience=LEASE):
        pass  # a shared disk may not have noticed yet that a machine is lost
    return run_here(unit)


def _task_failures(ray: Any, task: Any, unit: Unit, on_done: OnDone) -> dict[str, str]:
    try:
        code = ray.get(task)
    except ray.exceptions.RayTaskError as error:  # raised on the unit's machine
        why = str(error.cause)
    except ray.exceptions.RayError as error:  # no machine is left
        why = str(error)
    else:
        return unit_failures(unit, code, on_done)
    LOGGER.error("%s failed: %s", unit.name, why)
    return {unit.name: why}


def _cancel(ray: Any, tasks: list[Any]) -> None:
    """Interrupt tasks, and wait until their units have written checkpoints."""
    for task in tasks:
        ray.cancel(task)
    if tasks:
        ray.wait(tasks, num_returns=len(tasks), timeout=2 * INTERRUPT_SECONDS)


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Connect to a cluster for the block. An existing connection is used and stays open."""
    if ray.is_initialized():
        yield
        return
    try:
        if address != "auto":
            _require_reachable(address)
        # Ray puts the folder in which a program first connects on the path of all workers. Its
        # modules would hide installed ones. Python's own folder has no modules.
        with chdir(sys.prefix):
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigError(
            "cluster: expected the address of a Ray cluster that runs: ray://HOST:10001, "
            f"HOST:6379 or auto, got {address!r} ({error}). `ray start --head` starts one on this "
            "machine."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    """Raise `OSError` or `ValueError` if nothing listens at an address; Ray takes minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        raise ValueError("it has no port")
    socket.create_connection((host, int(port)), timeout=INTERRUPT_SECONDS).close()
