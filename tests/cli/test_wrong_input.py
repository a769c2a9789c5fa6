"""Wrong input: one line that names it, an exit code that is not 0, and folders as they were."""

import re
import socket
import sqlite3
import sys
from contextlib import ExitStack, closing, contextmanager
from shutil import copytree

import pytest

from helpers.command_line import run
from preferl.data import save_episodes
from preferl.online.configs import OnlineConfig
from preferl.registry import TEACHERS
from preferl.runs import open_run
from preferl.runs.folder import LOCK
from preferl.runs.lock import FolderLock
from preferl.store.store import Store

TINY = (
    "--eval-every", "0",
    "--steps", "400", "--initial-steps", "200", "--iterations", "1", "--comparisons", "6",
    "--environments", "1", "--segment-length", "10", "--evaluation.episodes", "1",
    "--evaluation.queries", "5", "--evaluation.clip-steps", "0", "--evaluation.no-oracle",
)  # fmt: skip
"""An online run of seconds, for input that no command refuses before it."""

CLIPS = "--run recorded --length 5"
LABELS = "--demonstrations a --labels b"

OPTIONS = {
    "online run --resume --out empty": "there is no run here",
    "online run --resume --out finished": "this run is finished",
    "data record --env Pendulum-v1 --resume --out deep/run": "there is no run here",
    "online run --people --resume": "there is no run here to resume",
    "data record --mix random:1": "--env: expected a value, got none",
    "reward serve --out rewards --model pt --labels x": "--labels: .* `preferl reward serve`",
    "online run --preset pendulm": r"--preset: expected one of .* nearest is pendulum\.",
    "reward fit --model nonsense": r"--model: expected one of mlp, .* --trust MODULE\.",
    "reward fit --teacher orakle --demonstrations recorded/episodes": r"nearest is oracle\.",
    f"offline run {LABELS} --env E --seeds 0,one": "--seeds: expected N,N,..., got '0,one'",
    "annotate invite Ann --role boss": "--role: expected one of annotator, admin, spectator",
    "data inspect a b": "'b': expected an option",
    "completion tcsh": "expected one of bash, zsh, fish, got 'tcsh'",
    "onlin run": r"no such command: onlin run. The nearest is online run\.",
}
"""Options and what they take: wrong usage."""

SETTINGS = {
    "online run --steps -5": "steps: expected at least .*, got -5",
    "online run --algorithm sac --algorithm.gamma nan": r"\.gamma: expected in \[0, 1\], got nan",
    "online run --ask --people": "Choose one of --ask",
    "online run --question Which?": "--question: expected it only with --people",
    "online run --draw json:dumps": "--draw: expected it only with --people",
    "online run --device tpu": "device 'tpu': expected one that torch has",
    "online run --env Pendulun-v1": "Pendulun-v1",
    "online run --env plain_module:X-v0": "X-v0",
    "online run --trust broken_module": "'broken_module', .* got RuntimeError: no simulator here",
    "data record --env Pendulum-v1 --mix expert:1 --device tpu": "device 'tpu': expected one that",
    "online run --config wrong.yaml": r"wrong.yaml: .*\['stepz'\]. The nearest is steps\.",
    "online run --config nested.yaml": r"algorithm: .*\['n_stepz'\]. The nearest is n_steps\.",
    "online run --config notes.txt": "notes.txt: expected settings by name",
    "online run --out foreign": "expected a new or empty folder",
    "online run --out live": "one at work already",
    "online run --resume --out live": "one at work already",
    "demo --smoke --out live": "one at work already",
    "data record --env Pendulum-v1 --mix random:1 --out live": "one at work already",
    "data record --env Pendulum-v1 --mix random:1 --resume --out live": "one at work already",
    f"offline run {LABELS} --env Pendulum-v1 --out live": "one at work already",
    f"offline run {LABELS} --env Pendulum-v1 --resume --out live": "one at work already",
    f"reward fit {LABELS} --out live": "one at work already",
    f"reward fit {LABELS} --resume --out live": "one at work already",
    "online run --resume --out stopped --steps 9000": r"to resume the run in stopped.*steps=",
    "data record --env Pendulum-v1 --mix expert:2 --policy nowhere": "nowhere",
    "data record --env Pendulum-v1 --mix random": "mix: expected TIER:AMOUNT",
    "data inspect nowhere.pickle": "nowhere.pickle",
    "reward serve --store nowhere --out rewards": "store nowhere: expected a folder of labels",
    f"offline run {LABELS} --env E --seeds 1,1": "seeds: expected different",
    f"offline run {LABELS} --env E --policy dt --target-return abc": "a quantile such as q0.95",
    "online run --seed -1": "seed: expected a whole number from 0 to 4294967295, got -1",
    "reward serve --out rewards --store labels --seed -1": "--seed: expected a whole number from",
    "reward serve --out rewards --store labels --initial_epochs 0": "--initial-epochs: .* got 0",
    f"annotate create {CLIPS} --store new --env E --seed -1": "--seed: expected a whole number",
    "annotate create": "expected one of --demonstrations, --dataset, --run, --lerobot, got none",
    "annotate create --run recorded": "--env ID",
    "annotate create --run .": "keeps its experience with --keep-experience",
    f"annotate create {CLIPS} --dataset d": "--demonstrations, --dataset, --run.*--dataset.*--run",
    f"annotate create {CLIPS} --pixels x --reward y": "expected none.*Give --sampler informative",
    f"annotate create {CLIPS} --qualification 3 --known 2": r"in \[0, 2\], got 3. Raise --known",
    f"annotate create {CLIPS} --env Acrobot-v1": "--elsewhere",
    f"annotate create {CLIPS} --env Pendulum-v1 --colours 4": "observations that hold pictures",
    f"annotate create {CLIPS} --queries 0": "queries: expected at least 1, got 0",
    "annotate create --run recorded --env Pendulum-v1 --length 99": "at most 50",
    "annotate report": "Make one with `preferl annotate create`",
    f"annotate create {CLIPS} --store notes.txt --env Pendulum-v1": "notes.txt",
    f"annotate create {CLIPS} --store new --env Pendulun-v1": "Pendulun-v1",
    f"annotate create {CLIPS} --store labels --env Pendulum-v1 --project door": "door",
    "annotate create --run recorded --store new --env Pendulum-v1": "at least 2 different windows",
    "annotate serve --store labels --port taken --no-browser": "a free address and port",
    "annotate serve --store labels --host 0.0.0.0 --no-browser": "PREFERL_SECRET",
    "annotate invite Ann --store locked": "database is locked",
    "annotate report --store labels --project windows": "door",
    "annotate export answers.xls --store labels": "expected one of jsonl, csv, parquet .* 'xls'",
    "annotate report --store labels --out report.pdf": r"\.html or \.json",
    "annotate import nowhere.jsonl --store labels": "nowhere.jsonl",
    "annotate import odd.csv --store labels": "got winner, loser.* chosen_episode, chosen_start",
}
"""Settings, files and folders: errors of what a command was given."""


