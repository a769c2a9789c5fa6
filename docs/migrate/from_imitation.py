"""Write what imitation saved in the formats of preferl.

Run it with the Python of an environment that has imitation, where preferl need not be installed:

    python from_imitation.py trajectories demonstrations episodes
    python from_imitation.py preferences preferences.pkl comparisons
    python from_imitation.py reward reward_net.pt runs/imitation/reward
    python from_imitation.py relabel reward_net.pt demonstrations relabelled

`trajectories` reads what `imitation.data.serialize.save` wrote, and the older `.npz` and pickles.
`preferences` reads a saved `PreferenceDataset`. `reward` reads a saved reward net, alone or in an
ensemble. `relabel` writes trajectories with the rewards of any saved reward net, also of those that
preferl cannot represent.

imitation reads its files by pickle, which runs code that is in them: convert only your own files.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np

TRUNCATED = "TimeLimit.truncated"
"""Entry of a step's info that says whether a time limit ended the episode."""

ACTIVATIONS = {"ReLU": "relu", "LeakyReLU": "leaky_relu", "Tanh": "tanh", "GELU": "gelu"}
"""Names of torch's modules, and of the same functions in preferl."""


class ConversionError(Exception):
    """A file that cannot be converted; the message says why, and what to do."""


class UnrepresentableError(ConversionError):
    """A reward net that preferl has no counterpart of."""

    def __init__(self, expected: str, given: object) -> None:
        super().__init__(
            f"reward net: expected {expected}, got {given}. preferl has no reward model that "
            "computes the same. In place of the net, write the rewards that it gives to your "
            "trajectories, by `relabel`."
        )


@contextmanager
def reading(path: Path, expected: str):
    """Raise whatever goes wrong in the block as a `ConversionError` about a file."""
    try:
        yield
    except (ConversionError, ImportError):
        raise
    except Exception as error:
        raise ConversionError(
            f"{path}: expected {expected}, got {type(error).__name__}: {error}"
        ) from error


# Trajectories and preferences


def read_trajectories(path: Path) -> list:
    """Return saved trajectories, with the types of numbers that they were saved with."""
    from imitation.data import serialize

    with reading(path, "trajectories that imitation.data.serialize.save wrote"):
        sequence = serialize.load(str(path))
    if not hasattr(sequence, "dataset"):
        return list(sequence)
    features = sequence.dataset.features  # imitation reads all numbers of a data set as 64 bits
    return [_with_types(trajectory, features) for trajectory in sequence]


def _with_types(trajectory: object, features: dict) -> object:
    converted = copy.copy(trajectory)
    for name in ("obs", "acts", "rews"):
        if name in features:
            feature = features[name]
            while hasattr(feature, "feature"):  # lists of lists of numbers
                feature = feature.feature
            array = getattr(trajectory, name).astype(feature.dtype)
            object.__setattr__(converted, name, array)  # trajectories are frozen
    return converted


def episodes_of(trajectories: list, time_limit: int | None = None) -> dict:
    """Return the arrays of preferl's episodes; trajectories without rewards get zeros.

    Args:
        trajectories: objects with the attributes of imitation's `Trajectory`.
        time_limit: steps at which a time limit ended an episode whose infos do not say so.
    """
    if not trajectories:
        raise ConversionError("trajectories: expected at least one, got none.")
    lengths = np.array([len(trajectory.acts) for trajectory in trajectories])
    terminated = np.zeros(int(lengths.sum()), bool)
    for trajectory, end in zip(trajectories, np.cumsum(lengths)):
        terminated[end - 1] = _terminated(trajectory, time_limit)
    return {
        **_observations("observations", [_leaves(t.obs, slice(None, -1)) for t in trajectories]),
        "actions": np.concatenate([t.acts for t in trajectories]),
        "rewards": np.concatenate([_rewards(t) for t in trajectories]),
        "terminated": terminated,
        **_observations(
            "final_observations", [_leaves(t.obs, slice(-1, None)) for t in trajectories]
        ),
        "lengths": lengths,
    }


