"""Programs that tests start again and again; a server that has imported all forks them."""

from multiprocessing import get_context

PROGRAMS = get_context("forkserver")
"""Starts processes that know nothing of the test but what they are given."""

# All tests of a process share the server, so that all name the same. Optimisers import the last.
PROGRAMS.set_forkserver_preload(
    ["preferl.online.run", "preferl.online.service.reward_service", "torch._dynamo"]
)


def start(work, *arguments):
    """A program that does this work."""
    program = PROGRAMS.Process(target=work, args=arguments)
    program.start()
    return program


def status_of(work, *arguments):
    """How a program that does this work ends; a signal is a number below 0."""
    program = start(work, *arguments)
    program.join()
    return program.exitcode
