"""What is imported at the point of use: optional dependencies, and the names of packages."""

import sys
from collections.abc import Callable, Mapping
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


def lazily(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are imported when they are first used.

    Args:
        package: its `__name__`.
        modules: below it, or in full, with the names that come from each, in one text.

    >>> find, _ = lazily("preferl", {"errors": "ConfigError PreferlError"})
    >>> find("ConfigError").__name__
    'ConfigError'
    """
    home = {
        name: module if module.startswith("preferl.") else f"{package}.{module}"
        for module, names in modules.items()
        for name in names.split()
    }

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home[name]), name)

    return find, lambda: sorted(vars(sys.modules[package])["__all__"])
