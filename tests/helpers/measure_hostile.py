"""Reads every hostile file in a child of its own and prints what that took, as JSON.

Run as a program: all is imported first, and each child is forked from that.
"""

import json
import os
import resource
import sys
import tempfile
import warnings
from pathlib import Path

from helpers.hostile_files import BOMBS
from preferl.errors import PreferlError

MOST_ADDRESSES = 8 * 2**30
"""Bytes beyond which a reader that fails its test fails for want of memory."""

MOST_SECONDS = 20


def measure(read, place):
    """How reading ends, and what it takes in megabytes and seconds of processor time."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        warnings.simplefilter("ignore")
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            read(place)
            end = "read"
        except PreferlError as error:
            end = f"refused: {error}"
        except BaseException as error:
            end = f"failed: {type(error).__name__}: {error}"
        after = resource.getrusage(resource.RUSAGE_SELF)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        megabytes = (after.ru_maxrss - before.ru_maxrss) / 1024
        os.write(send, json.dumps([end[:500], megabytes, seconds]).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    end, megabytes, seconds = (
        json.loads(written) if written else ["failed: killed", 1e9, MOST_SECONDS]
    )
    return {"end": end, "megabytes": round(megabytes, 1), "seconds": round(seconds, 2)}


def main():
    """All of them, or those whose names are given."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (write, read)) in enumerate(BOMBS.items()):
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            place = Path(folder) / f"{number}"
            maker = os.fork()  # what making takes must not count
            if maker == 0:
                try:
                    write(place)
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(maker, 0)[1] == 0, f"{name} could not be made"
            results[name] = measure(read, place)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
