"""`preferl demo`: the main job on embedded defaults."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DemoConfig:
    """Teach a pendulum to stand from 200 comparisons, and write a report about it.

    Attributes:
        ask: put the questions to you at the terminal instead of to a script.
        out: folder of the run; an older run there moves aside.
        seed: of everything.
        smoke: a run of seconds that shows the path and learns nothing.
    """

    ask: bool = False
    out: Path = Path("runs/demo")
    seed: int = 0
    smoke: bool = False


def run_demo(config: DemoConfig) -> None:
    """Learn, compare with random and true-reward agents, write the report."""
    from preferl.cli.runs import run_with_progress
    from preferl.online import JudgeConfig, OnlineConfig
    from preferl.presets import load_preset
    from preferl.runs import from_json

    run = replace(from_json(OnlineConfig, load_preset("pendulum")), seed=config.seed)
    judge = JudgeConfig()
    if config.smoke:
        run = replace(run, steps=8_192, initial_steps=2_000, turns=2, comparisons=20)
        judge = replace(judge, episodes=4, questions=40, clip_steps=40)
    run_with_progress(
        run, judge, config.out, ask=config.ask, show=show_pendulums, true_reward=pendulum_reward
    )


def pendulum_reward(observations: Any, actions: Any, following: Any) -> Any:
    """Pendulum-v1's own reward of `[B, 3]` observations and `[B, 1]` torques, for judging only.

    >>> pendulum_reward(np.array([[1.0, 0.0, 0.0]]), np.array([[0.0]]), None).tolist()
    [-0.0]
    """
    del following
    cosine, sine, speed = observations.T
    angle, torque = np.arctan2(sine, cosine), np.clip(actions[:, 0], -2, 2)
    return -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)


def show_pendulums(shown: Any, index: int) -> None:
    """Play a pair of pendulum clips side by side in the terminal.

    Args:
        shown: one pair of clips, `[2, L]`.
        index: how many pairs came before.
    """
    from preferl.cli.terminal import play_pendulums

    del index
    play_pendulums(np.asarray(shown.observations))
