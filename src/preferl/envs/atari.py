"""Atari games for learning rewards (Christiano et al. 2017, appendix A.2; extra `atari`).

The score, a lost life or the end of a game must not reveal the reward to an agent.
"""

from math import ceil
from typing import Any, Final, SupportsFloat, final

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit

from preferl._optional import require
from preferl.envs.simulators import HIDDEN_ROWS, Environment, Rows
from preferl.errors import ConfigError, require_in
from preferl.shapes import Array

SCREEN_ROWS: Final = 210


def make_atari(
    game: str,
    *,
    length: int = 1_000,
    hide: tuple[Rows, ...] | None = None,
    skip: int = 4,
    stack: int = 4,
    size: int = 84,
    sticky: float = 0.0,
    render_mode: str | None = None,
) -> Environment:
    """Make a game that restarts when it ends, cut into episodes of one length.

    Observations are `[stack, size, size]` grey bytes, newest frame last. The reward of a step is
    the sum over `skip` frames. Each game in `HIDDEN_ROWS` has the id `preferl/<game>-v0`.

    Args:
        game: name in `ALE/<game>-v5`, for example "Breakout".
        length: steps of every episode, each of `skip` frames, even if the game ends.
        hide: rows of the screen to black out; None takes those of `HIDDEN_ROWS`.
        skip: frames per step. Since sprites flicker, each pixel shows the brighter one of the last
            two frames.
        stack: frames per observation; 4, so that speeds are visible.
        size: pixels on a side.
        sticky: probability that the previous action is repeated. 0 as in the paper; Machado et al.
            (2018) recommend 0.25.
        render_mode: see Gymnasium; pictures for people show the whole screen.

    Raises:
        ConfigError: there is no such game, or the rows to hide are neither known nor given.
        MissingExtraError: the extra `atari` is not installed.
    """
    if hide is None and game not in HIDDEN_ROWS:
        raise ConfigError(
            f"game: expected one of {[*HIDDEN_ROWS]}, or the rows to hide, got {game!r}. Look "
            "where the score is, and pass hide=((first, last + 1),), or hide=()."
        )
    require_in("length", length, 1, float("inf"))
    if length != int(length):
        raise ConfigError(f"length: expected a whole number, got {length}.")
    gymnasium.register_envs(require("ale_py", extra="atari"))
    require("cv2", extra="atari")
    settings: dict[str, Any] = {"repeat_action_probability": sticky, "render_mode": render_mode}
    try:
        env: Environment = gymnasium.make(f"ALE/{game}-v5", frameskip=1, **settings)
    except gymnasium.error.Error as error:
        raise ConfigError(
            f"game: expected a game that ale-py has, got {game!r} ({error})."
        ) from error
    env = AtariPreprocessing(env, frame_skip=skip, screen_size=size)
    env = HiddenRows(env, HIDDEN_ROWS[game] if hide is None else hide)
    return FrameStackObservation(TimeLimit(HiddenEnds(env), int(length)), stack)


@final
class HiddenRows(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Blacks out the rows of scaled pictures `[height, width]` that show hidden rows of the screen.

    Raises:
        ConfigError: rows are not on the screen.
    """

    def __init__(self, env: Environment, hide: tuple[Rows, ...]) -> None:
        super().__init__(env)
        height = (env.observation_space.shape or (0,))[0]
        self._hidden = np.zeros(height, bool)
        for first_row, end_row in hide:
            if not 0 <= first_row < end_row <= SCREEN_ROWS:
                raise ConfigError(
                    f"hide: expected rows within 0...{SCREEN_ROWS}, got {(first_row, end_row)}."
                )
            self._hidden[
                first_row * height // SCREEN_ROWS : ceil(end_row * height / SCREEN_ROWS)
            ] = True

    def observation(self, observation: Array) -> Array:
        """Return a copy of the picture with these rows black."""
        picture = np.array(observation)
        picture[self._hidden] = 0
        return picture


@final
class HiddenEnds(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Hides the end of a game: the next game begins in the same episode. It needs a time limit.

    For evaluation, `info["game_over"]` tells whether a game ended at this step.
    """

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Make one step. If the game ends, return the first observation of the next game."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        game_over = terminated or truncated
        if game_over:
            observation, info = self.env.reset()
        return observation, reward, False, False, info | {"game_over": game_over}
