"""What learns from the answers, and how far it is, in words for the pages."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import inf
from typing import Any, Final, final

from preferl.store.live import Progress, ServiceState
from preferl.store.schema import RewardVersion
from preferl.store.store import Store

REWARD: Final = "reward"
"""The name under which the reward service gives signs of life."""

UNITS: Final = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def statement(store: Store, project_id: int, progress: Progress) -> dict[str, Any]:
    """How far the work is, in the same words wherever a page says it.

    It does not move backwards: a program that asks as it goes has no number of answers to reach, so
    that there is a `goal` only where one was set, or where nothing asks any more. What is still to
    come is told by the next reward (`until`). `share` is how much of the nearest end is done, None
    where that is a reward after the first.
    """
    services = store.live.services(project_id)
    service = next(
        (s for s in services if s.name == REWARD and s.alive and s.state != "stopped"), None
    )
    budget = store.projects.get(project_id).budget
    asking = any(service.state != "stopped" for service in services)
    goal = budget or (None if asking else progress.wanted or None)
    rewards = store.live.rewards(project_id)
    until, share = None, min(progress.answered / goal, 1.0) if goal else None
    if service is not None and rewards:
        until = _next(service, progress.revision)
    elif service is not None:
        decided = store.live.decided(project_id)
        until = _first(service, decided)
        needed = int(service.detail.get("first_at", 0))
        share = min(decided / needed, 1.0) if needed and share is None else share
    given = f"{progress.answered:,}"
    return {
        "answered": progress.answered,
        "goal": goal,
        "words": f"{given} of {plural(goal)}" if goal else plural(progress.answered),
        "until": until,
        "share": share,
        "newest": _newest(rewards) if service is not None else None,
    }


@final
class Tally:
    """How far projects are, for pages that ask more often than it changes.

    Args:
        store: of the answers.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[int, tuple[float, int, dict[str, Any]]] = {}  # when, at which revision

    def of(
        self, project_id: int, annotator_id: int | None = None, *, within: float = 0.0
    ) -> dict[str, Any]:
        """Progress and its statement.

        Args:
            project_id: of which project.
            annotator_id: whose own numbers to add.
            within: how old, in seconds, everybody's numbers may be.
        """
        progress = self._store.progress(project_id, annotator_id, within=within)
        now = time.monotonic()
        at, revision, said = self._seen.get(project_id, (-inf, -1, {}))
        if now - at >= within or revision != progress.revision:
            said = statement(self._store, project_id, progress)
            self._seen[project_id] = now, progress.revision, said
        return asdict(progress) | {"statement": said}


def _next(service: ServiceState, revision: int) -> str | None:
    if service.state == "fitting":
        return "the next reward is learning now"
    more = int(service.detail.get("next_at", 0)) - revision
    return _problem(service) or (f"{more:,} more until the next reward" if more > 0 else None)


def _first(service: ServiceState, decided: int) -> str | None:
    if service.state == "fitting":
        return "the first reward is learning now"
    more = int(service.detail.get("first_at", 0)) - decided
    return _problem(service) or (f"{more:,} more until the first reward" if more > 0 else None)


def _problem(service: ServiceState) -> str | None:
    failed = service.state == "failed"
    return "the reward cannot be learned now, which is tried again" if failed else None


def _newest(rewards: Sequence[RewardVersion]) -> str | None:
    if not rewards:
        return None
    return f"Reward version {rewards[-1].version} is from {plural(rewards[-1].answers)}."


def program_words(services: Sequence[ServiceState]) -> list[dict[str, str]]:
    """Each program that has worked for a project, and what it does now."""
    return [
        {
            "name": {REWARD: "Reward service", "agent": "Agent"}.get(service.name, service.name),
            "words": _service_words(service),
        }
        for service in services
    ]


def _service_words(service: ServiceState) -> str:
    does = {REWARD: _reward_does, "agent": _agent_does}.get(service.name, _anything)(service)
    if service.state == "stopped":
        return f"stopped {ago(service.age)}{_after(service)}"
    return does if service.alive else f"no sign of life for {service.age:.0f} s{_after(service)}"


def _reward_does(service: ServiceState) -> str:
    detail = service.detail
    worded: dict[str, Callable[[], str]] = {
        "starting": lambda: "is starting",
        "fitting": lambda: "is learning from the answers now",
        "failed": lambda: f"has a problem and tries again: {detail.get('problem')}",
        "stuck": lambda: f"has not gone on for {detail.get('idle', 0):.0f} s",
        "waiting": lambda: "waits for answers" + _awaited(detail),
    }
    return worded.get(service.state, lambda: service.state)()


def _awaited(detail: dict[str, Any]) -> str:
    if not detail.get("version"):
        needed = int(detail.get("first_at", 0))
        return f": the first reward takes {needed:,}" if needed else ""
    return f": {detail.get('behind', 0):,} new since version {detail['version']:,}"


def _agent_does(service: ServiceState) -> str:
    problem = service.detail.get("problem")
    does = {"healthy": "acts", "paused": "acts, and nothing of that is asked about"}
    if service.state == "failed":
        return f"acts, and cannot ask now: {problem}"
    return does.get(service.state, service.state) + _after(service)


def _after(service: ServiceState) -> str:
    """How far an agent is and by what it is paid; nothing of others."""
    detail = service.detail
    if "steps" not in detail:
        return ""
    version = int(detail.get("reward_version", 0))
    paid = f"reward version {version:,} in use" if version else "no learned reward in use yet"
    return f": {detail['steps']:,} steps recorded, exploration included; {paid}"


def _anything(service: ServiceState) -> str:
    return service.state


def reward_words(reward: RewardVersion) -> str:
    """What a version learned from and how good it is.

    >>> reward_words(RewardVersion(version=3, answers=57, accuracy=0.8, low=0.49, high=0.94,
    ...                            detail={"trained_on": 45, "judged": 10}))
    'learned from 45 answers; right on 80 % of 10 it has not seen (49 to 94 %)'
    """
    detail = reward.detail or {}
    learned = f"learned from {plural(detail.get('trained_on', reward.answers))}"
    if reward.accuracy is None:
        return f"{learned}; too few were left out to judge it"
    judged = detail.get("judged")  # not in those published by early versions
    unseen = f"{judged:,} it has" if judged else "answers it has"
    between = (
        "" if reward.low is None or reward.high is None
        else f" ({100 * reward.low:.0f} to {100 * reward.high:.0f} %)"
    )  # fmt: skip
    return f"{learned}; right on {100 * reward.accuracy:.0f} % of {unseen} not seen{between}"


def ago(seconds: float) -> str:
    """How long ago, in its largest unit.

    >>> ago(0.2), ago(1), ago(150), ago(7200)
    ('just now', '1 second ago', '2 minutes ago', '2 hours ago')
    """
    for length, unit in UNITS:
        count = int(seconds // length)
        if count > 0:
            return f"{count:,} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def plural(count: int) -> str:
    """So many answers.

    >>> plural(1), plural(1200)
    ('1 answer', '1,200 answers')
    """
    return f"{count:,} answer{'s' if count != 1 else ''}"
