"""Write a reward of the Preference Transformer's scripts as a reward of preferl.

    python from_preference_transformer.py logs/pref_reward/.../s3407/best_model.pkl runs/pt/reward

It reads `best_model.pkl` and `model.pkl` of all three kinds of models: MR, NMR and PrefTransformer.
It runs in the environment of those scripts and in any other that has numpy, on Python 3.8 or newer.

These files are pickles of Python objects. Nothing in them is run: every object becomes a
placeholder, and arrays are made from the bytes that it keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np

KINDS = ("MR", "NMR", "PrefTransformer")
ACTIVATIONS = ("relu", "leaky_relu", "tanh")
"""Functions that the scripts and preferl compute alike."""


class ConversionError(Exception):
    """A file that cannot be converted; the message says why, and what to do."""


# Reading the pickle


class Placeholder:
    """What a file has instead of an object: its arguments and its state.

    It takes everything that a pickle does to an object, and does nothing.
    """

    def __new__(cls, *arguments: object, **_: object) -> Placeholder:  # noqa: D102
        placeholder = super().__new__(cls)
        placeholder.arguments = arguments
        placeholder.state = {}
        return placeholder

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __call__(self, *_: object, **__: object) -> Placeholder:  # noqa: D102
        return Placeholder()

    def __setitem__(self, key: object, value: object) -> None: ...

    def append(self, value: object) -> None:
        """Ignore the value."""

    def extend(self, values: object) -> None:
        """Ignore the values."""


class Reader(pickle.Unpickler):
    """An unpickler that makes placeholders of all objects but containers, texts and numbers."""

    def find_class(self, module: str, name: str) -> type:  # noqa: ARG002 (the base's)
        """Return a placeholder of a class or function; nothing is imported."""
        return type(name, (Placeholder,), {})


def array_of(placeholder: Placeholder) -> np.ndarray:
    """Return an array of floats that a placeholder of numpy or JAX stands for."""
    kind = type(placeholder).__name__
    if kind == "_frombuffer":
        content, number, shape, order = placeholder.arguments
    else:
        # JAX stores an array as what numpy makes, with what, and the state it then gets.
        stored = placeholder.state if kind == "_reconstruct" else placeholder.arguments[2]
        _, shape, number, is_fortran, content = stored
        order = "F" if is_fortran else "C"
    code = number.arguments[0]
    if code not in ("f2", "f4", "f8"):
        raise ConversionError(f"parameters: expected floats, got an array of {code}.")
    dtype = np.dtype(code).newbyteorder(number.state[1])
    return np.frombuffer(content, dtype).reshape(shape, order=order).astype(np.float32)


ARRAYS = ("_reconstruct", "_frombuffer", "_reconstruct_array", "_reconstruct_device_array")
"""Functions of numpy and JAX that make arrays."""


def parameters_of(tree: object, path: str = "") -> dict:
    """Return the arrays of nested dictionaries by their names, such as `Dense_0/kernel`."""
    if type(tree).__name__ in ARRAYS:
        return {path: array_of(tree)}
    if isinstance(tree, Placeholder):  # a FrozenDict of Flax is made from a dictionary
        tree = tree.arguments[0]
    arrays = {}
    for name, part in tree.items():
        arrays.update(parameters_of(part, f"{path}/{name}" if path else name))
    return arrays


def read_checkpoint(path: Path) -> tuple:
    """Return the placeholder of a saved reward model, and the flags of its training."""
    expected = "a best_model.pkl of the Preference Transformer's scripts"
    try:
        with path.open("rb") as file:
            checkpoint = Reader(file).load()
    except FileNotFoundError as error:
        raise ConversionError(f"{path}: expected {expected}, got no file.") from error
    except Exception as error:
        raise ConversionError(
            f"{path}: expected {expected}, got {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(checkpoint, dict) and {"reward_model", "variant"} <= set(checkpoint)):
        raise ConversionError(f"{path}: expected {expected}, got another pickle.")
    model = checkpoint["reward_model"]
    kind = type(model).__name__
    if kind not in KINDS:
        raise ConversionError(f"{path}: expected a model {', '.join(KINDS)}, got {kind}.")
    return model, dict(checkpoint["variant"])


# Parameters in PyTorch's layout


def _linear(parameters: dict, names: dict) -> dict:
    """Take layers out of the parameters: places in preferl to names in Flax."""
    tensors = {}
    for place, name in names.items():
        is_norm = f"{name}/scale" in parameters
        weight = parameters.pop(f"{name}/scale" if is_norm else f"{name}/kernel")
        tensors[f"{place}.weight"] = weight.T
        tensors[f"{place}.bias"] = parameters.pop(f"{name}/bias")
    return tensors


def mr_of(parameters: dict, flags: dict) -> tuple:
    """Return config and tensors of an MR."""
    tensors = {}
    sizes = []
    layers = len(parameters) // 2
    for layer in range(layers):
        name = f"FullyConnectedNetwork_0/Dense_{layer}"
        kernel = parameters.pop(f"{name}/kernel")
        tensors[f"networks.weights.{layer}"] = kernel[None]
        tensors[f"networks.biases.{layer}"] = parameters.pop(f"{name}/bias")[None, None]
        sizes.append(kernel.shape[1])
    final = flags.get("activation_final", "none")
    if final not in ("none", "tanh"):
        raise ConversionError(f"activation_final: expected none or tanh, got {final}.")
    config = {"kind": "mlp", "hidden": sizes[:-1], "bounded": final == "tanh", "pooling": "mean"}
    return config, tensors


def nmr_of(parameters: dict, flags: dict, context: int) -> tuple:
    """Return config and tensors of an NMR."""
    width = len(parameters["Dense_0/bias"])
    names = {f"before.linear.{layer}": f"Dense_{layer}" for layer in range(3)}
    names.update({f"after.linear.{layer}": f"Dense_{layer + 3}" for layer in range(3)})
    tensors = _linear(parameters, {**names, "output": "Dense_6"})
    cell = "SimpleLSTM_0/OptimizedLSTMCell_0"
    gates = {"input": [], "recurrent": [], "bias": []}
    for gate in "ifgo":
        gates["input"].append(parameters.pop(f"{cell}/i{gate}/kernel").T)
        gates["recurrent"].append(parameters.pop(f"{cell}/h{gate}/kernel").T)
        gates["bias"].append(parameters.pop(f"{cell}/h{gate}/bias"))
    tensors.update({f"lstm.{name}": np.concatenate(parts) for name, parts in gates.items()})
    pooling = flags.get("lstm.train_type", "sum")
    return {"kind": "lstm", "width": width, "context": context, "pooling": pooling}, tensors


def transformer_of(parameters: dict, flags: dict, context: int) -> tuple:
    """Return config and tensors of a PrefTransformer."""
    positions, width = parameters["Embed_0/embedding"].shape
    layers = sum(name.endswith("GPT2MLP_0/Dense_0/bias") for name in parameters)
    names = {"state_embed": "Dense_0", "action_embed": "Dense_1", "input_norm": "LayerNorm_0"}
    for layer in range(layers):
        place = f"blocks.{layer}"
        block = f"GPT2Model_0/GPT2Block_{layer}"
        names[f"{place}.norm1"] = f"{block}/LayerNorm_0"
        names[f"{place}.attn.qkv"] = f"{block}/GPT2SelfAttention_0/Dense_0"
        names[f"{place}.attn.out"] = f"{block}/GPT2SelfAttention_0/Dense_1"
        names[f"{place}.norm2"] = f"{block}/LayerNorm_1"
        names[f"{place}.mlp.fc1"] = f"{block}/GPT2MLP_0/Dense_0"
        names[f"{place}.mlp.fc2"] = f"{block}/GPT2MLP_0/Dense_1"
    names["final_norm"] = "GPT2Model_0/LayerNorm_0"
    config = {
        "kind": "transformer",
        "width": width,
        "layers": layers,
        "heads": int(flags["transformer.n_head"]),
        "context": context,
        "positions": positions - 1,  # the first row is for padding
        "pooling": flags.get("transformer.train_type", "mean"),
    }
    if "Dense_3/kernel" in parameters:
        names.update({"head.fc1": "Dense_2", "head.fc2": "Dense_3"})
        config["head"] = "plain"
        final = flags.get("activation_final", "none")
        if final != "none":
            raise ConversionError(f"activation_final: expected none, got {final}.")
    else:
        names["pref_proj"] = "Dense_2"
        config["head"] = "preference"
        config["preference_width"] = (len(parameters["Dense_2/bias"]) - 1) // 2
    tensors = {"time_embed.weight": parameters.pop("Embed_0/embedding")}
    tensors.update(_linear(parameters, names))
    return config, tensors


# Files of preferl


def write_reward(out: Path, config: dict, tensors: dict, sizes: tuple) -> None:
    """Write a reward as a folder that preferl's `load_reward` reads.

    Args:
        out: the folder.
        config: settings of the model.
        tensors: its parameters by name.
        sizes: numbers of an observation, and of an action.
    """
    spaces = [
        {"kind": "Box", "low": "-inf", "high": "inf", "shape": [size], "dtype": "float32"}
        for size in sizes
    ]
    statistics = {  # inputs are not normalised
        "encoder.count": np.zeros((), np.int64),
        "encoder.deviation": np.ones(sum(sizes)),
        "encoder.mean": np.zeros(sum(sizes)),
    }
    parameters = {name: np.asarray(array, np.float32) for name, array in tensors.items()}
    description = {
        "format": 1,
        "preferl": "none: converted from the Preference Transformer",
        "model": {**config, "normalise": False},
        "observation_space": spaces[0],
        "action_space": spaces[1],
    }
    about = {
        "combine": {"kind": "mean"},
        "scaler": None,
        "likelihood": {"noise": 0.0, "scale": 1.0},
        "fitted_pairs": 0,
        "frozen_encoder": "",
    }
    files = {
        "model.safetensors": _safetensors({**statistics, **parameters}),
        "config.json": json.dumps(description, indent=2).encode(),
        "reward.json": json.dumps(about, indent=2).encode(),
    }
    draft = out.parent / f".{out.name}.{os.getpid()}.part"
    try:
        draft.mkdir(parents=True)
        for name, content in files.items():
            (draft / name).write_bytes(content)
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


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


def convert(source: Path, out: Path, context: int | None = None) -> str:
    """Write the reward of a checkpoint as a folder, and return what was written.

    Args:
        source: `best_model.pkl` or `model.pkl`.
        out: folder to write, which must not exist.
        context: steps that a reward with history sees; None takes the flag `query_len` of the
            checkpoint.
    """
    if out.exists():
        raise ConversionError(f"{out}: expected a new folder, got one that exists; choose another.")
    model, flags = read_checkpoint(source)
    kind = type(model).__name__
    activation = flags.get("activations", "relu")
    if activation not in ACTIVATIONS:
        raise ConversionError(
            f"{source}: expected activations {', '.join(ACTIVATIONS)}, got {activation}, for which "
            "preferl has no model."
        )
    try:
        (training,) = model.state["_train_states"].values()
        named = parameters_of(training.state["params"])
        parameters = {name[len("params/") :]: array for name, array in named.items()}
        sizes = (model.state["observation_dim"], model.state["action_dim"])
        if kind == "MR":
            config, tensors = mr_of(parameters, flags)
        elif kind == "NMR":
            config, tensors = nmr_of(parameters, flags, context or flags["query_len"])
        else:
            config, tensors = transformer_of(parameters, flags, context or flags["query_len"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ConversionError(
            f"{source}: expected the attributes, flags and parameters of a {kind}, got "
            f"{type(error).__name__}: {error}. Another version of the scripts may have written it."
        ) from error
    if parameters:
        raise ConversionError(
            f"{source}: expected the parameters of a {kind}, got {sorted(parameters)}, too."
        )
    write_reward(out, {**config, "activation": activation}, tensors, sizes)
    return f"{out}: the {kind} for {flags.get('env', 'an unknown task')}"


def main() -> None:
    """Convert the file that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="best_model.pkl or model.pkl")
    parser.add_argument("out", type=Path, help="folder to write, which must not exist")
    parser.add_argument(
        "--context",
        type=int,
        metavar="STEPS",
        help="steps that a reward with history sees, as --seq_len of train_offline.py; by default "
        "the --query_len of its training",
    )
    arguments = parser.parse_args()
    try:
        print(convert(arguments.source, arguments.out, arguments.context))
    except (ConversionError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
