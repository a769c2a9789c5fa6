"""Other people's Decision Transformers, from Hugging Face's hub or a folder."""

import math
import sys
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile, is_zipfile

import numpy as np
import torch
from gymnasium import spaces

from preferl._optional import require
from preferl.errors import CheckpointError, ConfigError, SpaceError, require_in
from preferl.models.folder import bounded_network
from preferl.offline.decision_transformer.hub import any_error, local_folder
from preferl.offline.decision_transformer.parameters import LearnedTransformer
from preferl.offline.decision_transformer.policy import DecisionTransformerPolicy
from preferl.offline.decision_transformer.sequences import InputStatistics
from preferl.offline.learner_configs import Decrement, PixelEncoderConfig, TokenShape
from preferl.offline.transitions import observation_size
from preferl.reading import Expansion
from preferl.shapes import FloatArray

FIXED: Final = {  # settings of Hugging Face's config that this forward pass cannot vary
    "activation_function": "relu",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def load_decision_transformer(
    source: Path | str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    mean: FloatArray,
    deviation: FloatArray,
    target: float,
    scale: float = 1000.0,
    context: int = 20,
    discount: float = 1.0,
    decrement: Decrement = "received",
) -> DecisionTransformerPolicy:
    """Load somebody else's Decision Transformer, from `config.json` and its parameters only.

    All other numbers, such as the mean and deviation of states, are on its card. Policies that
    preferl pushed need none of this: `DecisionTransformerPolicy.load("hub:...")`.

    Args:
        source: a folder, or `hub:OWNER/NAME` (`hub:OWNER/NAME@REVISION`).
        observation_space: a Box of floats, or a Dict of these.
        action_space: a Box from -1 to 1, or without bounds, since actions are the model's outputs.
        mean: `[O]` mean that was subtracted from states.
        deviation: `[O]` standard deviation by which states were divided.
        target: target return as a number. Quantiles need recorded returns, which are not known
            here.
        scale: number by which returns were divided; 1000 in the tutorial.
        context: `H`, steps of history; 20 in the tutorial.
        discount: discount of returns, in (0, 1].
        decrement: how the target return is lowered.

    Raises:
        CheckpointError: there is no such model, parameters are missing or not finite, or the config
            is of another kind of transformer.
        ConfigError: a setting is out of range.
        MissingExtraError: transformers is not installed.
        SpaceError: spaces or statistics have other sizes than the model's.
    """
    config, parameters = _read(local_folder(source))
    size = observation_size(observation_space)
    steps = config.max_ep_len
    _require_spaces(config, size, action_space)
    require_in("discount", discount, sys.float_info.min, 1)
    arrays = {"mean": np.asarray(mean, np.float32), "deviation": np.asarray(deviation, np.float32)}
    for name, array in arrays.items():
        if array.shape != (size,) or not np.isfinite(array).all():
            raise SpaceError(f"{name} of states: expected {size} finite numbers, got {array}.")
    if not (arrays["deviation"] > 0).all():
        raise ConfigError(
            f"deviation of states: expected numbers above 0, got {arrays['deviation']}."
        )
    learned = LearnedTransformer(
        observation_space,
        action_space,
        parameters,
        TokenShape(config.n_layer, config.n_head, config.action_tanh),
        InputStatistics(context, steps, discount, scale, longest=steps, quantiles=(), **arrays),
        hub=config.to_dict() | {"architectures": ["DecisionTransformerModel"]},
        pixel_encoder=PixelEncoderConfig(),
    )
    return DecisionTransformerPolicy(learned, decrement=decrement).with_target(target)


def _read(folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return Hugging Face's config and all parameters of its model."""
    transformers = require("transformers", extra="hub")
    expected = "config.json with model.safetensors or pytorch_model.bin, all whole"
    fix = "Check the name, and fetch it again."
    with any_error(CheckpointError, f"Decision Transformer {folder}", expected, fix):
        if not (folder / "config.json").is_file():
            raise FileNotFoundError("no config.json")
        config = transformers.DecisionTransformerConfig.from_pretrained(
            folder, local_files_only=True
        )
        for file in folder.glob("*.bin"):
            if is_zipfile(file):  # torch unpacks the parts of a zip, although nothing is packed
                with ZipFile(file) as archive:
                    Expansion.of(file).add(sum(part.file_size for part in archive.infolist()))
        weights = (*folder.glob("*.safetensors"), *folder.glob("*.bin"))
        numbers = sum(file.stat().st_size for file in weights)  # a number takes at least a byte
        with bounded_network(numbers):
            model, report = transformers.DecisionTransformerModel.from_pretrained(
                folder, local_files_only=True, output_loading_info=True, dtype=torch.float32
            )
        missing = sorted({*report["missing_keys"], *map(str, report["mismatched_keys"])})
        if missing:
            raise ValueError(f"no parameters for {missing[:3]}")
        parameters = {name: t.detach().contiguous() for name, t in model.state_dict().items()}
        if not all(torch.isfinite(t).all() for t in parameters.values()):
            raise ValueError("parameters that are not finite")
    for name, value in FIXED.items():
        setting = getattr(config, name, value)
        if setting != value:
            raise CheckpointError(f"{name} of {folder}: expected {value}, got {setting}.")
    return config, parameters


def _require_spaces(config: Any, size: int, space: spaces.Space[Any]) -> None:
    actions = math.prod(space.shape or ())
    if not isinstance(space, spaces.Box) or (size, actions) != (config.state_dim, config.act_dim):
        raise SpaceError(
            f"spaces: expected observations of {config.state_dim} numbers, actions of a Box of "
            f"{config.act_dim}, got {size} numbers and {space}."
        )
    bounded = (space.bounded_below & space.bounded_above).any()
    if bounded and not ((space.low == -1) & (space.high == 1)).all():
        raise SpaceError(
            f"actions: expected a Box from -1 to 1, or without bounds, got {space}. Such models "
            "act in the recorded numbers: pass a Box from -1 to 1, or one without bounds if "
            "actions are larger."
        )
