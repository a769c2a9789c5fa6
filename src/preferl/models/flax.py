"""Load Flax parameters of the networks of Kim et al. 2023 into models of this library."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from preferl.data.arrays import load_npz
from preferl.errors import CheckpointError, ConfigError
from preferl.models.base import RewardModel
from preferl.models.lstm import LSTMReward
from preferl.models.mlp import MLPReward
from preferl.models.transformer import PreferenceTransformer
from preferl.reading import reading
from preferl.shapes import Array


def load_flax(model: RewardModel, arrays: Mapping[str, Array] | Path | str) -> None:
    """Copy the parameters of the original networks (MR, NMR, PT) into a model of the same shape.

    Args:
        model: model to change in place: an `MLPReward` of one member, an `LSTMReward` or a
            `PreferenceTransformer`, with `normalise=False` as in the originals.
        arrays: arrays by names such as `Dense_0/kernel`, or a `.npz` file of them. Names may begin
            with `params/` or `param:`.

    Raises:
        CheckpointError: names are missing or unknown, arrays have another shape, or a file cannot
            be read.
        ConfigError: the original has no such model, or the model normalises its inputs.

    >>> from gymnasium.spaces import Box
    >>> from preferl.models import MLPRewardConfig
    >>> config = MLPRewardConfig(hidden=(), normalise=False)
    >>> model = MLPReward(Box(-1, 1, (2,)), Box(-1, 1, (1,)), config, seed=0)
    >>> name = "params/FullyConnectedNetwork_0/Dense_0"
    >>> load_flax(model, {f"{name}/kernel": np.ones((3, 1)), f"{name}/bias": np.zeros(1)})
    >>> model(torch.ones(1, 1, 2), torch.ones(1, 1, 1), torch.ones(1, 1, dtype=bool)).scores.item()
    3.0
    """
    if not isinstance(arrays, Mapping):
        with reading(arrays, expected="a .npz file of arrays"):
            arrays = load_npz(Path(arrays))
    named = {name.removeprefix("param:").removeprefix("params/"): a for name, a in arrays.items()}
    places = flax_places(model)
    _check(named, places)
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(torch.from_numpy(np.array(named[name], np.float32)))


def flax_places(model: RewardModel) -> dict[str, Tensor]:
    """Map Flax names to views of the model's parameters, in Flax's shapes."""
    if isinstance(model, MLPReward | LSTMReward | PreferenceTransformer) and model.config.normalise:
        raise ConfigError(
            "normalise: expected False, since Flax's models do not normalise their inputs, got "
            "True."
        )
    match model:
        case MLPReward(members=1):
            return dict(_mlp(model))
        case LSTMReward():
            return dict(_lstm(model))
        case PreferenceTransformer():
            return dict(_transformer(model))
    raise ConfigError(
        "model to load Flax parameters into: expected an MLPReward of one member, an LSTMReward "
        f"or a PreferenceTransformer, got {type(model).__name__} of {model.members}."
    )


def _mlp(model: MLPReward) -> Iterator[tuple[str, Tensor]]:
    for index, weight in enumerate(model.networks.weights):
        name = f"FullyConnectedNetwork_0/Dense_{index}"
        yield f"{name}/kernel", weight[0]
        yield f"{name}/bias", model.networks.biases[index][0, 0]


def _lstm(model: LSTMReward) -> Iterator[tuple[str, Tensor]]:
    for index, linear in enumerate([*model.before.linear, *model.after.linear, model.output]):
        yield from _of(f"Dense_{index}", linear)
    cell = "SimpleLSTM_0/OptimizedLSTMCell_0"
    lstm = model.lstm
    parts = (part.chunk(4) for part in (lstm.input, lstm.recurrent, lstm.bias))
    for gate, inputs, recurrent, bias in zip("ifgo", *parts, strict=True):
        yield f"{cell}/i{gate}/kernel", inputs.T
        yield f"{cell}/h{gate}/kernel", recurrent.T
        yield f"{cell}/h{gate}/bias", bias


def _transformer(model: PreferenceTransformer) -> Iterator[tuple[str, Tensor]]:
    yield from _of("Dense_0", model.state_embed)
    yield from _of("Dense_1", model.action_embed)
    yield "Embed_0/embedding", model.time_embed.weight
    yield from _of("LayerNorm_0", model.input_norm)
    for index, block in enumerate(model.blocks):
        name = f"GPT2Model_0/GPT2Block_{index}"
        yield from _of(f"{name}/LayerNorm_0", block.norm1)
        yield from _of(f"{name}/GPT2SelfAttention_0/Dense_0", block.attn.qkv)
        yield from _of(f"{name}/GPT2SelfAttention_0/Dense_1", block.attn.out)
        yield from _of(f"{name}/LayerNorm_1", block.norm2)
        yield from _of(f"{name}/GPT2MLP_0/Dense_0", block.mlp.fc1)
        yield from _of(f"{name}/GPT2MLP_0/Dense_1", block.mlp.fc2)
    yield from _of("GPT2Model_0/LayerNorm_0", model.final_norm)
    if model.config.head == "preference":
        yield from _of("Dense_2", model.pref_proj)
    else:
        yield from _of("Dense_2", model.head.fc1)
        yield from _of("Dense_3", model.head.fc2)


def _of(name: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the Flax names and parameters of a linear layer or a normalisation."""
    weight = module.get_parameter("weight")
    is_norm = isinstance(module, nn.LayerNorm)
    yield (f"{name}/scale", weight) if is_norm else (f"{name}/kernel", weight.T)
    yield f"{name}/bias", module.get_parameter("bias")


def _check(named: Mapping[str, Array], places: Mapping[str, Tensor]) -> None:
    fix = "Build the model with the spaces, layers, widths and head of the trained one."
    missing = places.keys() - named.keys()
    unknown = named.keys() - places.keys()
    names = sorted(missing or unknown)
    if names:
        raise CheckpointError(
            f"Flax parameters: expected the {len(places)} of this model, got {len(names)} "
            f"{'missing' if missing else 'unknown'}: {names[:3]}. {fix}"
        )
    for name, place in places.items():
        shape = named[name].shape
        wanted = tuple(place.shape)
        if shape != wanted:
            raise CheckpointError(f"shape of {name}: expected {wanted}, got {shape}. {fix}")
