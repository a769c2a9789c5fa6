"""Rows of the store as the JSON that the page's scripts read."""

import math
from typing import Any, Final

from preferl.annotate.learning import Tally
from preferl.store.queue import Claim, Question
from preferl.store.store import Store

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
            {
                "version": reward.version,
                "accuracy": reward.accuracy,
                "low": reward.low,
                "high": reward.high,
                "answers": reward.answers,
            }
            for reward in store.live.rewards(project_id)
        ],
        "episode": episode_view(store, project_id),
    }


def episode_view(store: Store, project_id: int) -> dict[str, Any] | None:
    """The agent's last whole episode and what is known of it."""
    clip = store.live.last_episode(project_id)
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
