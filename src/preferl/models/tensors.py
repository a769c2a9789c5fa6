"""Tensors of saved models: which names, shapes, types and numbers are those of a model."""

from collections.abc import Mapping

import torch
from torch import Tensor

from preferl.errors import CheckpointError

SCALE = "deviation"
"""How the names of tensors end by which inputs are divided."""


def require_state(what: object, got: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Refuse a state that is not exactly one of a model: nothing is converted or left out.

    Args:
        what: how errors call the file.
        got: names to tensors, as they were read.
        expected: the same of a model that was built for them.

    Raises:
        CheckpointError: other names, shapes or types, NaN, infinity, or scales that are not
            above 0.
    """
    different = sorted(set(got) ^ set(expected)) or [
        name for name, tensor in expected.items() if tensor.shape != got[name].shape
    ]
    if different:
        raise CheckpointError.mismatch(
            f"{what}",
            expected="the numbers of the model that is described beside it",
            got=f"other names or shapes for {different[:3]}",
            fix="The files belong to different models; restore the folder as a whole.",
        )
    for name, tensor in expected.items():
        if tensor.dtype != got[name].dtype:
            raise CheckpointError.mismatch(
                f"{what}, {name}", expected=tensor.dtype, got=got[name].dtype
            )
    require_finite(what, got)


def require_finite(
    what: object, tensors: Mapping[str, Tensor], *, dtype: torch.dtype | None = None
) -> None:
    """Refuse tensors with NaN or infinity, or scales that are not above 0.

    Args:
        what: how errors call the file.
        tensors: by name.
        dtype: of all of them, where only one makes sense.

    Raises:
        CheckpointError: naming the tensor.
    """
    for name, tensor in tensors.items():
        if dtype is not None and tensor.dtype != dtype:
            raise CheckpointError.mismatch(f"{what}, {name}", expected=dtype, got=tensor.dtype)
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError.mismatch(
                f"{what}, {name}",
                expected="finite numbers",
                got=f"{int((~tensor.isfinite()).sum())} of {tensor.numel()} NaN or infinite",
                fix="The training that wrote it diverged, or the file is damaged.",
            )
        if name.rpartition(".")[2] == SCALE and not bool((tensor > 0).all()):
            raise CheckpointError.mismatch(
                f"{what}, {name}", expected="numbers above 0", got=tensor.min().item()
            )
