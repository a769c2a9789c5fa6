"""How long a session holds, whatever the clock does."""

import json
import re
from base64 import b64encode

import itsdangerous
import pytest
from itsdangerous import TimestampSigner
from sqlalchemy import select, update

from helpers.page_requests import form
from preferl.annotate.sessions import Sessions
from preferl.store.schema import Annotator, SignIn

DAY = 24 * 3600


@pytest.fixture
def clock(monkeypatch):
    """What sessions take for the time, in seconds from now."""
    signer = itsdangerous.TimestampSigner
    offset = [0]
    timestamp = signer.get_timestamp
    monkeypatch.setattr(signer, "get_timestamp", lambda self: timestamp(self) + offset[0])
    return offset


def test_a_session_goes_on_when_the_clock_is_set(study, visitor, clock):
    client = visitor(study.ann)
    for seconds in (-1, -3600, -40 * DAY, 29 * DAY):
        clock[0] = seconds
        assert client.get("/").status_code == 200
        assert client.post("/api/claim", json={}).status_code == 200


def test_a_session_ends_in_time(study, visitor, clock):
    client = visitor(study.ann)
    clock[0] = 31 * DAY
    assert client.get("/").status_code == 401


def test_a_cookie_from_the_future_still_has_to_be_ours(study, visitor, clock):
    clock[0] = DAY
    ((name, value),) = dict(visitor(study.ann).cookies).items()
    clock[0] = 0
    stranger = visitor()
    payload, rest = value.split(".", 1)
    stranger.cookies.set(name, f"{payload[:-4]}AAAA.{rest}")
    assert stranger.get("/").status_code == 401


def rows(study, table):
    with study.store.database.read() as session:
        return list(session.scalars(select(table).order_by(table.id)))


def copied(visitor, client):
    """A browser with the same cookie and proof, as a thief has them."""
    thief = visitor()
    for name, value in client.cookies.items():
        thief.cookies.set(name, value)
    thief.headers["X-CSRF-Token"] = client.headers["X-CSRF-Token"]
    return thief


def test_who_signs_out_is_out_wherever_the_cookie_is(study, ann, visitor):
    thief = copied(visitor, ann)
    elsewhere = visitor(study.ann)
    assert thief.get("/").status_code == 200
    assert ann.post("/leave", data=form(ann)).status_code == 303
    assert thief.get("/").status_code == 401
    assert thief.post("/api/claim", json={}).status_code == 401
    assert elsewhere.get("/").status_code == 200, "another browser of theirs stays"


@pytest.mark.parametrize("way", ["new link", "revoked"])
def test_sessions_end_with_their_link(study, ann, way):
    if way == "new link":
        study.invite("ann")
    else:
        study.store.people.revoke(study.project.id, "ann")
        assert ann.get(f"/join/{study.people['ann'][1]}").status_code == 401
    assert ann.get("/").status_code == 401
    assert [row.ended_at is None for row in rows(study, SignIn)] == [False]


def test_a_browser_that_opens_a_link_again_has_one_session(study, ann, visitor):
    thief = copied(visitor, ann)
    assert ann.get(f"/join/{study.people['ann'][1]}").status_code == 303
    assert thief.get("/").status_code == 401
    assert ann.get("/").status_code == 200
    assert [row.ended_at is None for row in rows(study, SignIn)] == [False, True]


def test_sign_ins_are_recorded_and_shown(study, ann, owner):
    first, second = rows(study, SignIn)
    assert (first.annotator_id, second.ended_at) == (study.people["ann"][0].id, None)
    (token,) = ann.cookies.values()
    assert first.token_hash not in token
    text = re.sub(r"\s+", " ", owner.get("/admin").text)
    assert "Last sign-in (UTC)" in text
    assert len(re.findall(r'<td class="when">20\d\d-', text)) == 2


