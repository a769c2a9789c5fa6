import sys
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from preferl.envs.atari import HiddenEnds, HiddenRows, make_atari
from preferl.envs.simulators import HIDDEN_ROWS, make_registered
from preferl.errors import ConfigError, MissingExtraError

INSTALLED = all(find_spec(name) is not None for name in ("ale_py", "cv2"))
needs_atari = pytest.mark.skipif(not INSTALLED, reason="the extra atari is not installed")


class Game(gymnasium.Env):
    """Ends by the rules after four steps; shows the number of the game and of the step."""

    observation_space = spaces.Box(0, 255, (42, 3), np.uint8)
    action_space = spaces.Discrete(2)
    game = 0

    def reset(self, *, seed=None, options=None):
        self.game = self.game + 1
        self.at = 0
        return self.screen(), {"lives": 3}

    def step(self, action):
        self.at += 1
        return self.screen(), float(self.at), self.at == 4, False, {"lives": 0}

    def screen(self):
        return np.full((42, 3), 10 * self.game + self.at, np.uint8)


def test_games_begin_again_and_episodes_have_one_length():
    env = TimeLimit(HiddenEnds(Game()), 6)
    env.reset()
    steps = [env.step(0) for _ in range(6)]
    assert [int(seen[0, 0]) for seen, *_ in steps] == [11, 12, 13, 20, 21, 22]
    assert [reward for _, reward, *_ in steps] == [1, 2, 3, 4, 1, 2]
    assert [terminated for _, _, terminated, *_ in steps] == [False] * 6
    assert [truncated for *_, truncated, _ in steps] == [False] * 5 + [True]
    assert [info["game_over"] for *_, info in steps] == [False, False, False, True, False, False]
    assert int(env.reset()[0][0, 0]) == 30
    assert not env.step(0)[3]


def test_rows_are_black_in_proportion_and_the_game_keeps_its_own():
    env = HiddenRows(Game(), ((0, 17), (155, 210)))
    seen, _ = env.reset()
    lit = np.flatnonzero(seen.any(axis=1))
    assert (lit.min(), lit.max()) == (4, 30)  # 42 of 210 rows: 17 ends within the fourth, from 0
    assert env.unwrapped.screen().all()


@pytest.mark.parametrize("rows", [(5, 5), (-1, 5), (0, 211)])
def test_rows_off_the_screen_are_refused(rows):
    with pytest.raises(ConfigError, match="hide: expected rows within"):
        HiddenRows(Game(), (rows,))


def test_other_games_ask_what_to_hide():
    with pytest.raises(ConfigError, match="or the rows to hide"):
        make_atari("MontezumaRevenge")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)  # as if it were not there
    with pytest.raises(MissingExtraError, match="atari"):
        make_registered("preferl/Breakout-v0")


@needs_atari
@pytest.mark.parametrize("game", HIDDEN_ROWS)
def test_games_are_seen_without_their_scores(game):
    env = make_registered(f"preferl/{game}-v0", length=30)
    seen, _ = env.reset(seed=0)
    assert env.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    hidden = np.zeros(84, bool)
    for first, end in HIDDEN_ROWS[game]:
        hidden[first * 84 // 210 : -(-end * 84 // 210)] = True
    for step in range(30):
        assert not seen[:, hidden].any()
        seen, _, terminated, truncated, _ = env.step(env.action_space.sample())
        assert (terminated, truncated) == (False, step == 29)
    assert seen[:, ~hidden].any()
    env.close()
