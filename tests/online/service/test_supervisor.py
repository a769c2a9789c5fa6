"""Programs that die, hang or never come up are reported and restarted, and end with their block."""

import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.waiting import SECONDS, wait_until
from preferl.errors import StorageError
from preferl.online.service.supervisor import (
    Program,
    RunningProgram,
    SuperviseConfig,
    Supervisor,
    identity,
    is_running,
)
from preferl.online.supervise import RewardServiceProbe
from preferl.store.schema import Service
from preferl.store.status import Status
from preferl.store.store import Store

FAST = SuperviseConfig(
    start_seconds=SECONDS,
    stop_seconds=2,
    steady_seconds=3600,
    look_seconds=0.02,
    first_pause=0.05,
    longest_pause=0.2,
)
UP = (
    "import os, time; print('up', flush=True)\n"
    "open(os.environ['PREFERL_STATUS_FILE'], 'w').write('{\"state\": \"up\"}')\n"
)
SLEEPS = UP + "time.sleep(3600)"


def program(code, name="worker", **more):
    """A Python program that starts quickly."""
    return Program(name, (sys.executable, "-I", "-S", "-c", code), **more)


def up(status, _age):
    return status == Status("up")


def process_of(supervisor, place=0):
    return supervisor.programs[place].process


@pytest.fixture
def lines():
    """What a supervisor has reported."""
    return []


@pytest.fixture
def supervise(tmp_path, lines):
    """Makes a supervisor of programs that reports to `lines`."""

    def make(*programs, config=FAST, on_message=lines.append, **more):
        return Supervisor(programs, tmp_path, config, on_message=on_message, **more)

    return make


def test_programs_run_while_the_block_does(supervise, lines, tmp_path):
    seen = []

    def is_up(status, age):  # once the other one was seen
        return up(status, age) and "other" in seen

    def other_is_up(status, age):
        seen.append("other")
        return up(status, age)

    one, other = program(SLEEPS, is_up=is_up), program(SLEEPS, name="other", is_up=other_is_up)
    with supervise(one, other) as supervisor:
        running = [identity(process_of(supervisor, place).pid) for place in (0, 1)]
        assert all(is_running(known) for known in running)
        assert supervisor.problems == []
    assert not any(is_running(known) for known in running)
    assert lines == []
    assert (tmp_path / "worker.log").read_text() == "up\n"
    assert (tmp_path / "worker.log").stat().st_mode & 0o777 == 0o600, "logs hold links"


def test_one_that_is_killed_is_reported_and_started_again(supervise, lines, tmp_path):
    with supervise(program(SLEEPS, is_up=up)) as supervisor:
        first = process_of(supervisor)
        first.kill()
        wait_until(lambda: lines)
        assert lines[0].startswith("worker ended with signal 9: up. It is started again in 0.05 s")
        assert str(tmp_path / "worker.log") in lines[0]
        wait_until(lambda: lines[1:] == ["worker is up again."])
        assert supervisor.problems == []
        assert process_of(supervisor).pid != first.pid


def test_one_that_always_dies_is_given_up_after_growing_pauses(supervise, lines, tmp_path):
    config = replace(FAST, restarts=3)
    seen_up = tmp_path / "seen"
    looks = []
    code = (
        f"{UP}while not os.path.exists({str(seen_up)!r}): time.sleep(0.01)\n"
        f"os.remove({str(seen_up)!r})\nprint('no room', flush=True)\nraise SystemExit(3)"
    )

    def seen(status, age):
        """Whether it is up, after which it works no longer."""
        return up(status, age) and seen_up.write_text("") == 0

    with supervise(
        program(code, is_up=seen), config=config, complaints=[lambda: looks.append(1)]
    ) as supervisor:
        wait_until(lambda: any("given up" in line for line in lines))
        messages = [line for line in lines if "ended with status 3: no room" in line]
        assert [line.split("again in ")[1].split(";")[0] for line in messages[:3]] == [
            "0.05 s",
            "0.1 s",
            "0.2 s",
        ]
        assert "given up after 3 restarts in a row" in messages[3]
        before = len(looks)
        wait_until(lambda: len(looks) > before + 20)  # for longer than any pause
        assert len([line for line in lines if "ended with" in line]) == 4
        assert len(supervisor.problems) == 1


