"""Two projects in one store, people of every kind, and the page over it."""

import json
import random
import re
from base64 import b64decode
from collections import Counter
from hashlib import sha256

from helpers.hostile_requests import MARKUP, Drawn
from helpers.numbered_videos import coded_video, random_segments
from helpers.raw_requests import HOST, Request, Wire
from helpers.store_invariants import ROLES, Tables
from preferl.annotate import AnnotateSettings, create_app
from preferl.store.store import Store

PLACES = {"door": "Doorzeichen", "hall": "Hallzeichen"}
PEOPLE = {
    "ann": ("door", "annotator"),
    "ben": ("door", "annotator"),
    "ada": ("door", "admin"),
    "sue": ("door", "spectator"),
    "gus": ("door", "annotator"),
    "zoe": ("hall", "annotator"),
    "max": ("hall", "admin"),
}
ODD_NAMES = {"ben": "=1+1", "zoe": "@SUM(1)"}
"""What is before the names of some, as spreadsheets know it."""


class Visitor:
    """A person with the cookie and proof of their newest session, and what the server sent them."""

    def __init__(self, name):
        self.name = name
        self.place, self.role = PEOPLE[name]
        self.secret = self.cookie = self.csrf = ""
        self.tokens = []
        self.keys = []
        self.old = []

    @property
    def token_hash(self):
        """What the store keeps of the session in the cookie."""
        content = self.cookie.partition("=")[2].split(".")[0]
        return sha256(json.loads(b64decode(content))["token"].encode()).hexdigest()

    @property
    def headers(self):
        return [(b"cookie", self.cookie.encode()), (b"x-csrf-token", self.csrf.encode())]


class World:
    """Two projects in one store, people of every kind, and the page over it."""

    def __init__(self, folder, seed):
        self.drawn = Drawn(random.Random(seed))
        self.store = Store.open(folder)
        settings = AnnotateSettings(port=0, secret=None, requests_per_second=1e6)
        self.app = create_app(self.store, settings)
        self.app.state.news.close()  # streams end at once
        self.wire = Wire(self.app)
        self.film = coded_video(4)
        self.projects = {
            slug: self.store.projects.create(
                slug,
                title=f"{mark} {slug}",
                question=f"{mark}?",
                instructions=mark,
                quorum=2,
                repeat_share=0.2,
                known_share=0.2,
                qualification=1,
                strength=True,
                ratings=True,
            )
            for slug, mark in PLACES.items()
        }
        self.visitors = {name: Visitor(name) for name in PEOPLE}
        self.asked = 0
        self.strange = ["a" * 32]
        self.secrets = ["nobody"]
        for visitor in self.visitors.values():
            self.admit(visitor)
        self.store.people.update(self.number(self.visitors["gus"]), disabled=True)
        self.note(self.visitors["gus"], "ended")
        self.more_questions()
        self.tables = Tables(self.store.files / "labels.db")
        page = self.wire.send(Request("GET", "/", [HOST, *self.visitors["ann"].headers]))
        self.static = re.search(r"/static/[0-9a-f]+", page.text)[0]
        self.statuses = Counter()
        self.fine = Counter()  # replies of 2xx to good cookies, by the role that the person has

    def close(self):
        self.wire.close()
        self.tables.close()
        self.store.close()

    def title_of(self, visitor):
        return (
            f"{ODD_NAMES.get(visitor.name, '')} {visitor.name} of {PLACES[visitor.place]}".strip()
        )

    def number(self, visitor):
        people = self.store.people.all(self.projects[visitor.place].id)
        return next(person.id for person in people if person.name == self.title_of(visitor))

    def note(self, visitor, kind):
        detail = {"name": self.title_of(visitor), "role": visitor.role}
        self.store.reports.add_event(self.projects[visitor.place].id, kind, detail=detail)

    def admit(self, visitor):
        """A new link, and a session by it; the old one is kept to be tried again."""
        visitor.old.append((visitor.cookie, visitor.csrf))
        project = self.projects[visitor.place].id
        name = self.title_of(visitor)
        visitor.secret = self.store.people.invite(project, name, visitor.role).secret
        self.note(visitor, "invited")
        self.secrets = [*self.secrets[-20:], visitor.secret]
        self.enter(visitor)

    def enter(self, visitor):
        reply = self.wire.send(Request("GET", f"/join/{visitor.secret}", [HOST]))
        assert reply.status == 303
        visitor.cookie = reply.header("set-cookie").split(";")[0]
        path = "/admin" if visitor.role == "spectator" else "/"
        page = self.wire.send(Request("GET", path, [HOST, (b"cookie", visitor.cookie.encode())]))
        visitor.csrf = re.search(r'name="csrf-token" content="([^"]+)"', page.text)[1]

    def more_questions(self):
        for project in self.projects.values():
            progress = self.store.progress(project.id)
            if progress.open > 12:
                continue
            self.asked += 1
            segments = random_segments(24, 4, seed=self.asked)
            pairs = [[2 * row, 2 * row + 1] for row in range(12)]
            asking = self.store.queries.ask
            notes = [{"note": text} for text in MARKUP[:2]]
            asking(project.id, segments, pairs[:8])
            asking(project.id, segments, pairs[8:10], purpose="known", known=[1.0, 0.0])
            if self.asked <= len(PLACES):
                some = {"purpose": "example", "known": [1.0, 0.5], "details": notes}
                asking(project.id, segments, pairs[10:], **some)
            waiting = self.store.clips.without_video(project.id, 100)
            for clip in waiting:
                path = self.store.clips.video_path(project.id, clip)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.film)
            self.store.clips.video_ready(project.id, waiting)
        self.clips = {
            slug: [row["id"] for row in self.rows_of("clip", slug)] for slug in self.projects
        }

    def rows_of(self, table, slug):
        tables = Tables(self.store.files / "labels.db")
        try:
            return tables.rows(table, f"project_id = {self.projects[slug].id}")
        finally:
            tables.close()

    def row_of(self, visitor):
        """The row of whoever the newest cookie names; None where it is good for nothing."""
        project = self.projects[visitor.place].id
        rows = self.tables.rows("annotator", f"project_id = {project}")
        name = self.title_of(visitor)
        row = next(row for row in rows if row["name"] == name)
        where = f"token_hash = '{visitor.token_hash}' AND ended_at IS NULL"
        live = row["disabled_at"] is None and self.tables.rows("sign_in", where)
        return row if live else None

    def keep_roles(self):
        """See that somebody of each role is signed in, whatever the requests before have done."""
        for role in sorted(ROLES):
            people = [v for v in self.visitors.values() if v.role == role and v.name != "gus"]
            rows = [self.row_of(visitor) for visitor in people]
            if not any(row is not None and row["role"] == role for row in rows):
                self.admit(self.drawn.of(people))

    def heal(self):
        """Let in again whom the batch has shut out, so that the next one finds everybody."""
        for slug, project in self.projects.items():
            fields = {"title": f"{PLACES[slug]} {slug}", "paused": False, "budget": None}
            self.store.projects.update(project.id, **fields, quorum=2)
        for visitor in self.visitors.values():
            if visitor.name != "gus":
                person = self.store.people.get(self.number(visitor))
                changed = person.role != visitor.role or person.disabled_at is not None
                if changed or not self.signed_in(visitor):
                    self.admit(visitor)
        self.more_questions()

    def signed_in(self, visitor):
        request = Request("GET", "/api/progress", [HOST, *visitor.headers])
        return self.wire.send(request).status == 200
