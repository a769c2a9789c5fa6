"""Policies beside one written for clarity, and learned values beside their controls."""

import numpy as np
import pytest
import torch

from helpers.point_agents import SPACES, mixed_episodes, networks_of
from preferl.evaluation import evaluate_policy
from preferl.functional import gaussian_log_density
from preferl.models.blocks import kept_by_seeds, kept_share
from preferl.offline import IQL, BehaviourCloning, CloningConfig, IQLConfig, Transitions
from preferl.offline.transitions import ActionScale, Minibatches
from preferl.testing import PointWorld, make_episodes
from preferl.testing.worlds import PUSH_SPACE


def test_updates_of_a_policy_are_those_of_one_written_for_clarity(rng):
    steps = Transitions.of(make_episodes(rng, [40, 60, 50]))
    config = CloningConfig(hidden=(8, 6), batch_size=32, dropout=0.25, log_std_bounds=(-0.001, 2.0))
    agents = BehaviourCloning(*SPACES, config, seeds=[0, 1], steps=100)
    minibatches = Minibatches(steps, ActionScale.of(PUSH_SPACE), agents.seeds, 32)
    policy = {k: t[1].clone().requires_grad_() for k, t in networks_of(agents, "policy").items()}
    adam = torch.optim.Adam(policy.values(), config.learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(adam, 100)
    agents.fit(steps, 25)
    for update in range(25):
        batch = minibatches(update)
        x = batch.states[1, 0]
        for layer, units in enumerate(config.hidden):
            seeds = [batch.dropout_seeds[1] ^ layer]
            kept = kept_by_seeds(torch.empty(1, 32, units), 0.25, seeds, torch.Generator())[0]
            hidden = torch.relu(x @ policy[f"weight_{layer}"] + policy[f"bias_{layer}"])
            x = hidden * kept / kept_share(0.25)
        mean = torch.tanh(x @ policy["weight_2"].T + policy["bias_2"][:, 0])
        log_std = policy["log_std"][:, 0].clamp(*config.log_std_bounds)
        adam.zero_grad()
        (-gaussian_log_density(batch.actions[1].T, mean, log_std)).mean().backward()
        adam.step()
        decay.step()
    for name, tensor in policy.items():
        got = networks_of(agents, "policy")[name][1]
        torch.testing.assert_close(got, tensor, atol=1e-4, rtol=0, msg=name)


@pytest.mark.slow
def test_learned_values_beat_cloning_and_other_rewards_do_not(rng):
    episodes = mixed_episodes(rng)
    conditions = {"true": 1.0, "none": 0.0, "negated": -1.0}
    rewards = np.stack([episodes.rewards * factor for factor in conditions.values()])
    shape = {"hidden": (64, 64), "learning_rate": 1e-3}
    learner = IQL(*SPACES, IQLConfig(**shape), seeds=[0, 1, 2], steps=3000)
    learner.fit(Transitions.of(episodes, rewards=rewards), 3000)
    cloning = BehaviourCloning(*SPACES, CloningConfig(**shape), seeds=[0], steps=3000)
    cloning.fit(Transitions.of(episodes), 3000)
    returns = {
        name: evaluate_policy(policy, PointWorld, episodes=20, seed=10_000).mean
        for name, policy in zip(
            [*conditions, "cloned"], learner.policies() + cloning.policies(), strict=True
        )
    }
    recorded = episodes.returns.mean()
    assert returns["true"] > returns["cloned"] + 5, (returns, recorded)
    assert abs(returns["none"] - returns["cloned"]) < 5, (returns, recorded)
    assert returns["negated"] < returns["cloned"] - 5, (returns, recorded)
