"""`preferl reward fit`: answers of each source, settings by name, tracking, and its report."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.command_line import run
from helpers.offline_runs import LENGTH, recorded
from helpers.waiting import SECONDS, wait_until
from preferl.cli.console import ProgressLine
from preferl.cli.options import AnswersConfig
from preferl.data import concatenate, load_comparisons, save_comparisons
from preferl.models import MLPReward
from preferl.reporting import read_jsonl
from preferl.runs import read_run
from preferl.testing import make_comparisons
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction, load_reward, relabel, save_reward

QUICK = ("--epochs", 2, "--hidden", 8, "--report-to", "jsonl")


@pytest.fixture
def data(answered):
    return answered[:2]


def fit(*words):
    return run("reward", "fit", *words)


def result(folder):
    return json.loads((folder / "result.json").read_text())


def answers(tmp_path, **changes):
    return AnswersConfig(demonstrations=tmp_path / "episodes", **changes).read()[:3]


def test_so_many_of_the_labels_are_drawn_by_the_seed(data, tmp_path):
    labels = tmp_path / "labels"
    assert fit(*data, "--labels", labels, "--queries", 25, *QUICK, "--out", tmp_path / "run") == 0
    assert result(tmp_path / "run")["fit"]["pairs"] == 25
    about = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert (about["model"], about["trainer"], about["held_out"]) == (None, None, None)
    assert "Attention" not in (tmp_path / "run/report.html").read_text()
    some, again, other, whole = (
        answers(tmp_path, labels=labels, queries=queries, seed=seed)[1]
        for queries, seed in ((25, 0), (25, 0), (25, 1), (None, 0))
    )
    np.testing.assert_array_equal(some.segments.rewards, again.segments.rewards)
    assert not np.array_equal(some.preference, other.preference)
    windows = [
        {tuple(pair) for pair in found.segments.origin[found.pairs][..., :2].reshape(-1, 4)}
        for found in (some, whole)
    ]
    assert windows[0] <= windows[1]
    assert len(whole) == 60


def test_a_scripted_teacher_needs_no_labels(data, tmp_path, capsys):
    words = (*data, "--teacher", "oracle", "--queries", 30, "--length", 6, *QUICK)
    assert fit(*words, "--out", tmp_path / "run") == 0
    assert "30 labelled pairs of 6 steps" in capsys.readouterr().out
    resolved = json.loads((tmp_path / "run/config.json").read_text())["resolved"]
    assert resolved["model"]["hidden"] == [8]
    assert resolved["trainer"]["epochs"] == 2
    assert resolved["held_out"] == 0
    assert "scripted answers (oracle)" in (tmp_path / "run/report.html").read_text()
    assert read_run(tmp_path / "run").summary.subject == "episodes"
    _, comparisons, counts = answers(tmp_path, teacher="oracle", queries=30, length=6)
    first, second = comparisons.segments.returns(comparisons.pairs).T
    np.testing.assert_array_equal(comparisons.preference, first > second)
    assert (counts.first, counts.second) == ((first > second).sum(), (first < second).sum())
    assert len(answers(tmp_path, teacher="oracle", length=6)[1]) == 200


def test_a_scripted_teacher_answers_the_pairs_of_labels(data, tmp_path):
    labels = tmp_path / "labels"  # by the true return
    people = answers(tmp_path, labels=labels)[1]
    script, wrong = (
        answers(tmp_path, labels=labels, teacher=teacher)[1]
        for teacher in ("oracle", "{kind: mistake, rate: 1.0}")
    )
    decided = script.decided  # files have no answer for a pair of equal segments
    assert decided.sum() > 50
    np.testing.assert_array_equal(script.preference[decided], people.preference[decided])
    np.testing.assert_array_equal(wrong.preference, 1 - script.preference)


def test_comparisons_of_a_run_are_read(rng, data, tmp_path):
    comparisons = make_comparisons(rng, pairs=12)
    save_comparisons(tmp_path / "online/comparisons", comparisons)
    for folder in ("online", "online/comparisons"):
        out = tmp_path / f"fit of {folder.replace('/', ' ')}"
        assert fit("--comparisons", tmp_path / folder, *QUICK, "--out", out) == 0
        assert result(out)["labels"]["pairs"] == 12
        assert read_run(out).summary.subject == folder.split("/")[-1]
        assert f"12 answers about {len(comparisons.segments)} clips" in (
            (out / "report.html").read_text()
        )
    out = tmp_path / "scaled over episodes"
    assert fit("--comparisons", tmp_path / "online", *data, *QUICK, "--out", out) == 0
    assert "about 20 episodes of episodes" in (out / "report.html").read_text()


def test_any_setting_of_model_and_trainer_by_name(data, tmp_path, capsys):
    words = (*data, "--labels", tmp_path / "labels", "--report-to", "jsonl")
    own = ("--model", "pt", "--model.width", 8, "--model.preference-width", 8, "--model.layers", 2)
    how = ("--trainer.epochs", 1, "--trainer.batch-size", 16, "--trainer.penalty.strength", 0.1)
    out = tmp_path / "run"
    assert fit(*words, *own, *how, "--held-out", 0.25, "--out", out) == 0
    model = load_reward(out / "reward").model
    assert (model.config.width, model.config.layers, model.context) == (8, 2, LENGTH)
    assert model.config.dropout == 0.1  # as the preset has it
    about = json.loads((out / "config.json").read_text())["config"]
    assert about["trainer"]["learning_rate"] == 1e-3
    assert (about["trainer"]["penalty"]["strength"], about["held_out"]) == (0.1, 0.25)
    assert (result(out)["fit"]["epochs"], result(out)["fit"]["pairs"]) == (1, 45)
    assert result(out)["fit"]["penalty"] == 0.1
    page = (out / "report.html").read_text()
    assert "Attention of the reward" in page
    assert "reward/validation_loss" in read_jsonl(out / "metrics.jsonl")
    assert fit(*words, *own, "--model.layers", 0, "--out", out) != 0
    assert "layers: expected at least 1" in capsys.readouterr().err


def test_what_is_typed_wins_over_what_answers_and_machine_decide(data, tmp_path, monkeypatch):
    monkeypatch.setattr("preferl.training.reward_presets.fast_precision", lambda: "bfloat16")
    words = (*data, "--labels", tmp_path / "labels", "--model", "pt", "--epochs", 1)
    words += ("--model.width", 8, "--report-to", "jsonl")
    made = []
    monkeypatch.setattr(
        "preferl.training.reward_presets.RewardPreset.fit",
        lambda preset, *_, **__: (made.append(preset), exec("raise KeyboardInterrupt"))[0],
    )
    typed = ("--model.context", 100, "--trainer.precision=float32")
    for more in ((), typed):
        assert fit(*words, *more, "--out", tmp_path / "run") == 130
    found = [(preset.model.context, preset.trainer.precision) for preset in made]
    assert found == [(LENGTH, "bfloat16"), (100, "float32")]


def test_metrics_of_each_epoch_are_tracked(data, tmp_path):
    words = (*data, "--labels", tmp_path / "labels", *QUICK[:4])
    assert fit(*words, "--report-to", "jsonl,tensorboard", "--out", tmp_path / "run") == 0
    metrics = read_jsonl(tmp_path / "run/metrics.jsonl")
    assert metrics["step"].tolist() == [1, 2, 2]  # of each epoch, and of the state that remains
    assert np.isfinite(metrics["reward/out_of_bag_accuracy"]).all()
    assert np.isfinite(metrics["reward/out_of_bag_accuracy_low"]).tolist() == [False, False, True]
    losses = result(tmp_path / "run")["fit"]["train_loss"]
    np.testing.assert_allclose(metrics["reward/train_loss"][:2], losses, atol=1e-6)
    assert list((tmp_path / "run/tensorboard").glob("events*"))


EPOCHS = 6


@pytest.fixture
def stopped_fit(answered):
    options = ["--epochs", str(EPOCHS), "--hidden", "8", "--checkpoint-seconds", "0"]
    return ["reward", "fit", *options, *answered]


def stop_after(monkeypatch, epochs):
    """Ctrl-C before the end of the epoch after so many in all."""

    def show(self, doing, done, total, news=""):
        if done > epochs:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "__call__", show)


def test_a_stopped_fit_goes_on_to_the_same_reward(stopped_fit, tmp_path, monkeypatch, capsys):
    assert run(*stopped_fit, "--out", tmp_path / "whole") == 0
    assert not (tmp_path / "whole" / "checkpoints").exists()
    capsys.readouterr()
    for epochs in (2, 4):
        with monkeypatch.context() as patch:
            stop_after(patch, epochs)
            resume = ["--resume"] if epochs > 2 else []
            assert run(*stopped_fit, "--out", tmp_path / "it", *resume) == 130
        printed = capsys.readouterr().out
        assert "The same command with --resume continues" in printed
        assert (tmp_path / "it" / "checkpoints").is_dir()
        assert not (tmp_path / "it" / "result.json").exists()
    monkeypatch.chdir(tmp_path)  # another name of the same folder
    assert run(*stopped_fit, "--out", "it", "--resume", "--checkpoint-seconds", "9") == 0
    assert not (tmp_path / "it" / "checkpoints").exists()
    expected, found = (
        load_file(tmp_path / name / "reward" / "model.safetensors") for name in ("whole", "it")
    )
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    whole, it = (
        json.loads((tmp_path / name / "result.json").read_text())["fit"] for name in ("whole", "it")
    )
    assert whole | {"seconds": 0} == it | {"seconds": 0}
    np.testing.assert_equal(it["epochs"], EPOCHS)


OWN = """
def reward(observations, actions, following):
    return -((observations + actions) ** 2).sum(-1) + 0.99 * following[:, 0] - observations[:, 0]
