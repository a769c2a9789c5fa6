"""Folders of runs as commands leave them, with numbers of the tests' choice."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from preferl.evaluation.curve import Evaluation
from preferl.evaluation.policy import PolicyReport
from preferl.offline.experiment.config import OfflineConfig, OfflineRun
from preferl.offline.experiment.pipeline import summary_before
from preferl.online import DatasetConfig, OnlineConfig
from preferl.online.configs import SACConfig
from preferl.online.dataset import data_summary
from preferl.online.run import CURVES
from preferl.reporting import JsonlSink
from preferl.runs import open_run
from preferl.runs.summary import Estimate, RunSummary

RETURNS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


def policy(mean):
    return Estimate.of_episodes(mean + RETURNS)


def online(path, mean=-150.0, *, finished=True, **settings):
    """An online run of three iterations; without its result if it did not finish."""
    config = replace(OnlineConfig(env="Pendulum-v1", algorithm=SACConfig(gamma=0.9)), **settings)
    summary = RunSummary("online", config.env, CURVES)
    with open_run(path, config=config, seed=config.seed, summary=summary) as folder:
        sink = JsonlSink(path / "metrics.jsonl")
        for k in range(3):
            values = {"policy/true_return": mean - 10 * (2 - k), "feedback/answers": 20.0 * (k + 1)}
            sink.log(values | {"reward/validation_accuracy": 0.6 + 0.1 * k}, 1_000 * (k + 1))
        sink.close()
        if finished:
            summary = replace(
                summary,
                seconds=75.0,
                steps=3_000,
                answers=60,
                score=policy(mean),
                beside={"random": policy(-1200.0), "oracle": policy(-140.0)},
                accuracy=Estimate(0.8, 50, "answers", (0.67, 0.89)),
                reward={"log_loss": 0.4, "calibration": 0.05, "spearman": 0.9},
            )
            folder.result({"env": config.env}, summary)
    return path


def data(path):
    """A recorded data set of two tiers."""
    tiers = [
        {"name": name, "episodes": 2, "steps": 400, "return": {"mean": mean}}
        for name, mean in {"random": -1200.0, "expert": -140.0}.items()
    ]
    references = {"random": -1200.0, "expert": -140.0}
    result = {"env": "Pendulum-v1", "tiers": tiers, "references": references, "seconds": 2.0}
    with open_run(path, config=DatasetConfig("Pendulum-v1"), seed=0) as folder:
        folder.result(result, data_summary(result))
    return path


def offline(path, seeds, *, policy_name="iql"):
    """An offline run, as its folder says; scores by seed."""
    signals = {"dt": {"reward": "true"}, "bc": {}}
    learned_from = signals.get(policy_name, {"labels": Path("labels")})
    config = OfflineConfig(
        demonstrations="demos", policy=policy_name, env="Reacher-v5", **learned_from
    )
    values = np.array(list(seeds.values()))
    summary = replace(
        summary_before(config, tuple(seeds)),
        seconds=9.0,
        steps=1_000,
        answers=300,
        score=Estimate.of_seeds(values) if len(values) > 1 else policy(values[0]),
        accuracy=Estimate.of_answers(0.75, 40, "validation"),
        reward={"spearman": 0.5},
    )
    run = OfflineRun(config, tuple(seeds))
    with open_run(path, config=run, seed=min(seeds), summary=summary) as folder:
        folder.result({}, summary)
    return path


def evaluations(path, agents):
    """Log mean returns by agent and step, as evaluations of agents that learn are."""
    sink = JsonlSink(path / "metrics.jsonl")
    for agent, means in agents.items():
        for step, mean in means.items():
            report = PolicyReport(np.array([mean - 1, mean + 1.0]), np.full(2, 5))
            sink.log(Evaluation(step, report).metrics(f"eval/{agent}"), step)
    sink.close()
