"""Rewards of 4,096 environments that step on a device: what they add to a step of the environments.

    python benchmarks/tensor_rewards.py [--device cuda]

Times a step of the pendulums of `examples/tensor_environment.py`, and after a step the reward from
tensors, the forward pass of the model (rewards and scores), its networks alone (rewards, not
yet combined), or the same reward from arrays, which go to the host and back.
They take turns; medians over 1,000 turns, of differences within a turn, with one thread on a
processor.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from run import HERE, machine

sys.path.insert(0, str(HERE.parent / "examples"))
from tensor_environment import Pendulums, fitted_reward

from preferl.online.wrappers.tensor_rewards import TensorRewards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--environments", type=int, default=4_096)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "tensor_rewards.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pendulums = Pendulums(options.environments, options.device)
    reward = fitted_reward(options.device)
    rewards = TensorRewards(reward)
    model = reward.model.requires_grad_(False)
    actions = torch.rand(options.environments, 1, device=options.device) * 2 - 1
    seen = pendulums.observations()
    mask = torch.ones_like(actions, dtype=torch.bool)
    members = model.last_rewards()

    def from_arrays() -> torch.Tensor:
        steps = seen[:, None].cpu().numpy(), actions[:, None].cpu().numpy()
        found = reward(*steps, np.ones((options.environments, 1), bool))
        return torch.from_numpy(found).to(options.device)

    @torch.inference_mode()
    def forward() -> object:
        return model.judge(model.encoder(seen[:, None], actions[:, None]), mask)

    @torch.inference_mode()
    def network() -> torch.Tensor:
        return members(model.encoder(seen[:, None], actions[:, None]), mask)

    parts: dict[str, Callable[[], object]] = {
        "reward of tensors": lambda: rewards(seen, actions),
        "forward pass": forward,
        "networks alone": network,
        "reward of arrays": from_arrays,
    }
    taken: dict[str, list[float]] = {name: [] for name in ("environments", *parts)}

    def timed(name: str, part: Callable[[], object]) -> None:
        began = time.perf_counter()
        part()
        if options.device != "cpu":
            torch.cuda.synchronize()
        taken[name].append(time.perf_counter() - began)

    for _ in range(options.turns):
        for name, part in parts.items():
            timed("environments", lambda: pendulums.step(actions))
            timed(name, part)
    of = {name: np.array(seconds) for name, seconds in taken.items()}
    step = float(np.median(of["environments"]))
    ratios = {name: round(float(np.median(seconds)) / step, 3) for name, seconds in of.items()}
    beyond = {
        name: round(float(np.median(of["reward of tensors"] - of[name])) / step, 3)
        for name in ("forward pass", "networks alone")
    }
    stored = {"machine": machine(), "device": options.device, "environments": options.environments}
    stored |= {"of_a_step": ratios, "beyond": beyond}
    options.results.write_text(json.dumps(stored, indent=2) + "\n")
    Console().print(f"{ratios}; beyond {beyond}. Written to {options.results}")


if __name__ == "__main__":
    main()
