"""What happens to the runs of `faults.py`: each fault takes a run that has begun."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from faults_agent import digest
from faults_trial import Trial

from preferl.training.publish import read_version, version_folder, versions

Fault = Callable[[Trial], dict[str, Any]]
"""Returns what it has done."""

LOCKED_SECONDS = 20.0
FULL_SECONDS = 15.0
BACK_SECONDS = 3600
CUTS = 5


def nothing(_: Trial) -> dict[str, Any]:
    """The run to compare with."""
    return {}


def killed(name: str, longest: float) -> Fault:
    """A program is killed at random times, also while it starts."""

    def fault(trial: Trial) -> dict[str, Any]:
        done = 0
        while done < trial.kills and not trial.training.over:
            time.sleep(trial.rng.uniform(0.2, longest))
            done += trial.kill(name)
        return {"kills": done}

    return fault


def locked(trial: Trial) -> dict[str, Any]:
    """Another program holds the database."""
    trial.wait_for_version(2)
    other = sqlite3.connect(trial.store.files / "labels.db", isolation_level=None, timeout=30)
    other.execute("BEGIN EXCLUSIVE")
    time.sleep(LOCKED_SECONDS)
    other.execute("ROLLBACK")
    other.close()
    return {"locked_seconds": LOCKED_SECONDS}


def disk_full(trial: Trial) -> dict[str, Any]:
    """There is no room for rewards for a while."""
    before = trial.wait_for_version(2)
    filler = trial.rewards / "filler"
    until = time.monotonic() + FULL_SECONDS
    with filler.open("ab", buffering=0) as file:
        while time.monotonic() < until:
            while free := shutil.disk_usage(trial.rewards).free:
                file.write(bytes(free))
            time.sleep(0.02)
    during = max(versions(trial.rewards)) - before
    filler.unlink()
    return {"full_seconds": FULL_SECONDS, "versions_while_full": during}


def cut_short(trial: Trial) -> dict[str, Any]:
    """Files of published rewards lose their ends, while in use and before anybody reads them."""
    number = trial.wait_for_version(2)
    halves = 0
    for _ in range(CUTS):
        trial.wait_for_version(number + 1)
        time.sleep(trial.rng.uniform(0.0, 1.0))
        number = max(versions(trial.rewards))
        trial.whole[number] = digest(read_version(trial.rewards, number).reward.model)
        halves += _half_a_copy(trial, number)
        _cut(version_folder(trial.rewards, number), trial.rng)
        number = max(versions(trial.rewards))
    return {"cut": len(trial.whole), "never_whole": halves}


def _half_a_copy(trial: Trial, number: int) -> bool:
    """Leave the same under the next number, cut short before it is there, unless it is taken."""
    draft = trial.folder / "half"
    shutil.copytree(version_folder(trial.rewards, number), draft)
    _cut(draft, trial.rng)
    try:
        draft.rename(version_folder(trial.rewards, number + 1))
    except OSError:
        shutil.rmtree(draft)
        return False
    return True


def _cut(version: Path, rng: np.random.Generator) -> None:
    file = version / "model.safetensors"
    os.truncate(file, int(rng.uniform(0.0, 1.0) * file.stat().st_size))


def clock_set_back(trial: Trial) -> dict[str, Any]:
    """The machine's clock is put back by an hour, under all programs at once."""
    trial.wait_for_version(2)
    (trial.folder / "clock").write_text(f"-{BACK_SECONDS}\n")
    time.sleep(2)
    return {"set_back_seconds": BACK_SECONDS}


@contextmanager
def small_disk(folder: Path) -> Iterator[dict[str, str]]:
    """Rewards have a disk of their own that is soon full."""
    rewards = folder / "rewards"
    rewards.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(rewards)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        sys.exit("A small disk can only be mounted by root.")
    try:
        yield {}
    finally:
        subprocess.run(["umount", str(rewards)], check=True)


@contextmanager
def own_clock(folder: Path) -> Iterator[dict[str, str]]:
    """Programs read a clock that can be set, which is right at first."""
    library = folder / "clock.so"
    clock = folder / "clock"
    source = Path(__file__).parent / "faults_clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    clock.write_text("0\n")
    yield {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(clock)}


@contextmanager
def as_it_is(_: Path) -> Iterator[dict[str, str]]:
    """Nothing special."""
    yield {}


FAULTS: dict[str, Fault] = {
    "none": nothing,
    "training killed": killed("training", 9.0),
    "page killed": killed("page", 5.0),
    "reward service killed": killed("reward", 14.0),
    "store locked": locked,
    "disk full": disk_full,
    "reward files cut short": cut_short,
    "clock set back": clock_set_back,
}
PLACES = {"disk full": small_disk, "clock set back": own_clock}
