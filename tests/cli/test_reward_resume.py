"""`preferl reward fit --resume`: on with what was stopped, and never over what is finished."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.command_line import run
from preferl.cli.console import ProgressLine
from preferl.cli.reward import FitConfig
from preferl.runs import open_run

EPOCHS = 6


@pytest.fixture
def data(answered):
    options = ["--epochs", str(EPOCHS), "--hidden", "8", "--checkpoint-seconds", "0"]
    return ["reward", "fit", *options, *answered]


def files(folder):
    return {str(f): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def stop_after(monkeypatch, epochs):
    """Ctrl-C before the end of the epoch after so many in all."""

    def show(self, doing, done, total, news=""):
        if done > epochs:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "__call__", show)


def test_a_stopped_fit_goes_on_to_the_same_reward(data, tmp_path, monkeypatch, capsys):
    assert run(*data, "--out", tmp_path / "whole") == 0
    assert not (tmp_path / "whole" / "checkpoints").exists()
    capsys.readouterr()
    for epochs in (2, 4):
        with monkeypatch.context() as patch:
            stop_after(patch, epochs)
            resume = ["--resume"] if epochs > 2 else []
            assert run(*data, "--out", tmp_path / "it", *resume) == 130
        printed = capsys.readouterr().out
        assert "The same command with --resume continues" in printed
        assert (tmp_path / "it" / "checkpoints").is_dir()
        assert not (tmp_path / "it" / "result.json").exists()
    monkeypatch.chdir(tmp_path)  # another name of the same folder
    assert run(*data, "--out", "it", "--resume", "--checkpoint-seconds", "9") == 0
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


def test_nothing_is_done_to_a_finished_fit_or_without_one(data, tmp_path, capsys):
    assert run(*data, "--out", tmp_path / "it", "--resume") == 2
    assert "there is no run here" in capsys.readouterr().err
    assert not (tmp_path / "it").exists()
    assert run(*data, "--out", tmp_path / "it") == 0
    before = files(tmp_path / "it")
    assert run(*data, "--out", tmp_path / "it", "--resume") == 2
    assert "finished" in capsys.readouterr().err
    assert files(tmp_path / "it") == before


@pytest.mark.parametrize(
    "wrong",
    [
        ("--labels", "nowhere"),
        ("--hidden", "0"),
        ("--batch-size", "0"),
        ("--device", "cud"),
        ("--checkpoint-seconds", "-1"),
    ],
)
def test_a_typo_leaves_the_finished_fit_at_its_name(data, tmp_path, wrong):
    with open_run(tmp_path / "it", config=FitConfig(), seed=0) as finished:
        finished.result({})
    before = files(tmp_path)
    assert run(*data, "--out", tmp_path / "it", *wrong) != 0
    assert files(tmp_path) == before