"""


@pytest.fixture
def fitted(answered, tmp_path):
    """A reward that learned nothing, and data to evaluate it on."""
    save_reward(tmp_path / "run/reward", RewardFunction(MLPReward(POINT_SPACE, PUSH_SPACE, seed=0)))
    return (tmp_path / "run", *answered)


def evaluate(*words):
    return run("reward", "evaluate", *words)


def test_controls_are_in_the_table_the_numbers_and_the_report(fitted, tmp_path, capsys):
    files = ("--json", tmp_path / "it.json", "--report", tmp_path / "it.html")
    assert evaluate(*fitted, *files) == 0
    numbers = json.loads((tmp_path / "it.json").read_text())
    assert set(numbers["controls"]) == {"random", "negated", "zero"}
    assert numbers["accuracy"] + numbers["controls"]["negated"]["accuracy"] == pytest.approx(1)
    assert numbers["spearman"] == pytest.approx(-numbers["controls"]["negated"]["spearman"])
    assert numbers["controls"]["zero"]["accuracy"] == 0.5
    assert numbers["labels"]["length"] == LENGTH
    out = capsys.readouterr().out
    for word in ("learned", "random", "negated", "zero", "EPIC"):
        assert word in out
    assert "epic: the true reward was not given" in out
    page = (tmp_path / "it.html").read_text()
    assert f"{numbers['controls']['random']['log_loss']:.3f}" in page
    assert "run on labels" in page
    assert "EPIC distance" not in page


def test_epic_distance_from_a_reward_of_ones_own(fitted, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_reward_of_tests.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    true = ("--true-reward", "own_reward_of_tests:reward", "--json", "it.json")
    assert evaluate(*fitted, *true, "--report", "it.html") == 0
    assert "EPIC distance" in (tmp_path / "it.html").read_text()
    numbers = json.loads((tmp_path / "it.json").read_text())
    opposite = numbers["controls"]["negated"]["epic"]
    assert 0 < numbers["epic"] < 1
    assert numbers["epic"] ** 2 + opposite**2 == pytest.approx(1)  # (1 - r) / 2 and (1 + r) / 2
    assert numbers["controls"]["zero"]["epic"] is None
    assert f"{numbers['epic']:.3f}" in capsys.readouterr().out


def labelled(seed, name, tmp_path):
    """Answers of a script about the fixture's episodes, in a folder."""
    words = (tmp_path / "episodes", "--out", tmp_path / name, "--queries", 40, "--length", LENGTH)
    assert run("data", "label", *words, "--seed", seed) == 0
    return tmp_path / name


