"""An agent of no library at all, in one loop, rewarded by what is learned from answers.

python examples/feedback_any_library.py [--smoke]

What the loop knows of preferences is the wrapper and one `refresh()` between rollouts. Run
`preferl annotate serve --store runs/any` and `preferl reward serve --store runs/any --out
runs/any/rewards` beside it.
"""

import argparse

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn

from preferl.online import FeedbackVectorEnv
from preferl.store.feedback import StoredFeedback
from preferl.store.store import Store

ENV, ENVIRONMENTS, ROLLOUT, GAMMA, LAMBDA = "Pendulum-v1", 4, 128, 0.9, 0.95


def perceptron(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, outputs))


def learn(env: FeedbackVectorEnv, rollouts: int) -> None:
    """Proximal policy optimisation (Schulman et al. 2017)."""
    size, width = env.single_observation_space.shape[0], env.single_action_space.shape[0]
    policy, value = perceptron(size, width), perceptron(size, 1)
    spread = nn.Parameter(torch.zeros(width))
    parameters = [*policy.parameters(), *value.parameters(), spread]
    optimiser = torch.optim.Adam(parameters, lr=1e-3)
    high = env.single_action_space.high
    seen, _ = env.reset(seed=0)
    for _ in range(rollouts):
        env.refresh()  # no rollout mixes two rewards
        steps = []
        for _ in range(ROLLOUT):
            at = torch.as_tensor(seen)
            with torch.no_grad():
                action = torch.normal(policy(at), spread.exp())
                chance = torch.distributions.Normal(policy(at), spread.exp()).log_prob(action)
            seen, reward, terminated, truncated, _ = env.step(np.clip(action.numpy(), -high, high))
            over = torch.as_tensor(terminated | truncated)
            steps.append((at, action, chance.sum(-1), torch.as_tensor(reward), over))
        at, action, chance, reward, over = (
            torch.stack(column) for column in zip(*steps, strict=True)
        )
        with torch.no_grad():
            values = value(torch.cat([at, torch.as_tensor(seen)[None]])).squeeze(-1)
            going = GAMMA * (~over).float()
            surprise = reward + going * values[1:] - values[:-1]
            advantage = torch.zeros_like(surprise)
            carried = torch.zeros(ENVIRONMENTS)
            for t in reversed(range(ROLLOUT)):
                carried = surprise[t] + LAMBDA * going[t] * carried
                advantage[t] = carried
            target = (advantage + values[:-1]).flatten()
            gain = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).flatten()
        at, action, chance = at.flatten(0, 1), action.flatten(0, 1), chance.flatten()
        for rows in [part for _ in range(10) for part in torch.randperm(len(at)).split(128)]:
            now = torch.distributions.Normal(policy(at[rows]), spread.exp())
            ratio = (now.log_prob(action[rows]).sum(-1) - chance[rows]).exp()
            clipped = torch.min(ratio * gain[rows], ratio.clamp(0.8, 1.2) * gain[rows])
            missed = (value(at[rows]).squeeze(-1) - target[rows]).square()
            optimiser.zero_grad()
            (0.5 * missed.mean() - clipped.mean()).backward()
            optimiser.step()


def main(*, smoke: bool) -> None:
    torch.manual_seed(0)
    with Store.open("runs/any") as store:
        if not store.projects.all():
            store.projects.create("pendulum", fps=20, frames={"kind": "env", "env_id": ENV})
        kwargs = {"autoreset_mode": AutoresetMode.SAME_STEP}
        venv = gymnasium.make_vec(ENV, ENVIRONMENTS, "sync", vector_kwargs=kwargs)
        env = FeedbackVectorEnv(
            venv,
            StoredFeedback(store),
            "runs/any/rewards",
            segment_length=25,
            before="entropy",
            synthetic_preferences=smoke,
        )
        learn(env, 3 if smoke else 200)
        env.save()
        print(f"rewards of version {env.reward_version}, {env.counts}")
        env.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a script answers a few questions")
    main(smoke=parser.parse_args().smoke)
