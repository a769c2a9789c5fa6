"""Requests to the page as its own scripts send them, almost so, or not at all so."""

from helpers.hostile_requests import (
    CONTENT,
    EXTRA,
    KINDS,
    MARKUP,
    METHODS,
    RANGES,
    encoded,
    post_form,
    post_json,
    raw,
)
from helpers.raw_requests import HOST, Request
from helpers.two_projects import PLACES


class Requests:
    """Draws requests of the people in a world."""

    def __init__(self, world):
        self.world = world
        self.drawn = world.drawn

    def request(self, visitor):
        """A request, and whether it carries proof that it was meant."""
        drawn = self.drawn
        if visitor.role == "spectator" and drawn.chance(0.4):
            return self.reading(visitor), True  # they may do little else
        pick = drawn.random.random()
        if pick < 0.45:
            request = self.work(visitor)
        elif pick < 0.53:
            request = self.administration(visitor)
        elif pick < 0.64:
            return self.reading(visitor), True
        elif pick < 0.8:
            request = self.mutated(visitor)
        else:
            return self.anything(visitor), True
        if drawn.chance(0.9):
            return request, True
        return self.unproven(request, visitor), False

    def work(self, visitor):
        """What the page's scripts send."""
        path, body = self.call(visitor)
        return post_json(path, body, visitor.headers)

    def call(self, visitor):
        drawn = self.drawn
        everybody = [t for other in self.world.visitors.values() for t in other.tokens[-4:]]
        tokens = visitor.tokens[-4:] if drawn.chance(0.85) else everybody
        token = drawn.of(tokens or ["none"])
        keys = [k for other in self.world.visitors.values() for k in other.keys[-3:]]
        key = drawn.of(keys) if keys and drawn.chance(0.08) else drawn.key()
        pick = drawn.random.random()
        if pick < 0.3:
            return "/api/claim", {"count": drawn.random.randrange(1, 5)}
        if pick < 0.72:
            body = {"token": token, "key": key, "kind": drawn.of(KINDS)}
            more = {"strength": drawn.of(["slight", "clear", None]), "response_ms": 1234.5}
            return "/api/answer", body | (more if drawn.chance(0.5) else {})
        if pick < 0.8:
            return "/api/undo", {"key": key}
        if pick < 0.86:
            return self.rating(visitor, key)
        if pick < 0.92:
            return "/api/heartbeat", {"tokens": tokens}
        return "/api/release", {"tokens": tokens, "csrf": visitor.csrf}

    def rating(self, visitor, key):
        """What the page sends of single clips, of the own project or of another."""
        drawn = self.drawn
        if drawn.chance(0.2):
            return "/api/unrate", {"key": key}
        place = visitor.place if drawn.chance(0.9) else drawn.of(list(self.world.clips))
        said = {"rating": drawn.of([None, 1, 5]), "outcome": drawn.of([None, "success", "failure"])}
        return "/api/rate", {"clip": drawn.of(self.world.clips[place]), "key": key} | said

    def administration(self, visitor):
        """What the overview's forms send."""
        path, fields = self.form(visitor)
        return post_form(path, fields, visitor.headers)

    def form(self, visitor):
        drawn = self.drawn
        mark = PLACES[visitor.place]
        pick = drawn.random.random()
        csrf = {"csrf": visitor.csrf}
        if pick < 0.4:
            name = f"{drawn.of(MARKUP)} {mark}"
            role = drawn.of(["annotator", "admin", "spectator"])
            return "/admin/invite", csrf | {"name": name, "role": role}
        if pick < 0.65:
            act = drawn.of(["role", "end", "restore", "qualify"])
            role = {"role": drawn.of(["annotator", "admin", "spectator"])}
            path = f"/admin/people/{drawn.of([*range(20), -1, 2**31, 2**63, 10**30])}"
            return path, csrf | {"act": act} | (role if drawn.chance(0.7) else {})
        if pick < 0.95:
            text = {"title": f"{drawn.of(MARKUP)} {mark}", "question": f"{drawn.of(MARKUP)} {mark}"}
            more = {"instructions": f"- {drawn.of(MARKUP)} {mark}", "quorum": drawn.of("123")}
            also = {"budget": drawn.of(["", "5", "40"]), "paused": drawn.of(["true", "false"])}
            return "/admin/project", csrf | text | more | also
        return "/leave", csrf

    def mutated(self, visitor):
        """A change that is almost as it should be."""
        drawn = self.drawn
        if drawn.chance(0.6):
            path, body = self.call(visitor)
            request = post_json(path, drawn.json_body(body), visitor.headers)
        else:
            path, fields = self.form(visitor)
            request = post_form(path, {}, visitor.headers)
            request.body = encoded(drawn.form_body(fields))
        if drawn.chance(0.2):
            put(request, b"content-type", raw(drawn.of(CONTENT)))
        request.pieces = drawn.of([1, 1, 3, 50])
        return request

    def reading(self, visitor):
        """Pages, clips and exports, of the own project or of another."""
        drawn = self.drawn
        slug = visitor.place if self.drawn.chance(0.7) else "door"
        clip = drawn.of(self.world.clips[slug] if drawn.chance(0.8) else self.world.strange)
        pages = ["/", "/episode", "/admin", "/admin/export/csv", "/api/progress", "/api/stream"]
        path = f"/media/{clip}.mp4" if drawn.chance(0.6) else drawn.of(pages)
        headers = [(b"range", raw(drawn.of(RANGES)))] if drawn.chance(0.6) else []
        return Request("GET", path, [HOST, *headers])

    def anything(self, visitor):
        """Any method at any address with anything in it."""
        drawn = self.drawn
        world = self.world
        clips = [clip for of in world.clips.values() for clip in of] + world.strange
        path = drawn.path(clips, world.secrets, world.static)
        method = drawn.of(["GET"] * 6 + ["POST"] * 3 + METHODS)
        headers = [HOST, *drawn.random.sample(EXTRA, drawn.random.randrange(4))]
        if drawn.chance(0.3):
            headers.append((b"content-type", raw(drawn.of(CONTENT))))
        body = drawn.json_body({"count": 1}) if drawn.chance(0.3) else b""
        return Request(method, path, headers, body)

    def unproven(self, request, visitor):
        """The same without proof, or with that of somebody else."""
        others = [o.csrf for o in self.world.visitors.values() if o is not visitor]
        wrong = self.drawn.of(["", "x", "\xff", visitor.csrf[:-1], self.drawn.of(others)])
        request.body = request.body.replace(visitor.csrf.encode(), raw(wrong))
        put(request, b"x-csrf-token", raw(wrong))
        if self.drawn.chance(0.2):
            request.headers = [(n, v) for n, v in request.headers if n != b"x-csrf-token"]
        return request

    def cookie(self, visitor):
        """A cookie, and whether it should be good for this visitor."""
        drawn = self.drawn
        good = visitor.cookie
        if drawn.chance(0.8):
            return good.encode(), True
        name, _, value = good.partition("=")
        at = drawn.random.randrange(len(value) - 1)  # bits of the last letter are not all used
        turned = "A" if value[at] != "A" else "B"
        old = drawn.of(visitor.old[:-1] or visitor.old)[0]
        wrong = [
            "",
            name,
            f"{name}=",
            f"{name}={value[:at]}",
            f"{name}={'A' * 5000}",
            f"{name}=\xff",
            f"{name}={value[:at]}{turned}{value[at + 1 :]}",
            f"other={value}",
            old,
            ";;;=;",
            f"{name}={value.rpartition('.')[0]}.",
            f"{name}={value.partition('.')[2]}",
        ]
        chosen = drawn.of(wrong)
        return raw(chosen), chosen == good


def put(request, name, value):
    """Give a request one header of this name."""
    request.headers = [(n, v) for n, v in request.headers if n != name] + [(name, value)]