def test_pairs_of_the_fit_are_left_out_whichever_folder_they_are_in(fitted, tmp_path, capsys):
    quick = ("--epochs", 1, "--hidden", 4, "--report-to", "jsonl", "--out", tmp_path / "fit")
    first, others = (labelled(seed, f"of {seed}", tmp_path) for seed in (0, 1))
    assert "Another --seed than 0 draws other pairs" in capsys.readouterr().out
    assert fit("--comparisons", first, *quick) == 0
    again = labelled(0, "again", tmp_path)
    known, fresh = (load_comparisons(folder) for folder in (again, others))
    save_comparisons(tmp_path / "both", concatenate([fresh[:10], known[:30].swapped()]))

    def evaluated(folder):
        capsys.readouterr()
        files = ("--json", tmp_path / "it.json", "--report", tmp_path / "it.html")
        assert evaluate(tmp_path / "fit", "--comparisons", folder, *files) == 0
        numbers = json.loads((tmp_path / "it.json").read_text())
        return numbers, capsys.readouterr().out, (tmp_path / "it.html").read_text()

    numbers, out, page = evaluated(again)
    assert "Reward on 40 answers that it was fitted to" in out
    assert "Reward on 40 answers that it was fitted to" in page
    assert (numbers["seen"], numbers["left_out"]) == (40, [])

    numbers, out, page = evaluated(tmp_path / "both")
    for text in (out, page):
        assert "Reward on 10 answers that it was not fitted to" in text
        assert "Left out: 30 of 40 pairs, which the reward was fitted to." in text
    assert (numbers["seen"], numbers["left_out"]) == (0, [*range(10, 40)])
    assert numbers["decided"] + numbers["ties"] == 10

    alone, out, _ = evaluated(others)
    assert alone["left_out"] == []
    assert "fitted to" not in out


