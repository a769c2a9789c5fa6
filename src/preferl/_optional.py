"""Optional dependencies, imported at the point of use."""

from importlib import import_module
from types import ModuleType
from typing import Any

from preferl.errors import MissingExtraError


def require(module: str, *, extra: str) -> Any:
    """Import `module`, or say which extra of preferl brings it.

    Raises:
        MissingExtraError: the module is not installed; the message holds the install line.
    """
    try:
        found: ModuleType = import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is not installed. Run: pip install 'preferl[{extra}]'"
        ) from error
    return found