def test_one_that_runs_without_a_heartbeat_is_ended_and_started_again(supervise, lines):
    hanging = threading.Event()

    def heard(line):
        lines.append(line)
        hanging.clear()

    def lost(age):
        return "hangs" if hanging.is_set() and age > 0.2 else None

    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS
    config = replace(FAST, stop_seconds=0.3)
    hangs = program(code, is_up=up, failure=lost)
    with supervise(hangs, config=config, on_message=heard) as supervisor:
        first = process_of(supervisor)
        hanging.set()
        wait_until(lambda: lines)
        assert lines[0].startswith("worker hangs. It is started again")
        assert first.returncode == -9, "by force, where asking does not help"
        wait_until(lambda: "worker is up again." in lines)


def test_one_that_never_comes_up_is_an_error_with_its_last_words(tmp_path):
    with pytest.raises(StorageError, match=r"status 2: port taken\. Its log is .*worker.log"):
        Supervisor(
            [program("print('port taken'); raise SystemExit(2)", is_up=up)], tmp_path, FAST
        ).__enter__()
    late = replace(FAST, start_seconds=0.3)
    silent = program("import time; time.sleep(3600)", is_up=up)
    supervisor = Supervisor([program(SLEEPS, name="good"), silent], tmp_path, late)
    with pytest.raises(StorageError, match=r"is not up after \d+\.\d s: nothing"):
        supervisor.__enter__()
    assert process_of(supervisor).returncode is not None, "the other one is ended, too"
    with pytest.raises(StorageError, match="one that starts"):
        Supervisor([Program("none", ("/no/such/program",))], tmp_path, FAST).__enter__()


