"""The page of answers, on which admins list, replay, withdraw and correct them."""

import secrets
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, HTTPException, Path as PathOf, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.responses import Response

from preferl.annotate.admin import LARGEST_NUMBER
from preferl.annotate.limits import limited
from preferl.annotate.overviews import in_turn
from preferl.annotate.pages import page
from preferl.annotate.progress import media_url, plural
from preferl.annotate.sessions import Administering, Watching, form_csrf, store_of
from preferl.errors import FeedbackError
from preferl.store.given_answers import MOST_COUNTED, GivenAnswer, Show
from preferl.store.schema import Annotator, Query as StoredQuery
from preferl.store.store import Store

router = APIRouter(prefix="/admin/answers")
LISTS: Final[dict[Show, tuple[str, str]]] = {
    "all": ("All", "The latest answer of each person to each pair, newest first."),
    "differing": ("Disagreement", "Answers to pairs that people answered differently."),
    "surprising": (
        "Reward error",
        "Answers that contradict the newest reward, most surprising first. The reward predicts "
        "answers that it learned from better than others.",
    ),
    "withdrawn": ("Withdrawn", "Answers that were withdrawn or undone. They do not count."),
}
"""Heading and explanation of each list of answers."""

WORDS: Final = {
    "left": "A is better",
    "right": "B is better",
    "equal": "Equal",
    "cannot_tell": "Can’t tell",
    "skip": "Later",
    "retract": "Withdrawn",
}

ChangeKey = Annotated[str, Form(pattern=r"^[0-9A-Za-z-]{16,64}$")]
Number = Annotated[int, Query(ge=1, le=LARGEST_NUMBER)]


@router.get("", dependencies=[Depends(limited("request"))])
async def browse(
    request: Request,
    person: Watching,
    show: Show = "all",
    who: Annotated[str, Query(pattern=r"^[0-9]{0,9}$")] = "",
    before: Number | None = None,
    after: Number | None = None,
    at: Number | None = None,
) -> HTMLResponse:
    """Show a page of answers, and one answer with its clips: number `at`, or the page's first one.

    With `before` or `after`, the page ends before the answer of that number, or begins after it. By
    default, it is the first page.
    """
    annotator = int(who) if who.strip("0") else None
    neighbour = {"before": before} if before else {"after": after} if after else {}
    return await in_turn(request, partial(_page, request, person, show, annotator, neighbour, at))


def _page(
    request: Request,
    person: Annotator,
    show: Show,
    annotator: int | None,
    neighbour: dict[str, int],
    at: int | None,
) -> HTMLResponse:
    store = store_of(request)
    project_id = person.project_id
    listed = store.answers.page(project_id, show=show, annotator_id=annotator, **neighbour)
    chosen = next(iter(listed.answers), None) if at is None else store.answers.get(project_id, at)
    if at is not None and chosen is None:
        raise HTTPException(404, "There is no answer of this number here.")
    people = store.people.all(project_id)
    numbers = [row.answer.id for row in listed.answers]
    row = numbers.index(chosen.answer.id) if chosen and chosen.answer.id in numbers else None
    query = {"show": show, "who": annotator or ""}
    context = {
        "person": person,
        "shown": LISTS,
        "show": show,
        "who": annotator,
        "people": people,
        "rows": [_view(row) for row in listed.answers],
        "total": _count_in_words(listed.total),
        "page_before": numbers[0] if numbers and listed.has_previous else None,
        "page_after": numbers[-1] if numbers and listed.has_next else None,
        "chosen": None if chosen is None else _details(store, project_id, chosen, people),
        "before": None if not row else numbers[row - 1],
        # If the answer left the list, as a withdrawn one does, the first one of the list is shown.
        "after": next(iter(numbers if row is None else numbers[row + 1 :]), None),
        "key": secrets.token_hex(16),
        "here": urlencode(query | neighbour),
        "link": lambda **more: f"?{urlencode(query | more)}",
    }
    return page(request, "answers.html", context)


