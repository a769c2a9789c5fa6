"""An environment in which nothing is shown twice."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LENGTH = 7


class Clock(gym.Env[Any, Any]):
    """Shows how many resets and steps there were; every second episode ends by a time limit."""

    observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))

    def __init__(self, length=LENGTH):
        self.length = length
        self.resets = 0
        self.actions = []

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        self.time = 0
        return self._look(), self._info()

    def step(self, action):
        self.time += 1
        self.actions.append(action)
        over = self.time == self.length
        limit = self.resets % 2 == 0
        return self._look(), float(self.time), over and not limit, over and limit, self._info()

    def _info(self):
        return {"state": np.array([self.resets, self.time])}

    def _look(self):
        return np.array([self.resets, self.time], np.float32)
