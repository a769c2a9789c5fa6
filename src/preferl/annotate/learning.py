"""What learns from the answers, and how far it is, in words for the pages."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from preferl.store.live import ServiceState
from preferl.store.schema import RewardVersion
from preferl.store.store import Store

REWARD: Final = "reward"
"""The name under which the reward service gives signs of life."""

UNITS: Final = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def learning_words(store: Store, project_id: int) -> str | None:
    """How far the next reward is, for those who answer; None where no reward service works."""
    service = next((s for s in store.live.services(project_id) if s.name == REWARD), None)
    if service is None or not service.alive or service.state == "stopped":
        return None
    if service.state == "failed":
        return "The reward cannot be learned now; that is tried again. Answers are saved."
    rewards = store.live.rewards(project_id)
    if not rewards:
        return _first(store, project_id, service)
    newest = f"Reward version {rewards[-1].version} is from {plural(rewards[-1].answers)}"
    if service.state == "fitting":
        return f"{newest}; the next one is learning now."
    more = int(service.detail.get("next_at", 0)) - store.live.revision(project_id)
    if more <= 0:
        return f"{newest}."
    return f"{newest}; {more:,} more and it learns again."


def _first(store: Store, project_id: int, service: ServiceState) -> str | None:
    if service.state == "fitting":
        return "The first reward is learning now."
    needed = int(service.detail.get("first_at", 0))
    if not needed:  # it has only just begun
        return None
    given = min(store.live.decided(project_id), needed)
    return f"{given:,} of {plural(needed)} until the first reward."


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
