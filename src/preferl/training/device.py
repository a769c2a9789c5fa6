"""Where networks are: names of devices, and whether torch has them here."""

import torch

from preferl.errors import ConfigError


def usable_device(name: str) -> str:
    """The device of this name; for "auto" a GPU if there is one.

    Raises:
        ConfigError: torch has no such device here.

    >>> usable_device("cpu")
    'cpu'
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    require_device(name)
    return name


def require_device(name: str) -> None:
    """Raise `ConfigError` unless torch has the device here."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch asserts where it lacks the device
        raise ConfigError.mismatch(
            "device", expected='one that torch has here, such as "cpu"', got=error
        ) from error
