"""Training a Decision Transformer: losses by hand, going on, several processes, following."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers.installed import needs
from helpers.point_walks import point_walks
from preferl.errors import ConfigError, DivergenceError, SpaceError
from preferl.evaluation import evaluate_policy
from preferl.offline import DecisionTransformer, DTConfig
from preferl.offline.decision_transformer.action_loss import action_loss
from preferl.offline.learner_configs import DTRConfig
from preferl.statistics import spearman
from preferl.testing import PointWorld, make_episodes

pytestmark = needs("transformers", "accelerate")

WORLD = PointWorld()
SPACES = WORLD.observation_space, WORLD.action_space
SMALL = DTConfig(context=4, width=16, layers=2, batch_size=8, learning_rate=1e-3)


class EnoughError(Exception):
    """Breaks off training."""


def losses_of(episodes, folder, steps, stop=0, go_on=True, config=SMALL):
    """Losses by update; with `stop`, training is broken off after so many and gone on with."""
    found = {}

    def on_progress(step, metrics):
        found[step] = metrics["loss"]
        if step == stop:
            raise EnoughError

    def agent():
        return DecisionTransformer(*SPACES, config, seed=3, steps=steps)

    how = {"folder": folder, "checkpoint_every": 4, "every": 1, "on_progress": on_progress}
    one = agent()
    if stop:
        with pytest.raises(EnoughError):
            one.fit(one.sequences(episodes), **how)
        stop = 0
        one = agent()
        if not go_on:
            return found, one
    one.fit(one.sequences(episodes), resume=True, **how)
    return found, one


def test_losses_by_hand():
    predicted = torch.tensor([[[5.0, 5.0], [1.0, 3.0]]])
    mask = torch.tensor([[0.0, 1.0]])
    assert action_loss(predicted, torch.zeros(1, 2, 2), mask).item() == 5  # (1 + 9) / 2
    chosen = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    expected = np.log(1 + np.exp(-2))  # of logits 1 and 3, the second chosen
    assert action_loss(predicted, chosen, mask, "choices").item() == pytest.approx(expected)


def test_precise_numbers_count_as_much_as_varied_ones():
    predicted = torch.tensor([[[0.1, 8.0], [0.1, 2.0], [7.0, 7.0]]], requires_grad=True)
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    loss = action_loss(predicted, torch.zeros(1, 3, 2), mask, "gaussian")
    # Mean squares of 0.01 and 34; half their logarithms' mean.
    assert loss.item() == pytest.approx((np.log(0.01) + np.log(34)) / 4, abs=1e-4)
    loss.backward()
    pulls = predicted.grad[0].square().sum(0).sqrt() * torch.tensor([0.1, 34**0.5])
    assert pulls[0].item() == pytest.approx(pulls[1].item(), rel=1e-3)
    exact = action_loss(predicted * 0, torch.zeros(1, 3, 2), mask, "gaussian")
    assert torch.isfinite(exact)


@pytest.mark.parametrize("regulariser", [None, DTRConfig(hidden=(8,))], ids=["dt", "dtr"])
def test_a_run_that_goes_on_is_the_run_that_did_not_stop(rng, tmp_path, regulariser):
    episodes = make_episodes(rng, [20] * 10)
    config = replace(SMALL, regulariser=regulariser)
    whole, one = losses_of(episodes, tmp_path / "whole", 10, config=config)
    parts, other = losses_of(episodes, tmp_path / "parts", 10, stop=6, config=config)
    assert parts == whole
    assert len(whole) == 10
    expected = one.policy().learned.parameters
    found = other.policy().learned.parameters
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=0, rtol=0, msg=name)
    assert regulariser is None or found["critics.progress"] == 1


def test_a_checkpoint_that_was_cut_off_is_left_out(rng, tmp_path):
    episodes = make_episodes(rng, [20] * 10)
    whole, _ = losses_of(episodes, tmp_path / "whole", 10)
    folder = tmp_path / "parts"
    losses_of(episodes, folder, 10, stop=6, go_on=False)  # leaves a checkpoint of update 4
    broken = folder / "checkpoint-8"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"cut")
    again, _ = losses_of(episodes, folder, 10)
    assert again == {step: whole[step] for step in range(5, 11)}


def test_nobody_elses_random_state_is_touched(rng):
    episodes = make_episodes(rng, [20] * 4)
    torch.manual_seed(5), random.seed(5)
    expected = torch.rand(1), random.random()
    torch.manual_seed(5), random.seed(5)
    losses_of(episodes, None, 2)
    assert (torch.rand(1), random.random()) == expected


def test_spaces_that_do_not_fit_are_refused(rng):
    agent = DecisionTransformer(*SPACES, SMALL, seed=0, steps=1)
    other = make_episodes(rng, [5], spaces.Box(-1, 1, (3,)))
    with pytest.raises(SpaceError, match=r"states of shape \(2,\) and actions of 2"):
        agent.fit(agent.sequences(other))
    with pytest.raises(SpaceError, match="Box of floats, or Discrete"):
        DecisionTransformer(SPACES[0], spaces.MultiDiscrete([2, 2]), SMALL, seed=0, steps=1)
    config = DTConfig(regulariser=DTRConfig())
    with pytest.raises(SpaceError, match="spaces of DTR"):
        DecisionTransformer(SPACES[0], spaces.Discrete(2), config, seed=0, steps=1)
    with pytest.raises(ConfigError, match="not learned from any data"):
        agent.policy()


def test_a_training_that_diverges_is_an_error(rng):
    agent = DecisionTransformer(*SPACES, replace(SMALL, learning_rate=1e30), seed=0, steps=6)
    with pytest.raises(DivergenceError, match="the training diverged"):
        agent.fit(agent.sequences(make_episodes(rng, [6] * 4)))


def test_discrete_actions_and_pictures_are_learned_from(rng):
    pictures = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    choices = spaces.Discrete(3)
    episodes = make_episodes(rng, [12, 9], pictures, choices)
    agent = DecisionTransformer(pictures, choices, SMALL, seed=0, steps=3)
    assert agent.fit(agent.sequences(episodes))["loss"] < 5
    actions, _ = agent.policy(decrement="even").predict(episodes.observations[:4])
    assert actions.shape == (4,)
    assert set(actions.tolist()) <= {0, 1, 2}


@pytest.mark.slow
def test_it_learns_a_world_and_follows_its_target(rng):
    push = rng.uniform(-1, 1, (200, 1, 2)) + rng.normal(0, 0.1, (200, 20, 2))
    episodes = point_walks(rng, np.clip(push, -1, 1).astype(np.float32))
    config = DTConfig(context=10, width=64, layers=2, learning_rate=1e-3, dropout=0.0)
    agent = DecisionTransformer(*SPACES, config, seed=0, steps=600)
    agent.fit(agent.sequences(episodes))
    asked = [agent.policy(f"q{share}").target for share in (0.05, 0.25, 0.5, 0.75, 0.95)]
    achieved = [
        evaluate_policy(agent.policy(target), PointWorld, episodes=20, seed=100).mean
        for target in asked
    ]
    assert spearman(np.array(asked), np.array(achieved)) == pytest.approx(1)
    assert achieved[-1] > np.quantile(episodes.returns, 0.8)
    assert achieved[0] < np.quantile(episodes.returns, 0.2)


TWO = """
import json, sys
import numpy as np
from preferl.offline import DecisionTransformer, DTConfig, DTRConfig
from preferl.testing import PointWorld, make_episodes
world, found = PointWorld(), {}
spaces = world.observation_space, world.action_space
small = dict(context=8, width=16, layers=2, batch_size=16, learning_rate=1e-3, dropout=0.0)
kinds = {"plain": {}, "gaussian": {"action_loss": "gaussian"}, "DTR": {"regulariser": DTRConfig()}}
for name, more in kinds.items():
    agent = DecisionTransformer(*spaces, DTConfig(**small, **more), seed=0, steps=20)
    episodes = make_episodes(np.random.default_rng(0), [12, 5, 40] * 9)
    curves = []
    agent.fit(agent.sequences(episodes), every=5, folder=sys.argv[1] + name,
              on_progress=lambda step, metrics: curves.append(list(metrics.values())))
    seen = np.random.default_rng(1).uniform(-1, 1, (5, 2))
    found[name] = [curves, agent.policy().predict(seen)[0].tolist()]
if curves:
    open(sys.argv[2], "w").write(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.nightly  # fits of rewards by two processes are tested in every check
def test_two_processes_learn_what_one_does(tmp_path):
    """Many windows are padded, so that the processes have unequal numbers of real steps."""
    script = tmp_path / "two.py"
    script.write_text(TWO)
    found = []
    both = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    for number, launcher in enumerate(([], both)):
        out = tmp_path / f"{number}.json"
        words = [sys.executable, *launcher, script, tmp_path / f"{number}", out]
        subprocess.run(words, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300)
        found.append(json.loads(out.read_text()))
    one, two = found
    for kind, (curves, actions) in one.items():
        np.testing.assert_allclose(two[kind][0], curves, rtol=2e-6, atol=1e-7, err_msg=kind)
        np.testing.assert_allclose(two[kind][1], actions, atol=1e-6, err_msg=kind)
