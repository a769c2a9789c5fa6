"""The queue in a notebook: people answer the store's queries in a cell."""

import base64
import time
from collections.abc import Callable, Mapping
from html import escape
from secrets import token_hex
from typing import Any, Final, final

from preferl._optional import require
from preferl.errors import FeedbackError
from preferl.store.people import OWNER
from preferl.store.queue import Claim, LeasedQuery
from preferl.store.schema import Project
from preferl.store.store import Store

ANSWERS: Final[Mapping[str, str]] = {
    "left": "Left is better",
    "equal": "Equal",
    "right": "Right is better",
    "cannot_tell": "Cannot tell",
    "skip": "Later",
}
IDLE: Final[Mapping[str, str]] = {
    "waiting": "No question can be shown now. Perhaps videos are not ready yet: run "
    "<code>preferl annotate render</code>, and look again.",
    "done": "Everything is answered. Thank you.",
    "paused": "This project is paused.",
    "unqualified": "Too few of your first answers were right to go on here.",
}


@final
class NotebookQueue:
    """One person's queries, one at a time, for any way of showing them.

    The person called `name` answers, and is invited if the name is new.
    """

    def __init__(self, store: Store, project: Project, name: str = OWNER) -> None:
        self.store = store
        self.project = project
        if name == OWNER:
            self.person = store.people.owner(project.id).annotator
        else:
            people = {person.name: person for person in store.people.all(project.id)}
            self.person = people.get(name) or store.people.invite(project.id, name).annotator
        self.claim = Claim("waiting")
        self.message = ""
        self.look()

    @property
    def query(self) -> LeasedQuery | None:
        """The query that is open now."""
        return self.claim.queries[0] if self.claim.queries else None

    def look(self) -> None:
        """Get a query if there is one."""
        before = self.query
        self.claim = self.store.queue.claim(self.project.id, self.person.id, 1)
        if self.query is not None and (before is None or before.token != self.query.token):
            self._shown_at = time.monotonic()

    def answer(self, kind: str) -> None:
        """Answer the query on screen, and get the next one."""
        query = self.query
        if query is None:
            return
        self.message = ""
        waited = 1000 * (time.monotonic() - self._shown_at)
        try:
            self.store.queue.answer(
                self.person.id, query.token, token_hex(16), kind, response_ms=waited
            )
        except FeedbackError as error:  # somebody answered on the page
            self.message = escape(str(error))
        self.look()

    def undo(self) -> None:
        """Undo the latest answer, and ask that query again."""
        undone = self.store.queue.undo(self.person.id, token_hex(16))
        self.message = "" if undone is not None else "There is no answer to undo."
        self.look()

    @property
    def html(self) -> str:
        """Return HTML with both clips side by side, or why there are none; and the progress."""
        query = self.query
        shown = IDLE.get(self.claim.state, "")
        if query is not None:
            clips = self._clip("left", query.left) + self._clip("right", query.right)
            shown = f"<div>{clips}</div>"
        far = self.store.progress(self.project.id, self.person.id)
        words = f"{far.mine:,} by you, {far.answered:,} of {far.wanted:,} by all"
        return f"<h4>{escape(self.project.question)}</h4>{shown}<p>{words}. {self.message}</p>"

    def _clip(self, side: str, clip: str) -> str:
        """Return HTML that contains the video of a clip, so that a notebook needs no server."""
        video = self.store.clips.video_path(self.project.id, clip).read_bytes()
        source = "data:video/mp4;base64," + base64.b64encode(video).decode("ascii")
        return (
            f'<video src="{source}" autoplay loop muted playsinline controls '
            f'width="49%" aria-label="{side} clip"></video> '
        )


def queue_widget(queue: NotebookQueue) -> Any:
    """Return the queue with its buttons, as a widget that a notebook shows.

    Raises:
        MissingExtraError: the extra `notebook` is not installed.
    """
    widgets = require("ipywidgets", extra="notebook")
    screen = widgets.HTML()

    def refresh() -> None:
        screen.value = queue.html
        for button in answers:
            button.disabled = queue.query is None

    def button(label: str, act: Callable[..., None], *given: str) -> Any:
        pressable = widgets.Button(description=label)

        def pressed(_: object) -> None:
            act(*given)
            refresh()

        pressable.on_click(pressed)
        return pressable

    answers = [button(label, queue.answer, kind) for kind, label in ANSWERS.items()]
    others = [button("Undo", queue.undo), button("Look again", queue.look)]
    refresh()
    return widgets.VBox([screen, widgets.HBox([*answers, *others])])
