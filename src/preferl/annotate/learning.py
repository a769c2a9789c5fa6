"""What pages show of the store: what learns from the answers, how far it is, what was asked."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from typing import Any, Final, final

from preferl.store.progress import Progress
from preferl.store.queue import Claim, Question
from preferl.store.schema import RewardVersion
from preferl.store.status import AGENT, REWARD_SERVICE, ServiceState, Status
from preferl.store.store import Store

REWARD_COLUMNS: Final = ("version", "accuracy", "low", "high", "answers")
"""What the page's scripts draw of a reward version."""

UNITS: Final = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def statement(store: Store, project_id: int, progress: Progress) -> dict[str, Any]:
    """How far the work is, in the same words wherever a page says it.

    It does not move backwards: a program that asks as it goes has no number of answers to reach, so
    that there is a `goal` only where one was set, or where nothing asks any more. What is still to
    come is told by the next reward (`until`). `share` is how much of the nearest end is done, None
    where that is a reward after the first.
    """
    services = store.reports.services(project_id)
    service = next((s.status for s in services if s.name == REWARD_SERVICE and s.works), None)
    budget = store.projects.get(project_id).budget
    asking = any(service.status.state != "stopped" for service in services)
    goal = budget or (None if asking else progress.wanted or None)
    rewards = store.reports.rewards(project_id)
    until, share = None, min(progress.answered / goal, 1.0) if goal else None
    if service is not None and rewards:
        until = _until("next", service, (service.next_at or 0) - progress.revision)
    elif service is not None:
        decided, needed = store.reports.decided(project_id), service.first_at or 0
        until = _until("first", service, needed - decided)
        share = min(decided / needed, 1.0) if needed and share is None else share
    given = f"{progress.answered:,}"
    return {
        "answered": progress.answered,
        "goal": goal,
        "words": f"{given} of {plural(goal)}" if goal else plural(progress.answered),
        "until": until,
        "share": share,
        "newest": None
        if service is None or not rewards
        else f"Reward version {rewards[-1].version} is from {plural(rewards[-1].answers)}.",
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


def _until(which: str, service: Status, more: int) -> str | None:
    """What is still to come before a reward, of the service that learns it."""
    if service.state == "fitting":
        return f"the {which} reward is learning now"
    if service.state == "failed":
        return "the reward cannot be learned now, which is tried again"
    return f"{more:,} more until the {which} reward" if more > 0 else None


def program_words(services: Sequence[ServiceState]) -> list[dict[str, str]]:
    """Each program that has worked for a project, and what it does now."""
    names = {REWARD_SERVICE: "Reward service", AGENT: "Agent"}
    return [
        {"name": names.get(service.name, service.name), "words": _service_words(service)}
        for service in services
    ]


def _service_words(service: ServiceState) -> str:
    status, after = service.status, _after(service.status)
    if status.state == "stopped":
        return f"stopped {ago(service.age)}{after}"
    if not service.alive:
        return f"no sign of life for {service.age:.0f} s{after}"
    if service.name == REWARD_SERVICE:
        return _reward_does(status)
    if service.name != AGENT:
        return status.state
    if status.state == "failed":
        return f"acts, and cannot ask now: {status.problem}"
    does = {"healthy": "acts", "paused": "acts, and nothing of that is asked about"}
    return does.get(status.state, status.state) + after


def _reward_does(status: Status) -> str:
    worded = {
        "starting": "is starting",
        "fitting": "is learning from the answers now",
        "failed": f"has a problem and tries again: {status.problem}",
        "stuck": f"has not gone on for {status.idle or 0:.0f} s",
        "waiting": "waits for answers",
    }
    words = worded.get(status.state, status.state)
    if status.state != "waiting":
        return words
    if status.version:
        return f"{words}: {status.behind or 0:,} new since version {status.version:,}"
    return f"{words}: the first reward takes {status.first_at:,}" if status.first_at else words


def _after(status: Status) -> str:
    """How far an agent is and which reward it uses; nothing of others."""
    if status.steps is None:
        return ""
    version = status.reward_version
    reward = f"reward version {version:,} in use" if version else "no learned reward in use yet"
    return f": {status.steps:,} steps recorded, exploration included; {reward}"


def reward_words(reward: RewardVersion) -> str:
    """What a version learned from and how good it is.

    >>> reward_words(RewardVersion(version=3, answers=57, accuracy=0.8, low=0.49, high=0.94,
    ...                            detail={"trained_on": 45, "judged": 10}))
    'learned from 45 answers; right on 80 % of 10 it has not seen (49 to 94 %)'
    """
    fit = reward.metrics
    learned_from = reward.answers if fit.trained_on is None else fit.trained_on
    learned = f"learned from {plural(learned_from)}"
    if reward.accuracy is None:
        return f"{learned}; too few were left out to judge it"
    unseen = f"{fit.judged:,} it has" if fit.judged else "answers it has"
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


COUNTED_WITHIN: Final = 1.0
"""Seconds that everybody's numbers beside an answer may be old; the stream brings newer ones."""


def media_url(clip: str) -> str:
    """Where a clip's video is."""
    return f"/media/{clip}.mp4"


def question_view(question: Question) -> dict[str, Any]:
    """What a browser needs to show a pair: not why it is asked, nor which clip is the first."""
    return {
        "token": question.token,
        "left": media_url(question.left),
        "right": media_url(question.right),
    }


def claim_view(tally: Tally, claim: Claim, project_id: int, annotator_id: int) -> dict[str, Any]:
    """What there is to answer, and how far the work is."""
    return {
        "state": claim.state,
        "questions": [question_view(question) for question in claim.questions],
        "progress": tally.of(project_id, annotator_id, within=COUNTED_WITHIN),
    }


def live_view(store: Store, project_id: int) -> dict[str, Any]:
    """The reward's versions and the agent's last episode."""
    return {
        "rewards": [
            {name: getattr(reward, name) for name in REWARD_COLUMNS}
            for reward in store.reports.rewards(project_id)
        ],
        "episode": episode_view(store, project_id),
    }


def episode_view(store: Store, project_id: int) -> dict[str, Any] | None:
    """The agent's last whole episode and what is known of it."""
    clip = store.reports.last_episode(project_id)
    if clip is None:
        return None
    known = {"steps": clip.steps, **(clip.detail or {})}
    words = [f"{name.replace('_', ' ')} {_short(value)}" for name, value in known.items()]
    return {"url": media_url(clip.id), "text": ", ".join(words[:5]), "at": clip.created_at}


def _short(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return (
        f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)[:40]
    )
