"""Statistics of all answers of a study. They are computed once for everybody who looks."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from anyio import CapacityLimiter, to_thread
from fastapi import Request
from fastapi.responses import HTMLResponse

from preferl.annotate.progress import moment
from preferl.shapes import FloatArray
from preferl.store.quality.agreement import (
    AgreementReport,
    ModelAgreement,
    agreement_report,
    agreement_with_people,
)
from preferl.store.quality.annotators import annotator_report
from preferl.store.store import Store

WIDTH = 560  # pixels of the chart of answers
HEIGHT = 96
RESAMPLES: Final = 500  # bootstrap resamples behind the interval of the agreement

BRIEF: Final = 0.1
"""If computing takes fewer seconds of processor time, it is done after every answer."""

REST: Final = 20.0
"""Pause after a longer computation, as a multiple of its time. Overviews then use 5 % of a core."""

LONGEST_REST: Final = 60.0  # longest pause in seconds, so that numbers are at most this old


@final
@dataclass(frozen=True)
class AnswerNumbers:
    """The numbers about all answers of a project that the overview shows."""

    people: dict[str, dict[str, Any]]  # for each name, a row of `AnnotatorReport`
    last_answers: dict[str, float]  # for each name, seconds since the epoch; 0 if there is none
    agreement: AgreementReport  # how far people agree with each other
    models: list[ModelAgreement]  # how far each model agrees with people
    chart: dict[str, Any] | None  # the count of answers as a line to draw


@final
class Overviews:
    """The newest `AnswerNumbers` of each project.

    One thread computes the numbers for everybody after new answers. If that is expensive, they are
    kept for a while, however many people look, so that people who answer need not wait.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._one_at_a_time = threading.Lock()
        # by project: the revision of the numbers, when they expire, and the numbers
        self._newest: dict[int, tuple[int, float, AnswerNumbers]] = {}

    def of(self, project_id: int) -> AnswerNumbers:
        """Return the numbers of a project, at most `LONGEST_REST` seconds old."""
        with self._one_at_a_time:
            newest = self._newest.get(project_id)
            if newest is not None and time.monotonic() < newest[1]:
                return newest[2]
            revision = self._store.reports.revision(project_id)
            if newest is not None and newest[0] == revision:
                return newest[2]
            began = time.thread_time()
            numbers = _numbers(self._store, project_id)
            seconds = time.thread_time() - began
            rest = min(REST * seconds, LONGEST_REST) if seconds > BRIEF else 0.0
            self._newest[project_id] = (revision, time.monotonic() + rest, numbers)
            return numbers


async def in_turn(request: Request, look: Callable[[], HTMLResponse]) -> HTMLResponse:
    """Render overview pages in a thread, one page at a time.

    Waiting requests hold no thread, because people who answer need the threads. Between two pages
    there is a pause, as long as the first page took.
    """
    looking: CapacityLimiter = request.app.state.looking
    async with looking:
        began = time.monotonic()
        page = await to_thread.run_sync(look)
        if looking.statistics().tasks_waiting:
            await asyncio.sleep(time.monotonic() - began)
    return page


def _numbers(store: Store, project_id: int) -> AnswerNumbers:
    votes = store.queries.votes(project_id)
    last = np.zeros(len(votes.names))
    np.maximum.at(last, votes.annotator, votes.answered_at)
    return AnswerNumbers(
        people={str(row["name"]): row for row in annotator_report(votes).rows()},
        last_answers=dict(zip(votes.names, last.tolist(), strict=True)),
        agreement=agreement_report(votes, np.random.default_rng(0), resamples=RESAMPLES),
        models=agreement_with_people(votes),
        chart=_answers_over_time(votes.answered_at),
    )


def _answers_over_time(answered_at: FloatArray) -> dict[str, Any] | None:
    """Return the count of answers over time as a line to draw; None for fewer than two answers."""
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
