"""Requests as the page's own scripts and forms make them."""

KEY = "0123456789abcdef"


def claim(client, count=2):
    reply = client.post("/api/claim", json={"count": count})
    assert reply.status_code == 200, reply.text
    return reply.json()


def body(token, key=KEY, kind="left", **more):
    return {"token": token, "key": key, "kind": kind, **more}


def form(client, **fields):
    return {"csrf": client.headers["X-CSRF-Token"], **fields}
