"""Progress as pages show it: answers, the next reward, running programs, the last episode."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final, final

from preferl.statistics import share_in_words
from preferl.store.progress import Progress
from preferl.store.schema import RewardVersion
from preferl.store.status import AGENT, REWARD_SERVICE, ServiceState, Status, kind_of
from preferl.store.store import Store

UNITS: Final = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))

COUNTED_WITHIN: Final = 1.0
"""Greatest age, in seconds, of the numbers in a query. The stream of news has newer numbers."""

DOES: Final = {
    (REWARD_SERVICE, "starting"): "is starting",
    (REWARD_SERVICE, "fitting"): "is learning from the answers now",
    (REWARD_SERVICE, "failed"): "has a problem and tries again: {problem}",
    (REWARD_SERVICE, "stuck"): "has made no progress for {idle:.0f} s",
    (REWARD_SERVICE, "waiting"): "waits for answers",
    (AGENT, "failed"): "acts, and cannot ask now: {problem}",
    (AGENT, "healthy"): "acts",
    (AGENT, "paused"): "acts, but asks nothing about that",
}
"""Words for what our programs do in each of their states."""


def statement(store: Store, project_id: int, progress: Progress) -> dict[str, Any]:
    """Return the progress in the words that every page shows.

    `goal` is the number of answers to reach. It exists only if a budget was set, or if no program
    asks any more: a program that keeps asking would move the goal. `until` says how many answers
    the next reward needs. `share` is how much of the goal is done. Without a goal, it is the
    share of the answers that the first reward needs; after the first reward, it is None. `ended` is
    whether all agents of the project have stopped on purpose, so that the run is over.
    """
    services = store.reports.services(project_id)
    service = next((s.status for s in services if s.name == REWARD_SERVICE and s.works), None)
    asking = any(service.status.state != "stopped" for service in services)
    budget = store.projects.get(project_id).budget
    goal = (progress.wanted or None) if budget or not asking else None
    rewards = store.reports.rewards(project_id)
    until = None
    reward_line = None
    share = min(progress.answered / goal, 1.0) if goal else None
    if service is not None and rewards:
        until = _until("next", service, (service.next_at or 0) - progress.revision)
        reward_line = f"Reward version {rewards[-1].version} is from {plural(rewards[-1].answers)}."
    elif service is not None:
        decided = store.reports.decided(project_id)
        answers_needed = service.first_at or 0
        until = _until("first", service, answers_needed - decided)
        share = min(decided / answers_needed, 1.0) if answers_needed and share is None else share
    agents = [service_state for service_state in services if kind_of(service_state.name) == AGENT]
    working = (service_state.status for service_state in agents if service_state.works)
    agent = next((status for status in working if status.mean_return is not None), None)
    if agent is not None:
        reward_line = " ".join(filter(None, (reward_line, _where(agent))))
    ended = bool(agents) and all(
        service_state.status.state == "stopped" for service_state in agents
    )
    if ended:
        end_note = "The run has ended; later answers are kept for another run."
        reward_line = " ".join(filter(None, (reward_line, end_note)))
    words = f"{progress.answered:,} of {plural(goal)}" if goal else plural(progress.answered)
    answers = {"answered": progress.answered, "goal": goal, "words": words}
    return answers | {"until": until, "share": share, "newest": reward_line, "ended": ended}


@final
class Tally:
    """Cached progress of projects, for pages that ask for it more often than it changes.

    People in `present`, who have a page of the project open, count as active.
    """

    def __init__(
        self, store: Store, present: Callable[[int], set[int]] = lambda _project: set()
    ) -> None:
        self._store = store
        self._present = present
        self._seen: dict[int, tuple[float, dict[str, Any]]] = {}  # time and progress, by project

    def of(
        self, project_id: int, annotator_id: int | None = None, *, within: float = 0.0
    ) -> dict[str, Any]:
        """Return a project's progress and its statement, with a person's current numbers.

        The project's numbers may be `within` seconds old. They count every query. A study with
        hundreds of people must not count all queries again for each answer.
        """
        time_now = time.monotonic()
        counted_at, cached = self._seen.get(project_id, (-math.inf, {}))
        if time_now - counted_at >= within:
            if cached:  # one request counts; others at the same time take older numbers
                self._seen[project_id] = time_now, cached
            progress = self._store.progress(project_id)
            active = self._store.reports.active_people(project_id) | self._present(project_id)
            cached = asdict(progress) | {
                "statement": statement(self._store, project_id, progress),
                "people_active": len(active),
            }
            self._seen[project_id] = time_now, cached
        return (
            cached
            if annotator_id is None
            else cached | self._store.reports.personal_progress(annotator_id)
        )


def _until(which: str, service: Status, more: int) -> str | None:
    """Return in words how many answers a reward still needs, or what its service is doing."""
    if service.state == "fitting":
        return f"the {which} reward is learning now"
    if service.state == "failed":
        return "the reward cannot be learned now; the service tries again"
    return f"{more:,} more until the {which} reward" if more > 0 else None


def program_words(services: Sequence[ServiceState]) -> list[dict[str, str]]:
    """Return each program that ever worked for a project, and what it does now, in words."""
    return [{"name": _program(s.name), "words": _service_words(s)} for s in services]


def _program(name: str) -> str:
    """Return the name of a program for people."""
    kind = kind_of(name)
    agent = name.partition(" ")[2]
    names = {REWARD_SERVICE: "Reward service", AGENT: f"Agent {agent}".rstrip()}
    return names.get(kind, name)


def _service_words(service: ServiceState) -> str:
    status = service.status
    after = _after(service.status)
    if status.state == "stopped":
        return f"stopped {ago(service.age)}{after}"
    if not service.alive:
        return f"no heartbeat for {service.age:.0f} s{after}"
    words = status.state  # other programs have their own states
    if activity := DOES.get((kind_of(service.name), status.state)):
        words = activity.format(problem=status.problem, idle=status.idle or 0)
    if service.name == REWARD_SERVICE and status.state == "waiting":
        if status.version:
            return f"{words}: {status.behind or 0:,} new since version {status.version:,}"
        return f"{words}: the first reward takes {status.first_at:,}" if status.first_at else words
    return words + after if kind_of(service.name) == AGENT and status.state != "failed" else words


def _after(status: Status) -> str:
    """Return an agent's steps and the reward it uses, in words; "" for other programs."""
    if status.steps is None:
        return ""
    version = status.reward_version
    reward = f"reward version {version:,} in use" if version else "no learned reward in use yet"
    words = f": {status.steps:,} steps recorded, exploration included; {reward}"
    return words if status.mean_return is None else f"{words}; return {_short(status.mean_return)}"


