"""PPO in one file, in the style of CleanRL, rewarded by what is learned from people's answers.

python examples/own_training_loop.py [--steps N] [--script] [--smoke]

The eight lines that end with `# +` are all that preferl adds. Without them, the loop learns from
the environment's own reward.
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn
from torch.distributions import Normal

from preferl import FeedbackVectorEnv, Store, StoredFeedback, launch  # +

ENV = "Pendulum-v1"
RUN = Path("runs/own")
NUM_ENVS = 4
NUM_STEPS = 256
UPDATE_EPOCHS = 10
MINIBATCH_SIZE = 128
LEARNING_RATE = 1e-3
GAMMA = 0.9
GAE_LAMBDA = 0.95
CLIP = 0.2


def perceptron(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, outputs))


class Agent(nn.Module):
    """A value function and a Gaussian policy."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        size = envs.single_observation_space.shape[0]
        width = envs.single_action_space.shape[0]
        self.value = perceptron(size, 1)
        self.mean = perceptron(size, width)
        self.log_std = nn.Parameter(torch.zeros(width))

    def policy(self, observations: torch.Tensor) -> Normal:
        """Actions `[..., A]`, by chance."""
        return Normal(self.mean(observations), self.log_std.exp())


def update(agent: Agent, optimiser: torch.optim.Optimizer, rollout: list, last: torch.Tensor):
    """Proximal policy optimisation (Schulman et al. 2017) on one rollout."""
    columns = (torch.stack(column) for column in zip(*rollout, strict=True))
    observations, actions, log_probs, rewards, dones = columns  # [T, V, ...]
    with torch.no_grad():
        values = agent.value(torch.cat([observations, last[None]])).squeeze(-1)  # [T + 1, V]
        going = GAMMA * (1 - dones.float())
        delta = rewards + going * values[1:] - values[:-1]
        advantages = torch.zeros_like(delta)
        after = torch.zeros(NUM_ENVS)
        for t in reversed(range(NUM_STEPS)):
            advantages[t] = after = delta[t] + GAE_LAMBDA * going[t] * after
    returns = (advantages + values[:-1]).flatten()
    gains = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).flatten()
    observations = observations.flatten(0, 1)
    actions = actions.flatten(0, 1)
    log_probs = log_probs.flatten()
    for _ in range(UPDATE_EPOCHS):
        for rows in torch.randperm(len(observations)).split(MINIBATCH_SIZE):
            policy = agent.policy(observations[rows])
            ratio = (policy.log_prob(actions[rows]).sum(-1) - log_probs[rows]).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            policy_loss = -torch.min(ratio * gains[rows], clipped * gains[rows]).mean()
            errors = agent.value(observations[rows]).squeeze(-1) - returns[rows]
            optimiser.zero_grad()
            (policy_loss + 0.5 * errors.square().mean()).backward()
            optimiser.step()


def main(steps: int, *, script: bool) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more are slower for networks this small, beside other programs
    modes = {"autoreset_mode": AutoresetMode.SAME_STEP}
    envs = episodes = RecordEpisodeStatistics(gym.make_vec(ENV, NUM_ENVS, "sync", modes))
    agent = Agent(envs)
    optimiser = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE)
    with Store.open(RUN) as store:  # +
        frames = {"kind": "env", "env_id": ENV}  # +
        store.projects.create("pendulum", exist_ok=True, fps=20, frames=frames)  # +
        feedback = StoredFeedback(store)  # +
        envs = FeedbackVectorEnv(envs, feedback, RUN / "rewards", synthetic_preferences=script)  # +
        with launch(RUN, "pendulum", RUN / "rewards", page=not script):  # +
            high = envs.single_action_space.high
            observation = torch.as_tensor(envs.reset(seed=0)[0])
            for done in range(0, steps, NUM_ENVS * NUM_STEPS):
                envs.refresh()  # +
                rollout = []
                for _ in range(NUM_STEPS):
                    with torch.no_grad():
                        policy = agent.policy(observation)
                        action = policy.sample()
                    step = envs.step(np.clip(action.numpy(), -high, high))
                    reward = torch.as_tensor(step[1], dtype=torch.float32)
                    over = step[2] | step[3]
                    log_prob = policy.log_prob(action).sum(-1)
                    rollout.append((observation, action, log_prob, reward, torch.as_tensor(over)))
                    observation = torch.as_tensor(step[0])
                update(agent, optimiser, rollout, observation)
                if episodes.return_queue and done % 10_240 == 0:
                    # By the environment's own reward, which the agent never sees.
                    print(f"{done:,} steps, mean return {np.mean(episodes.return_queue):.0f}")
            envs.close()
    RUN.mkdir(parents=True, exist_ok=True)
    torch.save(agent.state_dict(), RUN / "agent.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="of all environments together")
    parser.add_argument("--script", action="store_true", help="a script answers, not people")
    parser.add_argument("--smoke", action="store_true", help="a script answers, a few seconds long")
    arguments = parser.parse_args()
    steps = 20_480 if arguments.smoke else arguments.steps
    main(steps, script=arguments.script or arguments.smoke)
