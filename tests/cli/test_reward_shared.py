"""`preferl reward fit` on several processes of torchrun, and commands that refuse it."""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from helpers.command_line import run
from helpers.offline_runs import recorded
from helpers.waiting import SECONDS, wait_until
from preferl.reporting import read_jsonl
from preferl.training import load_reward, relabel

PROGRAM = Path(sysconfig.get_path("scripts")) / "preferl"
TORCHRUN = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone"]
SHARED = [*TORCHRUN, "--nproc-per-node", "2", "--no-python", str(PROGRAM)]
HOSTILE = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"


@pytest.fixture
def words(answered):
    quick = ["--epochs", 40, "--trainer.patience", None, "--hidden", 8, "--report-to", "jsonl"]
    options = ["--checkpoint-seconds", 0, *quick]
    return [str(word) for word in ("reward", "fit", *answered, *options)]


def losses(folder):
    """By epoch; a resumed fit may repeat some."""
    rows = read_jsonl(folder / "metrics.jsonl")
    pairs = zip(rows["step"], rows["reward/train_loss"], strict=True)
    return {int(step): float(loss) for step, loss in pairs if not np.isnan(loss)}


@pytest.mark.slow
def test_a_shared_fit_that_is_stopped_resumes_to_that_of_one_process(words, tmp_path):
    """In a folder whose modules have names of what is imported: none of them runs."""
    one, two, here = (tmp_path / name for name in ("one", "two", "here"))
    (here / "preferl").mkdir(parents=True)
    for name in ("preferl/__init__", "preferl/__main__", "torch", "numpy", "json", "socket"):
        (here / f"{name}.py").write_text(HOSTILE)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([PROGRAM, *words, "--out", one], check=True, env=environment)
    how = {"cwd": here, "env": environment, "text": True, "stderr": subprocess.STDOUT}
    shared = [*SHARED, *words, "--out", str(two)]
    with subprocess.Popen(shared, **how, stdout=subprocess.PIPE) as stopped:
        wait_until((two / "checkpoints").is_dir, "the fit did not begin")
        stopped.send_signal(signal.SIGINT)
        printed = stopped.communicate(timeout=SECONDS)[0]
    assert printed.count("The same command with --resume continues") == 1
    assert not (two / "result.json").exists()
    done = subprocess.run([*shared, "--resume"], **how, stdout=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0, done.stdout
    assert "by 2 processes, which spent" in done.stdout
    assert done.stdout.count("Fitted in") == 1, "the first process alone prints"
    assert not list(here.rglob("*.ran"))
    alone = losses(one)
    together = losses(two)
    assert together.keys() == alone.keys()
    np.testing.assert_allclose(list(together.values()), list(alone.values()), rtol=1e-5)
    episodes = recorded(np.random.default_rng(5), episodes=3)
    rewards = (np.asarray(relabel(episodes, load_reward(f / "reward")).rewards) for f in (one, two))
    np.testing.assert_allclose(*rewards, atol=1e-3)


@pytest.fixture
def torchrun(monkeypatch):
    """The environment of the second of two processes."""
    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "-",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("command", ["runs list", "online run", "offline run", "reward serve"])
def test_commands_of_one_process_refuse_several(torchrun, command, capsys):
    assert run(*command.split()) == 2
    printed = capsys.readouterr().err
    assert f"got 2 processes of {command}. Start it without torchrun" in printed
    assert "one process, or the command reward fit" in printed


def test_one_process_of_torchrun_is_like_none(torchrun, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert run("runs", "list", str(tmp_path)) == 0
