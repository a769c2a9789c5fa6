"""Importing loads only what is used: help and the numpy half never wait for torch."""

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "stable_baselines3", "matplotlib", "sqlalchemy", "fastapi", "transformers")


def loaded_by(code: str) -> list[str]:
    script = f"import sys\n{code}\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    "module",
    [
        "preferl",
        "preferl.data",
        "preferl.data.sources",
        "preferl.feedback",
        "preferl.runs",
        "preferl.reporting",
        "preferl.offline.experiment.config",
        "preferl.online",
        "preferl.online.configs",
        "preferl.online.wrappers.feedback_config",
        "preferl.presets",
        "preferl.registry",
        "preferl.models.configs",
        "preferl.training.configs",
        "preferl.training.reward_presets",
        "preferl.cli.main",
        "preferl.testing",
        "preferl.testing.feedback_contracts",
    ],
)
def test_importing_loads_nothing_heavy(module):
    assert loaded_by(f"import {module}") == []


@pytest.mark.parametrize(
    "code",
    [
        "from preferl import Episodes, ScriptedTeacher, sample_segments, split",
        "from preferl.testing import check_feedback, check_teacher",
        "from preferl.models import MLPRewardConfig, infer_spaces",
        "from preferl.online import DatasetConfig, FeedbackConfig, OnlineConfig, SACConfig",
        "from preferl.registry import REWARD_MODELS; [REWARD_MODELS.config(n) for n in "
        "REWARD_MODELS.names()]",
    ],
)
def test_names_of_the_numpy_half_load_no_torch(code):
    assert loaded_by(code) == []


def test_settings_of_the_service_load_no_torch():
    assert loaded_by("import preferl.online.service.service_config") == []


def test_reward_models_load_neither_an_rl_library_nor_drawing():
    assert loaded_by("from preferl import MLPReward, RewardTrainer, load_reward") == ["torch"]


def test_this_test_can_fail():
    assert loaded_by("import torch") == ["torch"]


def test_help_is_there_at_once():
    times = []
    for _ in range(5):
        began = time.perf_counter()
        command = [sys.executable, "-m", "preferl", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - began)
        if times[-1] < 0.5:
            break
    assert "usage: preferl COMMAND" in done.stdout
    assert min(times) < 0.5
