"""Works of units, which processes of their own import."""

import os
import signal
import time

from helpers.waiting import wait_until
from preferl.runs.executor import Unit


def unit(folder, number, work="square"):
    """A unit of one of these works."""
    name = f"{work} {number}"
    return Unit(name, f"helpers.unit_works:{work}", {"number": number}, folder / name)


def stop_first(units):
    """What presses Ctrl-C once the first of these units has begun."""

    def stop(*_):
        begun = units[0].folder / "begun"
        wait_until(lambda: begun.exists() and begun.read_text())
        raise KeyboardInterrupt

    return stop


def square(settings, folder):
    """The square of a number; a line in the folder for each call."""
    with (folder / "calls").open("a") as calls:
        calls.write("called\n")
    return settings["number"] ** 2


def killed_once(settings, folder):
    """Get halfway and be killed; go on from there at the next call."""
    halfway = folder / "halfway"
    if not halfway.exists():
        halfway.write_text(str(settings["number"]))
        os.kill(os.getpid(), signal.SIGKILL)
    return int(halfway.read_text()) ** 2


def fail(settings, folder):
    """Raise an error that names the number."""
    raise ValueError(f"number {settings['number']} cannot be done")


def wait(settings, folder):
    """Say that it has begun, and wait for a file in vain; note an interruption."""
    try:
        (folder / "begun").write_text(str(os.getpid()))
        while not (folder / "go").exists():
            time.sleep(0.01)
    except KeyboardInterrupt:
        (folder / "interrupted").touch()
        raise


def threads(settings, folder):
    """How many processor threads numpy and torch are to take."""
    os.write(1, b"printed into the log\n")
    return os.environ["OMP_NUM_THREADS"]


def lose_its_machine(settings, folder):
    """Wait in vain on the first machine of a cluster; go on from what is there on the next one."""
    begun = folder / "begun"
    if begun.exists():
        return "went on"
    begun.write_text(str(os.getppid()))
    while True:
        time.sleep(1.0)