def test_complaints_are_reported_once_until_they_change(supervise, lines):
    now = [None]
    looks = []

    def complaint():
        looks.append(now[0])
        return now[0]

    with supervise(complaints=[complaint]) as watching:
        for text in ("stale", None, "stale", "staler"):
            now[0] = text
            seen = len(looks)
            wait_until(lambda text=text: watching.problems == ([text] if text else []))
            wait_until(lambda seen=seen: len(looks) > seen + 3)
    assert lines == ["stale", "stale", "staler"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_what_a_killed_launcher_left_is_ended_and_what_a_living_one_has_is_not(tmp_path):
    worker = program(SLEEPS, is_up=up)
    code = (
        "import sys, time; from pathlib import Path\n"
        "from preferl.online.service.supervisor import Program, RunningProgram\n"
        f"running = RunningProgram(Program('worker', {worker.command!r}), Path(sys.argv[1]))\n"
        "running.start(); print(running.process.pid, flush=True); time.sleep(3600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        left = identity(int(launcher.stdout.readline()))
        with pytest.raises(StorageError, match=f"of process {launcher.pid}, which runs"):
            RunningProgram(worker, tmp_path).end_leftover(1)
        assert is_running(left)
        launcher.kill()
        launcher.wait()
    assert is_running(left)
    lines = []
    with Supervisor([worker], tmp_path, FAST, on_message=lines.append):
        assert not is_running(left)
        assert lines == ["worker of a run that was killed has been ended."]


def shift_heartbeat(world, seconds):
    """Move the last heartbeat of the reward service by so much."""
    with world.store.database.write() as session:
        session.get_one(Service, (world.project.id, "reward")).beat_at += seconds


LONG = 1e6
"""Seconds, by far more than the age of any heartbeat here."""


@pytest.fixture
def now():
    """The seconds that a probe's clock shows."""
    return [0.0]


def probe(world, now, answers=50, seconds=600.0):
    return RewardServiceProbe(world.store, world.project.id, answers, seconds, lambda: now[0])


def beat(world, status, **more):
    world.store.reports.beat(world.project.id, "reward", status, **more)


def test_signs_of_life_tell_lost_programs_from_new_ones(world, now):
    signs = probe(world, now)
    assert not signs.is_up(None, LONG)
    assert signs.failure(LONG) is None, "who never gave a sign is not expected to"
    beat(world, Status("failed", problem="full"), every=200.0)
    assert signs.is_up(None, LONG)
    assert signs.failure(LONG) is None
    assert "full" in signs.failing()
    shift_heartbeat(world, -800)
    assert signs.failure(LONG) is None, "the store may have taken none"
    now[0] += 301.0
    assert "no heartbeat" in signs.failure(LONG)
    assert signs.failure(0.2) is None, "the sign is that of an earlier process"
    assert signs.failing() is None
    beat(world, Status("stuck"), every=200.0)
    assert "stuck" in signs.failure(LONG)


def test_nobody_is_lost_because_the_store_takes_no_signs(world, now, monkeypatch):
    monkeypatch.setattr("preferl.store.database.BUSY_SECONDS", 0.05)
    beat(world, Status("waiting"), every=0.2)
    shift_heartbeat(world, -60)
    held = sqlite3.connect(world.store.files / "labels.db", isolation_level=None)
    with Store.open(world.store.files) as impatient:
        signs = RewardServiceProbe(impatient, world.project.id, 50, 600.0, lambda: now[0])
        held.execute("BEGIN EXCLUSIVE")
        for now[0] in (0.5, 1.0, 1.5):
            assert signs.failure(LONG) is None
        held.execute("ROLLBACK")
        signs.store = world.store
    assert signs.failure(LONG) is None, "it has not had the time to say so"
    beat(world, Status("waiting"), every=0.2)
    assert signs.failure(LONG) is None
    shift_heartbeat(world, -60)
    assert signs.failure(LONG) is None
    now[0] += 1.0
    assert "no heartbeat" in signs.failure(LONG)
    held.close()


def test_a_stale_reward_is_reported_by_answers_or_by_time(world, now):
    world.ask(12)
    by_answers = probe(world, now, 5, 1e9).stale
    by_time = probe(world, now, 10**9, 0.2).stale
    world.answer(6)
    assert by_answers() is None, "before the first version nothing is stale"
    world.store.reports.announce_reward(world.project.id, 1, answers=6, detail={"revision": 6})
    assert by_answers() is None
    world.answer(1)
    assert by_answers() is None
    assert by_time() is None
    now[0] = 0.3
    assert "since version 1" in by_time()
    world.answer(4)
    assert by_answers() is None, "it may not have looked yet"
    now[0] = 11.0
    assert "since version 1" in by_answers()
    beat(world, Status("waiting", looked_at=11))
    assert by_answers() is None, "it has looked, and there was nothing to learn"
    assert by_time() is None


def test_a_reward_that_is_being_learned_is_not_stale_until_that_takes_too_long(world, now):
    stale = probe(world, now, 5, 1e9).stale
    world.ask_and_answer(30)

    def publish(version, revision, seconds):
        detail = {"revision": revision, "seconds": seconds}
        world.store.reports.announce_reward(
            world.project.id, version, answers=revision, detail=detail
        )

    publish(1, 10, seconds=20.0)
    beat(world, Status("fitting"), every=3600.0)
    for now[0] in (0.0, 30.0, 69.0):
        assert stale() is None, "the last fit took 20 s"
    now[0] = 71.0
    assert "since version 1" in stale()
    publish(2, 20, seconds=20.0)
    assert stale() is None, "this one has only just begun to be old"
    now[0] = 80.0
    beat(world, Status("waiting"))
    assert stale() is None
    now[0] = 82.0
    assert "since version 2" in stale(), "nothing is learned from ten answers"
    beat(world, Status("fitting"), every=0.0)
    assert "since version 2" in stale(), "the service that says so is lost"
    publish(3, 30, seconds=20.0)
    assert stale() is None
