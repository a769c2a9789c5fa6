"""An environment of one's own, taught from comparisons: a robot that should drive to its charger.

python examples/custom_environment.py [--smoke]

Beyond the environment, the lines of `main` and one import are all it takes. A script compares clips
by the environment's own reward, which the agent never sees.
"""

import argparse
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from preferl import OnlineConfig, PPOConfig, run_online


class Courtyard(gymnasium.Env):
    """A robot in a square courtyard; the charger is in one corner."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 15}
    charger = np.array([0.8, 0.8], np.float32)

    def __init__(self, render_mode: str | None = None, speed: float = 0.1) -> None:
        self.render_mode = render_mode
        self.speed = speed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self.place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self.steps = 0
        return self.place.copy(), {}

    def step(self, action: np.ndarray) -> Any:
        reward = -float(np.linalg.norm(self.place - self.charger))
        self.place = np.clip(self.place + self.speed * np.clip(action, -1, 1), -1, 1)
        self.steps += 1
        return self.place.astype(np.float32), reward, False, self.steps >= 50, {}

    def render(self) -> np.ndarray:
        picture = np.full((96, 96, 3), 255, np.uint8)
        for (x, y), colour in ((self.charger, (0, 160, 0)), (self.place, (200, 0, 0))):
            row = int(48 - 42 * y)
            column = int(48 + 42 * x)
            picture[row - 4 : row + 4, column - 4 : column + 4] = colour
        return picture


def main(*, smoke: bool) -> None:
    size = {"initial_steps": 400, "steps": 2_000, "iterations": 2} if smoke else {"steps": 40_000}
    run = OnlineConfig(env=Courtyard, segment_length=10, algorithm=PPOConfig(n_steps=128), **size)
    result = run_online(run, "runs/courtyard")
    print(result["random"], result["taught"], result["oracle"], "runs/courtyard/report.html")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="too few steps to learn much")
    main(smoke=parser.parse_args().smoke)
