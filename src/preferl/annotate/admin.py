"""The overview for people who run a study: annotators, agreement, progress and settings."""

import tempfile
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any, Literal
from weakref import finalize

from fastapi import APIRouter, Depends, Form, HTTPException, Path as PathOf, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.responses import Response

from preferl.annotate.limits import limited
from preferl.annotate.overviews import AnswerNumbers, Overviews, in_turn
from preferl.annotate.pages import page
from preferl.annotate.progress import COUNTED_WITHIN, Tally, program_words, reward_words
from preferl.annotate.sessions import Administering, Watching, form_csrf, store_of
from preferl.store.people import LONGEST_NAME
from preferl.store.schema import Annotator, RewardVersion, Role
from preferl.store.store import Store

router = APIRouter(prefix="/admin")
CHANGES = [Depends(limited("request")), Depends(form_csrf)]
LARGEST_NUMBER = 2**31 - 1  # the largest row number that fits into every database
EVENTS_SHOWN = 12  # events that are shown

EVENTS = {
    "invited": "{name} was invited as {role}",
    "role": "{name} became {role}",
    "ended": "access of {name} was ended",
    "restored": "{name} was let in again",
    "settings": "settings were changed: {changed}",
    "revoked": "the link of {name} was ended",
    "qualified": "{name} was qualified by hand",
    "withdrew": "an answer of {name} to pair {query} was withdrawn",
    "corrected": "an answer of {name} to pair {query} was corrected",
}

REASONS = {
    "careless": "about {careless_share:.0%} of answers look random",
    "known pairs": "only {known_accuracy:.0%} of {known} known pairs right",
    "too fast": "{too_fast:.0%} of answers too fast to have looked",
    "one side": "{left_rate:.0%} left",
    "streak": "{streak} times the same side in a row",
}
"""Words for each reason in an annotator's report to check their answers."""

ACTS: dict[str, tuple[str, dict[str, bool]]] = {
    "role": ("role", {}),
    "end": ("ended", {"disabled": True}),
    "restore": ("restored", {"disabled": False}),
    "qualify": ("qualified", {"qualified": True}),
}
"""What an admin can change about a person: the event's name, and the changed columns."""

TYPES = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
}


@router.get("", dependencies=[Depends(limited("overview"))])
async def overview(request: Request, person: Watching) -> HTMLResponse:
    """Show the progress of the study; spectators see no forms."""
    return await in_turn(request, partial(_overview, request, person))


@router.post("/invite", dependencies=[*CHANGES, Depends(limited("overview"))])
def invite(
    request: Request,
    person: Administering,
    name: Annotated[str, Form(min_length=1, max_length=LONGEST_NAME)],
    role: Annotated[Role, Form()] = "annotator",
) -> HTMLResponse:
    """Invite a person and show their link, this once."""
    store = store_of(request)
    invitation = store.people.invite(person.project_id, name, role)
    detail = {"name": invitation.annotator.name, "role": role}
    store.reports.add_event(person.project_id, "invited", annotator_id=person.id, detail=detail)
    base = request.app.state.settings.public_url or str(request.base_url)
    link = {"name": detail["name"], "url": f"{base.rstrip('/')}/join/{invitation.secret}"}
    return _overview(request, person, link=link)


@router.post("/people/{number}", dependencies=CHANGES)
def change_person(
    request: Request,
    person: Administering,
    number: Annotated[int, PathOf(ge=1, le=LARGEST_NUMBER)],
    act: Annotated[Literal["role", "end", "restore", "qualify"], Form()],
    role: Annotated[Role, Form()] = "annotator",
) -> Response:
    """Change what a person of this study may do."""
    store = store_of(request)
    other = store.people.get(number)
    if other.project_id != person.project_id:
        raise HTTPException(404, "Nobody here has this number.")
    if other.id == person.id:
        raise HTTPException(400, "You cannot change yourself; another admin can.")
    kind, changes = ACTS[act]
    already_so = {
        "role": other.role == role,
        "end": other.disabled_at is not None,
        "restore": other.disabled_at is None,
        "qualify": other.qualified_at is not None,
    }
    if already_so[act]:  # a browser may send the same form again
        return RedirectResponse("/admin", 303)
    store.people.update(number, role=role if act == "role" else None, **changes)
    detail = {"name": other.name, "role": role}
    store.reports.add_event(person.project_id, kind, annotator_id=person.id, detail=detail)
    return RedirectResponse("/admin", 303)


