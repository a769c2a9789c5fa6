"""Evaluate one policy or several by the environment's own reward, in one or several processes."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from multiprocessing.reduction import ForkingPickler
from typing import Any, Self, final

import numpy as np

from preferl.configs import plain
from preferl.envs.config import EnvSource
from preferl.envs.factory import make_env
from preferl.errors import ConfigError, DataError, in_words, require_in
from preferl.evaluation.policies import Policy
from preferl.evaluation.rollout import SeededEpisodes, rollout
from preferl.reading import reading
from preferl.shapes import BoolArray, FloatArray, IntArray
from preferl.statistics import bootstrap_interval
from preferl.threads import torch_threads
from preferl.trust import safe_children


@final
@dataclass(frozen=True, eq=False)
class PolicyReport:
    """The episodes by which a policy was evaluated.

    Attributes:
        returns: `[K]` undiscounted sums of the environment's reward.
        lengths: `[K]` steps.
        success: `[K]` whether the environment's `info["success"]` was true at any step; None if the
            environment does not report it.

    >>> report = PolicyReport(np.array([1.0, 3.0]), np.array([5, 5]))
    >>> report.mean, report.median
    (2.0, 2.0)
    """

    returns: FloatArray
    lengths: IntArray
    success: BoolArray | None = None

    def __repr__(self) -> str:
        """Summarise the report in one line; the episodes are in the attributes.

        >>> PolicyReport(np.array([1.0, 3.0]), np.array([5, 5]))
        PolicyReport(2 episodes: mean return 2.0, 95 % interval 1.0 to 3.0, deviation 1.4)
        """
        low, high = self.interval
        text = f"{self.episodes} episodes: mean return {self.mean:,.1f}, 95 % interval {low:,.1f} "
        text += f"to {high:,.1f}, deviation {self.std:,.1f}"
        if self.success_rate is not None:
            text += f", success {self.success_rate:.0%}"
        return f"PolicyReport({text})"

    @property
    def episodes(self) -> int:
        """`K`."""
        return len(self.returns)

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def median(self) -> float:
        """Median return."""
        return float(np.median(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of episodes (with `K - 1`); 0 for a single episode."""
        return float(self.returns.std(ddof=1)) if self.episodes > 1 else 0.0

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that succeeded, in [0, 1]; None if that is not known."""
        return None if self.success is None else float(self.success.mean())

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of the mean."""
        return bootstrap_interval(self.returns, np.random.default_rng(0))

    def to_json(self) -> dict[str, Any]:
        """Return summary and episodes as plain numbers and lists."""
        summary = ("episodes", "mean", "median", "std", "interval", "success_rate")
        names = (*summary, "returns", "lengths", "success")
        return plain({name: getattr(self, name) for name in names})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the report that `to_json` wrote, number for number.

        Raises:
            DataError: `data` is not such a report.
        """
        with reading("policy report", expected="returns, lengths and success", error=DataError):
            success = data["success"]
            return cls(
                np.array(data["returns"], float),
                np.array(data["lengths"], np.int64),
                None if success is None else np.array(success, bool),
            )


def evaluate_policy(
    policy: Policy,
    env: EnvSource,
    *,
    episodes: int = 20,
    seed: int,
    deterministic: bool = True,
    parallel: int = 20,
    max_steps: int | None = None,
) -> PolicyReport:
    """Evaluate a policy by the returns of whole episodes in the environment's own reward.

    Episode `k` begins with `seed + k` and counts once, whether it is short or long. The result of a
    deterministic policy therefore does not depend on `parallel`.

    Args:
        policy: anything with stable-baselines3's `predict`, for `[V, *obs]` observations. If it is
            an algorithm with a `VecNormalize`, observations are normalised, and the statistics do
            not change. Pass `agent`, and not `agent.policy`, which lacks the statistics and is
            refused.
        env: the id of an environment, or a function without arguments that makes one.
        episodes: `K`, how many episodes are evaluated.
        seed: seed of the first episode; choose one that training did not use.
        deterministic: passed to the policy. By default, this evaluates what the policy has learned,
            and not how it explores.
        parallel: `V`, the largest number of environments side by side. The policy acts for all of
            them at once. With 20, it takes little time compared with the environments.
        max_steps: steps after which episodes are cut off, for environments that never end.

    Raises:
        ConfigError: there is less than one episode, environment or step.
        SpaceError: the statistics are of other observations than the policy's, or the network of an
            algorithm is passed instead of the algorithm; see `on_raw_observations`.
    """
    settings = {"episodes": episodes, "parallel": parallel, "max_steps": max_steps or 1}
    for name, value in settings.items():
        require_in(name, value, 1, inf)
    with ExitStack() as opening:
        envs = [
            opening.enter_context(closing(make_env(env))) for _ in range(min(parallel, episodes))
        ]
        seeded = SeededEpisodes(envs, seed, episodes=episodes, max_steps=max_steps)
        return _play(policy, seeded, episodes, deterministic)


def _play(policy: Policy, envs: SeededEpisodes, episodes: int, deterministic: bool) -> PolicyReport:
    returns = np.zeros(episodes)
    lengths = np.zeros(episodes, np.int64)
    success: dict[int, bool] = {}
    ended = 0
    for step in rollout(policy, envs, deterministic=deterministic):
        acting = np.flatnonzero(step.episodes < episodes)
        number = step.episodes[acting]
        returns[number] += step.rewards[acting]
        lengths[number] += 1
        for k, v in zip(number.tolist(), acting.tolist(), strict=True):
            if "success" in step.infos[v]:
                success[k] = success.get(k, False) or bool(np.any(step.infos[v]["success"]))
        ended += int(np.count_nonzero(step.dones))
        if ended == episodes:
            break
    succeeded = np.array([success.get(k, False) for k in range(episodes)]) if success else None
    return PolicyReport(returns, lengths, succeeded)


OnReport = Callable[[str, PolicyReport], None]
"""Called with the name and the report of each policy as soon as it is evaluated."""


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
    """Evaluate several policies by whole episodes, each as `evaluate_policy` does.

    One process evaluates all episodes of a policy, so reports do not depend on the number of
    processes. A new process begins by importing the program that was started. A script that asks
    for more than one process therefore needs `if __name__ == "__main__":`. Processes get the
    policies, and the function that makes the environment, by pickle. More `processes` than
    processor cores do not help; with 1, everything happens in this process.

    The other settings are those of `evaluate_policy`, with the same seeds for each policy.
    `on_report` is called with each report when it is ready, in any order.

    Returns:
        Reports by name, in the order of `policies`.

    Raises:
        ConfigError: a setting is out of range, a policy cannot be pickled, or a process died.
    """
    require_in("processes", processes, 1, inf)
    settings: dict[str, Any] = {"env": env, "episodes": episodes, "seed": seed}
    settings |= {"deterministic": deterministic, "parallel": parallel, "max_steps": max_steps}
    evaluate = partial(_evaluate_alone, settings)
    processes = min(processes, len(policies))
    reports = {}
    done = ((name, evaluate(policy)) for name, policy in policies.items())
    for name, report in _spread(policies, evaluate, processes) if processes > 1 else done:
        reports[name] = report
        if on_report is not None:
            on_report(name, report)
    return {name: reports[name] for name in policies}


def _evaluate_alone(settings: Mapping[str, Any], policy: Policy) -> PolicyReport:
    with torch_threads(1):  # several would slow each other down, and round differently
        return evaluate_policy(policy, **settings)


def _spread(
    policies: Mapping[str, Policy], evaluate: Callable[[Policy], PolicyReport], processes: int
) -> Iterator[tuple[str, PolicyReport]]:
    """Evaluate policies in separate processes; yield names and reports as they are ready."""
    for name, policy in policies.items():
        try:
            ForkingPickler.dumps((evaluate, policy))
        except Exception as error:  # a user's class may raise anything
            raise ConfigError(
                f"policy {name!r} and its environment: expected what pickle can send to another "
                f"process, got {in_words(error)}. Pass processes=1, or the id of a registered "
                "environment."
            ) from error
    # A process that has used torch's threads must not be forked: the fork can hang.
    context = multiprocessing.get_context("spawn")
    with safe_children():  # multiprocessing starts a helper for the queues
        # Ctrl-C ends a worker at once and silently; the first process reports it.
        end_at_once = (signal.SIGINT, signal.SIG_DFL)
        pool = ProcessPoolExecutor(processes, context, signal.signal, end_at_once)
    try:
        with safe_children():  # workers start with the first task
            names = {pool.submit(evaluate, policy): name for name, policy in policies.items()}
        for done in as_completed(names):
            yield names[done], done.result()
    except BrokenProcessPool as error:
        raise ConfigError(
            f"processes: expected {processes} that evaluate policies, but one of them died. Guard "
            'the script with `if __name__ == "__main__":`, or pass processes=1.'
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