def _where(agent: Status) -> str:
    """Return a sentence about the agent's progress, for annotators."""
    version = agent.reward_version
    reward = f"learns from reward version {version:,}" if version else "has no learned reward yet"
    mean = _short(agent.mean_return)
    return f"The agent has made {agent.steps or 0:,} steps and {reward}; its return is {mean}."


def reward_words(reward: RewardVersion) -> str:
    """Return from how many answers a reward version learned and how accurate it is, in words.

    >>> reward_words(RewardVersion(version=3, answers=57, accuracy=0.8, low=0.49, high=0.94,
    ...                            detail={"trained_on": 45, "decided": 10}))
    'learned from 45 answers; right on 80 % of 10 it has not seen (95 % interval 49 to 94 %)'
    """
    fit = reward.metrics
    learned = f"learned from {plural(reward.answers if fit.trained_on is None else fit.trained_on)}"
    if reward.accuracy is None:
        return f"{learned}; too few were held out to validate it"
    if fit.decided and reward.low is not None and reward.high is not None:
        interval = (reward.low, reward.high)
        unseen = share_in_words(reward.accuracy, interval, fit.decided, "it has not seen")
        return f"{learned}; right on {unseen}"
    return f"{learned}; right on {100 * reward.accuracy:.0f} % of answers it has not seen"


def ago(seconds: float) -> str:
    """Return in words how long ago something was, in the largest unit.

    >>> ago(0.2), ago(1), ago(150), ago(7200)
    ('just now', '1 second ago', '2 minutes ago', '2 hours ago')
    """
    for length, unit in UNITS:
        if (count := int(seconds // length)) > 0:
            return f"{count:,} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def moment(seconds: float) -> str:
    """Return a time in a form that is the same in every country.

    >>> moment(0.0)
    '1970-01-01 00:00'
    """
    return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M")


def plural(count: int) -> str:
    """Return a number of answers in words.

    >>> plural(1), plural(1200)
    ('1 answer', '1,200 answers')
    """
    return f"{count:,} answer{'s' if count != 1 else ''}"


def media_url(clip: str) -> str:
    """Return the address of a clip's video."""
    return f"/media/{clip}.mp4"


def live_view(store: Store, project_id: int) -> dict[str, Any]:
    """Return the reward's versions and the agent's last episode."""
    plotted = ("version", "accuracy", "low", "high", "answers")  # the page's scripts draw these
    versions = store.reports.rewards(project_id)
    rewards = [{name: getattr(reward, name) for name in plotted} for reward in versions]
    return {"rewards": rewards, "episode": episode_view(store, project_id)}


def episode_view(store: Store, project_id: int) -> dict[str, Any] | None:
    """Return the agent's last whole episode with its details, or None."""
    clip = store.reports.last_episode(project_id)
    if clip is None:
        return None
    detail = {"steps": clip.steps, **(clip.detail or {})}
    words = [f"{name.replace('_', ' ')} {_short(value)}" for name, value in detail.items()]
    return {"url": media_url(clip.id), "text": ", ".join(words[:5]), "at": clip.created_at}


def _short(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if type(value) is int else str(value)[:40]
