"""An agent that balances CartPole by normalised observations, made without training."""

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecNormalize

from preferl.online import PPOConfig, make_environments
from preferl.online.algorithms import build_algorithm

CONFIG = PPOConfig(n_steps=8, batch_size=8, hidden=())

MEAN = np.array([3.0, -2.0, 4.0, 1.0])
VAR = np.array([4.0, 0.25, 9.0, 1.0])

CONTROL = np.array([0.05, 0.2, 1.0, 0.5])
"""Of position, speed, angle and its speed: push right where the sum is above 0."""


def balancing(**settings):
    """PPO on `VecNormalize` whose single layer undoes statistics that mislead without them."""
    return taught(VecNormalize(make_environments("CartPole-v1", 1, seed=0), **settings))


def taught(env):
    agent = build_algorithm(CONFIG, env, seed=0)
    normaliser = agent.get_vec_normalize_env()
    normaliser.obs_rms.mean = MEAN.copy()
    normaliser.obs_rms.var = VAR.copy()
    normaliser.obs_rms.count = 1e6
    policy = agent.policy
    weight = CONTROL * np.sqrt(VAR + normaliser.epsilon)
    with torch.no_grad():
        policy.action_net.weight.copy_(torch.tensor(np.stack([-weight, weight])) * 20)
        policy.action_net.bias.copy_(torch.tensor([-1.0, 1.0]) * float(CONTROL @ MEAN) * 20)
    return agent