@router.post("/{number}", dependencies=[Depends(limited("request")), Depends(form_csrf)])
def change(
    request: Request,
    person: Administering,
    number: Annotated[int, PathOf(ge=1, le=LARGEST_NUMBER)],
    key: ChangeKey,
    act: Annotated[Literal["left", "right", "equal", "cannot_tell", "withdraw"], Form()],
    back: Annotated[str, Form(pattern=r"^[0-9a-z=&]{0,100}$")] = "",
) -> Response:
    """Withdraw an answer, or correct it in the name of the admin."""
    store = store_of(request)
    project_id = person.project_id
    if store.answers.get(project_id, number) is None:
        raise HTTPException(404, "There is no answer of this number here.")
    try:
        if act == "withdraw":
            new_answer = store.answers.withdraw(
                project_id, number, by=person.id, key=f"{key}-{act}"
            )
        else:
            new_answer = store.answers.correct(
                project_id, number, by=person.id, key=f"{key}-{act}", kind=act
            )
    except FeedbackError as error:
        words = "This answer has changed, or cannot be changed. Look at it again."
        raise HTTPException(409, words) from error
    return RedirectResponse(f"/admin/answers?{back}&at={new_answer}", 303)


def _view(row: GivenAnswer) -> dict[str, Any]:
    """Return an answer in words."""
    answer = row.answer
    share = row.predicted
    preferred_left = {"left": 1.0, "right": 0.0}.get(answer.kind)
    contradicts = (
        share is not None
        and preferred_left is not None
        and (preferred_left - 0.5) * (share - 0.5) < 0
    )
    return {
        "id": answer.id,
        "kind": answer.kind,
        "query": row.query.id,
        "purpose": row.query.purpose,
        "name": row.name,
        "at": answer.answered_at,
        "words": WORDS[answer.kind],
        "strength": answer.strength,
        "seconds": None if answer.response_ms is None else answer.response_ms / 1000,
        "predicted": None if share is None else _predicted(share),
        "wrong": contradicts,
        "counts": row.counts,
    }


def _count_in_words(total: int) -> str:
    """Return in words how many answers a list has.

    >>> _count_in_words(1), _count_in_words(10_001)
    ('1 answer', 'more than 10,000 answers')
    """
    return f"more than {plural(MOST_COUNTED)}" if total > MOST_COUNTED else plural(total)


def _predicted(left: float) -> str:
    """Return the side that the reward expects, with its probability.

    >>> _predicted(0.1)
    'B, 90 %'
    """
    side, share = ("A", left) if left >= 0.5 else ("B", 1 - left)
    return f"{side}, {100 * share:.0f} %"


def _consequence(query: StoredQuery, name: str, counted: int) -> str:
    """Say in words what happens to a query if its current answer is withdrawn."""
    if query.purpose == "known":
        return f"{name} may be asked about the pair again"
    waits = query.purpose == "ask" and query.cancelled_at is None and counted <= query.quorum
    return "the pair waits for another answer" if waits else "nobody is asked about the pair again"


def _details(
    store: Store, project_id: int, chosen: GivenAnswer, people: list[Any]
) -> dict[str, Any]:
    """Return an answer with its clips and the whole history of its query."""
    names = {person.id: person.name for person in people}
    answers = store.answers.history(project_id, chosen.query.id)
    latest = {row.answer.annotator_id: row.answer.id for row in answers}
    history: list[dict[str, Any]] = []
    for row in answers:
        detail = row.answer.detail or {}
        # Other people may have seen the sides swapped; words name those of the selected answer.
        turned = row.answer.swapped != chosen.answer.swapped
        kind = {"left": "right", "right": "left"}.get(row.answer.kind, row.answer.kind)
        words = WORDS[kind if turned else row.answer.kind]
        if row.answer.kind == "retract":
            words = f"Withdrawn by {names.get(detail.get('by'), row.name)}"
        elif "corrects" in detail:
            words += ", as a correction"
        counts = row.counts and latest[row.answer.annotator_id] == row.answer.id
        history.append(
            {"name": row.name, "at": row.answer.answered_at, "words": words, "counts": counts}
        )
    current = latest[chosen.answer.annotator_id] == chosen.answer.id
    return _view(chosen) | {
        "sides": [media_url(clip) for clip in chosen.sides],
        "drawn": chosen.query.ready,
        "history": history,
        "then": _consequence(chosen.query, chosen.name, sum(row["counts"] for row in history)),
        "current": current,
        "may_withdraw": current and chosen.counts,
        "may_correct": current and chosen.query.purpose != "repeat",
    }
