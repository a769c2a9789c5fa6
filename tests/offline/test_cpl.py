"""Contrastive preference learning: beside an oracle, resumed, and against its controls."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.point_agents import SPACES, networks_of
from preferl.functional import contrastive_loss, cosine_decay, gaussian_log_density
from preferl.offline import Transitions
from preferl.offline.cpl import CPL
from preferl.offline.learner import load_training
from preferl.offline.learner_configs import CPLConfig
from preferl.testing import make_comparisons, make_episodes

SMALL = CPLConfig(hidden=(16, 12), batch_size=32, pairs=6, dropout=0.0)


def test_the_loss_by_hand():
    first = torch.tensor([2.0, 2.0])
    second = torch.tensor([1.0, 1.0])
    even = contrastive_loss(first, second, torch.tensor([1.0, 0.5]))
    right = np.log1p(np.exp(-1))
    wrong = np.log1p(np.exp(1))
    np.testing.assert_allclose(even, [right, (right + wrong) / 2], rtol=1e-6)
    biased = contrastive_loss(first, second, torch.tensor([1.0, 0.0]), bias=0.5)
    by_hand = [-np.log(np.exp(2) / (np.exp(2) + np.exp(0.5))), -np.log(1 / (1 + np.exp(0)))]
    np.testing.assert_allclose(biased, by_hand, rtol=1e-6)


@pytest.mark.parametrize(("cloning", "cloned"), [(0.0, 0), (0.33, 7)])
def test_updates_are_those_of_one_agent_written_for_clarity(rng, cloning, cloned):
    """Whatever was cloned before, its Adam is fresh and its learning rate begins at the top."""
    comparisons = make_comparisons(rng)
    steps = Transitions.of(make_episodes(rng, [40, 30]))
    agents = CPL(*SPACES, replace(SMALL, cloning=cloning), seeds=[3, 4], steps=20)
    agents.set_answers(comparisons)
    if cloned:
        agents.fit(steps, cloned)
    parameters = {
        name: tensor[1].clone().requires_grad_()
        for name, tensor in networks_of(agents, "policy").items()
    }
    adam = torch.optim.Adam(parameters.values(), 3e-4)
    for update in range(10):
        batch = agents._pairs(cloned + update)
        x = batch.states[1]
        x = torch.relu(x @ parameters["weight_0"] + parameters["bias_0"])
        x = torch.relu(x @ parameters["weight_1"] + parameters["bias_1"])
        mean = torch.tanh(x @ parameters["weight_2"].T + parameters["bias_2"][:, 0])
        scores = []
        nll = 0.0
        count = 0.0
        steps_of = zip(mean.split(5), batch.actions[1].split(5), strict=True)
        for k, (guess, action) in enumerate(steps_of):  # a segment after another
            real = batch.mask[1].flatten(0, 1)[k]
            scores.append(-0.1 * (guess - action)[real].square().sum())
            share = batch.preference[1, k // 2] if k % 2 == 0 else 1 - batch.preference[1, k // 2]
            log_std = parameters["log_std"][:, 0].clamp(-5, 2)
            density = gaussian_log_density(action[real], guess[real].detach(), log_std)
            nll = nll - share * density.sum()
            count = count + share * real.sum()
        pairs = torch.stack(scores).view(-1, 2)
        loss = contrastive_loss(pairs[:, 0], pairs[:, 1], batch.preference[1], bias=0.5).mean()
        adam.param_groups[0]["lr"] = 3e-4 * cosine_decay(update, 20 - cloned)
        adam.zero_grad()
        (loss + nll / count).backward()
        adam.step()
    agents.fit(steps, 10)
    for name, tensor in parameters.items():
        got = networks_of(agents, "policy")[name][1]
        torch.testing.assert_close(got, tensor, atol=1e-5, rtol=0, msg=name)


def test_the_first_updates_clone_and_the_others_compare(rng):
    comparisons = make_comparisons(rng)
    steps = Transitions.of(make_episodes(rng, [40, 30]))
    agents = CPL(*SPACES, SMALL, seeds=[0], steps=10)
    agents.set_answers(comparisons)
    seen = []
    agents.fit(steps, 10, every=1, on_progress=lambda _, metrics: seen.append(metrics))
    compared = [bool(np.isfinite(metrics["preference_loss"]).all()) for metrics in seen]
    assert compared == [False] * 4 + [True] * 6


@pytest.mark.parametrize(("dropout", "every"), [(0.0, 4), (0.25, 3)])
def test_a_resumed_training_is_that_without_interruption(rng, tmp_path, dropout, every):
    """Also from where it begins to compare, after eight updates, and from while it clones."""
    episodes = make_episodes(rng, [40, 30])
    comparisons = make_comparisons(rng)
    how = {"comparisons": comparisons, "checkpoint_every": every, "on_progress": lambda *_: None}

    def agents():
        return CPL(*SPACES, replace(SMALL, dropout=dropout), seeds=[0, 1], steps=20)

    whole = agents()
    first = agents()
    second = agents()
    whole.learn(episodes, None, tmp_path / "whole", **how)

    def stop(step, _):
        if step == 3 * every:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.learn(episodes, None, tmp_path / "state", **how | {"on_progress": stop})
    assert int(load_training(tmp_path / "state")["step"]) == 2 * every
    second.learn(episodes, None, tmp_path / "state", **how)
    for name, tensor in whole.state().items():
        torch.testing.assert_close(second.state()[name], tensor, atol=0, rtol=0)
