"""Rewards of a frozen encoder's features, by commands."""

import json
import shutil

import numpy as np
from benchmarks.lerobot_maker import CAMERA, make

from helpers.command_line import run
from helpers.tiny_encoders import save_encoder
from preferl.data import Comparisons, cut, save_comparisons
from preferl.data.sources import open_lerobot
from preferl.training import load_reward


def test_a_reward_keeps_to_the_encoder_that_it_was_fitted_with(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PREFERL_CACHE", f"{tmp_path / 'cache'}")
    make(tmp_path / "set", [6, 4, 5], side=64)
    states = open_lerobot(tmp_path / "set").episodes()
    clips = cut(states, np.array([0, 3, 6, 7, 10, 12]), 3)
    pairs = np.array([[0, 1], [2, 3], [5, 4]])
    answers = Comparisons.of(clips, pairs, np.array([0.0, 0.0, 1.0]))  # of people who saw states
    save_comparisons(tmp_path / "answers", answers)
    encoder = save_encoder(tmp_path / "encoder")
    other = save_encoder(tmp_path / "other", seed=1)
    source = ("--demonstrations", f"{tmp_path / 'set'}:{CAMERA}")
    asked = (*source, "--comparisons", tmp_path / "answers")
    fit = ("reward", "fit", *asked, "--out", tmp_path / "run", "--trainer.epochs", "2")
    assert run(*fit, "--encoder", encoder, "--model", "mlp") == 0
    reward = load_reward(tmp_path / "run/reward")
    assert reward.observation_space.shape == (16,)
    assert reward.frozen_encoder in {path.parent.name for path in tmp_path.rglob(CAMERA)}

    shutil.rmtree(encoder)
    numbers = tmp_path / "numbers.json"
    assert run("reward", "evaluate", tmp_path / "run", *asked, "--json", numbers) == 0
    assert json.loads(numbers.read_text())["decided"] == 3
    assert "fitted to answers from here, to all 3 pairs" in capsys.readouterr().out
    assert run("reward", "episodes", tmp_path / "run", *source) == 0
    export = ("reward", "export", tmp_path / "run", "--lerobot", source[1])
    assert run(*export) == 0
    assert (tmp_path / "set.preferl/progress.parquet").is_file()

    capsys.readouterr()
    assert run(*export, "--encoder", other) == 1
    assert f"expected {reward.frozen_encoder}, as the reward was fitted with" in (
        capsys.readouterr().err
    )
    shutil.rmtree(tmp_path / "cache")
    assert run(*export) == 1
    assert "Name the encoder's folder" in capsys.readouterr().err
    assert run(*fit[:2], "--encoder", other, "--teacher", "oracle", "--demonstrations", other) == 1
    assert "expected a LeRobot data set" in capsys.readouterr().err
