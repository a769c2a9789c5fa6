"""What a trainer needs to go on where it stopped, beside the reward that it has made."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import load_file, save_file

from preferl.models.base import RewardModel
from preferl.models.folder import require_finite
from preferl.reading import read_object, reading

if TYPE_CHECKING:
    from preferl.training.reward_trainer import RewardTrainer

TENSORS: Final = "trainer.safetensors"
"""Moments of the optimiser and the stream that orders pairs."""
ABOUT: Final = "trainer.json"
ORDER: Final = "order"


def trainer_snapshot(trainer: "RewardTrainer") -> dict[str, Any]:
    """What a trainer's next fit depends on beside its model, for `restore_trainer`."""
    return {
        "moments": trainer._optimiser.state_dict()["state"],
        "order": trainer._order.get_state(),
        "penalty": trainer._penalty.strength,
    }


def restore_trainer(trainer: "RewardTrainer", snapshot: Mapping[str, Any]) -> None:
    """Bring a fresh trainer to where another of the same settings and the same model was.

    Raises:
        RuntimeError: a damaged order.
    """
    trainer._order.set_state(snapshot["order"])  # first, since it alone may fail
    groups = trainer._optimiser.state_dict()["param_groups"]
    trainer._optimiser.load_state_dict({"state": snapshot["moments"], "param_groups": groups})
    trainer._penalty = replace(trainer._penalty, strength=float(snapshot["penalty"]))


def save_trainer(folder: Path, trainer: "RewardTrainer", notes: dict[str, Any]) -> None:
    """Write a trainer's state, without its model, into a folder that is there.

    Args:
        folder: where the model is saved as well.
        trainer: between two fits.
        notes: anything else to remember, as JSON.
    """
    state = trainer_snapshot(trainer)
    tensors = {
        f"{number}.{name}": value.detach().cpu().contiguous()
        for number, moments in state["moments"].items()
        for name, value in moments.items()
    }
    tensors[ORDER] = state["order"]
    save_file(tensors, folder / TENSORS)
    about = {"penalty": state["penalty"], "notes": notes}
    (folder / ABOUT).write_text(json.dumps(about, allow_nan=False), encoding="utf-8")


def load_trainer(folder: Path, trainer: "RewardTrainer", model: RewardModel) -> dict[str, Any]:
    """Bring a fresh trainer to where another of the same settings was; its next fit is the same.

    Args:
        folder: into which `save_trainer` wrote.
        trainer: with a model of the same shape, the same config and the same seed.
        model: as it was saved; its numbers are copied.

    Returns:
        The notes.

    Raises:
        CheckpointError: no such files, damaged ones, or those of another model; the trainer is
            then as it was.
    """
    with reading(folder, expected="the state of such a trainer"):
        about = read_object(folder / ABOUT)
        tensors = load_file(folder / TENSORS)
        penalty, notes = float(about["penalty"]), dict(about["notes"])
        order = tensors.pop(ORDER)
        moments = _moments(trainer, tensors)
        require_finite(folder / TENSORS, tensors)
        torch.Generator().set_state(order)  # a damaged one must not be found out half way
        trainer.model.load_state_dict(model.state_dict())
    restore_trainer(trainer, {"moments": moments, "order": order, "penalty": penalty})
    return notes


def _moments(
    trainer: "RewardTrainer", tensors: dict[str, torch.Tensor]
) -> dict[int, dict[str, torch.Tensor]]:
    """What the optimiser remembers, by number of the parameter."""
    parameters = list(trainer.model.parameters())
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".")
        shape = parameters[int(number)].shape
        if tensor.ndim and tensor.shape != shape:
            raise ValueError(f"{key} of shape {tuple(tensor.shape)}, not {tuple(shape)}")
        if not tensor.is_floating_point():
            raise ValueError(f"{key} of {tensor.dtype}")
        moments.setdefault(int(number), {})[name] = tensor
    return moments
