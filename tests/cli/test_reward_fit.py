"""`preferl reward fit`: answers of each source, settings by name, tracking, and its report."""

import json

import numpy as np
import pytest

from helpers.command_line import run
from helpers.offline_runs import LENGTH
from preferl.cli.options import AnswersConfig
from preferl.cli.reward import FitConfig, reward_fit_start
from preferl.data import save_comparisons
from preferl.reporting import read_jsonl
from preferl.runs import read_run
from preferl.testing import make_comparisons
from preferl.training import load_reward

QUICK = ("--epochs", 2, "--hidden", 8, "--report-to", "jsonl")


@pytest.fixture
def data(answered):
    return answered[:2]


def fit(*words):
    return run("reward", "fit", *words)


def result(folder):
    return json.loads((folder / "result.json").read_text())


def answers(tmp_path, **changes):
    return AnswersConfig(demonstrations=tmp_path / "episodes", **changes).read()


def test_so_many_of_the_labels_are_drawn_by_the_seed(data, tmp_path):
    labels = tmp_path / "labels"
    assert fit(*data, "--labels", labels, "--queries", 25, *QUICK, "--out", tmp_path / "run") == 0
    found = result(tmp_path / "run")
    assert (found["labels"]["pairs"], found["fit"]["pairs"]) == (25, 25)
    some, again, other, whole = (
        answers(tmp_path, labels=labels, queries=queries, seed=seed)[1]
        for queries, seed in ((25, 0), (25, 0), (25, 1), (None, 0))
    )
    np.testing.assert_array_equal(some.segments.rewards, again.segments.rewards)
    assert not np.array_equal(some.preference, other.preference)
    windows = {tuple(pair) for pair in whole.segments.origin[whole.pairs][..., :2].reshape(-1, 4)}
    assert {tuple(p) for p in some.segments.origin[some.pairs][..., :2].reshape(-1, 4)} <= windows
    assert len(whole) == 60


def test_a_scripted_teacher_needs_no_labels(data, tmp_path, capsys):
    words = (*data, "--teacher", "oracle", "--queries", 30, "--length", 6, *QUICK)
    assert fit(*words, "--out", tmp_path / "run") == 0
    assert "30 labelled pairs of 6 steps" in capsys.readouterr().out
    resolved = json.loads((tmp_path / "run/config.json").read_text())["resolved"]
    assert resolved["model"]["hidden"] == [8]
    assert resolved["trainer"]["epochs"] == 2
    assert resolved["held_out"] == 0
    assert result(tmp_path / "run")["fit"]["pairs"] == 30
    assert "scripted answers (oracle)" in (tmp_path / "run/report.html").read_text()
    assert read_run(tmp_path / "run").summary.subject == "episodes"
    _, comparisons, counts = answers(tmp_path, teacher="oracle", queries=30, length=6)
    first, second = comparisons.segments.returns(comparisons.pairs).T
    np.testing.assert_array_equal(comparisons.preference, first > second)
    assert (counts.first, counts.second) == ((first > second).sum(), (first < second).sum())
    again = answers(tmp_path, teacher="oracle", queries=30, length=6)[1]
    np.testing.assert_array_equal(again.segments.start, comparisons.segments.start)
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


def test_what_is_as_the_preset_has_it_is_not_written(data, tmp_path):
    words = (*data, "--labels", tmp_path / "labels", *QUICK, "--trainer.weight-decay", 0.01)
    assert fit(*words, "--out", tmp_path / "run") == 0
    about = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert (about["model"], about["trainer"], about["held_out"]) == (None, None, None)
    assert "Attention" not in (tmp_path / "run/report.html").read_text()


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


def test_defaults_are_those_of_the_preset():
    assert reward_fit_start([]).reward == FitConfig().reward
    assert reward_fit_start(["--model", "pt"]).trainer.epochs == 10_000
    assert reward_fit_start(["--model=pt"]).held_out == 0.1
