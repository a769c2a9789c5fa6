"""The pages that people see, their personal links, and the clips."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from anyio import to_thread
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.responses import Response

from preferl.annotate.limits import limited
from preferl.annotate.progress import ago, episode_view, moment, reward_words
from preferl.annotate.sessions import (
    Anyone,
    begin_session,
    csrf_of,
    end_session,
    form_csrf,
    opened_elsewhere,
    require_own_page,
    store_of,
    whoever,
)
from preferl.store.clips import CLIP_ID
from preferl.store.people import OWNER
from preferl.store.store import Store

router = APIRouter()

HEADINGS = {
    400: "These inputs do not go together",
    401: "Open your personal link",
    403: "Not for you",
    404: "Nothing here",
    429: "One moment",
    503: "One moment",
}


def templates(static: str) -> Environment:
    """Return the templates of all pages. They link to static files at the address `static`."""
    environment = Environment(
        loader=PackageLoader("preferl.annotate"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["static"] = static
    environment.filters.update(ago=ago, moment=moment, prose=prose, reward_words=reward_words)
    return environment


def page(
    request: Request,
    name: str,
    context: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """Return a rendered template as a response."""
    person = context.get("person")
    defaults: dict[str, Any] = {"csrf": "", "person": person, "films": False}
    if person:
        store = store_of(request)
        defaults = {
            "csrf": csrf_of(request),
            "project": store.projects.get(person.project_id),
            "may_change": person.role == "admin",
            "films": store.reports.last_episode(person.project_id) is not None,
        }
    text = request.app.state.templates.get_template(name).render(defaults | dict(context))
    return HTMLResponse(text, status, headers)


def message(
    request: Request, status: int, words: str, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    """Return a plain page with one message."""
    heading = HEADINGS.get(status, "That did not work")
    return page(request, "message.html", {"heading": heading, "words": words}, status, headers)


@router.get("/")
def answering(request: Request) -> Response:
    """Return the page on which people answer pairs, or for spectators the page that they watch."""
    person = whoever(request)
    if person is None:
        words = (
            "Everybody who answers here has a link of their own. Open yours; if you have lost it, "
            "ask the person who invited you for a new one."
        )
        return message(request, 401, words)
    if person.role == "spectator":
        return RedirectResponse("/admin", 303)
    store = store_of(request)
    project = store.projects.get(person.project_id)
    examples = []
    for query in store.queries.examples(project.id):
        clips = (query.first_clip, query.second_clip)
        known = float(query.known or 0.0)
        better, worse = clips if known >= 0.5 else reversed(clips)
        about = {"equal": known == 0.5, "note": str((query.detail or {}).get("note", ""))}
        examples.append({"better": better, "worse": worse, **about})
    read = repr((project.question, project.instructions, examples, project.qualification))
    settled = person.role == "admin" or person.qualified_at is not None
    has_known = store.queries.count_known(project.id) > 0
    context = {
        "person": person,
        "examples": examples,
        "version": hashlib.blake2b(read.encode(), digest_size=8).hexdigest(),
        "qualifying": project.qualification > 0 and has_known and not settled,
        "some_known": project.known_share > 0 and has_known,
        "some_repeated": project.repeat_share > 0,
    }
    return page(request, "answering.html", context)


@router.get("/join/{secret}", dependencies=[Depends(limited("request"))])
def join(request: Request, secret: str) -> Response:
    """Sign in by a personal link, or show a page that asks first.

    The page asks first in two cases. First, another site has opened the link, and would sign a
    person in under another name. Second, the link opens only a few times, and chat programs fetch
    links for a preview. Owners are not asked, since the owner of one project is the owner of all.
    """
    person = store_of(request).people.by_secret(secret)
    if person is None:
        return begin_session(request, secret)
    current = whoever(request)
    replaced = None
    if current is not None and current.id != person.id:
        replaced = current.name
    same_owner = replaced == OWNER and person.name == OWNER
    asks = replaced is not None and not same_owner and opened_elsewhere(request)
    if not asks and person.link_uses is None:
        return begin_session(request, secret)
    context = {
        "project": store_of(request).projects.get(person.project_id),
        "name": person.name,
        "replaced": replaced,
        "limited": person.link_uses is not None,
    }
    return page(request, "join.html", context)


@router.post("/join/{secret}", dependencies=[Depends(limited("request"))])
def join_once(request: Request, secret: str) -> RedirectResponse:
    """Sign in by a personal link, after the page that asks first."""
    require_own_page(request)
    return begin_session(request, secret)


@router.post("/leave", dependencies=[Depends(form_csrf)])
def leave(request: Request) -> RedirectResponse:
    """Sign out: end this browser's session, so that copies of its cookie become void, too."""
    return end_session(request)


@router.get("/episode")
def episode(request: Request, person: Anyone) -> HTMLResponse:
    """Return the page with the agent's last whole episode."""
    shown = episode_view(store_of(request), person.project_id)
    return page(request, "episode.html", {"person": person, "episode": shown})


@router.get("/media/{clip}.mp4")
async def media(request: Request, clip: str, person: Anyone) -> FileResponse:
    """Send a clip's video from the person's own project. It never changes, as its name is a digest.

    Only a few threads fetch from object storage, so that answers never wait for it.
    """
    about = (store_of(request), person.project_id, clip)
    fetching = request.app.state.fetching
    path = await to_thread.run_sync(_video, *about, False)
    path = path or await to_thread.run_sync(_video, *about, True, limiter=fetching)
    if path is None:
        raise HTTPException(404, "There is no such clip.")
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return FileResponse(path, media_type="video/mp4", headers=headers)


def _video(store: Store, project_id: int, clip: str, fetch: bool) -> Path | None:
    """Return the file of a clip's video; None if it is missing or links out of its folder."""
    if not CLIP_ID.fullmatch(clip):
        return None
    path = store.clips.video_path(project_id, clip, fetch=fetch)
    inside = path.resolve().parent == path.parent.resolve()
    return path if inside and path.is_file() else None


@router.get("/healthz")
def health(request: Request) -> PlainTextResponse:
    """Return whether the labels can be reached."""
    store_of(request).projects.all()
    return PlainTextResponse("ok")


MARKDOWN: Final = MarkdownIt("zero").enable("list")  # paragraphs and lists; all else is text


def prose(text: str) -> Markup:
    r"""Format text as HTML: paragraphs between blank lines, and lists of dashes or numbers.

    >>> print(prose("Watch <both>.\n\n- the door\n- the hand"))
    <p>Watch &lt;both&gt;.</p>
    <ul>
    <li>the door</li>
    <li>the hand</li>
    </ul>
    """
    return Markup(MARKDOWN.render(text.replace("•", "*")))
