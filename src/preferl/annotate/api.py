"""What the page's scripts ask for; every change carries proof that it was meant."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Request
from pydantic import BaseModel, ConfigDict, Field

from preferl.annotate.learning import claim_view, live_view, question_view
from preferl.annotate.people import Answering, Anyone, limited, meant, store_of, tally_of
from preferl.store.schema import Annotator


def _meant(request: Request, x_csrf_token: Annotated[str, Header(max_length=100)] = "") -> None:
    meant(request, x_csrf_token)


router = APIRouter(prefix="/api")
CHANGES = [Depends(limited("request")), Depends(_meant)]

Token = Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,100}$")]
Key = Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{16,64}$")]
Count = Annotated[int, Field(ge=1, le=4)]
Tokens = Annotated[list[Token], Field(max_length=16)]


class Body(BaseModel):
    """A request's JSON, in which nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Claiming(Body):
    """How many questions to hold."""

    count: Count = 2


class Shown(Body):
    """How a pair was looked at: whole repetitions, speed at the end, single steps."""

    loops: Annotated[int, Field(ge=0, le=100_000)] = 0
    speed: Annotated[float, Field(gt=0, le=16)] = 1.0
    steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class Answered(Body):
    """What a person said about a question, and how many to hold next."""

    token: Token
    key: Key
    kind: Literal["left", "right", "equal", "cannot_tell", "skip"]
    strength: Literal["slight", "clear"] | None = None
    response_ms: Annotated[float, Field(ge=0, le=7 * 86_400_000)] | None = None
    shown: Shown = Shown()
    count: Count = 2


class Undoing(Body):
    """Take the last answer back; the key makes sure that it is done once."""

    key: Key
    count: Count = 2


class Holding(Body):
    """Questions that are still looked at."""

    tokens: Tokens


class Releasing(Holding):
    """Questions that are no longer; beacons carry no headers, so the proof is here."""

    csrf: Annotated[str, Field(max_length=100)] = ""


def _held(request: Request, person: Annotator, count: int) -> dict[str, Any]:
    held = store_of(request).queue.claim(person.project_id, person.id, count)
    return claim_view(tally_of(request), held, person.project_id, person.id)


@router.post("/claim", dependencies=CHANGES)
def claim(request: Request, person: Answering, body: Claiming) -> dict[str, Any]:
    """The questions that this person holds, filled up."""
    return _held(request, person, body.count)


@router.post("/answer", dependencies=CHANGES)
def answer(request: Request, person: Answering, body: Answered) -> dict[str, Any]:
    """Record an answer, on disk before this returns, and hand out what comes next."""
    recorded = store_of(request).queue.answer(
        person.id,
        body.token,
        body.key,
        body.kind,
        strength=body.strength,
        response_ms=body.response_ms,
        detail={"shown": body.shown.model_dump()},
    )
    recorded_as = {"recorded": recorded.answer_id, "new": recorded.new}
    return recorded_as | _held(request, person, body.count)


@router.post("/undo", dependencies=CHANGES)
def undo(request: Request, person: Answering, body: Undoing) -> dict[str, Any]:
    """Take back this person's last answer; its question is with them again."""
    question = store_of(request).queue.undo(person.id, body.key)
    back = None if question is None else question_view(question)
    return {"question": back} | _held(request, person, body.count)


@router.post("/heartbeat", dependencies=CHANGES)
def heartbeat(request: Request, person: Answering, body: Holding) -> dict[str, Any]:
    """Keep questions for longer; `kept` is false where none is this person's any more."""
    expires_at = store_of(request).queue.heartbeat(person.id, body.tokens)
    return {"kept": expires_at is not None}


@router.post("/release", dependencies=[Depends(limited("request"))])
def release(request: Request, person: Answering, body: Releasing) -> dict[str, Any]:
    """Let others have these questions, as when a page is closed."""
    meant(request, body.csrf)
    return {"released": store_of(request).queue.release(person.id, body.tokens)}


@router.get("/progress")
def progress(request: Request, person: Anyone) -> dict[str, Any]:
    """How far the work is, the reward's versions and the last episode."""
    own = tally_of(request).of(person.project_id, person.id)
    return {"progress": own} | live_view(store_of(request), person.project_id)
