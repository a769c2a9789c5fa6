"""What a wrapped environment records and rewards, driven step by step without any library."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from preferl.data.episodes import Episodes, join
from preferl.errors import ConfigError, SpaceError
from preferl.models import (
    EnsembleConfig,
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
from preferl.online.wrappers.feedback_config import BeforeFirstReward, FeedbackConfig
from preferl.online.wrappers.feedback_core import FeedbackCore
from preferl.online.wrappers.feedback_env import FeedbackControls
from preferl.training import RewardFunction, relabel

# What is looked at here are episodes of every length; the warning has tests of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::preferl.online.wrappers.feedback_config.VariableLengthWarning"
)

SEEN = spaces.Box(-1, 1, (3,), np.float32)
DONE = spaces.Box(-1, 1, (2,), np.float32)
MLP = MLPRewardConfig(hidden=(8,), members=2)
LSTM = LSTMRewardConfig(width=32, context=6)
PT = PreferenceTransformerConfig(width=16, heads=2, preference_width=8, context=6)
MODELS = {
    "mlp": MLP,
    "mr": MLPRewardConfig(hidden=(8, 8), normalise=False),
    "nmr": LSTM,
    "pt": PT,
    "pts": EnsembleConfig((PT, PT)),
}


class Sink:
    def __init__(self) -> None:
        self.parts: list[Episodes] = []

    def put(self, episodes: Episodes) -> None:
        self.parts.append(episodes)

    @property
    def episodes(self) -> Episodes:
        return join(self.parts)


class Source:
    """Versions of rewards that are in use once they are taken."""

    def __init__(self) -> None:
        self.version = 0
        self.reward = None
        self.next: Any = None

    def switch(self) -> bool:
        if self.next is None:
            return False
        self.version = self.version + 1
        self.reward = self.next
        self.next = None
        return True

    refresh = switch

    def close(self) -> None: ...


class Driver:
    """Random steps of `V` environments through a core, with their rewards by episode."""

    def __init__(self, core: FeedbackCore, seed: int = 0, autoreset: str = "same") -> None:
        self.core = core
        self.rng = np.random.default_rng(seed)
        self.autoreset = autoreset
        self.rewards: list[list[float]] = [[] for _ in range(len(core.returns))]
        self.ended: list[list[float]] = []
        self.begin()

    def begin(self) -> None:
        """Reset all environments, whose episodes end there."""
        self.end_episodes()
        self.over = np.zeros(len(self.core.returns), bool)
        self.core.reset(self.see())

    def see(self) -> Any:
        return self.rng.uniform(-1, 1, (len(self.core.returns), 3)).astype(np.float32)

    def step(self, end: float = 0.1) -> np.ndarray:
        count = len(self.core.returns)
        waited = self.over.copy()
        draws = self.rng.random((2, count))
        over = (draws[0] < end) & ~waited
        terminated = draws[1] < 0.5
        actions = self.rng.uniform(-1, 1, (count, 2)).astype(np.float32)
        self.core.begin_step(actions)
        rewards = self.core.finish_step(
            self.see(),
            np.arange(count) + 0.5,
            over & terminated,
            over & ~terminated,
        )
        for i in np.flatnonzero(~waited):
            self.rewards[i].append(float(rewards[i]))
        assert (rewards[waited] == 0).all()
        for i in np.flatnonzero(over):
            self.ended.append(self.rewards[i])
            self.rewards[i] = []
        begins = waited if self.autoreset == "next" else over
        if begins.any():
            self.core.reset(self.see(), begins)
        self.over = over if self.autoreset == "next" else np.zeros(count, bool)
        return rewards

    def end_episodes(self) -> None:
        self.ended += [rewards for rewards in self.rewards if rewards]
        self.rewards = [[] for _ in self.rewards]

    def finish(self) -> list[float]:
        """All rewards of episodes, in the order in which they are handed over."""
        self.end_episodes()
        self.core.hand_over()
        return [reward for episode in self.ended for reward in episode]


def make_core(source: Any = None, environments: int = 3, **settings: Any) -> FeedbackCore:
    sink = Sink()
    core = FeedbackCore(
        SEEN, DONE, environments, config=FeedbackConfig(**settings), on_episodes=sink.put
    )
    core.sink = sink  # type: ignore[attr-defined]
    if source is not None:
        core.computer.reader = source
    return core


def reward_of(kind: str, seed: int = 0) -> RewardFunction:
    return RewardFunction(build_reward_model(MODELS[kind], SEEN, DONE, seed=seed))


@pytest.mark.parametrize(
    ("kind", "autoreset"), [*((kind, "same") for kind in MODELS), ("nmr", "next")]
)
def test_rewards_are_those_of_relabelling_what_was_recorded(kind: str, autoreset: str) -> None:
    source = Source()
    core = make_core(source)
    source.next = reward_of(kind)
    core.computer.refresh()
    driver = Driver(core, autoreset=autoreset)
    for step in range(90):
        if step == 45:  # somebody begins anew in the middle of episodes
            driver.begin()
        driver.step()
    rewards = driver.finish()
    episodes = core.sink.episodes  # type: ignore[attr-defined]
    assert len(episodes) > 10
    assert np.ptp(rewards) > 1e-3
    np.testing.assert_allclose(relabel(episodes, source.reward).rewards, rewards, atol=1e-5)
    true = episodes.rewards.reshape(-1)
    assert set(true.tolist()) == {0.5, 1.5, 2.5}


@pytest.mark.parametrize("kind", ["nmr", "pt"])
def test_a_reward_that_comes_in_the_middle_looks_back_all_the_way(kind: str) -> None:
    source = Source()
    core = make_core(source)
    driver = Driver(core)
    for _ in range(31):
        driver.step()
    begun = [len(rewards) for rewards in driver.rewards]
    assert max(begun) > 3
    driver.ended = []
    before = [list(rewards) for rewards in driver.rewards]
    core.recording.take()
    core.sink.parts.clear()  # type: ignore[attr-defined]
    assert core.computer.version == 0
    source.next = reward_of(kind)
    assert core.computer.refresh()
    assert (core.computer.version, core.computer.source) == (1, "learned")
    for _ in range(5):
        driver.step(end=0.0)
    rewards = np.array(driver.finish())
    expected = relabel(core.sink.episodes, source.reward).rewards  # type: ignore[attr-defined]
    new = np.concatenate([np.arange(len(b) + 5) >= len(b) for b in before])
    assert np.ptp(rewards[new]) > 1e-3
    np.testing.assert_allclose(rewards[new], expected[new], atol=1e-5)
    assert (rewards[~new] == 0).all()


def test_a_newer_reward_is_switched_to_between_rollouts_alone() -> None:
    source = Source()
    core = make_core(source, refresh_every=4)
    driver = Driver(core)
    source.next = reward_of("mlp")
    versions = []
    for _ in range(8):
        driver.step()
        versions.append(core.computer.version)
    assert versions == [0, 0, 0, 1, 1, 1, 1, 1]


def test_rewards_before_the_first_version() -> None:
    zero = Driver(make_core())
    assert zero.core.computer.source == "before"
    assert all((zero.step() == 0).all() for _ in range(9))
    own = Driver(make_core(before=BeforeFirstReward.ENVIRONMENT))
    assert own.core.computer.source == "environment"
    assert own.step().tolist() == [0.5, 1.5, 2.5]
    curious = Driver(make_core(before="entropy"))
    rewards = np.stack([curious.step() for _ in range(9)])
    assert (rewards[3:] > 0).all()
    with pytest.raises(ConfigError, match="zero, entropy, environment"):
        FeedbackConfig(before="true")  # type: ignore[arg-type]


def test_the_environments_reward_is_given_only_on_request() -> None:
    source = Source()
    core = make_core(source)
    source.next = reward_of("nmr")
    core.computer.refresh()
    driver = Driver(core)
    core.computer.true_reward_forced = True
    assert driver.step(0.0).tolist() == [0.5, 1.5, 2.5]
    assert core.computer.active_version == 0
    core.computer.true_reward_forced = False
    driver.step(0.0)
    assert core.computer.active_version == 1
    rewards = driver.finish()
    expected = relabel(core.sink.episodes, source.reward).rewards  # type: ignore[attr-defined]
    assert np.ptp(rewards[1::2]) > 1e-3
    np.testing.assert_allclose(rewards[1::2], expected[1::2], atol=1e-5)


def test_no_piece_is_longer_than_the_longest_however_episodes_end() -> None:
    core = make_core(segment_length=5, longest_piece=20)
    driver = Driver(core)
    controls = FeedbackControls()
    controls.core = core
    for step in range(400):
        if step in (150, 200):
            controls.pause_collecting() if step == 150 else controls.resume_collecting()
        driver.step(0.05)
        assert core.recording.pending.max() < 20
    core.hand_over()
    assert core.sink.episodes.lengths.max() == 20  # type: ignore[attr-defined]


def test_a_transform_is_what_people_and_rewards_see() -> None:
    source = Source()
    sink = Sink()
    half = spaces.Box(-1, 1, (2,), np.float32)
    core = FeedbackCore(
        SEEN,
        DONE,
        2,
        on_episodes=sink.put,
        transform=lambda o: o[..., :2] / 2,
        transformed_space=half,
    )
    core.computer.reader = source
    model = build_reward_model(MLP, half, DONE, seed=0)
    source.next = RewardFunction(model)
    core.computer.refresh()
    driver = Driver(core)
    first = core.recording.present.copy()
    rewards = driver.step(0.0)
    assert np.abs(first).max() <= 0.5
    core.hand_over()
    np.testing.assert_array_equal(sink.episodes.observations, first)
    np.testing.assert_allclose(relabel(sink.episodes, source.reward).rewards, rewards, atol=1e-5)
    own = core.computer.for_raw_observations
    assert own is not None
    assert own.observation_space == SEEN
    again = own(
        np.concatenate([first * 2, first[:, :1]], axis=1)[:, None],
        sink.episodes.actions[:, None],
        np.ones((2, 1), bool),
    )
    np.testing.assert_allclose(again, rewards, atol=1e-5)


def test_a_transform_that_does_not_keep_its_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="both or neither"):
        FeedbackCore(SEEN, DONE, 1, transform=lambda o: o)
    with pytest.raises(SpaceError, match=r"expected shape \(1, 2\).*got \(1, 3\)"):
        FeedbackCore(SEEN, DONE, 1, transform=lambda o: o, transformed_space=DONE)


@pytest.mark.parametrize(
    ("feedback", "fix"),
    [
        (FeedbackConfig(), r"config=FeedbackConfig"),
        ("runs/labels", r"StoredFeedback\(store, project\)"),
    ],
)
def test_something_else_in_place_of_the_feedback_is_refused(feedback: Any, fix: str) -> None:
    with pytest.raises(ConfigError, match=f"feedback: expected a StoredFeedback.*{fix}"):
        FeedbackCore(SEEN, DONE, 1, feedback)


def test_something_else_in_place_of_the_config_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"config: expected a FeedbackConfig.*as keywords"):
        FeedbackCore(SEEN, DONE, 1, config={"segment_length": 5})  # type: ignore[arg-type]


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(ConfigError, match="reset"):
        make_core().begin_step(np.zeros((3, 2)))