SERVES = '''
import signal
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

from preferl.cli import reward
from preferl.online.service.service_config import ServiceConfig
from preferl.online.service import reward_service


class Event(threading.Event):
    """One whose lock has a name."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def set(self):
        with self.lock:
            super().set()


def serve(config, store, project, *, stop, report_to):
    assert report_to == ()
    with stop.lock:  # as in the middle of `stop.wait`
        signal.raise_signal(signal.SIGTERM)
    assert stop.wait(600)
    return 3


reward.opened = lambda labels: nullcontext((None, SimpleNamespace(id=1, slug="dots")))
reward_service.serve_reward = serve
threading.Event = Event
reward.reward_serve(reward.RewardServeConfig(ServiceConfig(Path("rewards"))))
'''


@pytest.mark.slow
def test_a_signal_in_the_middle_of_a_wait_ends_the_service(tmp_path):
    command = [sys.executable, "-c", SERVES]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "Stopped. The latest reward is version 3." in done.stderr


PROGRAM = Path(sysconfig.get_path("scripts")) / "preferl"
TORCHRUN = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone"]
SHARED = [*TORCHRUN, "--nproc-per-node", "2", "--no-python", str(PROGRAM)]
HOSTILE = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"


@pytest.fixture
def words(answered):
    """Of a fit that is still under way when a signal comes; 40 epochs take half a second."""
    quick = ["--epochs", 160, "--trainer.patience", None, "--hidden", 8, "--report-to", "jsonl"]
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
    assert printed.count("The same command with --resume continues") == 1, printed
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