def test_a_link_that_opens_once_asks_before_it_does(study, visitor):
    secret = study.store.people.invite(study.project.id, "cleo", uses=1).secret
    for _ in range(3):  # as programs do that show what is behind a link
        looked = visitor().get(f"/join/{secret}")
        assert looked.status_code == 200
        assert "personal link of cleo" in looked.text
    assert not rows(study, SignIn)
    client = visitor()
    assert client.post(f"/join/{secret}").status_code == 303
    assert client.get("/").status_code == 200
    late = visitor()
    assert late.get(f"/join/{secret}").status_code == 401
    assert late.post(f"/join/{secret}").status_code == 401
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", None])
def test_a_link_of_somebody_else_that_another_site_opens_asks(study, owner, visitor, site):
    secret = study.invite("eve")
    asked = owner.get(f"/join/{secret}", headers={"Sec-Fetch-Site": site} if site else {})
    assert asked.status_code == 200
    assert "set-cookie" not in asked.headers
    assert "You are signed in as owner" in asked.text
    assert "<h1>Continue as eve?</h1>" in asked.text
    assert study.project.title not in asked.text, "it may be another project's"
    assert owner.get("/admin").status_code == 200, "still the owner"
    elsewhere = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert owner.post(f"/join/{secret}", headers=elsewhere).status_code == 403
    assert owner.get("/admin").status_code == 200, "still the owner"
    before = copied(visitor, owner)
    assert owner.post(f"/join/{secret}").status_code == 303
    assert owner.get("/admin").status_code == 403, "eve is no admin"
    assert before.get("/admin").status_code == 401, "the owner is signed out in this browser"


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_link_that_is_typed_or_bookmarked_signs_in_at_once(study, owner, visitor, site):
    secret = study.invite("eve")
    before = copied(visitor, owner)
    assert owner.get(f"/join/{secret}", headers={"Sec-Fetch-Site": site}).status_code == 303
    assert owner.get("/admin").status_code == 403, "eve is no admin"
    assert before.get("/admin").status_code == 401, "the owner is signed out in this browser"


@pytest.mark.parametrize("site", ["cross-site", None])
def test_the_owners_link_of_another_project_leads_there_at_once(study, owner, site):
    other = study.store.projects.create("hall", title="Walking down a hall", question="Which?")
    secret = study.store.people.owner(other.id).secret
    headers = {"Sec-Fetch-Site": site} if site else {}
    assert owner.get(f"/join/{secret}", headers=headers).status_code == 303
    for path in ("/", "/admin"):
        page = owner.get(path)
        assert other.title in page.text
        assert study.project.title not in page.text
        assert page.headers["cache-control"] == "no-store"


def test_the_owners_link_asks_somebody_else_of_another_project(study, ann):
    other = study.store.projects.create("hall", title="Walking down a hall", question="Which?")
    asked = ann.get(f"/join/{study.store.people.owner(other.id).secret}")
    assert "<h1>Continue as owner?</h1>" in asked.text
    assert study.project.title in ann.get("/").text


def test_a_link_that_expires_leaves_sessions_alone(study, visitor):
    person, secret = study.store.people.invite(study.project.id, "cleo", hours=2)
    client = visitor(secret)
    with study.store.database.write() as session:
        session.execute(update(Annotator).values(link_expires_at=person.created_at - 1))
    assert visitor().get(f"/join/{secret}").status_code == 401
    assert client.get("/").status_code == 200


def test_cookies_of_another_version_are_nobody(study, app, visitor):
    client = visitor(study.ann)
    options = next(layer.kwargs for layer in app.user_middleware if layer.cls is Sessions)
    signer = TimestampSigner(options["secret_key"])
    ann, secret = study.people["ann"]
    _, good = study.store.people.sign_in(secret)
    (name,) = dict(client.cookies)
    for token in (good, None, 7, "", "x", ["x"], "\ud800"):
        content = {"annotator": ann.id, "token": token, "csrf": "c"}
        client.cookies.clear()
        signed = signer.sign(b64encode(json.dumps(content).encode())).decode()
        client.cookies.set(name, signed)
        assert client.get("/").status_code == (200 if token is good else 401), token
