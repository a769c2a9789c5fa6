"""Links and sessions in the store, on every database."""

import pytest
from sqlalchemy import select, text

from helpers.queue_steps import at_once
from preferl.errors import ConfigError
from preferl.store.people import KEPT, looks_like_owner
from preferl.store.schema import SignIn


@pytest.fixture
def project(store):
    return store.projects.create("dots").id


def test_a_session_from_link_to_end(store, project):
    ann, secret = store.people.invite(project, "ann")
    assert store.people.sign_in("nonsense") is None
    _, first = store.people.sign_in(secret)
    assert store.people.by_token(first).id == ann.id
    assert store.people.by_token("nonsense") is None
    _, second = store.people.sign_in(secret, instead_of=first)
    assert store.people.by_token(first) is None
    store.people.update(ann.id, disabled=True)
    assert store.people.by_token(second) is None
    store.people.update(ann.id, disabled=False)
    assert store.people.by_token(second) is not None
    store.people.sign_out(second)
    assert store.people.by_token(second) is None
    assert list(store.people.last_sign_ins(project)) == [ann.id]


def test_one_use_is_one_use_though_many_come_at_once(store, project):
    secret = store.people.invite(project, "ann", uses=1).secret
    found = at_once(*[lambda: store.people.sign_in(secret)] * 8)
    assert sum(signed is not None for signed in found) == 1
    assert store.people.by_secret(secret) is None


def test_links_expire_by_the_clock_of_the_database(store, project):
    secret = store.people.invite(project, "ann", hours=1).secret
    assert store.people.by_secret(secret).name == "ann"
    with store.database.write() as session:
        session.execute(text("UPDATE annotator SET link_expires_at = link_expires_at - 3601"))
    assert store.people.by_secret(secret) is None
    assert store.people.sign_in(secret) is None
    again = store.people.invite(project, "ann").secret
    assert store.people.by_secret(again) is not None, "a new link is as it is asked for"


def test_a_link_fills_no_database(store, project):
    secret, other = (store.people.invite(project, name).secret for name in ("ann", "ben"))
    _, ben = store.people.sign_in(other)
    tokens = [store.people.sign_in(secret)[1] for _ in range(KEPT + 5)]
    with store.database.read() as session:
        assert len(list(session.scalars(select(SignIn)))) == KEPT + 1
    assert store.people.by_token(tokens[4]) is None
    assert store.people.by_token(tokens[5]) is not None
    assert store.people.by_token(ben) is not None


def test_links_that_never_open_are_refused(store, project):
    for more in ({"hours": 0}, {"hours": float("nan")}, {"uses": 0}):
        with pytest.raises(ConfigError):
            store.people.invite(project, "ann", **more)


LOOK_ALIKE = [
    *("owner", "Owner", " OWNER ", "o w n e r", "o.w.n.e.r", "owner.", "0wner", "0wn3r", "ovvner"),
    "".join(chr(ord(letter) + 0xFEE0) for letter in "Owner"),  # full width
    *("\u043ewner", "ow\u0578er", "o\u051dner", "own\u0435r", "owne\u0433", "\u03bfwner"),
    *("o\u03c9n\u03b5r", "\u1d0f\u1d21\u0274\u1d07\u0280", "\u24de\u24e6\u24dd\u24d4\u24e1"),
    *("\U0001d428\U0001d430\U0001d427\U0001d41e\U0001d42b", "\u00f6wn\u00e9r", "o\u0332wner"),
    *("\u00f8wner", "\U0001f17e\U0001f186\U0001f17d\U0001f174\U0001f181", "own\u034fer"),
    *("\u0966wner", "own\u115fer", "own\u3164er", "\u2c9fwner", "own\u2800er", "o\u200bwner"),
]
OTHERS = ["Owen", "Rowner", "Ann Owner", "Owner of it", "own", "Олег", "Ωmega", "王", "o'Wen", "0"]


def test_names_like_the_owners_are_refused():
    assert [name for name in LOOK_ALIKE if not looks_like_owner(name)] == []
    assert [name for name in OTHERS if looks_like_owner(name)] == []


def test_nobody_is_invited_as_the_owner(store, project):
    owner = store.people.owner(project)
    for act in (store.people.invite, store.people.revoke):
        with pytest.raises(ConfigError, match="Choose another name"):
            act(project, "\u043ewner")
    with pytest.raises(ConfigError, match="somebody here"):
        store.people.revoke(project, "nobody")
    assert store.people.by_secret(owner.secret).name == "owner"
