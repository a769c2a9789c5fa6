"""The regulariser of a Decision Transformer: targets by hand, whose gradients go where."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.point_walks import point_walks
from preferl.evaluation import evaluate_policy
from preferl.offline import DecisionTransformer, DTConfig
from preferl.offline.decision_transformer.critics import Critics, regularise, window_targets
from preferl.offline.learner_configs import DTRConfig
from preferl.testing import PointWorld

SETTINGS = DTRConfig(hidden=(8,), weight=2.0)


@pytest.fixture
def critics():
    return Critics(4, SETTINGS, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return {
        "states": torch.randn(3, 5, 2, generator=generator),
        "actions": torch.randn(3, 5, 2, generator=generator),
        "rewards": torch.randn(3, 5, 1, generator=generator),
        "attention_mask": torch.tensor([[1.0] * 5, [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]]),
        "terminated": torch.tensor([True, False, False]),
    }


def test_targets_are_those_of_a_loop():
    rewards = torch.tensor([[1.0, -2, 3, 5], [4.0, 0, 1, 7]])
    ended = torch.tensor([True, False])
    last = torch.tensor([10.0, 20.0])
    targets, known = window_targets(rewards, ended, last, 0.9)
    for b in range(2):
        target = float(last[b])
        for i in (2, 1, 0):
            target = float(rewards[b, i]) + 0.9 * target
            assert targets[b, i].item() == pytest.approx(target, rel=1e-6)
    assert known.tolist() == [[True] * 4, [True, True, True, False]]
    assert targets[0, 3] == 5  # the end has its own reward and nothing that follows


def test_the_coefficient_grows_with_training(critics, batch):
    predicted = torch.zeros(3, 5, 2)
    opinions = []
    for progress in (0.0, 0.5, 1.0):
        critics.update(progress)
        opinions.append(regularise(critics, batch, predicted)[1].item())
    assert opinions[0] == 0
    assert opinions[2] == pytest.approx(2 * opinions[1])
    assert abs(opinions[2]) <= SETTINGS.weight * 1.0001  # a mean over the mean of sizes


def test_critics_do_not_learn_to_please(critics, batch):
    critics.update(1.0)
    predicted = torch.zeros(3, 5, 2, requires_grad=True)
    critic_loss, opinion, _ = regularise(critics, batch, predicted)
    opinion.backward()
    assert predicted.grad is not None
    assert predicted.grad.abs().sum() > 0
    assert all(p.grad is None for p in critics.parameters())
    predicted.grad = None
    critic_loss.backward()
    assert predicted.grad is None
    assert all(p.grad is not None for p in critics.live.parameters())


def test_padding_teaches_critics_nothing(critics, batch):
    padding = ~batch["attention_mask"].bool()
    changed = dict(batch) | {name: batch[name].clone() for name in ("states", "actions")}
    changed["states"][padding] = 50
    changed["actions"][padding] = 50
    first = regularise(critics, batch, torch.zeros(3, 5, 2))
    second = regularise(critics, changed, torch.zeros(3, 5, 2))
    assert first[0] == second[0]
    assert first[1] == second[1]


@pytest.mark.slow
def test_it_finds_better_actions_than_were_recorded(rng):
    pytest.importorskip("transformers")
    world = PointWorld()
    episodes = point_walks(rng, rng.uniform(-1, 1, (200, 20, 2)).astype(np.float32))
    config = DTConfig(context=5, width=32, layers=1, learning_rate=1e-3, dropout=0.0)
    means = {}
    for name, regulariser in (("dt", None), ("dtr", DTRConfig(weight=1.0))):
        agent = DecisionTransformer(
            world.observation_space,
            world.action_space,
            replace(config, regulariser=regulariser),
            seed=0,
            steps=600,
        )
        agent.fit(agent.sequences(episodes))
        report = evaluate_policy(agent.policy("q0.5"), PointWorld, episodes=20, seed=50)
        means[name] = report.mean
    assert means["dtr"] > means["dt"] + 1
