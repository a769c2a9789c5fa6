"""How a study stands, in words and numbers for its overview."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from preferl.annotate.learning import ago, program_words, reward_words, statement
from preferl.shapes import FloatArray
from preferl.store.annotators import annotator_report
from preferl.store.schema import Annotator, RewardVersion
from preferl.store.store import Store
from preferl.store.votes import Votes, agreement_report

WIDTH, HEIGHT = 560, 96
LATEST = 12
"""Events that are told."""

EVENTS = {
    "invited": "{name} was invited as {role}",
    "role": "{name} became {role}",
    "ended": "access of {name} was ended",
    "restored": "{name} was let in again",
    "settings": "settings were changed: {changed}",
    "revoked": "the link of {name} was ended",
    "qualified": "{name} was qualified by hand",
}


def standing(store: Store, project_id: int) -> dict[str, Any]:
    """Everything that the overview shows."""
    votes = store.questions.votes(project_id)
    people = store.people.all(project_id)
    rewards = store.live.rewards(project_id)
    progress = store.progress(project_id)
    return {
        "progress": progress,
        "statement": statement(store, project_id, progress),
        "people": people_rows(people, votes, store.sign_ins.latest(project_id)),
        "agreement": agreement_report(votes, np.random.default_rng(0), resamples=500),
        "chart": answers_over_time(votes.answered_at),
        "events": events(store, project_id, rewards),
        "programs": program_words(store.live.services(project_id)),
        "reward": newest_reward(rewards, store.live.clock()),
    }


def events(store: Store, project_id: int, rewards: list[RewardVersion]) -> list[dict[str, str]]:
    """What happened besides answers, the newest first: rewards that were published, too."""
    found = [
        (event.at, _worded(event.kind, event.detail or {}))
        for event in store.events.latest(project_id, LATEST)
    ]
    found += [
        (
            reward.published_at,
            f"reward version {reward.version} was published: {reward_words(reward)}",
        )
        for reward in rewards[-LATEST:]
    ]
    found.sort(key=lambda event: event[0], reverse=True)
    return [{"at": moment(at), "text": text} for at, text in found[:LATEST]]


def newest_reward(rewards: list[RewardVersion], at: float) -> dict[str, Any] | None:
    """The latest version in words, as of now; None before the first."""
    if not rewards:
        return None
    newest = rewards[-1]
    return {
        "version": newest.version,
        "words": reward_words(newest),
        "ago": ago(at - newest.published_at),
        "at": moment(newest.published_at),
    }


def people_rows(
    people: list[Annotator], votes: Votes, signed_in: Mapping[int, float]
) -> list[dict[str, Any]]:
    """A row for each person: who they are, how they answer, and why somebody should look."""
    described: dict[str, dict[str, Any]] = {
        str(row["name"]): row for row in annotator_report(votes).rows()
    }
    last = np.zeros(len(votes.names))
    np.maximum.at(last, votes.annotator, votes.answered_at)
    seen = dict(zip(votes.names, last.tolist(), strict=True))
    rows = []
    for person in people:
        row = described.get(person.name, {"name": person.name, "answers": 0, "reasons": []})
        rows.append(
            {
                **row,
                "id": person.id,
                "role": person.role,
                "disabled": person.disabled_at is not None,
                "qualified": person.qualified_at is not None,
                "last": moment(seen[person.name]) if seen.get(person.name) else None,
                "signed_in": moment(signed_in[person.id]) if person.id in signed_in else None,
                "why": [_reason(reason, row) for reason in row["reasons"]],
            }
        )
    return rows


def answers_over_time(answered_at: FloatArray) -> dict[str, Any] | None:
    """The count of answers as a line to draw; None with fewer than two."""
    if len(answered_at) < 2:
        return None
    at = np.sort(answered_at)
    rows = np.unique(np.linspace(0, len(at) - 1, 120).astype(int))
    x = (at[rows] - at[0]) / max(at[-1] - at[0], 1e-9) * WIDTH
    y = HEIGHT - (rows + 1) / len(at) * HEIGHT
    line = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    return {
        "line": f"M{line}",
        "area": f"M0 {HEIGHT}L{line}L{WIDTH} {HEIGHT}Z",
        "first": moment(at[0]),
        "last": moment(at[-1]),
        "count": len(at),
        "width": WIDTH,
        "height": HEIGHT,
    }


def moment(seconds: float) -> str:
    """A time in words that everybody reads alike.

    >>> moment(0.0)
    '1970-01-01 00:00'
    """
    return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M")


def _worded(kind: str, detail: dict[str, Any]) -> str:
    try:
        return EVENTS[kind].format(**detail)
    except KeyError:  # another program's kind of event, or another version's
        return kind.replace("_", " ")


def _reason(reason: str, row: dict[str, Any]) -> str:
    return {
        "careless": lambda: f"about {100 * row['careless_share']:.0f} % of answers look random",
        "known pairs": lambda: (
            f"only {100 * row['known_accuracy']:.0f} % of {row['known']} known pairs right"
        ),
        "too fast": lambda: f"{100 * row['too_fast']:.0f} % of answers too fast to have looked",
        "one side": lambda: f"{100 * row['left_rate']:.0f} % left",
        "streak": lambda: f"{row['streak']} times the same side in a row",
    }.get(reason, lambda: reason)()
