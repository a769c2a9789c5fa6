"""Environments as users write them, rightly and wrongly; none is registered."""

from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Garden(gymnasium.Env):
    """A point that moves on a square, whose goal only the picture shows."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)
    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, render_mode=None, speed=0.1, hides=True):
        self.render_mode = render_mode
        self.speed = speed
        self.hides = hides

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 2)
        self.goal = self.np_random.uniform(-1, 1, 2) if self.hides else np.zeros(2)
        self.time = 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        reward = -float(np.abs(self.state - self.goal).sum())
        self.state = np.clip(self.state + self.speed * np.asarray(action), -1, 1)
        self.time += 1
        return self.state.astype(np.float32), reward, False, self.time >= 20, {}

    def render(self):
        picture = np.full((60, 90, 3), 255, np.uint8)
        for (x, y), colour in ((self.goal, (0, 160, 0)), (self.state, (200, 0, 0))):
            row = int(26 + 24 * y)
            column = int(42 + 40 * x)
            picture[row : row + 8, column : column + 8] = colour
        return picture


class Shift(gymnasium.ObservationWrapper):
    """Adds to observations."""

    def __init__(self, env, by=0.0):
        super().__init__(env)
        self.by = by

    def observation(self, observation):
        return observation + np.float32(self.by)


def small_garden(speed=0.5):
    return Garden(speed=speed)


class OldReset(Garden):
    """Resets as gym did before gymnasium."""

    def reset(self):
        return super().reset()[0]


class OldStep(Garden):
    """Steps as gym did before gymnasium."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class FlagInAnArray(Garden):
    """Says in an array whether an episode is over."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, np.array([terminated]), truncated, info


class WideView(Garden):
    """Observes more than its space declares."""

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), super().reset(seed=seed)[1]


class NoSpaces(gymnasium.Env):
    """Has no spaces."""


class PairOfRewards(Garden):
    """Rewards with two numbers."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.array([reward, 0.0]), *rest


def nothing():
    """Forgets to return what it makes."""


class Lawn(Garden):
    """A garden whose observations are a dictionary, and whose reward is nothing."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-1, 1, (2,), np.float32), "goal": spaces.Box(-1, 1, (2,), np.float32)}
    )

    def _seen(self):
        return {"place": self.state.astype(np.float32), "goal": self.goal.astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        _, _, *ended, info = super().step(action)
        return self._seen(), 0.0, *ended, info


class Screen(Garden):
    """A garden that is observed by its picture, beside where the point is."""

    metadata: ClassVar = {"render_modes": []}
    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-1, 1, (2,), np.float32),
            "picture": spaces.Box(0, 255, (60, 90, 3), np.uint8),
        }
    )

    def reset(self, *, seed=None, options=None):
        place, info = super().reset(seed=seed)
        return {"place": place, "picture": self.render()}, info

    def step(self, action):
        place, *rest = super().step(action)
        return {"place": place, "picture": self.render()}, *rest


class Unseen(Lawn):
    """Draws no pictures, by its metadata."""

    metadata: ClassVar = {"render_modes": ["ansi"]}


class Undrawn(Lawn):
    """Declares pictures and draws none."""

    def render(self):
        raise NotImplementedError


class NoRender(Lawn):
    """Declares pictures and has no method that draws them."""

    render = gymnasium.Env.render


class Forgetful(Lawn):
    """Draws pictures and forgets to return them."""

    def render(self):
        super().render()


class Quick(Lawn):
    """Is to be watched fast."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 20}


class NoSpeed(Lawn):
    """Does not declare how fast it is to be watched."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}


class NoMode(Lawn):
    """Does not take `render_mode`."""

    def __init__(self):
        super().__init__()
