"""A store with clips that can be played, people, and the page over it."""

from dataclasses import dataclass
from shutil import copytree

import numpy as np
import pytest
from fastapi.testclient import TestClient

from helpers.numbered_videos import FPS, coded_video, random_segments
from helpers.running_page import RunningPage
from helpers.waiting import SECONDS
from preferl.annotate import AnnotateSettings, create_app
from preferl.store.schema import Annotator, Project
from preferl.store.store import Store


@dataclass
class Study:
    """A project, its people with their secrets, and how to fill it."""

    store: Store
    project: Project
    owner: str
    people: dict[str, tuple[Annotator, str]]
    asked: int = 0

    def invite(self, name, role="annotator"):
        self.people[name] = tuple(self.store.people.invite(self.project.id, name, role))
        return self.people[name][1]

    @property
    def ann(self):
        """The secret of the person who is there from the beginning."""
        return self.people["ann"][1]

    def update(self, **changes):
        self.store.projects.update(self.project.id, **changes)

    def ask(self, count, steps=12, video=True, **more):
        """Ask `count` pairs of new clips."""
        self.asked += 1
        segments = random_segments(2 * count, steps, seed=self.asked)
        pairs = np.arange(2 * count).reshape(count, 2)
        numbers = self.store.queries.ask(self.project.id, segments, pairs, **more)
        if video:
            self.film(steps)
        return numbers

    def film(self, *steps):
        """Videos of all clips that lack them; several lengths are given in turn."""
        waiting = self.store.clips.without_video(self.project.id, 10_000)
        made = [coded_video(length) for length in steps]
        for row, clip in enumerate(waiting):
            path = self.store.clips.video_path(self.project.id, clip)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made[row % len(made)])
        self.store.clips.video_ready(self.project.id, waiting)

    def answers(self):
        """What counts: query, preference and annotator of each answer."""
        votes = self.store.queries.votes(self.project.id)
        return list(zip(votes.query.tolist(), votes.preference.tolist(), strict=True))


@pytest.fixture
def store(tmp_path, empty_store):
    with Store.open(copytree(empty_store, tmp_path / "store")) as opened:
        yield opened


@pytest.fixture
def study(store):
    project = store.projects.create(
        "door",
        title="Opening a door",
        question="Which clip shows the door being opened better?",
        instructions="Watch the hand.\n\n- An open door is better.\n- Then: less time.",
        fps=FPS,
        repeat_share=0.0,
        known_share=0.0,
    )
    owner = store.people.owner(project.id).secret
    made = Study(store, project, owner, {})
    made.invite("ann")
    return made


@pytest.fixture
def settings():
    return AnnotateSettings(port=0, poll_seconds=0.05, secret=None)


@pytest.fixture
def app(study, settings):
    return create_app(study.store, settings)


@pytest.fixture
def visitor(app):
    """Makes a browser without JavaScript, signed in by a secret."""
    made = []

    def visit(secret=None):
        client = TestClient(app, base_url="http://localhost", follow_redirects=False)
        made.append(client)
        if secret is not None:
            assert client.get(f"/join/{secret}").status_code == 303
            page = client.get("/admin" if client.get("/").status_code == 303 else "/").text
            token = page.split('name="csrf-token" content="')[1].split('"')[0]
            client.headers["X-CSRF-Token"] = token
        return client

    yield visit
    for client in made:
        client.close()


@pytest.fixture
def ann(study, visitor):
    return visitor(study.ann)


@pytest.fixture
def owner(study, visitor):
    return visitor(study.owner)


@pytest.fixture
def serving():
    """Serves an app at a free port of this machine; returns its address."""
    running = []

    def start(app):
        running.append(RunningPage(app))
        return running[-1].address

    yield start
    for page in running:
        page.stop()


DESKTOP = {"width": 1280, "height": 800}


@pytest.fixture
def address(app, serving):
    return serving(app)


@pytest.fixture
def person(chromium, address, study):
    """Opens the page for a person, Ann by default; in the end nothing may have gone wrong.

    `routes` are in force before the page is: a browser told to intercept while it runs may let one
    more request pass.
    """
    contexts = []
    trouble = []

    def opened(secret=None, *, read=True, expected=(), init=None, path="/", routes=None, **options):
        context = chromium.new_context(viewport=options.pop("viewport", DESKTOP), **options)
        context.set_default_timeout(1000 * SECONDS)  # a busy machine holds a browser up for seconds
        contexts.append(context)
        if init:
            context.add_init_script(init)
        page = context.new_page()
        for pattern, handle in (routes or {}).items():
            page.route(pattern, handle)

        def note(message):
            text = message if isinstance(message, str) else message.text
            if not any(words in text for words in (*expected, "willReadFrequently")):
                trouble.append(text)

        page.on("console", lambda message: message.type in ("error", "warning") and note(message))
        page.on("pageerror", lambda error: note(str(error)))
        page.goto(f"{address}/join/{secret or study.ann}")
        if path != "/":
            page.goto(f"{address}{path}")
        if read and path == "/":
            page.get_by_role("button", name="Start").click()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not trouble
