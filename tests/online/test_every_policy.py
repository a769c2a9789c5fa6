"""Every kind of policy through everything that lets one act: all of them do the same."""

from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from preferl.envs.config import EnvConfig
from preferl.evaluation import ReturnConditionedPolicy, evaluate_policies, evaluate_policy, film
from preferl.evaluation.filming import show
from preferl.offline import DecisionTransformer, DTConfig
from preferl.offline.experiment import report as offline_report
from preferl.online import PPOConfig, record
from preferl.online.acting import act, task_environments
from preferl.online.algorithms import build_algorithm
from preferl.testing import make_episodes

ENV = "preferl-tests/Corridor-v0"
LENGTH = 6
SEEN = spaces.Box(-9, 9, (2,))
DONE = spaces.Box(-1, 1, (1,))


class Corridor(gymnasium.Env[Any, Any]):
    """Every episode begins alike; the action moves, is the reward, and is what one sees drawn."""

    observation_space = SEEN
    action_space = DONE
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def _seen(self) -> Any:
        return np.array([self.place, 0.5 * self.time], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0.0
        self.time = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.place = self.place + float(action[0])
        self.time = self.time + 1
        return self._seen(), float(action[0]), False, self.time == LENGTH, {}

    def render(self) -> Any:
        return np.full((4, 4, 3), round(100 + 10 * self.place), np.uint8)


class Recurrent:
    """Acts by how many steps of its episode it has seen, which only its hidden state says."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        count = np.zeros(len(observation)) if state is None else state
        count = np.where(episode_start, 0.0, count) + 1
        return (count / LENGTH - 0.5)[:, None].astype(np.float32), count


def stateless() -> Any:
    agent = build_algorithm(PPOConfig(hidden=(4,)), DummyVecEnv([Corridor]), seed=0)
    with torch.no_grad():
        agent.policy.log_std.fill_(-30)  # where it draws actions, it draws the likeliest
    return agent


def normalised() -> Any:
    env = VecNormalize(DummyVecEnv([Corridor]), training=False)
    env.obs_rms.mean = np.array([2.0, 1.0])
    env.obs_rms.var = np.array([4.0, 0.25])
    agent = build_algorithm(PPOConfig(hidden=(4,)), env, seed=0)
    with torch.no_grad():
        agent.policy.log_std.fill_(-30)
        agent.policy.action_net.weight.fill_(0.5)  # so that statistics matter
    return agent


def return_conditioned() -> Any:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = DTConfig(context=3, width=8, layers=1, batch_size=4, horizon=LENGTH)
    agent = DecisionTransformer(SEEN, DONE, config, seed=0, steps=2)
    episodes = make_episodes(np.random.default_rng(0), [LENGTH, LENGTH], SEEN, DONE)
    agent.fit(agent.sequences(episodes))
    return agent.policy(3.0)


KINDS = (stateless, normalised, Recurrent, return_conditioned)


@pytest.fixture(scope="module", autouse=True)
def world():
    gymnasium.register(ENV, Corridor, order_enforce=False, disable_env_checker=True)
    yield
    del gymnasium.registry[ENV]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__.lower())
def policy(request) -> Any:
    return request.param()


@pytest.fixture(scope="module")
def expected(policy) -> Any:
    """`[T]` actions of an episode, by a loop that hides nothing."""
    env = Corridor()
    actions = []
    state = None
    seen, _ = env.reset()
    for step in range(LENGTH):
        shown = seen[None]
        start = np.array([step == 0])
        if getattr(policy, "get_vec_normalize_env", lambda: None)() is not None:
            shown = policy.get_vec_normalize_env().normalize_obs(shown)
        action, state = policy.predict(shown, state, start, deterministic=True)
        seen, reward, *_ = env.step(action[0])
        if isinstance(policy, ReturnConditionedPolicy):
            policy.earned(state, np.array([reward]))
        actions.append(float(action[0, 0]))
    assert np.ptp(actions) > 1e-3, "a policy that always does the same would hide mistakes"
    return np.array(actions)


def is_expected(episodes, expected) -> bool:
    """Whether all episodes, the last of which may be cut off, hold these actions."""
    for k, start in enumerate(episodes.starts):
        steps = episodes.lengths[k]
        np.testing.assert_allclose(
            episodes.actions[start : start + steps, 0], expected[:steps], atol=1e-5
        )
    return len(episodes) > 0


def test_evaluation(policy, expected):
    report = evaluate_policy(policy, ENV, episodes=5, seed=0, parallel=2)
    np.testing.assert_allclose(report.returns, expected.sum(), atol=1e-5)
    many = evaluate_policies({"a": policy, "b": policy}, ENV, episodes=3, seed=0, processes=1)
    for one in many.values():
        np.testing.assert_allclose(one.returns, expected.sum(), atol=1e-5)


def test_film(policy, expected):
    places = 100 + 10 * np.concatenate([[0], np.cumsum(expected)[:-1]])
    frames = film(policy, ENV, seed=0, steps=LENGTH + 2)
    shown = frames[:, 0, 0, 0].astype(float)
    assert np.abs(shown[:LENGTH] - places).max() <= 0.51
    assert np.abs(shown[LENGTH:] - places[:2]).max() <= 0.51


def test_recordings(policy, expected):
    episodes = record(policy, ENV, 3 * LENGTH + 1, seed=0, environments=2)
    assert is_expected(episodes, expected)
    assert sorted(episodes.lengths.tolist()) == [4, 4, 6, 6]
    venv = task_environments(ENV, 2, seed=0, states=False)
    assert is_expected(act(policy, venv, episodes=3), expected)


def test_showing(policy, expected):
    shown = show(policy, ENV, seed=0)
    assert is_expected(shown.episode, expected)
    assert len(shown.frames) == shown.episode.steps == LENGTH


def test_the_page_of_an_offline_run(policy, expected):
    acts_in = {"env_id": ENV, "environment": EnvConfig(ENV)}
    config = SimpleNamespace(**acts_in, episodes=1, max_steps=None)
    run = SimpleNamespace(config=config, seeds=(0,), load_policy=lambda *_: policy)
    shown = offline_report.shown_episode(run)
    assert is_expected(shown.episode, expected)