def _terminated(trajectory: object, time_limit: int | None) -> bool:
    """Whether a trajectory ended by the rules; imitation calls both kinds of ends terminal."""
    if not trajectory.terminal:
        return False
    infos = trajectory.infos
    last_info = infos[len(infos) - 1] if infos is not None and len(infos) else {}
    if TRUNCATED in last_info:
        return not last_info[TRUNCATED]
    return time_limit is None or len(trajectory.acts) < time_limit


def _rewards(trajectory: object) -> np.ndarray:
    return getattr(trajectory, "rews", np.zeros(len(trajectory.acts), np.float32))


def _leaves(observations: object, rows: slice) -> dict:
    """Return rows of observations by key; an array has the key ""."""
    if hasattr(observations, "unwrap"):
        return {f"/{key}": array[rows] for key, array in observations.unwrap().items()}
    return {"": observations[rows]}


def _observations(name: str, parts: list) -> dict:
    return {f"{name}{key}": np.concatenate([part[key] for part in parts]) for key in parts[0]}


def comparisons_of(fragments1: list, fragments2: list, preferences: np.ndarray) -> dict:
    """Return the arrays of preferl's comparisons, in which equal clips are stored once.

    Args:
        fragments1: trajectories that were shown first.
        fragments2: trajectories that they were compared to.
        preferences: `[P]` probabilities that the first is preferred.
    """
    if not len(preferences):
        raise ConversionError("preferences: expected at least one, got none.")
    rows: dict = {}
    clips = []
    pairs = []
    for pair in zip(fragments1, fragments2):
        for fragment in pair:
            content = _content(fragment)
            if content not in rows:
                rows[content] = len(clips)
                clips.append(fragment)
        pairs.append([rows[_content(fragment)] for fragment in pair])
    real = np.array([len(clip.acts) for clip in clips])
    return {
        **_observations("observations", [_leaves(clip.obs, slice(None, -1)) for clip in clips]),
        "actions": np.concatenate([clip.acts for clip in clips]),
        "rewards": np.concatenate([_rewards(clip) for clip in clips]),
        "start": np.cumsum(real) - real,
        "real": real,
        "pairs": np.array(pairs, np.int64),
        "preference": np.asarray(preferences, np.float64),
        "weight": np.ones(len(pairs)),
    }


def _content(fragment: object) -> tuple:
    arrays = [*_leaves(fragment.obs, slice(None, -1)).values(), fragment.acts, _rewards(fragment)]
    return tuple(array.tobytes() for array in arrays)


def read_preferences(path: Path) -> object:
    """Return a saved `PreferenceDataset`."""
    from imitation.algorithms.preference_comparisons import PreferenceDataset

    with reading(path, "a saved PreferenceDataset"):
        dataset = PreferenceDataset.load(str(path))
    if not isinstance(dataset, PreferenceDataset):
        raise ConversionError(
            f"{path}: expected a saved PreferenceDataset, got a {type(dataset).__name__}."
        )
    return dataset


# Reward nets


def read_net(path: Path) -> object:
    """Return a saved reward net."""
    from imitation.rewards.reward_nets import RewardNet
    from torch import load

    with reading(path, "a saved reward net, whose class can be imported"):
        net = load(str(path), map_location="cpu", weights_only=False)
    if not isinstance(net, RewardNet):
        raise ConversionError(
            f"{path}: expected a reward net that `torch.save` wrote, got a {type(net).__name__}."
        )
    return net.eval()


