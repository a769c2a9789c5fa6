"""A program's heartbeats come from a thread of their own, and report its last state."""

import logging

import pytest
from sqlalchemy import text

from helpers.waiting import wait_until
from preferl.online.service.heartbeat import Heartbeat


def service(world):
    """The only program of the project, or None before its first heartbeat."""
    return next(iter(world.store.reports.services(world.project.id)), None)


def test_a_change_of_state_does_not_wait_for_the_next_heartbeat(world):
    with Heartbeat(world.store, world.project.id, "agent", every=3600) as heartbeat:
        wait_until(lambda: service(world) and service(world).status.state == "starting")
        heartbeat.report("healthy", steps=7)
        wait_until(lambda: service(world).status.state == "healthy")
    last = service(world)
    assert (last.name, last.status.state, last.status.steps) == ("agent", "stopped", 7)
    assert (last.alive, last.every) == (True, 3600)


@pytest.mark.parametrize(
    ("error", "state", "problem"),
    [
        (ValueError("no data"), "failed", "ValueError: no data"),
        (KeyboardInterrupt(), "stopped", None),
    ],
)
def test_an_error_is_reported_and_goes_on(world, error, state, problem):
    with pytest.raises(type(error)), Heartbeat(world.store, world.project.id, "agent"):
        raise error
    assert (service(world).status.state, service(world).status.problem) == (state, problem)


def test_work_without_a_pulse_is_stuck_until_the_next_one(world):
    beats = Heartbeat(world.store, world.project.id, "agent", every=0.01, stuck_after=0.3)
    with beats as heartbeat:
        wait_until(lambda: service(world) and service(world).status.state == "stuck")
        assert service(world).status.idle >= 0.3
        wait_until(lambda: heartbeat.pulse() or service(world).status.state == "starting")
    assert service(world).status.state == "stopped"


def test_a_store_that_takes_no_heartbeat_stops_nobody(world, caplog):
    caplog.set_level(logging.DEBUG, "preferl")
    with world.store.database.write() as session:
        session.execute(text("ALTER TABLE service RENAME TO away"))
    with Heartbeat(world.store, world.project.id, "agent") as heartbeat:
        heartbeat.report("healthy")
    assert "No heartbeat of agent" in caplog.text
    with world.store.database.write() as session:
        session.execute(text("ALTER TABLE away RENAME TO service"))
    assert service(world) is None
