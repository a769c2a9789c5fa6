"""Saves files as imitation does, converts them, and records what they hold.

It runs beside imitation, in a folder of its own: `python imitation_files.py SCRIPT`.
"""

import json
import pickle
import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from imitation.algorithms.preference_comparisons import (
    PreferenceDataset,
    RandomFragmenter,
    SyntheticGatherer,
)
from imitation.data import rollout, serialize, types
from imitation.policies.base import RandomPolicy
from imitation.rewards import reward_nets as nets
from imitation.util import networks, util

warnings.simplefilter("ignore")
torch.manual_seed(0)
script = sys.argv[1]
messages = {}
recorded = {}


def walk(name, episodes):
    """An environment, and episodes of a random policy in it."""
    rng = np.random.default_rng(0)
    venv = util.make_vec_env(name, rng=rng, n_envs=2)
    venv.action_space.seed(0)
    policy = RandomPolicy(venv.observation_space, venv.action_space)
    enough = rollout.make_min_episodes(episodes)
    return venv, rollout.generate_trajectories(policy, venv, enough, rng)


def convert(*arguments):
    """Run the script, and keep the message that it ends with."""
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        messages[" ".join(arguments)] = str(stop.code)


pendulum, swings = walk("Pendulum-v1", 3)
cart, falls = walk("CartPole-v1", 6)
serialize.save("swings", swings)
serialize.save("falls", falls)
bare = [types.TrajectoryWithRew(one.obs, one.acts, None, True, one.rews) for one in falls]
with Path("falls.pkl").open("wb") as file:
    pickle.dump(bare, file)
fields = {
    name: np.concatenate([getattr(one, name) for one in falls])
    for name in ("obs", "acts", "infos", "rews")
}
indices = np.cumsum([len(one) for one in falls])[:-1]
np.savez("falls.npz", **fields, terminal=np.ones(len(falls), bool), indices=indices)
pictures = (np.arange(4 * 5 * 5 * 3) % 256).astype(np.uint8).reshape(4, 5, 5, 3)
unrewarded = types.Trajectory(pictures, np.array([0, 1, 1]), None, terminal=False)
serialize.save("pictures", [unrewarded])
for name in ("swings", "falls", "pictures"):
    convert("trajectories", name, f"{name}.episodes")
convert("trajectories", "falls.npz", "npz.episodes")
longest = max(len(one) for one in falls)
convert("trajectories", "falls.pkl", "limited.episodes", "--time-limit", str(longest))
for name, walks in (("swings", swings), ("falls", falls)):
    recorded[f"{name}/obs"] = np.concatenate([one.obs[:-1] for one in walks])
    recorded[f"{name}/acts"] = np.concatenate([one.acts for one in walks])
    recorded[f"{name}/rews"] = np.concatenate([one.rews for one in walks])
    recorded[f"{name}/final"] = np.stack([one.obs[-1] for one in walks])
    recorded[f"{name}/lengths"] = [len(one) for one in walks]

rng = np.random.default_rng(1)
pairs = RandomFragmenter(rng=rng)(swings, 20, 12)
pairs[11] = pairs[4][::-1]
preferences = SyntheticGatherer(rng=rng, temperature=0)(pairs)
preferences[3] = 0.5
dataset = PreferenceDataset()
dataset.push(pairs, preferences)
dataset.save("preferences.pkl")
convert("preferences", "preferences.pkl", "comparisons")
recorded["preferences"] = preferences
recorded["shown"] = np.array([[clip.obs[:-1] for clip in pair] for pair in pairs])
recorded["returns"] = np.array([[clip.rews.sum() for clip in pair] for pair in pairs])


def basic(venv, **settings):
    """A net of states and actions, unless the settings say otherwise."""
    return nets.BasicRewardNet(venv.observation_space, venv.action_space, **settings)


def normalised(venv, **settings):
    """A net whose inputs and rewards are normalised, as imitation's scripts make it."""
    net = basic(venv, normalize_input_layer=networks.RunningNorm, **settings)
    return nets.NormalizedRewardNet(net, networks.RunningNorm)


def ensemble(venv):
    """Three such nets."""
    members = [normalised(venv) for _ in range(3)]
    return nets.RewardEnsemble(venv.observation_space, venv.action_space, members)


pessimist = nets.AddSTDRewardWrapper(ensemble(pendulum), default_alpha=-0.7)
optimist = nets.AddSTDRewardWrapper(ensemble(cart), default_alpha=0.4)
shaped = nets.BasicShapedRewardNet(pendulum.observation_space, pendulum.action_space)
deep = basic(pendulum, hid_sizes=(8, 4, 4), activation=torch.nn.Tanh, dropout_prob=0.2)
made = {
    "basic": (basic(pendulum), "swings"),
    "deep": (deep, "swings"),
    "linear": (basic(pendulum, hid_sizes=()), "swings"),
    "action": (basic(pendulum, use_state=False), "swings"),
    "state": (basic(cart, use_action=False), "falls"),
    "discrete": (normalised(cart, activation=torch.nn.LeakyReLU), "falls"),
    "forgetting": (basic(cart, normalize_input_layer=networks.EMANorm), "falls"),
    "normalised": (normalised(pendulum), "swings"),
    "ensemble": (ensemble(pendulum), "swings"),
    "pessimist": (pessimist, "swings"),
    "twice": (nets.NormalizedRewardNet(optimist, networks.RunningNorm), "falls"),
    "next": (basic(pendulum, use_next_state=True), "swings"),
    "gated": (basic(pendulum, activation=torch.nn.SELU), "swings"),
    "shaped": (shaped, "swings"),
}
for name, (net, source) in made.items():
    for part in net.modules():  # larger numbers than those of an untrained net
        if isinstance(part, networks.BaseNorm):
            part.update_stats(0.5 + 0.4 * torch.randn(50, *part.running_mean.shape))
    for parameter in net.parameters():
        parameter.data.mul_(2)
    torch.save(net, f"{name}.pt")
    flat = rollout.flatten_trajectories(swings if source == "swings" else falls)
    saved = torch.load(f"{name}.pt", weights_only=False)
    steps = (flat.obs, flat.acts, flat.next_obs, flat.dones)
    recorded[name] = saved.predict_processed(*steps)
    convert("reward", f"{name}.pt", f"{name}.reward")
    convert("relabel", f"{name}.pt", source, f"{name}.relabelled")

Path("broken.pt").write_bytes(b"nothing")
convert("reward", "broken.pt", "broken")
convert("reward", "preferences.pkl", "broken")
convert("preferences", "absent.pkl", "broken")
convert("preferences", "falls.pkl", "broken")
convert("trajectories", "absent", "broken")
convert("reward", "basic.pt", "basic.reward")
np.savez("recorded.npz", **recorded)
Path("messages.json").write_text(json.dumps(messages))
