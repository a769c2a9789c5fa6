"""Many policies judged at once, each in one of several processes."""

import multiprocessing
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler
from typing import Any

from preferl.errors import ConfigError, require_in
from preferl.evaluation.policy import EnvSource, PolicyReport, evaluate_policy
from preferl.evaluation.protocols import Policy
from preferl.threads import torch_threads
from preferl.trust import safe_children

OnReport = Callable[[str, PolicyReport], None]
"""Told the name and the report of each policy as soon as it is judged."""


def evaluate_policies(
    policies: Mapping[str, Policy],
    env: EnvSource,
    *,
    episodes: int = 20,
    seed: int,
    deterministic: bool = True,
    parallel: int = 20,
    max_steps: int | None = None,
    processes: int = 2,
    on_report: OnReport | None = None,
) -> dict[str, PolicyReport]:
    """Judge several policies by whole episodes, as `evaluate_policy` judges each of them.

    A policy is judged by one process from its first to its last episode, so the reports do not
    depend on how many processes there are. New processes begin by importing the program that was
    started: a script that asks for more than one needs `if __name__ == "__main__":`.

    Args:
        policies: names to policies; with several processes they, and what makes the environment,
            must be such that pickle can send them.
        env: the id of an environment, or a function without arguments that makes one.
        episodes: `K` per policy.
        seed: of the first episode of each policy, so that all begin alike.
        deterministic: passed to the policies.
        parallel: `V`, environments that one policy sees as a batch. 20 makes what a policy
            costs small beside what the environments do.
        max_steps: cut episodes off after this many.
        processes: how many work at once; 1 stays in this process. More than processor cores are
            of no use.
        on_report: told of each policy as it is done, in any order.

    Returns:
        Reports by name, in the order of `policies`.

    Raises:
        ConfigError: a setting out of range, a policy that cannot be sent, or a process that died.
    """
    require_in("processes", processes, 1, float("inf"))
    how: dict[str, Any] = {
        "episodes": episodes,
        "seed": seed,
        "deterministic": deterministic,
        "parallel": parallel,
        "max_steps": max_steps,
    }
    tell = on_report or (lambda *_: None)
    if min(processes, len(policies)) > 1:
        return _spread(policies, env, how, min(processes, len(policies)), tell)
    reports = {}
    for name, policy in policies.items():
        with torch_threads(1):  # several would fight, and round differently
            reports[name] = evaluate_policy(policy, env, **how)
        tell(name, reports[name])
    return reports


def _spread(
    policies: Mapping[str, Policy],
    env: EnvSource,
    how: dict[str, Any],
    processes: int,
    tell: OnReport,
) -> dict[str, PolicyReport]:
    for name, policy in policies.items():
        _require_sendable(name, policy, env, how)
    # A fork of a process that has used torch's threads can hang.
    context = multiprocessing.get_context("spawn")
    with safe_children():  # its queues start a process that looks after them
        pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin)
    reports = {}
    try:
        with safe_children():  # a worker begins with the first thing to do
            waiting = {
                pool.submit(_judge, policy, env, how): name for name, policy in policies.items()
            }
        for done in as_completed(waiting):
            reports[waiting[done]] = done.result()
            tell(waiting[done], reports[waiting[done]])
    except BrokenProcessPool as error:
        raise ConfigError.mismatch(
            "processes",
            expected=f"{processes} that judge policies",
            got="one that ended",
            fix='Guard the script with `if __name__ == "__main__":`, or pass processes=1.',
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return {name: reports[name] for name in policies}


def _require_sendable(name: str, policy: Policy, env: EnvSource, how: dict[str, Any]) -> None:
    try:
        ForkingPickler.dumps((policy, env, how))
    except Exception as error:  # whatever the class of someone else raises
        raise ConfigError.mismatch(
            f"policy {name!r} and its environment",
            expected="what pickle can send to another process",
            got=error,
            fix="Pass processes=1, or the id of a registered environment.",
        ) from error


def _begin() -> None:
    """Let Ctrl-C end a worker at once and without a word; the first process words it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _judge(policy: Policy, env: EnvSource, how: dict[str, Any]) -> PolicyReport:
    with torch_threads(1):  # several would fight, and round differently
        return evaluate_policy(policy, env, **how)