@router.post("/project", dependencies=CHANGES)
def change_project(
    request: Request,
    person: Administering,
    title: Annotated[str, Form(min_length=1, max_length=120)],
    question: Annotated[str, Form(min_length=1, max_length=300)],
    quorum: Annotated[int, Form(ge=1, le=1000)],
    instructions: Annotated[str, Form(max_length=20_000)] = "",
    budget: Annotated[str, Form(pattern=r"^ *[0-9]{0,9} *$")] = "",
    paused: Annotated[bool, Form()] = False,
) -> Response:
    """Change settings of the project, such as its question, its quorum and whether it is paused."""
    store = store_of(request)
    project = store.projects.get(person.project_id)
    settings = {
        "title": title.strip() or project.slug,
        "question": question.strip(),
        "instructions": instructions.replace("\r\n", "\n").strip(),
        "quorum": quorum,
        "budget": int(budget) if budget.strip() else None,
        "paused": paused,
    }
    changed = {name: value for name, value in settings.items() if getattr(project, name) != value}
    if changed:
        store.projects.update(person.project_id, **changed)
        names = {"changed": ", ".join(changed)}
        store.reports.add_event(person.project_id, "settings", annotator_id=person.id, detail=names)
    return RedirectResponse("/admin", 303)


@router.get("/export/{format}", dependencies=[Depends(limited("export"))])
def export(
    request: Request,
    person: Administering,
    format: Literal["jsonl", "csv", "parquet"],  # noqa: A002 (part of the address)
    rows: Literal["answers", "ratings"] = "answers",
) -> FileResponse:
    """Send every answer of the study as a file, or every rating and outcome."""
    from preferl.store.exchange.exports import export_answers  # loads packages that write tables
    from preferl.store.exchange.ratings import export_ratings

    store = store_of(request)
    write = {"answers": export_answers, "ratings": export_ratings}[rows]
    name = f"{store.projects.get(person.project_id).slug}-{rows}.{format}"
    folder = Path(tempfile.mkdtemp(prefix="preferl-export-"))
    try:
        write(store, person.project_id, folder / name)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    reply = FileResponse(folder / name, media_type=TYPES[format], filename=name)
    # A background task would not run if the browser is gone or asks for an impossible range.
    finalize(reply, rmtree, folder, ignore_errors=True)
    return reply


def _overview(
    request: Request, person: Annotator, link: dict[str, str] | None = None
) -> HTMLResponse:
    store = store_of(request)
    project_id = person.project_id
    overviews: Overviews = request.app.state.overviews
    numbers = overviews.of(project_id)
    tally: Tally = request.app.state.news.tally
    # Admins see the effect of their own changes at once.
    within = 0.0 if person.role == "admin" else COUNTED_WITHIN
    progress = tally.of(project_id, within=within)
    rewards = store.reports.rewards(project_id)
    context = {
        "person": person,
        "link": link,
        "progress": progress,
        "statement": progress["statement"],
        "people": _people(store, project_id, numbers),
        "has_known": store.queries.count_known(project_id) > 0,
        "agreement": numbers.agreement,
        "models": numbers.models,
        "chart": numbers.chart,
        "events": _events(store, project_id, rewards),
        "programs": program_words(store.reports.services(project_id)),
        "reward": rewards[-1] if rewards else None,
        "now": store.reports.clock(),
    }
    return page(request, "admin.html", context)


def _events(store: Store, project_id: int, rewards: list[RewardVersion]) -> list[tuple[float, str]]:
    """List events and published rewards with their times, newest first."""
    latest = store.reports.latest_events(project_id, EVENTS_SHOWN)
    events = [(event.at, _words(event.kind, event.detail or {})) for event in latest]
    for reward in rewards[-EVENTS_SHOWN:]:
        text = f"reward version {reward.version} was published: {reward_words(reward)}"
        events.append((reward.published_at, text))
    return sorted(events, key=lambda event: event[0], reverse=True)[:EVENTS_SHOWN]


def _people(store: Store, project_id: int, numbers: AnswerNumbers) -> list[dict[str, Any]]:
    """Return a row for each person: how they answer, what is suspicious, and their last visit."""
    signed_in = store.people.last_sign_ins(project_id)
    rows = []
    for person in store.people.all(project_id):
        row = numbers.people.get(person.name, {"answers": 0, "reasons": []})
        words = (REASONS.get(reason, reason).format_map(row) for reason in row["reasons"])
        reason_texts = [
            text.replace("%", " %") for text in words
        ]  # the page writes a space before it
        last_answer = numbers.last_answers.get(person.name)
        times = {"last": last_answer, "signed_in": signed_in.get(person.id)}
        rows.append({**row, **times, "who": person, "why": reason_texts})
    return rows


def _words(kind: str, detail: dict[str, Any]) -> str:
    try:
        return EVENTS[kind].format(**detail)
    except KeyError:  # another program's kind of event, or another version's
        return kind.replace("_", " ")
