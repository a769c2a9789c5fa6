"""Small runs that can be stopped anywhere, and what has to be equal if they went the same way."""

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from helpers.wrapped_pendulums import Sink
from preferl.models import LSTMRewardConfig, MLPRewardConfig, build_reward_model
from preferl.online import FeedbackCallback, FeedbackVecEnv, SaveRunCallback
from preferl.training import RewardFunction

STEPS = 20
MODELS = {
    "mlp": MLPRewardConfig(hidden=(8,), members=2),
    "lstm": LSTMRewardConfig(width=32, context=7),
}


class KilledError(Exception):
    """Stands for a program that ends here."""


class Kill(BaseCallback):
    """Ends a run in the middle of a step."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def _on_step(self):
        if self.model.num_timesteps >= self.at:
            raise KilledError
        return True


def make(env_id):
    return gymnasium.make(env_id, max_episode_steps=STEPS)


def reward_for(env_id, kind="mlp", seed=0):
    env = make(env_id)
    model = build_reward_model(MODELS[kind], env.observation_space, env.action_space, seed=seed)
    return RewardFunction(model)


def agent_on(algorithm, venv):
    if algorithm == "PPO":
        return PPO("MlpPolicy", venv, n_steps=32, batch_size=32, n_epochs=2, seed=3, device="cpu")
    return SAC(
        "MlpPolicy",
        venv,
        buffer_size=150,
        learning_starts=40,
        batch_size=16,
        policy_kwargs={"net_arch": [16]},
        seed=3,
        device="cpu",
    )


def built(algorithm, env_id, rewards):
    """An agent in two environments that are recorded."""
    venv = make_vec_env(lambda: make(env_id), 2, seed=5)
    env = FeedbackVecEnv(venv, rewards=rewards, segment_length=5, longest_piece=50)
    return agent_on(algorithm, env), Sink(env)


def learn(agent, total, folder, *, every=64, kill=0):
    """Learn up to `total` steps, saving on the way, unless killed before."""
    exploring = FeedbackCallback(wait=True, exploration_fraction=0.4)
    callbacks = [exploring]
    if folder is not None:
        callbacks.append(SaveRunCallback(folder, every=every))
    if kill:
        callbacks.append(Kill(kill))
    agent.learn(total - agent.num_timesteps, callback=callbacks, reset_num_timesteps=False)


def counted_resets(env):
    """One more for each reset of a vector environment from now on."""
    resets = []
    reset = env.reset

    def counting():
        resets.append(1)
        return reset()

    env.reset = counting
    return resets


def flat(value, where=""):
    """All numbers of nested states by their place."""
    if isinstance(value, torch.Tensor):
        return {where: value.detach().numpy().copy()}
    if isinstance(value, dict):
        found = {}
        for key, item in value.items():
            found |= flat(item, f"{where}/{key}")
        return found
    if isinstance(value, list | tuple):
        return flat(dict(enumerate(value)), where)
    return {where: value}


def everything(agent):
    """What two agents that went the same way share to the last bit."""
    state = {
        "parameters": agent.get_parameters(),
        "steps": agent.num_timesteps,
        "last": [*agent.get_env().unwrapped.buf_obs.values()],
        "next draw": (torch.rand(1), np.random.random(1)),  # noqa: NPY002
        "action": agent.action_space.sample(),
    }
    if isinstance(agent, SAC):
        buffer = agent.replay_buffer
        names = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
        state["replay"] = {name: getattr(buffer, name) for name in names}
        state["entropy"] = agent.log_ent_coef
    return flat(state)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def assert_same_episodes(one, other):
    for name in ("observations", "actions", "rewards", "terminated", "lengths"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
