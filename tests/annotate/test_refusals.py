"""What once went wrong, or might: each odd request by itself, answered in words."""

import json
import socket
import urllib.request
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from helpers.hostile_requests import HOSTS, ORIGINS, raw
from helpers.page_requests import form
from helpers.raw_requests import HOST, Request, Wire
from helpers.waiting import SECONDS
from preferl.annotate.limits import MemoryLimits, rates

JSON = (b"content-type", b"application/json")


@pytest.fixture
def wire(app):
    opened = Wire(app)
    yield opened
    opened.close()


def signed(client):
    """The headers of somebody who is signed in."""
    (pair,) = [f"{name}={value}" for name, value in client.cookies.items()]
    return [(b"cookie", pair.encode()), (b"x-csrf-token", client.headers["X-CSRF-Token"].encode())]


def test_hosts_that_are_none(wire):
    for host in (*HOSTS, "127.0.0.1]", "fe80::a"):
        request = Request("GET", "/nothing", [(b"host", raw(host))])
        assert wire.send(request).status == 400, host


def test_origins_that_are_none(wire, ann):
    for origin in ORIGINS:
        headers = [HOST, JSON, *signed(ann), (b"origin", raw(origin))]
        assert wire.send(Request("POST", "/api/claim", headers, b"{}")).status == 403, origin


def test_numbers_that_nobody_has(owner):
    for number in (0, -1, 2**31, 2**63, 10**40):
        reply = owner.post(f"/admin/people/{number}", data=form(owner, act="end"))
        assert reply.status_code == 422, number


def test_forms_in_parts_are_not_read(wire, owner):
    part = b'--zz\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n\\ud800+2AA-\r\n--zz--\r\n'
    for charset in ("utf-7", "unicode_escape", "punycode", "undefined", "hex", "utf-8"):
        kind = f"multipart/form-data; boundary=zz; charset={charset}".encode()
        headers = [HOST, *signed(owner), (b"content-type", kind)]
        assert wire.send(Request("POST", "/leave", headers, part)).status == 415, charset


def test_half_a_character_is_refused(wire, ann):
    for text in ('{"\\ud800": 1}', '{"count": "\\ud800"}', '{"\\u0000": 1}'):
        request = Request("POST", "/api/claim", [HOST, JSON, *signed(ann)], text.encode())
        reply = wire.send(request)
        assert reply.status == 422
        assert set(json.loads(reply.body)) == {"error"}


def test_a_zero_in_text_is_refused(study, owner):
    wanted = {"title": "T", "question": "Q", "quorum": "1"}
    for name in ("title", "question", "instructions"):
        reply = owner.post("/admin/project", data=form(owner, **(wanted | {name: "a\0b"})))
        assert reply.status_code == 400
    assert study.store.projects.get(study.project.id).title == study.project.title
    reply = owner.post("/api/heartbeat", json={"tokens": ["a\0b"]})
    assert reply.status_code == 422


def test_digits_are_those_of_ascii(owner):
    for budget in ("٣", "\U00010d41", "1_0", "+1"):
        wanted = {"title": "T", "question": "Q", "quorum": "1", "budget": budget}
        assert owner.post("/admin/project", data=form(owner, **wanted)).status_code == 422, budget


def test_a_form_without_proof_is_refused_as_such(owner):
    fields = {"name": "x", "act": "end", "title": "T", "question": "Q", "quorum": "1"}
    for path in ("/leave", "/admin/invite", "/admin/people/1", "/admin/project"):
        assert owner.post(path, data={}).status_code in (403, 422), path
        assert owner.post(path, data=fields).status_code == 403, path
    assert owner.post("/api/release", json={"tokens": []}).status_code == 403


def test_links_do_not_lead_out_of_the_clips(study, ann, store):
    study.ask(1)
    other = store.projects.create("other")
    folder = store.clips.video_path(study.project.id, "a" * 32).parent
    secret = store.clips.video_path(other.id, "b" * 32)
    secret.parent.mkdir()
    secret.write_bytes(b"another project's")
    store.key()
    for name, goal in (("a", store.files / "key"), ("b", secret), ("c", "/etc/hostname")):
        (folder / f"{name * 32}.mp4").symlink_to(goal)
        assert ann.get(f"/media/{name * 32}.mp4").status_code == 404
    (folder / f"{'d' * 32}.mp4").mkdir()
    assert ann.get(f"/media/{'d' * 32}.mp4").status_code == 404


def test_videos_may_lie_elsewhere_as_a_whole(study, ann, store, tmp_path):
    study.ask(1)
    clip = study.store.queries.pairs(study.project.id, [1])[0][0]
    (store.files / "videos").rename(tmp_path / "large-disk")
    (store.files / "videos").symlink_to(tmp_path / "large-disk")
    assert ann.get(f"/media/{clip}.mp4").status_code == 200


def test_the_limit_holds_for_those_who_try_links(app, visitor):
    app.state.limits = MemoryLimits(rates(1.0), clock=lambda: 0.0)
    codes = [visitor().get(f"/join/guess-{number}").status_code for number in range(9)]
    assert codes == [401] * 8 + [429]


RAW = [
    b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET http://evil.example/admin HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: a=\x00\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"POST /api/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /api/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /api/claim HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\r\n" * 100 + b"?\r\n\r\n",
]


def test_bytes_that_are_hardly_a_request(app, serving):
    address = urlsplit(serving(app))
    for sent in RAW:
        with socket.create_connection((address.hostname, address.port), SECONDS) as connection:
            reply = b""
            with suppress(ConnectionError):  # hanging up is an answer, too
                connection.sendall(sent)
                with suppress(OSError):  # ENOTCONN, if the server hung up after the last byte
                    connection.shutdown(socket.SHUT_WR)
                reply = b"".join(iter(lambda from_=connection: from_.recv(65_536), b""))
        assert not reply or reply.split()[1][:1] in (b"3", b"4"), (sent[:40], reply[:300])
        with urllib.request.urlopen(f"{address.geturl()}/healthz") as still:
            assert still.read() == b"ok"


def test_a_large_body_while_the_answer_is_on_its_way(wire, owner):
    cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
    headers = [HOST, (b"cookie", cookie.encode())]
    reply = wire.send(Request("GET", "/admin/export/csv", headers, b"x" * 70_000))
    assert reply.status == 200
    assert "annotator" in reply.text
