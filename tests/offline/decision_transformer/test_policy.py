"""A Decision Transformer acting: contexts, decrement, targets, and folders."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers.installed import needs
from preferl.errors import ConfigError
from preferl.offline import DecisionTransformer, DTConfig
from preferl.offline.decision_transformer.policy import DecisionTransformerPolicy
from preferl.offline.learner_configs import DTRConfig, TokenShape
from preferl.testing import PointWorld, make_episodes

pytestmark = needs("transformers", "accelerate")

WORLD = PointWorld()
SPACES = WORLD.observation_space, WORLD.action_space
HORIZON = 12


def recorded(spaces_=SPACES):
    return make_episodes(np.random.default_rng(0), [HORIZON, 9, 10], *spaces_)


def learned(config, spaces_=SPACES):
    agent = DecisionTransformer(*spaces_, config, seed=0, steps=3)
    agent.fit(agent.sequences(recorded(spaces_)))
    return agent


CONFIG = DTConfig(context=4, width=16, layers=2, batch_size=8, horizon=HORIZON)


@pytest.fixture(scope="module")
def agent():
    return learned(CONFIG)


@pytest.fixture
def policy(agent):
    return agent.policy(3.0)


def test_its_actions_are_those_of_the_model_on_the_whole_history(policy, rng, tmp_path):
    """The rolling context against Hugging Face's model, called with what happened so far."""
    from transformers import DecisionTransformerModel

    policy.save(tmp_path / "policy")
    model = DecisionTransformerModel.from_pretrained(tmp_path / "policy").eval()
    statistics = policy.statistics
    seen = rng.uniform(-1, 1, (7, 2))
    rewards = rng.normal(size=7)
    done = []
    state = None
    for step in range(7):
        action, state = policy.predict(seen[step][None], state)
        policy.earned(state, rewards[step : step + 1])
        done.append(action[0])
        first = max(0, step - CONFIG.context + 1)
        known = slice(first, step + 1)
        states = (seen[known] - statistics.mean) / statistics.deviation
        asked = (3.0 - np.concatenate([[0], np.cumsum(rewards)])[known]) / statistics.scale
        with torch.no_grad():
            expected = model(
                states=torch.tensor(states[None], dtype=torch.float32),
                actions=torch.tensor(np.stack([*done[first:step], [-10.0, -10]]))[None].float(),
                returns_to_go=torch.tensor(asked, dtype=torch.float32)[None, :, None],
                timesteps=torch.arange(first, step + 1)[None],
                attention_mask=torch.ones(1, step + 1 - first),
            ).action_preds[0, -1]
        np.testing.assert_allclose(action[0], expected, atol=1e-5)


def test_environments_side_by_side_are_alone(policy, rng):
    """Each begins again at its own time."""
    seen = rng.uniform(-1, 1, (9, 3, 2))
    rewards = rng.normal(size=(9, 3))
    starts = np.zeros((9, 3), bool)
    starts[0] = True
    starts[4, 1] = True
    starts[6, 2] = True
    state = None
    together = []
    for step in range(9):
        actions, state = policy.predict(seen[step], state, starts[step])
        policy.earned(state, rewards[step])
        together.append(actions)
    for v, first in ((0, 0), (1, 4), (2, 6)):
        state = None
        for step in range(first, 9):
            action, state = policy.predict(seen[step, v], state)
            policy.earned(state, rewards[step, v])
            np.testing.assert_allclose(action, together[step][v], atol=1e-6)


def test_a_target_is_a_number_or_a_quantile(agent):
    policy = agent.policy("q0.5")
    returns = recorded().returns
    assert policy.target == pytest.approx(np.median(returns))
    assert policy.with_target("q1").target == pytest.approx(returns.max())
    assert policy.with_target("-2.5").target == policy.with_target(-2.5).target == -2.5
    for wrong in ("q1.5", "much", "nan", "q"):
        with pytest.raises(ConfigError):
            policy.with_target(wrong)


class Memory:
    """A reward with a memory: how far the point has come within three steps."""

    context = 3
    members = 1

    def __call__(self, observations, actions, mask):
        first = mask.argmax(1)
        rows = np.arange(len(mask))
        return np.linalg.norm(observations[:, -1] - observations[rows, first], axis=-1)

    def scores(self, segments):
        raise NotImplementedError


def test_a_learned_reward_is_subtracted_in_place_of_the_environments(policy, rng):
    seen = rng.uniform(-1, 1, (5, 1, 2))
    rewarded = policy.with_reward(Memory())
    state = None
    spent = 0.0
    for step in range(5):
        _, state = rewarded.predict(seen[step], state)
        rewarded.earned(state, np.array([1e6]))  # not looked at
        asked = state.returns_to_go[0, 0, -1] * policy.statistics.scale
        assert asked == pytest.approx(3.0 - spent, abs=1e-5)
        spent += float(np.linalg.norm(seen[step, 0] - seen[max(0, step - 2), 0]))


@pytest.mark.parametrize("kind", ["plain", "dtr", "discrete", "pictures"])
def test_a_folder_brings_it_back(kind, tmp_path, rng):
    pictures = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    space = pictures if kind == "pictures" else SPACES[0]
    actions = spaces.Discrete(4, start=1) if kind == "discrete" else SPACES[1]
    config = replace(CONFIG, regulariser=DTRConfig(hidden=(8,)) if kind == "dtr" else None)
    policy = learned(config, (space, actions)).policy("q0.9", decrement="even")
    policy.save(tmp_path / "policy")
    again = DecisionTransformerPolicy.load(tmp_path / "policy")
    for name in ("target", "decrement", "learner"):
        assert getattr(again, name) == getattr(policy, name)
    seen = [space.sample() for _ in range(5)]
    states = None
    other = None
    for step in seen:
        first, states = policy.predict(step, states)
        second, other = again.predict(step, other)
        np.testing.assert_array_equal(first, second)
        assert actions.contains(first)


def test_it_acts_without_the_extra(policy, tmp_path):
    policy.save(tmp_path / "policy")
    script = (
        "import sys, numpy as np\n"
        "from preferl.offline import DecisionTransformerPolicy\n"
        "DecisionTransformerPolicy.load(sys.argv[1]).predict(np.zeros((2, 2)))\n"
        "assert not {'transformers', 'accelerate', 'datasets'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "policy")], check=True)


def test_drawn_actions_follow_the_logits():
    from preferl.offline.decision_transformer.tokens import predict_actions

    policy = learned(CONFIG, (SPACES[0], spaces.Discrete(3))).policy(decrement="even")
    many = np.zeros((2000, 2))
    drawn, _ = policy.predict(many, deterministic=False)
    context = policy.predict(many[:1])[1]
    batch = {
        "states": torch.from_numpy(context.states),
        "actions": torch.full((1, 4, 3), -10.0),
        "returns_to_go": torch.from_numpy(context.returns_to_go.reshape(1, -1, 1)),
        "timesteps": torch.from_numpy(context.timesteps),
        "attention_mask": torch.from_numpy(context.real),
    }
    shape = TokenShape(CONFIG.layers, CONFIG.heads, squashed=False)
    logits = predict_actions(policy.learned.parameters, shape, batch, last=True)[0, -1]
    np.testing.assert_allclose(np.bincount(drawn) / 2000, logits.softmax(-1), atol=0.05)
