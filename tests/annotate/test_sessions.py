"""How long a session holds, whatever the clock does."""

import itsdangerous
import pytest

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
