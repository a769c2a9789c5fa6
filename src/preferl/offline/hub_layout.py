"""Decision Transformers as others push them: `config.json` and the parameters, and no more.

What belongs to them beside that, such as the mean and deviation of states, is on their cards.
"""

import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces

from preferl._optional import require
from preferl.errors import CheckpointError, ConfigError, SpaceError, require_in
from preferl.offline.context import Conditions
from preferl.offline.decision_policy import DecisionTransformerPolicy
from preferl.offline.dt_config import SightConfig, Spending, TokenShape
from preferl.offline.hub import local_folder
from preferl.offline.transitions import observation_size
from preferl.shapes import FloatArray

FIXED: Final = {
    "activation_function": "relu",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
"""Settings of the config that the forward pass here has no other way for."""


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
    spending: Spending = "paid",
) -> DecisionTransformerPolicy:
    """A Decision Transformer that others trained, from `config.json` and its parameters.

    Those that preferl pushed need none of this: `DecisionTransformerPolicy.load("hub:...")`.

    Args:
        source: a folder, or `hub:OWNER/NAME` (`hub:OWNER/NAME@REVISION`).
        observation_space: a Box of floats, or a Dict of these.
        action_space: a Box from -1 to 1, or without bounds: actions are as the model makes them.
        mean: `[O]` that was subtracted from states; it is on the model's card.
        deviation: `[O]` that states were divided by, from there too.
        target: return to ask for; nothing is known of recorded ones, so no quantile.
        scale: that returns were divided by; 1000 in the tutorial.
        context: `H`, steps that are looked at; 20 in the tutorial.
        discount: of returns, in (0, 1].
        spending: how the target goes down.

    Raises:
        CheckpointError: nothing of the kind there, parameters that are missing or not finite, or a
            config of another kind of transformer.
        ConfigError: a setting out of range.
        MissingExtraError: transformers is not installed.
        SpaceError: spaces or statistics of other sizes than the model's.
    """
    folder = local_folder(source)
    config, parameters = _read(folder)
    size = observation_size(observation_space)
    _require_sizes(config, size, action_space)
    require_in("discount", discount, sys.float_info.min, 1)
    conditions = Conditions(
        context=context,
        horizon=config.max_ep_len,
        discount=discount,
        scale=scale,
        longest=config.max_ep_len,
        quantiles=(),
        mean=_statistic("mean", mean, size),
        deviation=_statistic("deviation", deviation, size),
    )
    if not (conditions.deviation > 0).all():
        raise ConfigError.mismatch(
            "deviation of states", expected="numbers above 0", got=conditions.deviation
        )
    policy = DecisionTransformerPolicy(
        observation_space,
        action_space,
        parameters,
        TokenShape(config.n_layer, config.n_head, config.action_tanh),
        conditions,
        sight=SightConfig(),
        regulariser=None,
        hub=config.to_dict() | {"architectures": ["DecisionTransformerModel"]},
        spending=spending,
    )
    return policy.asking(target)


def _statistic(name: str, array: FloatArray, size: int) -> FloatArray:
    numbers = np.asarray(array, np.float32)
    if numbers.shape != (size,) or not np.isfinite(numbers).all():
        raise SpaceError.mismatch(
            f"{name} of states", expected=f"{size} finite numbers", got=numbers
        )
    return numbers


def _read(folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    transformers = require("transformers", extra="hub")
    try:
        if not (folder / "config.json").is_file():
            raise FileNotFoundError("no config.json")
        config = transformers.DecisionTransformerConfig.from_pretrained(
            folder, local_files_only=True
        )
        model, found = transformers.DecisionTransformerModel.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, dtype=torch.float32
        )
        missing = sorted({*found["missing_keys"], *map(str, found["mismatched_keys"])})
        if missing:
            raise ValueError(f"no parameters for {missing[:3]}")
        parameters = {name: t.detach().contiguous() for name, t in model.state_dict().items()}
        if not all(torch.isfinite(t).all() for t in parameters.values()):
            raise ValueError("parameters that are not finite")
    except Exception as error:  # transformers has errors of every kind for a damaged folder
        raise CheckpointError.mismatch(
            f"Decision Transformer {folder}",
            expected="config.json with model.safetensors or pytorch_model.bin, all whole",
            got=error,
            fix="Check the name, and fetch it again.",
        ) from error
    for name, value in FIXED.items():
        if getattr(config, name, value) != value:
            raise CheckpointError.mismatch(
                f"{name} of {folder}", expected=value, got=getattr(config, name)
            )
    return config, parameters


def _require_sizes(config: Any, size: int, action_space: spaces.Space[Any]) -> None:
    actions = int(np.prod(action_space.shape or ()))
    if not isinstance(action_space, spaces.Box) or (config.state_dim, config.act_dim) != (
        size,
        actions,
    ):
        raise SpaceError.mismatch(
            "spaces",
            expected=f"{config.state_dim} numbers seen and a Box of {config.act_dim} done",
            got=f"{size} numbers and {action_space}",
        )
    bounded = action_space.bounded_below & action_space.bounded_above
    if bounded.any() and not ((action_space.low == -1) & (action_space.high == 1)).all():
        raise SpaceError.mismatch(
            "actions",
            expected="a Box from -1 to 1, or without bounds",
            got=action_space,
            fix="Such models act in the numbers that were recorded: pass a Box from -1 to 1, "
            "or one without bounds where actions are larger.",
        )
