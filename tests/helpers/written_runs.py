"""Folders of runs as commands leave them, with numbers of the tests' choice."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from preferl.evaluation.curve import Evaluation
from preferl.evaluation.policy import PolicyReport
from preferl.online import DatasetConfig, OnlineConfig
from preferl.online.configs import SACConfig
from preferl.reporting import JsonlSink
from preferl.runs import open_run

REWARD = {
    "accuracy": 0.8, "decided": 50, "ties": 0, "declined": 0, "interval": [0.67, 0.89],
    "log_loss": 0.4, "calibration": {"predicted": [], "observed": [], "count": [], "error": 0.05},
    "spearman": 0.9, "epic": None, "notes": [], "likelihood": {"noise": 0.0, "scale": 1.0},
}  # fmt: skip


def policy(mean: float) -> dict:
    returns = mean + np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    return PolicyReport(returns, np.full(5, 200)).to_json()


def online(path: Path, mean: float = -150.0, *, finished: bool = True, **settings) -> Path:
    """An online run of three iterations; without its result if it did not finish."""
    config = replace(OnlineConfig(env="Pendulum-v1", algorithm=SACConfig(gamma=0.9)), **settings)
    with open_run(path, config=config, seed=config.seed) as folder:
        sink = JsonlSink(path / "metrics.jsonl")
        for k in range(3):
            values = {"policy/true_return": mean - 10 * (2 - k), "feedback/answers": 20.0 * (k + 1)}
            sink.log(values | {"reward/validation_accuracy": 0.6 + 0.1 * k}, 1_000 * (k + 1))
        sink.close()
        if finished:
            policies = {"random": policy(-1200.0), "taught": policy(mean), "oracle": policy(-140.0)}
            result = {"env": config.env, "seed": config.seed, "comparisons": 60, "seconds": 75.0}
            result |= {"env_steps": 3_000, "interrupted": False, "policies": policies}
            folder.result(result | {"reward": REWARD, "controls": {}})
    return path


def data(path: Path) -> Path:
    """A recorded data set of two tiers."""
    tiers = [
        {"name": name, "first": 2 * k, "episodes": 2, "steps": 400, "trained": None,
         "return": {"mean": mean, "std": 1.0, "min": mean - 1, "max": mean + 1}}
        for k, (name, mean) in enumerate({"random": -1200.0, "expert": -140.0}.items())
    ]  # fmt: skip
    with open_run(path, config=DatasetConfig("Pendulum-v1"), seed=0) as folder:
        result = {"env": "Pendulum-v1", "seed": 0, "tiers": tiers, "minari": None, "seconds": 2.0}
        references = {"random": -1200.0, "expert": -140.0}
        folder.result(result | {"references": references, "interrupted": False})
    return path


def offline(path: Path, seeds: dict[int, float], *, policy_name: str = "iql") -> Path:
    """An offline run, as its `config.json` and `result.json` are; scores by seed."""
    path.mkdir(parents=True)
    config = {"config": {"policy": policy_name, "env": "Reacher-v5"}, "seeds": list(seeds)}
    about = {"kind": "OfflineRun", "seed": min(seeds), "config": config}
    (path / "config.json").write_text(json.dumps(about))
    values = list(seeds.values())
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    summary = {"mean": float(np.mean(values)), "std": std, "seeds": values}
    condition = {"return": summary, "normalised_score": None, "success_rate": None}
    fit = {"pairs": 300, "members": 2, "epochs": 2, "best_epoch": 2, "decided": 40, "seconds": 1.0}
    fit |= {"train_accuracy": [0.7, 0.9], "validation_accuracy": [0.6, 0.75]}
    result = {
        "env": "Reacher-v5",
        "policy": policy_name,
        "steps": 1_000,
        "conditions": {"learned": condition},
    }
    result |= {"reward": {"fit": fit, "spearman": 0.5, "on_labels": {}}, "labels": {"pairs": 300}}
    result |= {"seeds": list(seeds), "seconds": 9.0, "interrupted": False}
    (path / "result.json").write_text(json.dumps(result))
    for seed, mean in seeds.items():
        (path / "evaluations").mkdir(exist_ok=True)
        (path / f"evaluations/learned-{seed}.json").write_text(json.dumps(policy(mean)))
    return path


def evaluations(path: Path, agents: dict[str, dict[int, float]]) -> None:
    """Mean returns by agent and step, as a run keeps the evaluations of agents that learn."""
    (path / "curves").mkdir()
    for agent, means in agents.items():
        found = [
            Evaluation(step, PolicyReport(np.array([m - 1, m + 1.0]), np.full(2, 5))).to_json()
            for step, m in means.items()
        ]
        (path / f"curves/{agent}.json").write_text(json.dumps({"evaluations": found}))
