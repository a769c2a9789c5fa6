"""Wait until something holds, with a deadline that only what is broken passes."""

import asyncio
import time

SECONDS = 180.0
"""A slow machine that others use, too, may hold a program up for a minute."""


def wait_until(condition, what="the condition", *, seconds=SECONDS, rest=time.sleep):
    """Call `condition` until it holds, and return its value.

    Args:
        condition: called with nothing, many times a second.
        what: how a failure names it; text, or a function that makes it then.
        seconds: after which this fails.
        rest: waits for so many seconds; a browser's page has to go on meanwhile.
    """
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"{what() if callable(what) else what}: not in {seconds:g} s")
        rest(0.01)
    return value


async def async_wait_until(condition, what="the condition", *, seconds=SECONDS):
    """`wait_until` in a coroutine, beside others of its loop."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"{what() if callable(what) else what}: not in {seconds:g} s")
        await asyncio.sleep(0.01)
    return value
