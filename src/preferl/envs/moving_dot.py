"""The smallest task from pixels: keep a dot in the middle of a small picture (numpy).

The idea is Matthew Rahtz's (2018, "Lessons Learned Reproducing a Deep Reinforcement Learning
Paper").
"""

from typing import Any, Final, final

import gymnasium
import numpy as np
from gymnasium import spaces

from preferl.errors import require_in, require_one_of
from preferl.shapes import Array

MOVES: Final = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
"""Moves in rows and columns: stay, up, down, left, right."""

SHOWN: Final = 168
"""Fewest pixels on a side of pictures for people."""


@final
class MovingDot(gymnasium.Env[Array, Any]):
    """A white dot on black, moved by five actions: stay, up, down, left and right.

    The reward is minus the dot's distance from the middle before it moves, as a share of the
    picture's width. The observation alone therefore shows it. All episodes have the same length, so
    their ends carry no information.

    Args:
        size: pixels on a side, at least 8.
        stack: frames per observation, the newest last.
        length: steps per episode.
        render_mode: None or "rgb_array".

    Raises:
        ConfigError: a number is out of its range, or `render_mode` is unknown.

    >>> env = MovingDot()
    >>> observation, info = env.reset(seed=0)
    >>> observation.shape, observation.dtype, sorted(np.unique(observation).tolist())
    ((28, 28, 1), dtype('uint8'), [0, 255])
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self, size: int = 28, stack: int = 1, length: int = 100, render_mode: str | None = None
    ) -> None:
        for name, value, least in (("size", size, 8), ("stack", stack, 1), ("length", length, 1)):
            require_in(name, value, least, float("inf"))
        require_one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self.observation_space = spaces.Box(0, 255, (size, size, stack), np.uint8)
        self.action_space = spaces.Discrete(len(MOVES))
        self.size = size
        self.stack = stack
        self.length = length
        self.render_mode = render_mode
        self._dot = max(2, size // 14)  # pixels on a side
        self._speed = max(1, size // 28)  # so that the middle can be reached from everywhere
        self._place = np.zeros(2, int)  # row and column of the dot's upper left pixel
        self._step = 0
        self._seen = np.zeros((size, size, stack), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Put the dot at a random place, which all frames then show."""
        super().reset(seed=seed, options=options)
        self._place = self.np_random.integers(0, self.size - self._dot + 1, 2)
        self._step = 0
        self._seen = np.repeat(self._picture(), self.stack, axis=-1)
        return self._seen.copy(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Move the dot, which stops at the edges. The reward is that of its previous place."""
        reward = -self.distance
        place = self._place + self._speed * MOVES[action]
        self._place = np.minimum(np.maximum(place, 0), self.size - self._dot)
        self._step += 1
        self._seen[..., :-1] = self._seen[..., 1:]
        self._seen[..., -1:] = self._picture()
        return self._seen.copy(), reward, False, self._step >= self.length, {}

    @property
    def distance(self) -> float:
        """The distance of the dot's middle from the picture's middle, as a share of the width."""
        row, column = (self._place + self._dot / 2 - self.size / 2).tolist()
        return float((row * row + column * column) ** 0.5 / self.size)

    def render(self) -> Array | None:
        """Draw the newest frame for people, larger and with a mark in the middle.

        Its shape is `[height, width, 3]`.
        """
        if self.render_mode is None:
            return None
        picture = np.repeat(self._picture(), 3, axis=-1)
        scale = -(-SHOWN // self.size)
        picture = picture.repeat(scale, axis=0).repeat(scale, axis=1)
        middle = len(picture) // 2
        picture[middle - 1 : middle + 1, middle - scale : middle + scale, 0] = 200
        picture[middle - scale : middle + scale, middle - 1 : middle + 1, 0] = 200
        return picture

    def _picture(self) -> Array:
        picture = np.zeros((self.size, self.size, 1), np.uint8)
        row, column = self._place.tolist()
        picture[row : row + self._dot, column : column + self._dot] = 255
        return picture
