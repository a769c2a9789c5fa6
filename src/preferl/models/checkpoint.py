"""Reward models as folders: safetensors for numbers, JSON for shape, spaces and version."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file

from preferl.errors import CheckpointError, SpaceError, StorageError
from preferl.files import writing
from preferl.models.base import RewardModel
from preferl.models.build import (
    KINDS,
    EnsembleConfig,
    RewardModelConfig,
    build_reward_model,
    config_of,
)
from preferl.models.sizes import least_numbers, require_numbers
from preferl.models.tensors import require_state
from preferl.reading import read_json, reading
from preferl.shapes import Array

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"

MOST_NUMBERS: Final = 2**22
"""Of a space in a file: a picture of 1,182 x 1,182 pixels in three colours, or categories."""


def save_reward_model(path: Path | str, model: RewardModel) -> None:
    """Write a model with its input statistics as a folder, all or nothing.

    Args:
        path: the folder, replaced if it exists.
        model: of a kind that `build_reward_model` knows.

    Raises:
        ConfigError: a model of one's own class.
        StorageError: the folder cannot be written to, or holds something else than a model,
            which would be lost.
    """
    require_replaceable(Path(path))
    with writing(Path(path)) as draft:
        write_reward_model(draft, model)


def require_replaceable(path: Path) -> None:
    """Raise `StorageError` if saving a model at `path` would lose what is no model."""
    if path.is_dir() and any(path.iterdir()) and not (path / WEIGHTS).is_file():
        raise StorageError.mismatch(
            f"{path}",
            expected="a new or empty folder, or one that holds a reward model",
            got="a folder that holds something else",
            fix="Choose another name: what is there would be replaced.",
        )


def write_reward_model(folder: Path, model: RewardModel) -> None:
    """The same into a new folder, for what is saved together with a model."""
    about = {
        "format": FORMAT,
        "preferl": version("preferl"),
        "model": _config_to_json(config_of(model)),
        "observation_space": space_to_json(model.observation_space),
        "action_space": space_to_json(model.action_space),
    }
    tensors = {name: t.detach().cpu().contiguous() for name, t in _own_state(model).items()}
    folder.mkdir()
    save_file(tensors, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(about, indent=2), encoding="utf-8")


def load_reward_model(path: Path | str, *, device: str = "cpu") -> RewardModel:
    """Read a model; every number is the one that was saved.

    Args:
        path: the folder that `save_reward_model` wrote.
        device: where the model goes.

    Raises:
        CheckpointError: no such folder, a damaged or cut-off file, or one of another format.
    """
    path = Path(path)
    expected = f"a folder with a whole {WEIGHTS} and {CONFIG}"
    fix = "Name the folder that a preferl run wrote, or restore it from a copy."
    with reading(f"reward model {path}", expected=expected, fix=fix):
        about = read_json(path / CONFIG)
        tensors = load_file(path / WEIGHTS)
    about = about if isinstance(about, dict) else {}
    if about.get("format") != FORMAT:
        raise CheckpointError.mismatch(
            f"format of {path}",
            expected=FORMAT,
            got=about.get("format"),
            fix=f"It was written by preferl {about.get('preferl', 'of an unknown version')}.",
        )
    model = _rebuild(path, about, sum(tensor.numel() for tensor in tensors.values()))
    require_state(path / WEIGHTS, tensors, _own_state(model))
    model.load_state_dict(tensors, strict=False)
    return model.to(device).eval()


def _rebuild(path: Path, about: dict[str, Any], numbers: int) -> RewardModel:
    """The model of a config, if `numbers` are enough for it."""
    with reading(path / CONFIG, expected="the shape of a known model"):
        config = _config_from_json(about["model"])
        spaces_ = [space_from_json(about[f"{of}_space"]) for of in ("observation", "action")]
        require_numbers(least_numbers(config, *spaces_), numbers)
        return build_reward_model(config, *spaces_, seed=0)


def _own_state(model: RewardModel) -> dict[str, torch.Tensor]:
    """The state without the second names of an encoder that members share."""
    seen: dict[int, str] = {}
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if seen.setdefault(tensor.data_ptr() if tensor.numel() else hash(name), name) == name
    }


def _config_to_json(config: RewardModelConfig) -> dict[str, Any]:
    if isinstance(config, EnsembleConfig):
        return {"kind": "ensemble", "models": [_config_to_json(part) for part in config.models]}
    kind = next(name for name, cls in KINDS.items() if cls is type(config))
    return {"kind": kind, **asdict(config)}


def _config_from_json(data: dict[str, Any]) -> RewardModelConfig:
    fields = {key: value for key, value in data.items() if key != "kind"}
    if data["kind"] == "ensemble":
        return EnsembleConfig(tuple(_config_from_json(part) for part in fields["models"]))
    config: RewardModelConfig = KINDS[data["kind"]](
        **{key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
    )
    return config


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """A gymnasium space as JSON.

    Raises:
        SpaceError: a space of another kind.

    >>> space_to_json(spaces.Discrete(3))
    {'kind': 'Discrete', 'n': 3, 'start': 0, 'dtype': 'int64'}
    """
    match space:
        case spaces.Dict():
            return {"kind": "Dict", "spaces": {k: space_to_json(s) for k, s in space.items()}}
        case spaces.Box():
            return {
                "kind": "Box",
                "low": _bound(space.low),
                "high": _bound(space.high),
                "shape": list(space.shape),
                "dtype": str(space.dtype),
            }
        case spaces.Discrete():
            numbers = {"n": int(space.n), "start": int(space.start)}
            return {"kind": "Discrete", **numbers, "dtype": str(space.dtype)}
        case spaces.MultiDiscrete():
            numbers = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            return {"kind": "MultiDiscrete", **numbers, "dtype": str(space.dtype)}
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": np.asarray(space.n).tolist()}
    raise SpaceError.mismatch("space", expected="a space that reward models know", got=space)


def space_from_json(data: dict[str, Any]) -> spaces.Space[Any]:
    """The space that `space_to_json` wrote.

    Raises:
        SpaceError: a kind of space that is not known, or one of more than `MOST_NUMBERS`.
    """
    match data["kind"]:
        case "Dict":
            # A list of pairs keeps its order, which is that of the features; a dict is sorted.
            return spaces.Dict([(k, space_from_json(s)) for k, s in data["spaces"].items()])
        case "Box":
            shape, dtype = tuple(data["shape"]), _dtype(data)
            _require_small(shape)
            low, high = (np.asarray(data[side]).astype(dtype) for side in ("low", "high"))
            return spaces.Box(
                np.broadcast_to(low, shape), np.broadcast_to(high, shape), dtype=dtype.type
            )
        case "Discrete":
            dtype = _dtype(data)
            _require_small((data["n"],))
            return spaces.Discrete(data["n"], start=data["start"], dtype=dtype.type)
        case "MultiDiscrete":
            dtype = _dtype(data)
            nvec, start = (np.asarray(data[name], dtype) for name in ("nvec", "start"))
            _require_small((int(nvec.astype(object).sum()),))
            return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
        case "MultiBinary":
            _require_small(np.atleast_1d(data["n"]).tolist())
            return spaces.MultiBinary(data["n"])
    raise SpaceError.mismatch("space", expected="a known kind", got=data["kind"])


def _dtype(data: dict[str, Any]) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(data["dtype"])
    if dtype.kind not in "biuf":
        raise SpaceError.mismatch("type of a space", expected="numbers", got=dtype)
    return dtype


def _require_small(shape: Sequence[int]) -> None:
    numbers = math.prod(shape)
    if numbers > MOST_NUMBERS:
        expected = f"at most {MOST_NUMBERS:,} numbers"
        raise SpaceError.mismatch("space", expected=expected, got=f"{numbers:,}")


def _bound(array: Array) -> Any:
    """One number where all are equal, as in most boxes; infinities become strings for JSON."""
    flat = np.unique(array)
    compact = flat[0] if len(flat) == 1 else array
    return (compact if np.isfinite(compact).all() else compact.astype(str)).tolist()
