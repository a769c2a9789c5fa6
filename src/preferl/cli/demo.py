"""`preferl demo`: the main job on embedded defaults."""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from preferl.errors import ConfigError

PEOPLE_COMPARISONS = 100
"""What a person answers in about six minutes."""

PEOPLE_FPS = 15
"""Half the speed of the environment, since clips are half a second long."""


@dataclass(frozen=True)
class DemoConfig:
    """Teach a pendulum to stand from 200 comparisons, and write a report about it.

    Attributes:
        ask: put the questions to you at the terminal instead of to a script.
        people: put them to you in your browser; the labels stay beside the run.
        browser: open the page; off prints its link only.
        comparisons: how many questions are asked; 200 by a script, 100 of people.
        out: folder of the run; an older run there moves aside.
        seed: of everything.
        smoke: a run of seconds that shows the path and learns nothing.
    """

    ask: bool = False
    people: bool = False
    browser: bool = True
    comparisons: int | None = None
    out: Path = Path("runs/demo")
    seed: int = 0
    smoke: bool = False


def run_demo(config: DemoConfig) -> None:
    """Learn, compare with random and true-reward agents, write the report."""
    if config.people and not config.ask:
        sys.stderr.write("preferl: Starting the page ...\n")  # what follows takes seconds
    from preferl.cli.runs import run_with_progress
    from preferl.configs import from_json
    from preferl.online import JudgeConfig, OnlineConfig
    from preferl.presets import load_preset
    from preferl.runs import require_openable

    if config.ask and config.people:
        raise ConfigError("Choose one of --ask, at the terminal, and --people, in a browser.")
    run = replace(from_json(OnlineConfig, load_preset("pendulum")), seed=config.seed)
    judge = JudgeConfig()
    if config.people:
        run = replace(run, comparisons=PEOPLE_COMPARISONS)
    if config.smoke:
        run = replace(run, steps=8_192, initial_steps=2_000, turns=2, comparisons=20)
        judge = replace(judge, episodes=4, questions=40, clip_steps=40)
    if config.comparisons is not None:
        run = replace(run, comparisons=config.comparisons)
    require_openable(config.out, resume=False)  # before people are asked
    with _feedback(config, run.comparisons) as feedback:
        run_with_progress(
            run,
            judge,
            config.out,
            ask=config.ask,
            show=show_pendulums,
            feedback=feedback,
            true_reward=pendulum_reward,
        )


def _feedback(config: DemoConfig, questions: int) -> AbstractContextManager[Any]:
    if not config.people:
        return nullcontext()
    from preferl.cli.demo_people import people_in_a_browser

    folder = config.out.with_name(f"{config.out.name}-labels")
    return people_in_a_browser(folder, questions, fps=PEOPLE_FPS, browser=config.browser)


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
