"""Requests that nobody polite would send, drawn at random from a seed, among many that are fine."""

import json
from urllib.parse import quote, quote_plus

from helpers.raw_requests import HOST, Request

KINDS = ["left", "right", "equal", "cannot_tell", "skip"]
MARKUP = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></textarea><svg onload=alert(1)>",
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)//",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "{0.__class__} {name} %s %n",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "+1+1",
    "-2+3",
]
WORDS = [
    *MARKUP,
    "",
    " ",
    "x",
    "Ärger 猫 🐈‍⬛",
    "\u202eback",
    "e\u0301" * 20,
    "a\0b",
    "\x7f\x1b[2J",
    "\r\nX: y",
    "\ud800",
    "\U00010d41",
    "٣",
    "1e3",
    "0",
    "-1",
    "9" * 30,
    "NaN",
    "None",
    "null",
    "true",
    "x" * 79,
    "x" * 121,
    "y" * 5000,
    "; DROP TABLE answer; --",
    "..",
    "../../key",
    "%00",
]
THINGS = [
    None,
    True,
    False,
    0,
    -1,
    1,
    4,
    5,
    10**6,
    10**30,
    1.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [None],
    ["x"] * 17,
    {"a": {"b": 1}},
    "left",
    "retract",
    "",
]
RANGES = """\
bytes=0-
bytes=0-0
bytes=-1
bytes=5-9
bytes=9-5
bytes=--5
bytes=-0
bytes=0-9,5-14,3-4
bytes=99999999-
bytes=
bytes
=
bytes=a-b
bytes=٣-٤
items=0-5
bytes=0-1\0
bytes= 1 - 2
bytes=0x10-0x20
bytes=1_0-2_0
bytes=+1-+5
bytes=0--1
""".splitlines()
RANGES += [f"bytes=0-{'9' * 400}", f"bytes={'9' * 5000}-", "bytes=-" + "9" * 30]
RANGES += ["bytes=" + ",".join(f"{at}-{at + 2}" for at in range(99)), "bytes=" + "0-0," * 3000]
HOSTS = """\
evil.example
localhost.evil.example

[127.0.0.1]
127.0.0.1]
[::1
::1]
[::1%<script>]
[::1%25x]:80
localhost:abc
localhost@evil.example
localhost/evil
localhost evil
127.0.0.1.evil.example:80
[
]
:
[]
[[::1]]
localhost,evil.example
0x7f.1
localhost\0
ｌocalhost
""".splitlines()
ORIGINS = """\
http://evil.example
https://localhost.evil.example
http://[
http://]
http://localhost@evil.example
//evil.example
localhost.
http://[::1
\xff\xfe
http://\u2100
file://
http://evil.example#localhost
http://[v1.x]
http://[1]
""".splitlines()
ORIGINS += ["null "]
CONTENT = """\
text/plain

application/x-www-form-urlencoded
application/json; charset=utf-7
application/vnd.x+json
multipart/form-data
multipart/form-data; boundary=
application/x-www-form-urlencoded; charset=utf-7
garbage
a/b/c;;;=
\xff
""".splitlines()
METHODS = [
    "HEAD",
    "OPTIONS",
    "PUT",
    "DELETE",
    "PATCH",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "get",
    "G E T",
]
EXTRA = [
    *[(name, b"DELETE") for name in (b"x-http-method-override", b"x-http-method", b"x-method")],
    (b"x-forwarded-host", b"evil.example"),
    (b"x-forwarded-for", b"' OR 1=1"),
    (b"te", b"trailers"),
    (b"x-original-url", b"/admin"),
    (b"x-rewrite-url", b"/admin"),
    (b"forwarded", b"host=evil"),
    (b"accept", b"\xff\xfe"),
    (b"expect", b"100-continue"),
    (b"content-encoding", b"gzip"),
    (b"upgrade", b"websocket"),
    (b"transfer-encoding", b"chunked"),
    (b"content-length", b"-5"),
    (b"content-length", b"9" * 40),
    (b"content-length", b"1_0"),
    (b"if-range", b'"x"'),
    (b"if-modified-since", b"never"),
    (b"if-none-match", b"*"),
    (b"cookie", b"a=" + b"x" * 4000),
]


