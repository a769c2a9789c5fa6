"""What those see who run a study: people, agreement, progress; and what they change."""

import tempfile
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any, Literal
from weakref import finalize

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi import Path as PathOf
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.responses import Response

from preferl.annotate.pages import page
from preferl.annotate.people import Administering, Watching, limited, meant, store_of
from preferl.annotate.standing import standing
from preferl.store.people import LONGEST_NAME
from preferl.store.schema import Annotator, Role


def _meant(request: Request, csrf: Annotated[str, Form(max_length=100)] = "") -> None:
    meant(request, csrf)


router = APIRouter(prefix="/admin")
CHANGES = [Depends(limited("request")), Depends(_meant)]
LARGEST_NUMBER = 2**31 - 1
"""Of a row, in every database."""

TYPES = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
}


@router.get("", dependencies=[Depends(limited("overview"))])
def overview(request: Request, person: Watching) -> HTMLResponse:
    """How the study stands; spectators see no forms."""
    return _overview(request, person)


@router.post("/invite", dependencies=[*CHANGES, Depends(limited("overview"))])
def invite(
    request: Request,
    person: Administering,
    name: Annotated[str, Form(min_length=1, max_length=LONGEST_NAME)],
    role: Annotated[Role, Form()] = "annotator",
) -> HTMLResponse:
    """Let somebody in and show their link, this once."""
    store = store_of(request)
    invitation = store.people.invite(person.project_id, name, role)
    known = {"name": invitation.annotator.name, "role": role}
    store.events.add(person.project_id, "invited", annotator_id=person.id, detail=known)
    base = request.app.state.settings.public_url or str(request.base_url)
    link = {"name": known["name"], "url": f"{base.rstrip('/')}/join/{invitation.secret}"}
    return _overview(request, person, link=link)


@router.post("/people/{number}", dependencies=CHANGES)
def change_person(
    request: Request,
    person: Administering,
    number: Annotated[int, PathOf(ge=1, le=LARGEST_NUMBER)],
    act: Annotated[Literal["role", "end", "restore", "qualify"], Form()],
    role: Annotated[Role, Form()] = "annotator",
) -> Response:
    """Change what somebody of this study may do."""
    store = store_of(request)
    other = store.people.get(number)
    if other.project_id != person.project_id:
        raise HTTPException(404, "There is nobody of this number here.")
    if other.id == person.id:
        raise HTTPException(400, "You cannot change yourself; another admin can.")
    change: dict[str, tuple[str, dict[str, Any]]] = {
        "role": ("role", {"role": role}),
        "end": ("ended", {"disabled": True}),
        "restore": ("restored", {"disabled": False}),
        "qualify": ("qualified", {"qualified": True}),
    }
    kind, changes = change[act]
    store.people.update(number, **changes)
    known = {"name": other.name, "role": role}
    store.events.add(person.project_id, kind, annotator_id=person.id, detail=known)
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
    """Change what is asked, of how many people, and whether."""
    store = store_of(request)
    before = store.projects.get(person.project_id)
    wanted = {
        "title": title.strip() or before.slug,
        "question": question.strip(),
        "instructions": instructions.replace("\r\n", "\n").strip(),
        "quorum": quorum,
        "budget": int(budget) if budget.strip() else None,
        "paused": paused,
    }
    changed = {name: value for name, value in wanted.items() if getattr(before, name) != value}
    if changed:
        store.projects.update(person.project_id, **changed)
        names = {"changed": ", ".join(changed)}
        store.events.add(person.project_id, "settings", annotator_id=person.id, detail=names)
    return RedirectResponse("/admin", 303)


@router.get("/export/{format}", dependencies=[Depends(limited("export"))])
def export(
    request: Request,
    person: Administering,
    format: Literal["jsonl", "csv", "parquet"],  # noqa: A002 (part of the address)
) -> FileResponse:
    """Every answer of the study as a file."""
    from preferl.store.exchange import export_answers  # what it needs is needed only here

    store = store_of(request)
    name = f"{store.projects.get(person.project_id).slug}-answers.{format}"
    folder = Path(tempfile.mkdtemp(prefix="preferl-export-"))
    try:
        export_answers(store, person.project_id, folder / name, format=format)
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    reply = FileResponse(folder / name, media_type=TYPES[format], filename=name)
    # A background task would not run where the browser is gone, or asks for a part that is none.
    finalize(reply, rmtree, folder, ignore_errors=True)
    return reply


def _overview(
    request: Request, person: Annotator, link: dict[str, str] | None = None
) -> HTMLResponse:
    store = store_of(request)
    context: dict[str, Any] = {
        "person": person,
        "project": store.projects.get(person.project_id),
        "may_change": person.role == "admin",
        "link": link,
        **standing(store, person.project_id),
    }
    return page(request, "admin.html", context)
