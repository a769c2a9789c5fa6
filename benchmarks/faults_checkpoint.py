"""What of an agent `faults_agent.py` saves, and goes on from."""

import json
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from stable_baselines3.common.base_class import BaseAlgorithm

from preferl.files import writing


def digest(model: torch.nn.Module) -> str:
    """Tells one model's numbers from another's."""
    content = blake2b(digest_size=8)
    for name, value in sorted(model.state_dict().items()):
        content.update(name.encode() + np.ascontiguousarray(value.numpy()).tobytes())
    return content.hexdigest()


def save(path: Path, agent: BaseAlgorithm) -> None:
    """Write policy, optimiser and steps, whole or not at all."""
    state = agent.policy.optimizer.state_dict()["state"]
    tensors = {f"policy {name}": value for name, value in agent.policy.state_dict().items()}
    tensors |= {
        f"optimiser {number} {name}": value
        for number, moments in state.items()
        for name, value in moments.items()
    }
    with writing(path) as draft:
        draft.mkdir()
        save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, draft / "t")
        (draft / "steps.json").write_text(json.dumps(agent.num_timesteps))


def go_on(path: Path, agent: BaseAlgorithm) -> int:
    """Bring a fresh agent to where another was; returns its steps, 0 where nothing was saved."""
    if not path.exists():
        return 0
    tensors = load_file(path / "t")
    policy = {key[7:]: value for key, value in tensors.items() if key.startswith("policy ")}
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key in tensors.keys() - {f"policy {name}" for name in policy}:
        _, number, name = key.split()
        moments.setdefault(int(number), {})[name] = tensors[key]
    agent.policy.load_state_dict(policy)
    optimiser = agent.policy.optimizer
    optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
    agent.num_timesteps = json.loads((path / "steps.json").read_text())
    return agent.num_timesteps
