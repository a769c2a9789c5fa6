"""The page's server by HTTP: who may do what, and what is refused."""

import re

from sqlalchemy import select

from helpers.numbered_videos import coded_video, random_segments
from helpers.page_requests import KEY, body, claim
from preferl.annotate import AnnotateSettings, create_app
from preferl.store.schema import Answer, Lease

CHANGES = ["/api/claim", "/api/answer", "/api/undo", "/api/heartbeat", "/api/release"]
FORMS = ["/leave", "/admin/invite", "/admin/people/1", "/admin/project"]


def test_strangers_see_nothing(study, visitor):
    study.ask(1)
    stranger = visitor()
    clip = study.store.queries.pairs(study.project.id, [1])[0][0]
    page = stranger.get("/")
    assert page.status_code == 401
    assert "link of their own" in page.text
    assert study.project.question not in page.text
    for path in ("/episode", "/admin", "/admin/export/csv", "/api/progress", "/api/stream"):
        assert stranger.get(path).status_code == 401, path
    assert stranger.get(f"/media/{clip}.mp4").status_code == 401
    for path in CHANGES:
        assert stranger.post(path, json={}).status_code in (401, 403), path
    for path in FORMS:
        assert stranger.post(path, data={"csrf": "x"}).status_code in (401, 403), path


def test_a_link_signs_in_and_a_wrong_one_does_not(study, visitor):
    client = visitor()
    assert client.get("/join/nonsense").status_code == 401
    reply = client.get(f"/join/{study.people['ann'][1]}")
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie
    assert study.ann not in cookie
    assert study.project.question in client.get("/").text


def test_cookies_are_secure_where_the_page_is(study):
    from fastapi.testclient import TestClient

    settings = AnnotateSettings(public_url="https://label.example.org", secret=None)
    with TestClient(
        create_app(study.store, settings),
        base_url="https://label.example.org",
        follow_redirects=False,
    ) as client:
        reply = client.get(f"/join/{study.people['ann'][1]}")
        assert "secure" in reply.headers["set-cookie"].lower()


def test_answering_in_one_round_trip(study, ann):
    study.ask(4)
    first = claim(ann)
    assert first["state"] == "ready"
    assert len(first["queries"]) == 2
    nothing_more = {"token", "left", "right", "task", "rated"}  # nothing gives its purpose away
    assert set(first["queries"][0]) == nothing_more
    token = first["queries"][0]["token"]
    shown = {"loops": 1, "speed": 1.5, "steps": 2}
    reply = ann.post("/api/answer", json=body(token, response_ms=1234.5, shown=shown)).json()
    assert reply["new"] is True
    assert reply["queries"][0] == first["queries"][1]
    assert len(reply["queries"]) == 2
    assert reply["progress"]["mine"] == 1
    again = ann.post("/api/answer", json=body(token, response_ms=99)).json()
    assert (again["recorded"], again["new"]) == (reply["recorded"], False)
    with study.store.database.read() as session:
        (row,) = session.scalars(select(Answer))
    assert (row.kind, row.response_ms, row.detail["shown"]) == ("left", 1234.5, shown)
    assert row.preference == (0.0 if row.swapped else 1.0)


def test_heartbeats_and_release(study, ann):
    study.ask(3)
    tokens = [question["token"] for question in claim(ann)["queries"]]
    assert ann.post("/api/heartbeat", json={"tokens": tokens}).json() == {"kept": True}
    assert ann.post("/api/heartbeat", json={"tokens": ["none"]}).json() == {"kept": False}
    csrf = ann.headers.pop("X-CSRF-Token")  # beacons have no headers
    refused = ann.post("/api/release", json={"tokens": tokens, "csrf": "wrong"})
    assert refused.status_code == 403
    assert ann.post("/api/release", json={"tokens": tokens, "csrf": csrf}).status_code == 200
    with study.store.database.read() as session:
        leases = list(session.scalars(select(Lease)))
    assert {lease.expires_at <= lease.renewed_at + 60 for lease in leases} == {True}


def test_questions_of_others_cannot_be_answered(study, ann, visitor):
    study.ask(2)
    ben = visitor(study.invite("ben"))
    token = claim(ann)["queries"][0]["token"]
    reply = ben.post("/api/answer", json=body(token))
    assert reply.status_code == 409
    assert "no longer with you" in reply.json()["error"]
    assert not study.answers()


NOT_UNDERSTOOD = (
    {"kind": "retract"},
    {"kind": "first"},
    {"key": "short"},
    {"key": "x" * 65},
    {"key": "'; DROP TABLE answer; --"},
    {"token": ""},
    {"token": "x" * 101},
    {"strength": "very"},
    {"response_ms": -1},
    {"response_ms": 1e12},
    {"count": 0},
    {"count": 100},
    {"shown": {"loops": -1}},
    {"shown": {"more": 1}},
    {"preference": 1.0},
    {"annotator_id": 1},
)


def test_what_is_not_understood_is_refused_in_words(study, ann):
    study.ask(1)
    token = claim(ann)["queries"][0]["token"]
    for wrong in NOT_UNDERSTOOD:
        reply = ann.post("/api/answer", json=body(token) | wrong)
        assert (reply.status_code, set(reply.json())) == (422, {"error"}), wrong
    assert not study.answers()


