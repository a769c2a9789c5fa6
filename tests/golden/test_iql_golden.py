"""Twenty updates of implicit Q-learning beside arrays recorded from another implementation."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces

from preferl.offline import IQL, IQLConfig, Transitions
from preferl.offline.transitions import Batch

TOLERANCE = 2e-4
LOGGED = ("critic_loss", "q1", "q2", "value_loss", "value", "policy_loss")
LAYERS = ("MLP_0/Dense_0", "MLP_0/Dense_1", "MLP_0/Dense_2")
POLICY_LAYERS = ("MLP_0/Dense_0", "MLP_0/Dense_1", "Dense_0")


@pytest.fixture(scope="module")
def golden(shared):
    with np.load(shared / "golden" / "preference_transformer" / "iql_small.npz") as arrays:
        return {name: arrays[name] for name in arrays}


@pytest.fixture(scope="module")
def learned(golden):
    """The agent after its updates, and what it measured `[20, 6]`."""
    about = json.loads(str(golden["meta"]))
    config = IQLConfig(
        hidden=tuple(about["hidden"]),
        expectile=about["expectile"],
        temperature=about["temperature"],
        target_rate=about["tau"],
        discount=about["discount"],
        learning_rate=about["lrs"],
        batch_size=golden["in:batch_idx"].shape[1],
    )
    observation = golden["in:observations"].shape[1]
    action = golden["in:actions"].shape[1]
    agent = IQL(
        spaces.Box(-np.inf, np.inf, (observation,)),
        spaces.Box(-1, 1, (action,)),
        config,
        seeds=[0],
        steps=about["max_steps"],
    )
    state = agent.state()
    for tensor, value in parameters(state, golden, "param0"):
        tensor.copy_(value)  # a view of the state's
    agent.load_state(state)
    measured = []
    with pytest.MonkeyPatch.context() as patch:
        rows = golden["in:batch_idx"]
        recorded = partial(batch, golden, rows)
        patch.setattr("preferl.offline.learner.Minibatches", lambda *_: recorded)
        for _ in rows:
            metrics = agent.fit(steps(observation, action), 1)
            measured.append([float(metrics[name][0]) for name in LOGGED])
    return agent, np.array(measured)


def steps(observation, action):
    """A step of the right shape, since minibatches are those recorded."""
    seen = torch.zeros(1, observation)
    one = torch.ones(1)
    return Transitions(seen, torch.zeros(1, action), one, seen, one)


def batch(golden, drawn, update):
    rows = drawn[update]
    observations, actions, rewards, masks, following = (
        torch.from_numpy(golden[f"in:{name}"][rows])[None]
        for name in ("observations", "actions", "rewards", "masks", "next_observations")
    )
    pairs = torch.cat([observations, actions], dim=2).expand(2, -1, -1, -1)
    states = torch.stack([observations, following], dim=1)
    return Batch(states, pairs, actions.mT, rewards, masks, [0])


def parameters(state, golden, at, *, targets=False):
    """Pairs of tensors in an agent's state and those recorded."""
    log_std = state["policy.values.log_std"]
    yield log_std[0, :, 0], torch.from_numpy(golden[f"{at}:actor/log_stds"])
    yield from networks(state, "policy.values", 0, golden, f"{at}:actor", POLICY_LAYERS)
    yield from networks(state, "value.values", 0, golden, f"{at}:value", LAYERS)
    for k in (0, 1):
        place = f"{at}:critic/Critic_{k}"
        yield from networks(state, "critic.values", k, golden, place, LAYERS)
        if targets:
            place = f"{at}:target_critic/Critic_{k}"
            yield from networks(state, "target", k, golden, place, LAYERS)


def networks(state, kind, k, golden, at, layers):
    for number, layer in enumerate(layers):
        weight = state[f"{kind}.weight_{number}"][k]
        bias = state[f"{kind}.bias_{number}"][k].flatten()
        last = number == len(layers) - 1
        yield weight.T if last else weight, torch.from_numpy(golden[f"{at}/{layer}/kernel"])
        yield bias, torch.from_numpy(golden[f"{at}/{layer}/bias"])


def test_losses_and_means_of_every_update(golden, learned):
    np.testing.assert_allclose(learned[1], golden["out:log"], atol=TOLERANCE, rtol=0)


def test_parameters_after_the_last_update(golden, learned):
    pairs = list(parameters(learned[0].state(), golden, "param20", targets=True))
    assert len(pairs) == 1 + 6 * 6
    for tensor, expected in pairs:
        torch.testing.assert_close(tensor.detach(), expected, atol=TOLERANCE, rtol=0)


def test_actions_of_the_learned_policy(golden, learned):
    (policy,) = learned[0].policies()
    actions, _ = policy.predict(golden["in:observations"][:8])
    np.testing.assert_allclose(actions, golden["out:deterministic_action"], atol=TOLERANCE, rtol=0)
