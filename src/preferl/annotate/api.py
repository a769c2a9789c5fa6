"""The API that the page's scripts call. Every change carries the session's CSRF token."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from preferl.annotate.limits import limited
from preferl.annotate.progress import COUNTED_WITHIN, Tally, live_view, media_url
from preferl.annotate.sessions import Answering, Anyone, require_csrf, store_of
from preferl.store.clips import CLIP_ID
from preferl.store.queue import LeasedQuery
from preferl.store.ratings import RecordedRating
from preferl.store.schema import HIGHEST_RATING, Annotator, Outcome, Rating


def _meant(request: Request, x_csrf_token: Annotated[str, Header(max_length=100)] = "") -> None:
    require_csrf(request, x_csrf_token)


router = APIRouter(prefix="/api")
CHANGES = [Depends(limited("request")), Depends(_meant)]

Token = Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,100}$")]
Key = Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{16,64}$")]


class Body(BaseModel):
    """A request's JSON; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ClaimBody(Body):
    """How many queries the browser wants to hold."""

    count: Annotated[int, Field(ge=1, le=4)] = 2


class UndoBody(ClaimBody):
    """A request to undo the last answer; the key makes sure that it is undone only once."""

    key: Key


class ViewingBody(Body):
    """How a person watched a pair: full loops, the last speed, and single steps."""

    loops: Annotated[int, Field(ge=0, le=100_000)] = 0
    speed: Annotated[float, Field(gt=0, le=16)] = 1.0
    steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class AnswerBody(ClaimBody):
    """A person's answer to a query, and how many queries the browser wants to hold next."""

    token: Token
    key: Key
    kind: Literal["left", "right", "equal", "cannot_tell", "skip"]
    strength: Literal["slight", "clear"] | None = None
    response_ms: Annotated[float, Field(ge=0, le=7 * 86_400_000)] | None = None
    shown: ViewingBody = ViewingBody()


class RateBody(Body):
    """A person's new rating and outcome of a clip; sending its `key` again changes nothing."""

    clip: Annotated[str, Field(pattern=CLIP_ID.pattern)]
    key: Key
    rating: Annotated[int, Field(ge=1, le=HIGHEST_RATING, strict=True)] | None = None
    outcome: Outcome | None = None


class UnrateBody(Body):
    """A request to undo the last change of a rating or outcome; the key makes sure of only once."""

    key: Key


class HoldBody(Body):
    """Queries that a person is still looking at."""

    tokens: Annotated[list[Token], Field(max_length=16)]


class ReleaseBody(HoldBody):
    """Queries to release. The CSRF token is in the body, as browser beacons send no headers."""

    csrf: Annotated[str, Field(max_length=100)] = ""


def _claim(request: Request, person: Annotator, count: int) -> dict[str, Any]:
    """Fill up the queries that a person holds; return the queries and the progress."""
    claimed = store_of(request).queue.claim(person.project_id, person.id, count)
    tally: Tally = request.app.state.news.tally
    return {
        "state": claimed.state,
        "queries": _views(request, person, claimed.queries, rated=claimed.ratings),
        "progress": tally.of(person.project_id, person.id, within=COUNTED_WITHIN),
    }


def _views(
    request: Request, person: Annotator, queries: Sequence[LeasedQuery], *, rated: bool
) -> list[dict[str, Any]]:
    """Return what a browser needs to show pairs; it must not tell why a pair is asked.

    If `rated` is true, the person's ratings and outcomes of these clips are included.
    """
    rows: dict[str, Rating] = {}
    if rated:
        clips = [clip for query in queries for clip in (query.left, query.right)]
        rows = store_of(request).ratings.of_person(person.id, clips)
    return [
        {
            "token": query.token,
            "left": media_url(query.left),
            "right": media_url(query.right),
            "task": query.task,
            "rated": {
                clip: {"rating": rows[clip].rating, "outcome": rows[clip].outcome}
                for clip in (query.left, query.right)
                if clip in rows
            },
        }
        for query in queries
    ]


def _rating_view(recorded: RecordedRating | None) -> dict[str, Any]:
    """Return the rating and outcome of a clip now; `clip` is None if nothing could be undone."""
    return {"clip": None} if recorded is None else recorded._asdict()


@router.post("/claim", dependencies=CHANGES)
def claim(request: Request, person: Answering, body: ClaimBody) -> dict[str, Any]:
    """Fill up the queries that this person holds, and return them."""
    return _claim(request, person, body.count)


@router.post("/answer", dependencies=CHANGES)
def answer(request: Request, person: Answering, body: AnswerBody) -> dict[str, Any]:
    """Record an answer on disk, then hand out the next queries."""
    answer_fields = body.model_dump(exclude={"shown", "count"})
    detail = {"shown": body.shown.model_dump()}
    store = store_of(request)
    recorded = store.queue.answer(person.id, **answer_fields, detail=detail)
    receipt = {"recorded": recorded.answer_id, "new": recorded.new}
    return receipt | _claim(request, person, body.count)


@router.post("/undo", dependencies=CHANGES)
def undo(request: Request, person: Answering, body: UndoBody) -> dict[str, Any]:
    """Undo this person's last answer, and lease the query to them again."""
    query = store_of(request).queue.undo(person.id, body.key)
    queries = [] if query is None else [query]
    views = _views(request, person, queries, rated=True)
    return {"query": views[0] if views else None} | _claim(request, person, body.count)


@router.post("/rate", dependencies=CHANGES)
def rate(request: Request, person: Answering, body: RateBody) -> dict[str, Any]:
    """Record this person's rating and outcome of a clip on disk, then return them."""
    store = store_of(request)
    if not store.projects.get(person.project_id).ratings:
        raise HTTPException(409, "Clips are not rated here.")
    recorded = store.ratings.rate(person.project_id, person.id, **body.model_dump())
    return _rating_view(recorded)


@router.post("/unrate", dependencies=CHANGES)
def unrate(request: Request, person: Answering, body: UnrateBody) -> dict[str, Any]:
    """Undo this person's last change of a rating or outcome; return the current ones."""
    return _rating_view(store_of(request).ratings.undo(person.project_id, person.id, body.key))


@router.post("/heartbeat", dependencies=CHANGES)
def heartbeat(request: Request, person: Answering, body: HoldBody) -> dict[str, Any]:
    """Extend the leases of queries; `kept` is false if this person holds none of them."""
    expires_at = store_of(request).queue.heartbeat(person.id, body.tokens)
    return {"kept": expires_at is not None}


@router.post("/release", dependencies=[Depends(limited("request"))])
def release(request: Request, person: Answering, body: ReleaseBody) -> dict[str, Any]:
    """End the leases on these queries, for example when a page is closed."""
    require_csrf(request, body.csrf)
    return {"released": store_of(request).queue.release(person.id, body.tokens)}


@router.get("/progress")
def progress(request: Request, person: Anyone) -> dict[str, Any]:
    """Return the progress, the reward's versions and the last episode."""
    tally = request.app.state.news.tally.of(person.project_id, person.id)
    return {"progress": tally, **live_view(store_of(request), person.project_id)}
