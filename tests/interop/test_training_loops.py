"""The code of "Your own training loop" that needs other libraries learns from learned rewards."""

import re
from pathlib import Path

import pytest

from preferl.models import MLPReward
from preferl.training import RewardFunction
from preferl.training.publish import publish

PAGE = Path(__file__).parents[2] / "docs/how-to/training-loop.md"
SECTIONS = {
    "JAX": "jax",
    "TorchRL": "torchrl",
    "skrl": "skrl",
    "sb3-contrib and sbx": "sb3_contrib",
}


def blocks():
    """The first block of code of each section of the page, by its heading."""
    text = PAGE.read_text("utf-8")
    found = {}
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        heading, _, rest = section.partition("\n")
        code = re.search(r"^```python\n(.*?)^```$", rest, re.M | re.S)
        found[heading] = code[1] if code else ""
    return found


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("heading", SECTIONS)
def test_the_code_of_the_page_learns_from_a_learned_reward(heading, tmp_path, monkeypatch):
    pytest.importorskip(SECTIONS[heading], reason="`make interop` installs it")
    monkeypatch.chdir(tmp_path)
    code = blocks()
    names = {"__name__": "page"}
    exec(compile(code["PyTorch, in the style of CleanRL"], str(PAGE), "exec"), names)
    env = names["gymnasium"].make("Pendulum-v1")
    reward = RewardFunction(MLPReward(env.observation_space, env.action_space, seed=3))
    publish("runs/loop/rewards", reward, version=7)
    exec(compile(code[heading], str(PAGE), "exec"), names)
    envs = names["envs"]
    assert envs.reward_version == 7
    assert envs.reward_source == "learned"
    envs.close()
    assert names["feedback"].pending > 0
    names["store"].close()


def test_each_section_has_code():
    assert all(blocks()[heading] for heading in SECTIONS)
