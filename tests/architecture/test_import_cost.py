"""Importing loads only what is used: help and the numpy half never wait for torch."""

import os
import subprocess
import sys

import pytest

from preferl.cli.main import COMMANDS

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


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_nothing_heavy(command):
    words = [*command.split(), "--help"]
    code = f"""
from contextlib import redirect_stdout, suppress
from io import StringIO
from preferl.cli.main import main
with suppress(SystemExit), redirect_stdout(StringIO()):
    main({words})
"""
    assert loaded_by(code) == []


def seconds(*words: str) -> float:
    """Processor time that a Python takes, measured now: others on the machine add little to it."""
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL) as program:
        _, status, usage = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)
    assert program.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.fixture(scope="module")
def of_the_library():
    """Processor time to import stable-baselines3: one measurement; tests may add others."""
    return [seconds("-c", "import stable_baselines3")]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_takes_half_the_time_of_importing_an_rl_library_at_most(command, of_the_library):
    assert share_of(of_the_library, f"{command} --help", at_most=0.5) <= 0.5


def test_help_is_there_at_once(of_the_library):
    assert share_of(of_the_library, "--help", at_most=0.1) <= 0.1


def share_of(of_the_library: list[float], command: str, *, at_most: float) -> float:
    """The best of several, beside new comparisons, so that a busy machine slows down both."""
    ours = [seconds("-m", "preferl", *command.split())]
    while (share := min(ours) / min(of_the_library)) > at_most and len(ours) < 6:
        of_the_library.append(seconds("-c", "import stable_baselines3"))
        ours.append(seconds("-m", "preferl", *command.split()))
    return share
