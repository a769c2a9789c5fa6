"""Import optional dependencies when they are needed, and names of packages when they are used."""

import ast
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from preferl.errors import MissingExtraError


def require(module: str, *, extra: str) -> Any:
    """Import `module`; if it is missing, say which extra of preferl installs it.

    Raises:
        MissingExtraError: the module is not installed; the message has the command that installs
            it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        message = f"{module} is not installed. Run: pip install 'preferl[{extra}]'"
        raise MissingExtraError(message) from error


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package that imports names on first use.

    The package's file lists the names once, in the form of re-exports that type checkers and
    editors read: `from module import name as name`, below `if TYPE_CHECKING:`. If a name is also
    the name of a module in the package, import it outside of that block. Otherwise the module would
    hide it.

    >>> find, _, names = lazily("preferl")
    >>> find("PreferlError").__name__, "PreferlError" in names
    ('PreferlError', True)
    """
    tree = ast.parse(pkgutil.get_data(package, "__init__.py") or b"")
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    home = {
        alias.name: str(node.module)
        for node in imports
        for alias in node.names
        if alias.name == alias.asname
    }

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home[name]), name)

    names = sorted(home)
    return find, lambda: names, names
