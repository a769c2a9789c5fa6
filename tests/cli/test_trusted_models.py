"""Reward models that a user's module registers: each command that needs one imports it by name."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from helpers.command_line import run
from preferl import registry
from preferl.data import save_episodes
from preferl.models import infer_spaces
from preferl.registry import REWARD_MODELS
from preferl.testing import make_episodes
from preferl.training import RewardFunction, load_reward, save_reward

MODULE = "custom_reward_model"
TRUST = ("--trust", MODULE)


def forget():
    if "quadratic" in REWARD_MODELS:
        REWARD_MODELS.remove("quadratic")
    sys.modules.pop(MODULE, None)
    registry._TRUSTED.clear()  # as in a new process


@pytest.fixture
def episodes(rng, tmp_path):
    made = make_episodes(rng, [60, 60])
    save_episodes(tmp_path / "episodes", made)
    return made


@pytest.fixture
def fitted(episodes, monkeypatch, tmp_path):
    """The folder of a fitted reward; nothing knows its module any more."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(Path(__file__).parents[2] / "examples")
    monkeypatch.syspath_prepend(".")
    spaces = infer_spaces(episodes.observations, episodes.actions)
    module = import_module(MODULE)
    model = module.QuadraticReward(*spaces, module.QuadraticConfig(members=2), seed=0)
    torch.nn.init.normal_(model.weights)
    save_reward(tmp_path / "fit/reward", RewardFunction(model))
    forget()
    yield tmp_path / "fit"
    forget()


def is_known():
    return "quadratic" in REWARD_MODELS


def test_informative_pairs(fitted, tmp_path, capsys):
    words = ("annotate", "create", "--demonstrations", tmp_path / "episodes", "--elsewhere")
    words += ("--env", "Pendulum-v1", "--queries", 4, "--length", 5, "--store", tmp_path / "labels")
    words += ("--sampler", "informative", "--reward", fitted)
    assert run(*words) == 1
    assert f"--trust {MODULE}" in capsys.readouterr().err
    assert not is_known()
    assert run(*words, *TRUST) == 0
    assert is_known()
    assert "4 pairs of 5 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_an_offline_run_on_a_fitted_reward(fitted, tmp_path, capsys):
    words = ("offline", "run", "--demonstrations", tmp_path / "episodes", "--reward", fitted)
    words += ("--seeds", 0, "--steps", 2, "--episodes", 0, "--no-controls", "--report-to", "jsonl")
    words += ("--out", tmp_path / "run")
    assert run(*words) == 1
    assert f"--trust {MODULE}" in capsys.readouterr().err
    assert run(*words, *TRUST) == 0
    assert load_reward(tmp_path / "run/reward").members == 2


@pytest.mark.slow
def test_an_online_run_with_a_model_in_its_settings(fitted, tmp_path, capsys):
    settings = {"env": "Pendulum-v1", "model": {"kind": "quadratic", "members": 2}}
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings))
    words = (
        "online", "run", "--config", file, "--out", tmp_path / "run", "--steps", 400,
        "--initial-steps", 200, "--iterations", 1, "--comparisons", 6, "--environments", 1,
        "--segment-length", 10, "--evaluation.episodes", 1, "--evaluation.queries", 5,
        "--evaluation.clip-steps", 0, "--evaluation.no-oracle", "--eval-every", 0,
        "--algorithm", "ppo",
    )  # fmt: skip
    assert run(*words) == 1
    assert "model.kind" in capsys.readouterr().err
    assert run(*words, *TRUST) == 0
    assert load_reward(tmp_path / "run/reward").members == 2
