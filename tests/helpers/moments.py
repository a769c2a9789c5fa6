"""Ends a program of a test with -9 at a moment that its own work determines, not a clock."""

import os
import signal
import sys
from pathlib import Path


def die_at_touch(folder: Path, touch: int) -> None:
    """End this program when it touches a folder for the `touch`th time from now on; 0 ends it now.

    A touch is whatever Python audits with a path: opening, listing, moving or removing a file. The
    writing of one checkpoint has about fifty, so that the program ends in the middle of it.
    """
    touches = 0
    place = os.fspath(folder)

    def count(_: str, arguments: tuple[object, ...]) -> None:
        nonlocal touches
        touches += bool(arguments) and place in str(arguments[0])
        if touches >= touch:
            signal.raise_signal(signal.SIGKILL)

    sys.addaudithook(count)
    count("", ())
