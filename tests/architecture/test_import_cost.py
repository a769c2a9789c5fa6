"""Importing loads only what is used: help and the numpy half never wait for torch."""

import json
import subprocess
import sys

from preferl.cli.main import COMMANDS

HEAVY = (
    "torch",
    "av",
    "jinja2",
    "stable_baselines3",
    "matplotlib",
    "sqlalchemy",
    "fastapi",
    "transformers",
)


MODULES = [
    "preferl",
    "preferl.data",
    "preferl.data.sources",
    "preferl.evaluation",
    "preferl.feedback",
    "preferl.runs",
    "preferl.reporting",
    "preferl.offline.experiment.config",
    "preferl.online",
    "preferl.online.configs",
    "preferl.online.wrappers.feedback_config",
    "preferl.online.service.service_config",
    "preferl.presets",
    "preferl.registry",
    "preferl.models.configs",
    "preferl.training.configs",
    "preferl.training.reward_presets",
    "preferl.cli.main",
    "preferl.testing",
    "preferl.testing.feedback_contracts",
]
LIGHT = {f"import {module}": f"import {module}" for module in MODULES} | {
    code: code
    for code in (
        "from preferl import Episodes, ScriptedTeacher, sample_segments, split",
        "from preferl.testing import check_feedback, check_teacher",
        "from preferl.models import MLPRewardConfig, infer_spaces",
        "from preferl.online import DatasetConfig, FeedbackConfig, OnlineConfig, SACConfig",
        "from preferl.registry import REWARD_MODELS as models; "
        "[models.config(name) for name in models.names()]",
    )
}
HELP = """
from contextlib import redirect_stdout, suppress
from io import StringIO
from preferl.cli.main import main
with suppress(SystemExit), redirect_stdout(StringIO()):
    main({words})
"""
LIGHT |= {f"{each} --help": HELP.format(words=[*each.split(), "--help"]) for each in COMMANDS}
"""What loads nothing heavy, by name."""


def loaded_by(codes):
    """By name: what heavy modules are loaded once a code has run, in one process for all."""
    script = f"""
import json, sys
found = {{}}
for name, code in {dict(codes)!r}.items():
    exec(code, {{}})
    found[name] = [module for module in {HEAVY!r} if module in sys.modules]
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_nothing_heavy_is_loaded():
    """Where a part fails, so do those after it: the first is to blame."""
    assert {name: heavy for name, heavy in loaded_by(LIGHT).items() if heavy} == {}


def test_reward_models_load_neither_an_rl_library_nor_drawing():
    models = "from preferl import MLPReward, RewardTrainer, load_reward"
    found = loaded_by({"before": "import json", "models": models, "after": "import json"})
    assert found == {"before": [], "models": ["torch"], "after": ["torch"]}