@pytest.fixture(scope="module")
def place(tmp_path_factory, episodes):
    """A folder of runs in all states, labels, modules and files of several kinds."""
    place = tmp_path_factory.mktemp("here")
    save_episodes(place / "recorded/episodes", episodes)
    with Store.open(place / "labels") as store:
        store.projects.create("door", frames={"kind": "env", "env_id": "Pendulum-v1"})
    copytree(place / "labels", place / "locked")
    (place / "foreign").mkdir()
    (place / "empty").mkdir()
    files = {
        "foreign/letter.txt": "Dear all,\n",
        "notes.txt": "- buy milk\n",
        "odd.csv": "Winner;Loser\n1;2\n",
        "wrong.yaml": "stepz: 100\n",
        "nested.yaml": "algorithm: {kind: ppo, n_stepz: 100}\n",
        "plain_module.py": "",
        "broken_module.py": "raise RuntimeError('no simulator here')\n",
    }
    for name, text in files.items():
        (place / name).write_text(text)
    for name in ("finished", "stopped", "live"):
        with open_run(place / name, config=OnlineConfig(steps=5_000), seed=0) as folder:
            if name == "finished":
                folder.result({"interrupted": False})
    return place


@pytest.fixture
def here(place, monkeypatch):
    """The same as the current folder; no test may change it."""
    monkeypatch.chdir(place)
    monkeypatch.delenv("PREFERL_SECRET", raising=False)
    monkeypatch.setattr("preferl.store.database.BUSY_SECONDS", 0.1)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(place))])
    yield place
    for name in ("plain_module", "broken_module"):
        sys.modules.pop(name, None)


@contextmanager
def others_at_work(place):
    """A run in `live`, a program that writes to `locked`, and one at a port, which is returned."""
    with ExitStack() as stack:
        lock = FolderLock(place / "live", LOCK, "run")
        lock.take()
        stack.callback(lock.release)
        database = stack.enter_context(closing(sqlite3.connect(place / "locked/labels.db")))
        database.execute("BEGIN IMMEDIATE")
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield listening.getsockname()[1]


def tree(place):
    """All files and folders, without what SQLite keeps beside an open database."""
    found = [path for path in place.rglob("*") if not path.name.endswith(("-wal", "-shm"))]
    names = {str(path.relative_to(place)): path for path in found}
    skipped = ("__pycache__",)
    return {
        name: path.read_bytes() if path.is_file() else b""
        for name, path in names.items()
        if not any(part in name for part in skipped)
    }


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [(line, 2, words) for line, words in OPTIONS.items()]
    + [(line, 1, words) for line, words in SETTINGS.items()],
)
def test_wrong_input(here, capfd, line, code, words):
    with others_at_work(here) as port:
        before = tree(here)
        typed = line.replace("taken", str(port)).split()
        command = " ".join(typed[: 1 if typed[0] in ("demo", "completion") else 2])
        assert run(*typed) == code
        assert tree(here) == before
    error = capfd.readouterr().err
    assert error.count("\n") == 1, error
    assert re.search(words, error), error
    prefix = "preferl: " if command == "onlin run" else f"preferl {command}: "
    assert error.startswith(prefix)
    assert "Traceback" not in error


def test_a_teacher_of_the_wrong_shape_moves_no_older_run(here, capfd):
    def of_each_clip(shown, rng):
        return shown.rewards.sum(-1)

    TEACHERS.register("wrong", lambda: of_each_clip)
    try:
        before = tree(here)
        assert run("online", "run", *TINY, "--teacher", "wrong", "--out", "finished") == 1
    finally:
        TEACHERS.remove("wrong")
    assert tree(here) == before
    error = capfd.readouterr().err
    assert error.count("\n") == 1, error
    assert "The teacher's answers cannot be used" in error