def reward_of(net: object) -> dict:
    """Return a reward net as networks whose outputs are scaled and then combined.

    Returns:
        `networks`, one for each member; `mean` and `deviation`, by which each member's reward is
        normalised; and `alpha`, how many deviations over members are added to their mean.
    """
    kind = type(net).__name__
    if kind == "BasicRewardNet":
        return {"networks": [_network(net)], "mean": [0.0], "deviation": [1.0], "alpha": 0.0}
    if kind == "NormalizedRewardNet":
        mean, deviation = map(np.sum, _statistics(net.normalize_output_layer))  # one number each
        base = reward_of(net.base)
        shifted = [m + d * float(mean) for m, d in zip(base["mean"], base["deviation"])]
        scaled = [d * float(deviation) for d in base["deviation"]]
        return {**base, "mean": shifted, "deviation": scaled}
    if kind == "RewardEnsemble":
        members = [reward_of(member) for member in net.members]
        if any(len(member["networks"]) > 1 for member in members):
            raise UnrepresentableError("members that are single nets", "an ensemble of ensembles")
        joined = {
            name: [member[name][0] for member in members]
            for name in ("networks", "mean", "deviation")
        }
        return {**joined, "alpha": 0.0}
    if kind == "AddSTDRewardWrapper":
        return {**reward_of(net.base), "alpha": float(net.default_alpha)}
    hint = ""
    if kind in ("ShapedRewardNet", "BasicShapedRewardNet"):
        hint = ", whose shaping depends on the next state (its `base` can be saved and converted)"
    raise UnrepresentableError(
        "a BasicRewardNet, NormalizedRewardNet, RewardEnsemble or AddSTDRewardWrapper",
        f"a {kind}{hint}",
    )


def _statistics(layer: object) -> tuple:
    """Return what a layer subtracts, and what it then divides by."""
    if type(layer).__name__ == "Identity":
        return 0.0, 1.0
    if type(layer).__name__ not in ("RunningNorm", "EMANorm"):
        raise UnrepresentableError(
            "normalisation by a RunningNorm or EMANorm", type(layer).__name__
        )
    variance = layer.running_var.double().numpy()
    return layer.running_mean.double().numpy(), np.sqrt(variance + layer.eps)


def _network(net: object) -> dict:
    """Return the layers of a BasicRewardNet; normalised inputs become part of the first layer."""
    if net.use_next_state or net.use_done:
        raise UnrepresentableError(
            "a net of state and action", "one of the next state or of `done`"
        )
    kernels = []
    biases = []
    activations = []
    dropout = 0.0
    shift = 0.0
    scale = 1.0
    for layer in net.mlp:
        kind = type(layer).__name__
        if kind == "Linear":
            kernels.append(layer.weight.detach().double().numpy().T)
            biases.append(layer.bias.detach().double().numpy())
        elif kind == "Dropout":
            dropout = layer.p
        elif kind in ACTIVATIONS:
            if getattr(layer, "negative_slope", 0.01) != 0.01:
                raise UnrepresentableError("LeakyReLU of slope 0.01", layer)
            if getattr(layer, "approximate", "none") != "none":
                raise UnrepresentableError("GELU without approximation", layer)
            activations.append(ACTIVATIONS[kind])
        elif kind not in ("Flatten", "SqueezeLayer"):
            if kernels:
                raise UnrepresentableError(f"{', '.join(ACTIVATIONS)} between layers", layer)
            shift, scale = _statistics(layer)
    if len(activations) != len(kernels) - 1 or len(set(activations)) > 1:
        raise UnrepresentableError("one activation after each hidden layer", activations)
    # (input - shift) / scale, times the weights of the first layer
    kernels[0] = kernels[0] / np.reshape(scale, (-1, 1))
    biases[0] = biases[0] - (np.reshape(shift, (-1, 1)) * kernels[0]).sum(axis=0)
    observations = space_of(net.observation_space)
    if not net.use_state:  # preferl's nets always have observations as inputs
        unused = np.zeros((_size(observations), kernels[0].shape[1]))
        kernels[0] = np.concatenate([unused, kernels[0]])
    return {
        "kernels": kernels,
        "biases": biases,
        "activation": activations[0] if activations else "relu",
        "dropout": dropout,
        "use_actions": net.use_action,
        "observation_space": observations,
        "action_space": space_of(net.action_space),
    }


