"""Agents that learn side by side: beside an oracle, beside learning alone, stopped and resumed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.point_agents import SMALL, SPACES, agents, mixed_episodes, networks_of
from preferl.evaluation import evaluate_policy
from preferl.functional import advantage_weights, expectile_loss, gaussian_log_density
from preferl.models.blocks import kept_by_seeds, kept_share
from preferl.offline import IQL, BehaviourCloning, CloningConfig, IQLConfig, Transitions
from preferl.offline.transitions import ActionScale, Minibatches
from preferl.testing import PointWorld, make_episodes
from preferl.testing.worlds import PUSH_SPACE


@pytest.fixture(scope="module")
def steps():
    return Transitions.of(make_episodes(np.random.default_rng(0), [40, 60, 50]))


def dropped(config, seed):
    """Factors of hidden units that are a function of an update's seed alone."""
    factors = []
    generator = torch.Generator()
    for layer, units in enumerate(config.hidden):
        like = torch.empty(config.batch_size, units)
        drawn = kept_by_seeds(like[None], config.dropout, [seed ^ layer], generator)[0]
        factors.append(drawn / kept_share(config.dropout))
    return factors


class Oracle:
    """One agent of the same algorithm, written for clarity."""

    def __init__(self, agent, number, config, planned):
        count = len(agent.seeds)
        self.config = config
        self.v = self.copied(networks_of(agent, "value"), number)
        self.q = [self.copied(networks_of(agent, "critic"), number + k * count) for k in (0, 1)]
        self.target = [{k: t.detach().clone() for k, t in net.items()} for net in self.q]
        self.pi = self.copied(networks_of(agent, "policy"), number)
        self.v_adam = torch.optim.Adam(self.v.values(), config.learning_rate)
        self.q_adam = torch.optim.Adam([*self.q[0].values(), *self.q[1].values()], 3e-4)
        self.pi_adam = torch.optim.Adam(self.pi.values(), config.learning_rate)
        self.decay = torch.optim.lr_scheduler.CosineAnnealingLR(self.pi_adam, planned)

    def copied(self, parameters, number):
        return {k: t[number].clone().requires_grad_() for k, t in parameters.items()}

    def run(self, net, x, masks=None):
        for k in range(len(self.config.hidden)):
            x = torch.relu(x @ net[f"weight_{k}"] + net[f"bias_{k}"])
            x = x if masks is None else x * masks[k]
        last = len(self.config.hidden)
        return x @ net[f"weight_{last}"].T + net[f"bias_{last}"][:, 0]

    def update(self, s, a, r, c, s2, masks=None):
        config = self.config
        sa = torch.cat([s, a], dim=1)
        goal = torch.minimum(*(self.run(net, sa)[:, 0] for net in self.target)).detach()
        loss = expectile_loss(goal - self.run(self.v, s)[:, 0], config.expectile).mean()
        self.descend(self.v_adam, loss)
        advantage = goal - self.run(self.v, s)[:, 0].detach()
        weights = advantage_weights(advantage, config.temperature, config.max_weight)
        density = gaussian_log_density(
            a,
            torch.tanh(self.run(self.pi, s, masks)),
            self.pi["log_std"][:, 0].clamp(*config.log_std_bounds),
        )
        self.descend(self.pi_adam, -(weights * density).mean())
        self.decay.step()
        reached = r + config.discount * c * self.run(self.v, s2)[:, 0].detach()
        errors = [self.run(net, sa)[:, 0] - reached for net in self.q]
        self.descend(self.q_adam, sum(error.square().mean() for error in errors))
        for net, target in zip(self.q, self.target, strict=True):
            for name, tensor in target.items():
                tensor.mul_(1 - config.target_rate).add_(config.target_rate * net[name].detach())

    def descend(self, optimiser, loss):
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def test_updates_are_those_of_one_agent_written_for_clarity(steps):
    config = replace(SMALL, expectile=0.9, temperature=10.0, max_weight=2.0)
    config = replace(config, hidden=(8, 8, 8), dropout=0.25, log_std_bounds=(-0.001, 2.0))
    both = agents(config)
    minibatches = Minibatches(steps, ActionScale.of(PUSH_SPACE), both.seeds, config.batch_size)
    oracles = [Oracle(both, number, config, 100) for number in (0, 1)]
    both.fit(steps, 25)
    for number, oracle in enumerate(oracles):
        for update in range(25):
            b = minibatches(update)
            masks = dropped(config, b.dropout_seeds[number])
            s, s2 = b.states[number]
            oracle.update(s, b.actions[number].T, b.rewards[number], b.continues[number], s2, masks)
        for own, other in (
            (networks_of(both, "value"), oracle.v),
            (networks_of(both, "policy"), oracle.pi),
        ):
            for name, tensor in other.items():
                close(own[name][number], tensor, name)
        for k in (0, 1):
            for name, tensor in oracle.q[k].items():
                row = number + k * 2
                close(networks_of(both, "critic")[name][row], tensor, name)
                close(networks_of(both, "target")[name][row], oracle.target[k][name], name)


def close(got, expected, name):
    torch.testing.assert_close(
        got, expected.detach(), atol=1e-4, rtol=0, msg=lambda message: f"{name}: {message}"
    )


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
