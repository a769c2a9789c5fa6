"""The pages that people see, their personal links, and the clips."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.responses import Response

from preferl.annotate.learning import episode_view
from preferl.annotate.people import (
    Anyone,
    begin_session,
    csrf_of,
    end_session,
    limited,
    meant,
    require_own_page,
    store_of,
    whoever,
)
from preferl.store.clips import CLIP_ID

router = APIRouter()

HEADINGS = {
    400: "That does not go together",
    401: "Open your personal link",
    403: "Not for you",
    404: "Nothing here",
    429: "One moment",
    503: "One moment",
}


def page(
    request: Request,
    name: str,
    context: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """A template as a response."""
    template = request.app.state.templates.get_template(name)
    person = context.get("person")
    known: dict[str, Any] = {"csrf": "", "person": person, "films": False}
    if person:
        known["csrf"] = csrf_of(request)
        known["films"] = store_of(request).reports.last_episode(person.project_id) is not None
    text = template.render(known | dict(context))
    return HTMLResponse(text, status, headers)


def message(
    request: Request, status: int, words: str, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    """A plain page that says one thing."""
    heading = HEADINGS.get(status, "That did not work")
    return page(request, "message.html", {"heading": heading, "words": words}, status, headers)


@router.get("/")
def answering(request: Request) -> Response:
    """Where pairs are answered; spectators see the work of others instead."""
    person = whoever(request)
    if person is None:
        words = (
            "Everybody who answers here has a link of their own. Open yours; if you have lost it, "
            "ask whoever invited you for a new one."
        )
        return message(request, 401, words)
    if person.role == "spectator":
        return RedirectResponse("/admin", 303)
    store = store_of(request)
    project = store.projects.get(person.project_id)
    examples = []
    for query in store.questions.examples(project.id):
        clips, known = (query.first_clip, query.second_clip), float(query.known or 0.0)
        better, worse = clips if known >= 0.5 else reversed(clips)
        note = str((query.detail or {}).get("note", ""))
        example = {"better": better, "worse": worse, "equal": known == 0.5, "note": note}
        examples.append(example)
    read = repr((project.question, project.instructions, examples, project.qualification))
    context = {
        "person": person,
        "project": project,
        "examples": examples,
        "version": hashlib.blake2b(read.encode(), digest_size=8).hexdigest(),
        "qualifying": project.qualification > 0
        and person.role != "admin"
        and person.qualified_at is None,
    }
    return page(request, "answering.html", context)


@router.get("/join/{secret}", dependencies=[Depends(limited("request"))])
def join(request: Request, secret: str) -> Response:
    """A personal link: signs in. One that opens a few times only asks before.

    Programs that look at links in messages, to show what is behind them, would use it up.
    """
    person = store_of(request).people.by_secret(secret)
    if person is not None and person.link_uses is not None:
        project = store_of(request).projects.get(person.project_id)
        return page(request, "join.html", {"project": project, "name": person.name})
    return _sign_in(request, secret)


@router.post("/join/{secret}", dependencies=[Depends(limited("request"))])
def join_once(request: Request, secret: str) -> RedirectResponse:
    """Sign in by a personal link that asked before."""
    require_own_page(request)
    return _sign_in(request, secret)


def _sign_in(request: Request, secret: str) -> RedirectResponse:
    if begin_session(request, secret) is None:
        raise HTTPException(
            401, "This link is not valid, or not any more. Ask whoever sent it for a new one."
        )
    return RedirectResponse("/", 303)


@router.post("/leave")
def leave(request: Request, csrf: Annotated[str, Form(max_length=100)] = "") -> RedirectResponse:
    """Sign out: the session of this browser has ended, for whoever else has its cookie, too."""
    meant(request, csrf)
    end_session(request)
    return RedirectResponse("/", 303)


@router.get("/episode")
def episode(request: Request, person: Anyone) -> HTMLResponse:
    """The agent's last whole episode."""
    store = store_of(request)
    context = {
        "person": person,
        "project": store.projects.get(person.project_id),
        "episode": episode_view(store, person.project_id),
    }
    return page(request, "episode.html", context)


@router.get("/media/{clip}.mp4")
def media(request: Request, clip: str, person: Anyone) -> FileResponse:
    """A clip of the person's own project; its name is a digest, so it never changes."""
    if not CLIP_ID.fullmatch(clip):
        raise HTTPException(404, "There is no such clip.")
    path = store_of(request).clips.video_path(person.project_id, clip)
    folder = path.parent.resolve()
    if path.resolve().parent != folder or not path.is_file():  # no link leads out of the folder
        raise HTTPException(404, "There is no such clip.")
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return FileResponse(path, media_type="video/mp4", headers=headers)


@router.get("/healthz")
def health(request: Request) -> PlainTextResponse:
    """Whether the labels can be reached."""
    store_of(request).projects.all()
    return PlainTextResponse("ok")