class Drawn:
    """Chooses by a generator of `random`; what it makes of a seed stays the same."""

    def __init__(self, random):
        self.random = random

    def chance(self, share):
        return self.random.random() < share

    def of(self, things):
        return things[self.random.randrange(len(things))]

    def key(self):
        return "".join(self.of("0123456789abcdef") for _ in range(32))

    def path(self, clips, secrets, static):
        """Somewhere on the server, or beside it."""
        clip = self.of(clips)
        tricks = f"""\
            /
            /episode
            /admin
            /healthz
            /api/progress
            /api/stream
            /join/
            //
            /media/{clip}.mp4
            /media/{clip}
            /media/{clip}.mp4/
            /media/{clip}.MP4
            /media/{clip}%00.mp4
            /media/%2e%2e%2f{clip}.mp4
            /media/1%2f{clip}.mp4
            /media/..%2f2%2f{clip}.mp4
            /media/{clip}%0a.mp4
            /media/..%2f..%2flabels.db.mp4
            /media/%2fetc%2fpasswd.mp4
            /join/%00%ff
            /join/..%2fadmin
            /join/%f0%9f%90%88
            {static}/base.css
            {static}/../../key
            {static}/..%2f..%2f..%2fapp.py
            {static}/%2e%2e/app.py
            {static}/%00
            {static}/
            {static}//etc/passwd
            {static}/%2fetc%2fpasswd
            {static}/base.css%2f
            /labels.db
            /key
            /%2e%2e/key
            /docs
            /openapi.json
            /.git/config
            *
            /admin/
            /admin/people/1
            /ADMIN
            /admin%2fexport%2fcsv
            /api
            /api/
            //evil.example/%2e%2e
            /%5c%5cevil
            /api/progress?annotator_id=1&project_id=2
            /admin?link=x&person=1
            /;a=b
        """.split()
        tricks += [
            *(f"/admin/export/{kind}" for kind in ("jsonl", "csv", "parquet", "exe", "..%2fkey")),
            f"/media/{clip.upper()}.mp4",
            "/media/" + "f" * 32,
            f"/join/{quote(self.of(secrets), safe='')}",
            f"/join/{'x' * 9000}",
            f"/join/{quote(self.of(MARKUP), safe='')}",
            f"{static}/{'a' * 300}",
            "",
            "/\\evil.example",
            "/?a=" + "b" * 9000,
        ]
        return self.of(tricks)

    def json_body(self, wanted):
        """JSON that is almost as wanted, or none at all."""
        wrong = dict(wanted)
        mark = self.random.randrange(8)
        if mark < 3 and wrong:
            wrong[self.of(list(wrong))] = self.of([*THINGS, *WORDS])
        elif mark == 3 and wrong:
            del wrong[self.of(list(wrong))]
        elif mark == 4:
            wrong[self.of([*WORDS, "annotator_id", "preference", "query_id"])] = self.of(THINGS)
        elif mark == 5:
            wrong["shown"] = {self.of(["loops", "speed", "steps", "\ud800"]): self.of(THINGS)}
        elif mark == 6:
            wrong["detail"] = {"shown": wanted}
        text = json.dumps(wrong)
        if mark == 7:
            text = self.of(
                [
                    text[: len(text) // 2],
                    text + "x",
                    "[" * 9000,
                    '{"a":' * 5000,
                    "null",
                    "[]",
                    '{"count": ' + "9" * 5000 + "}",
                    '{"count": 1, "count": 4}',
                    "",
                    "\ufeff" + text,
                    json.dumps({"tokens": ["x" * 90] * 600}),
                    f"[{text}]",
                    '"' + "x" * 70_000,
                ]
            )
        coded = text.encode(self.of(["utf-8"] * 8 + ["utf-16", "utf-7", "utf-32-le"]), "replace")
        return coded[:-3] + b"\xff" if self.chance(0.02) else coded

    def form_body(self, wanted):
        """A form that is almost as wanted: fields lost, twice, or of another kind."""
        fields = list(wanted.items())
        for _ in range(self.random.randrange(1, 3)):
            mark = self.random.randrange(4)
            if mark == 0 and fields:
                fields.pop(self.random.randrange(len(fields)))
            elif mark == 1 and fields:
                name, _ = self.of(fields)
                fields.append((name, self.of(WORDS)))
            elif mark == 2 and fields:
                at = self.random.randrange(len(fields))
                fields[at] = (fields[at][0], self.of(WORDS))
            else:
                fields.append(
                    (self.of([*WORDS, "id", "project_id", "slug", "role"]), self.of(WORDS))
                )
        return fields


def encoded(fields):
    """Fields as browsers send forms; a list keeps those that come twice."""
    pairs = fields.items() if isinstance(fields, dict) else fields
    return "&".join(
        f"{quote_plus(name, errors='replace')}={quote_plus(value, errors='surrogatepass')}"
        for name, value in pairs
    ).encode()


def raw(text):
    """A value of a header as it would be sent."""
    return text.encode("latin-1", "ignore") if text.isascii() else text.encode("utf-8", "replace")


def post_json(path, content, headers):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    kind = (b"content-type", b"application/json")
    return Request("POST", path, [HOST, kind, *headers], body)


def post_form(path, fields, headers):
    kind = (b"content-type", b"application/x-www-form-urlencoded")
    return Request("POST", path, [HOST, kind, *headers], encoded(fields))