def space_of(space: object) -> dict:
    """Return a space as preferl writes it."""
    kind = type(space).__name__
    if kind == "Box":
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"kind": kind, **bounds, "shape": list(space.shape), "dtype": str(space.dtype)}
    if kind == "Discrete":
        start = int(getattr(space, "start", 0))
        return {"kind": kind, "n": int(space.n), "start": start, "dtype": "int64"}
    if kind == "MultiDiscrete":
        nvec = np.asarray(space.nvec)
        start = np.zeros_like(nvec)
        return {"kind": kind, "nvec": nvec.tolist(), "start": start.tolist(), "dtype": "int64"}
    if kind == "MultiBinary":
        return {"kind": kind, "n": np.asarray(space.n).tolist()}
    raise UnrepresentableError("spaces Box, Discrete, MultiDiscrete or MultiBinary", space)


def _bound(array: np.ndarray) -> object:
    compact = array.ravel()[0] if (array == array.ravel()[0]).all() else array
    return (compact if np.isfinite(compact).all() else compact.astype(str)).tolist()


def _size(space: dict) -> int:
    """Return the number of inputs that a value of a space becomes."""
    if space["kind"] == "Discrete":
        return space["n"]
    if space["kind"] == "MultiDiscrete":
        return int(np.sum(space["nvec"]))
    return int(np.prod(space["shape"] if space["kind"] == "Box" else space["n"]))


def relabelled(net: object, trajectories: list) -> list:
    """Return trajectories with the rewards that a net gives them, as an agent would get them."""
    rewritten = []
    for trajectory in trajectories:
        if hasattr(trajectory.obs, "unwrap"):
            raise ConversionError("relabel: expected arrays as observations, got dictionaries.")
        dones = np.zeros(len(trajectory.acts), bool)
        dones[-1] = trajectory.terminal
        # Some nets go on to update their statistics, so that each trajectory gets a copy.
        rewards = copy.deepcopy(net).predict_processed(
            trajectory.obs[:-1], trajectory.acts, trajectory.obs[1:], dones, update_stats=False
        )
        converted = copy.copy(trajectory)
        object.__setattr__(converted, "rews", np.asarray(rewards, np.float32))
        rewritten.append(converted)
    return rewritten


# Files of preferl


def write_arrays(out: Path, arrays: dict, about: dict) -> None:
    """Write a folder of `.npy` files with an `about.json`, all or nothing."""
    files = {f"{name}.npy": _npy(array) for name, array in arrays.items()}
    description = {"format": 1, **about, "arrays": list(arrays)}
    write_folder(out, {**files, "about.json": json.dumps(description, indent=2).encode()})


def write_reward(out: Path, reward: dict) -> None:
    """Write a reward, as `reward_of` returns it, as a folder that `load_reward` reads."""
    networks = reward["networks"]
    first = networks[0]
    for network in networks[1:]:
        for name in ("activation", "dropout", "use_actions", "observation_space", "action_space"):
            if network[name] != first[name]:
                raise UnrepresentableError(f"members with the same {name}", network[name])
        shapes = [kernel.shape for kernel in network["kernels"]]
        if shapes != [kernel.shape for kernel in first["kernels"]]:
            raise UnrepresentableError("members with the same layers", shapes)
    members = len(networks)
    inputs = len(first["kernels"][0])
    tensors = {
        "encoder.count": np.zeros((), np.int64),
        "encoder.deviation": np.ones(inputs),
        "encoder.mean": np.zeros(inputs),
    }
    for layer in range(len(first["kernels"])):
        kernels = np.stack([network["kernels"][layer] for network in networks])
        biases = np.stack([network["biases"][layer][None] for network in networks])
        tensors[f"networks.weights.{layer}"] = kernels.astype(np.float32)
        tensors[f"networks.biases.{layer}"] = biases.astype(np.float32)
    config = {
        "format": 1,
        "preferl": "none: converted from imitation",
        "model": {
            "kind": "mlp",
            "hidden": [len(bias) for bias in first["biases"][:-1]],
            "members": members,
            "activation": first["activation"],
            "dropout": first["dropout"],
            "use_actions": first["use_actions"],
            "normalise": False,
        },
        "observation_space": first["observation_space"],
        "action_space": first["action_space"],
    }
    combine: dict = {"kind": "mean"}
    if reward["alpha"]:
        # imitation divides the variance over members by one less than preferl.
        deviations = -reward["alpha"] * (members / (members - 1)) ** 0.5
        combine = {"kind": "lower_bound", "deviations": deviations}
    scaler = {"mean": reward["mean"], "deviation": reward["deviation"], "target": 1.0}
    about = {
        "combine": combine,
        "scaler": scaler,
        "likelihood": {"noise": 0.0, "scale": 1.0},
        "fitted_pairs": 0,
        "frozen_encoder": "",
    }
    files = {
        "model.safetensors": _safetensors(tensors),
        "config.json": json.dumps(config, indent=2).encode(),
        "reward.json": json.dumps(about, indent=2).encode(),
    }
    write_folder(out, files)