def test_json_that_is_none(ann):
    json = {"Content-Type": "application/json"}
    assert ann.post("/api/claim", content=b"{", headers=json).status_code == 422
    assert ann.post("/api/claim", content=b'{"count": NaN}', headers=json).status_code == 422
    assert ann.post("/api/claim", content=b"[" * 20_000, headers=json).status_code == 400


CHANGES_FROM = (
    ({}, 200),
    ({"Origin": "http://localhost"}, 200),
    ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 200),
    ({"Origin": "null"}, 403),
    ({"Origin": "null", "Sec-Fetch-Site": "none"}, 403),
    ({"X-CSRF-Token": "wrong"}, 403),
    ({"X-CSRF-Token": ""}, 403),
    ({"X-CSRF-Token": "café".encode("latin-1")}, 403),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "http://["}, 403),
    ({"Origin": "http://localhost@evil"}, 403),
    ({"Origin": "http://localhost.evil.example"}, 403),
    ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
)


def test_changes_must_be_meant(ann):
    for headers, status in CHANGES_FROM:
        assert ann.post("/api/claim", json={}, headers=headers).status_code == status, headers


def test_other_names_are_refused(visitor):
    client = visitor()
    for host in ("localhost", "localhost:8765", "127.0.0.1:8765", "[::1]:8765"):
        assert client.get("/healthz", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example:8765", ""):
        assert client.get("/healthz", headers={"Host": host}).status_code == 400, host


def test_large_requests_are_refused(ann):
    large = b'{"count": 2, "x": "' + b"x" * 70_000 + b'"}'
    json = {"Content-Type": "application/json"}
    assert ann.post("/api/claim", content=large, headers=json).status_code == 413

    def parts():
        for start in range(0, len(large), 1000):
            yield large[start : start + 1000]

    assert ann.post("/api/claim", content=parts(), headers=json).status_code == 413


NOTHING = (
    "/media/" + "0" * 32 + ".mp4",
    "/media/" + "A" * 32 + ".mp4",
    "/media/" + "0" * 31 + ".mp4",
    "/media/..%2f..%2flabels.db.mp4",
    "/media/../../labels.db",
    "/media/%2e%2e/%2e%2e/key",
    "/static/x/../../../key",
    "/key",
    "/docs",
    "/openapi.json",
)


def test_there_is_nothing_beside_the_clips(study, ann):
    study.store.key()
    for path in NOTHING:
        assert ann.get(path).status_code == 404, path


def test_headers_keep_pages_safe(ann):
    for path in ("/", "/nothing", "/healthz"):
        headers = ann.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    static = re.search(r'href="(/static/[^"]+/base.css)"', ann.get("/").text)[1]
    assert "immutable" in ann.get(static).headers["cache-control"]


def test_the_last_episode(study, ann):
    assert "There is no episode yet" in ann.get("/episode").text
    assert "Last episode</a>" not in ann.get("/").text

    episode = random_segments(1, 9, seed=77)
    (name,) = study.store.clips.put(
        study.project.id, episode, kind="episode", detail={"return": -12.5}
    )
    path = study.store.clips.video_path(study.project.id, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(coded_video(9))
    study.store.clips.video_ready(study.project.id, [name])
    assert "steps 9, return -12.5" in ann.get("/episode").text
    assert "Last episode</a>" in ann.get("/").text
    live = ann.get("/api/progress").json()
    assert live["episode"]["url"] == f"/media/{name}.mp4"
    study.store.reports.announce_reward(study.project.id, 1, answers=20, accuracy=0.75)
    assert ann.get("/api/progress").json()["rewards"][0]["accuracy"] == 0.75


def test_lost_labels_are_reported_in_words(study, ann, monkeypatch):
    from preferl.errors import StorageError

    def fails(*_, **__):
        raise StorageError("disk full at /secret/place")

    monkeypatch.setattr(study.store.queue, "claim", fails)
    reply = ann.post("/api/claim", json={})
    assert reply.status_code == 503
    assert "cannot be reached" in reply.json()["error"]
    assert "secret" not in reply.text


def test_ratings_that_mean_nothing_are_refused(study, ann):
    study.ask(1)
    clip = claim(ann)["queries"][0]["left"].split("/")[-1].removesuffix(".mp4")
    key = "rate-" + KEY
    assert ann.post("/api/rate", json={"clip": clip, "key": key}).status_code == 409, "not here"
    study.update(ratings=True)
    wrong = (
        {"rating": 0},
        {"rating": 6},
        {"rating": 2.5},
        {"rating": "3"},
        {"rating": True},
        {"outcome": "fair"},
        {"clip": "0" * 31},
        {"key": "short"},
        {"more": 1},
    )
    for words in wrong:
        sent = {"clip": clip, "key": key} | words
        assert ann.post("/api/rate", json=sent).status_code == 422, words
    unknown = {"clip": "0" * 32, "key": key, "rating": 3}
    assert ann.post("/api/rate", json=unknown).status_code == 409
    assert study.store.ratings.current(study.project.id) == []
