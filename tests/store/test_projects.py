"""Projects are made, found and changed; settings out of range are refused."""

import numpy as np
import pytest

from helpers.queue_steps import on_sqlite
from preferl.errors import ConfigError
from preferl.store.projects import ProjectSettings
from preferl.testing.feedback_contracts import example_segments


@on_sqlite
def test_projects_that_cannot_be(store):
    with pytest.raises(ConfigError, match="preferl annotate create"):
        store.projects.only()
    project = store.projects.create("dots").id
    assert store.projects.only().id == project
    with pytest.raises(ConfigError, match="one of dots"):
        store.projects.get("spots")
    with pytest.raises(ConfigError, match="settings"):
        store.projects.update(project, colour="red")
    store.projects.create("spots")
    with pytest.raises(ConfigError, match="dots, spots"):
        store.projects.only()


WRONG = (
    ("fps", 241), ("quorum", 0), ("pass_share", 1.1), ("lease_seconds", 0.0), ("budget", 0),
    ("question", " \n"), ("title", "a\0b"), ("instructions", "\0"),
)  # fmt: skip


def test_a_setting_out_of_its_range_is_named():
    for name, wrong in WRONG:
        with pytest.raises(ConfigError, match=f"{name}: expected"):
            ProjectSettings(**{name: wrong})


def test_new_pairs_are_at_least_a_tenth_of_what_is_asked():
    assert ProjectSettings(repeat_share=0.5, known_share=0.25).known_share == 0.25
    with pytest.raises(ConfigError, match=r"repeat_share \+ known_share"):
        ProjectSettings(repeat_share=0.5, known_share=0.5)


def test_a_project_has_its_settings_and_a_title(store):
    plain = store.projects.create("door-1")
    assert (plain.title, plain.question) == ("door-1", "Which clip is better?")
    settings = ProjectSettings(title="A door", budget=7, frames={"env": "Pendulum-v1"})
    made = store.projects.create("door-2", settings)
    found = store.projects.get("door-2")
    assert (found.id, found.title, found.budget) == (made.id, "A door", 7)
    assert found.frames == {"env": "Pendulum-v1"}
    assert store.projects.get(made.id).slug == "door-2"
    assert [project.slug for project in store.projects.all()] == ["door-1", "door-2"]


@on_sqlite
def test_a_script_that_creates_its_project_can_be_started_again(store):
    first = store.projects.create("dots", exist_ok=True, fps=15)
    store.projects.update(first.id, question="Which is nearer?")  # as on the overview
    again = store.projects.create("dots", exist_ok=True, fps=20)
    assert (again.id, again.fps, again.question) == (first.id, 15, "Which is nearer?")
    with pytest.raises(ConfigError, match="fps: expected"):
        store.projects.create("dots", exist_ok=True, fps=0)
    with pytest.raises(ConfigError, match="exist_ok=True"):
        store.projects.create("dots")


@on_sqlite
def test_short_names(store):
    for slug in ("a" * 60, "7", "a-1-b"):
        assert store.projects.create(slug).slug == slug
    for slug in ("", "a" * 61, "-a", "a-", "a--b", "a_b", "A", "zoë", "a\n"):
        with pytest.raises(ConfigError, match="small letters, digits and hyphens"):
            store.projects.create(slug)


def test_a_refused_change_changes_nothing(store, project):
    with pytest.raises(ConfigError, match="fps"):
        store.projects.update(project, title="New", fps=0)
    assert (store.projects.only().title, store.projects.only().fps) == ("dots", 30)
    assert store.projects.update(project, title="New", fps=5).title == "New"
    assert store.projects.only().fps == 5


def test_what_was_asked_keeps_its_quorum(store, project):
    store.queries.ask(project, example_segments(0), np.array([[0, 1]]))
    store.projects.update(project, quorum=3)
    assert store.reports.progress(project).wanted == 1
    store.queries.ask(project, example_segments(0), np.array([[2, 3]]))
    assert store.reports.progress(project).wanted == 4


def test_only_a_project_that_nobody_uses_is_removed(store):
    new = store.projects.create("new")
    store.clips.put(new.id, example_segments(np.random.default_rng(0)))
    used = store.projects.create("used")
    store.people.invite(used.id, "Ann")
    for project in (new, used):
        store.projects.remove_unused(project.id)
    assert [project.slug for project in store.projects.all()] == ["used"]