def write_folder(out: Path, files: dict) -> None:
    """Write files into a new folder under a temporary name, and then give it its own."""
    draft = out.parent / f".{out.name}.{os.getpid()}.part"
    try:
        for name, content in files.items():
            file = draft / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _safetensors(tensors: dict) -> bytes:
    """Return a file of safetensors: the size of a header, the header, and all numbers in turn."""
    kinds = {"float32": "F32", "float64": "F64", "int64": "I64"}
    header = {}
    content = b""
    for name, array in tensors.items():
        numbers = np.ascontiguousarray(array).tobytes()
        offsets = [len(content), len(content) + len(numbers)]
        dtype = kinds[str(array.dtype)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        content += numbers
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content


def main() -> None:
    """Convert what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    limit = {
        "type": int,
        "metavar": "STEPS",
        "help": "length of an episode that the time limit ended, where infos do not say what did",
    }
    command = commands.add_parser("trajectories", help="write trajectories as episodes")
    command.add_argument("source", type=Path, help="what imitation.data.serialize.save wrote")
    command.add_argument("--time-limit", **limit)
    command = commands.add_parser("preferences", help="write a PreferenceDataset as comparisons")
    command.add_argument("source", type=Path, help="what PreferenceDataset.save wrote")
    command = commands.add_parser("reward", help="write a reward net as a reward")
    command.add_argument("source", type=Path, help="what torch.save wrote, such as reward_net.pt")
    command = commands.add_parser("relabel", help="write trajectories with the rewards of a net")
    command.add_argument("net", type=Path, help="what torch.save wrote, such as reward_net.pt")
    command.add_argument("source", type=Path, help="what imitation.data.serialize.save wrote")
    command.add_argument("--time-limit", **limit)
    for command in commands.choices.values():
        command.add_argument("out", type=Path, help="folder to write, which must not exist")
    arguments = parser.parse_args()
    try:
        print(convert(arguments))
    except ImportError as error:
        sys.exit(
            f"error: {error}. Run this script with the Python of imitation's environment. Name the "
            "folder of a module of yours in PYTHONPATH."
        )
    except (ConversionError, OSError) as error:
        sys.exit(f"error: {error}")


def convert(arguments: argparse.Namespace) -> str:
    """Convert one file, and return what was written."""
    source = arguments.source
    out = arguments.out
    if out.exists():
        raise ConversionError(f"{out}: expected a new folder, got one that exists; choose another.")
    if arguments.command == "reward":
        reward = reward_of(read_net(source))
        write_reward(out, reward)
        return f"{out}: a reward of {len(reward['networks'])} members"
    if arguments.command == "preferences":
        dataset = read_preferences(source)
        arrays = comparisons_of(dataset.fragments1, dataset.fragments2, dataset.preferences)
        length = int(arrays["real"].max())
        write_arrays(out, arrays, {"kind": "comparisons", "length": length})
        return f"{out}: {len(arrays['pairs'])} comparisons of {len(arrays['real'])} clips"
    trajectories = read_trajectories(source)
    if arguments.command == "relabel":
        trajectories = relabelled(read_net(arguments.net), trajectories)
    arrays = episodes_of(trajectories, arguments.time_limit)
    write_arrays(out, arrays, {"kind": "episodes"})
    ended = int(arrays["terminated"].sum())
    return f"{out}: {len(trajectories)} episodes, {ended} of which terminated"


if __name__ == "__main__":
    main()
