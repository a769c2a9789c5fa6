"""Which code may run because a text names it, and how preferl starts its own programs.

A module is imported only if a person types its name now or passes it in Python, or if it belongs to
`ALLOWED`. It is never imported because a database, a file or a folder names it.
"""

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any, Final

from preferl.errors import ConfigError, MissingExtraError

ALLOWED: Final = frozenset(
    {"gymnasium", "gymnasium_robotics", "ale_py", "shimmy", "metaworld"}
    | {"stable_baselines3", "sb3_contrib", "sbx", "preferl"}
)
"""Packages whose public modules any text may name."""

# if it is set, Python does not look for modules in the current folder
SAFE_PATH: Final = "PYTHONSAFEPATH"


def admitted(name: object, *, source: str, trust: Collection[str] = ()) -> str:
    """Return a name from a file or database, if the module in it may be imported.

    Every environment id from a file or database passes through here before gymnasium gets it, since
    gymnasium imports the module in `module:Id`.

    Args:
        name: an id such as `Pendulum-v1`, or `module:Name`.
        source: where the name was read, for the message.
        trust: modules that a person trusts. The modules inside them are trusted, too.

    Raises:
        ConfigError: the name is not text or is malformed, or nobody trusts its module.

    >>> admitted("gymnasium.envs:Pendulum-v1", source="the project")
    'gymnasium.envs:Pendulum-v1'
    """
    if not isinstance(name, str):
        raise ConfigError(f"name in {source}: expected text, got {name!r}.")
    for module in _modules_of(name):
        trusted = any(
            module == trusted_name or module.startswith(f"{trusted_name}.")
            for trusted_name in trust
        )
        if not (trusted or _needs_no_trust(module)):
            raise ConfigError(
                f"{name!r}, which {source} names: expected a module that may be imported: of "
                f"{', '.join(sorted(ALLOWED))}, or one that you trust, got {module!r}. If you "
                f"know its code and trust it, pass --trust {module} (trust=[{module!r}] in "
                "Python)."
            )
    return name


def resolve(name: str, *, what: str, source: str, trust: Collection[str] = ()) -> Any:
    """Import the object of `module:Name`, if its module may be imported; `Name` may contain dots.

    Messages call the object `what`, and name the `source` where it was read. For `trust`, see
    `admitted`.

    Raises:
        ConfigError: nobody trusts the module, or there is no such object.

    >>> resolve("preferl.trust:resolve", what="an example", source="this page").__name__
    'resolve'
    """
    _parts(name, what)  # `admitted` does not refuse a plain name
    admitted(name, source=source, trust=trust)
    return named_object(name, what)


def named_object(name: str, what: str) -> Any:
    """Import the object of `module:Name`. Only pass names from code, or names that somebody typed.

    Raises:
        ConfigError: there is no such object; the message calls it `what`.
        MissingExtraError: its module needs an extra that is not installed.
        MissingExtraError: its module needs an extra that is not installed.
    """
    module, attributes = _parts(name, what)
    try:
        return attrgetter(attributes)(import_module(module))
    except MissingExtraError:
        raise
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{what}: expected module:Name, got {name!r} ({error}).") from error


def typed(*names: str | None, trust: Collection[str] = ()) -> tuple[str, ...]:
    """Return the modules outside `ALLOWED` that a person names. The current folder may hold them.

    Names are ids or `module:Name`. If a module is only in the current folder, that folder is added
    at the end of Python's path, so that nothing in it hides an installed module.

    Raises:
        ConfigError: a name with a colon is not `module:Name`, or a text cannot be a module's name.
    """
    _require_modules(trust)
    allowed_modules = (*trust, *_modules_of(*names))
    modules = tuple(module for module in allowed_modules if not _needs_no_trust(module))
    working_directory = str(Path.cwd())
    if working_directory not in sys.path and any(map(_is_only_here, modules)):
        sys.path.append(working_directory)
    return modules


def trust_options(trust: Collection[str]) -> tuple[str, ...]:
    """Return trusted modules as options of a command; raise `ConfigError` for a malformed name.

    >>> trust_options(["mine", "yours"])
    ('--trust', 'mine', '--trust', 'yours')
    """
    _require_modules(trust)
    return tuple(word for module in trust for word in ("--trust", module))


def preferl_program(*arguments: str, module: str = "preferl") -> tuple[str, ...]:
    """Return the command line of `preferl` or one of its modules, which ignores the current folder.

    >>> preferl_program("annotate", "serve")[1:]
    ('-P', '-m', 'preferl', 'annotate', 'serve')
    """
    return (sys.executable, "-P", "-m", module, *arguments)


@contextmanager
def safe_children() -> Iterator[None]:
    """Let Python programs that start in the block ignore modules in the current folder.

    `multiprocessing` starts processes with `python -c`, which looks there for modules first.
    """
    earlier_value = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if earlier_value is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = earlier_value


def _modules_of(*names: str | None) -> tuple[str, ...]:
    """Return the modules of names such as `module:Name`; a plain name has none."""
    return tuple(_parts(name)[0] for name in names if name is not None and ":" in name)


def meant_name(name: str) -> str:
    """Say what to do about a path or dotted name instead of `module:Name`: a sentence, or "".

    >>> meant_name("./arm.py:ReachArm")
    'Did you mean arm:ReachArm?'
    >>> meant_name("Pendulum-v1")
    ''
    """
    path, _, rest = name.partition(":")
    if not rest and not path.endswith(".py"):
        path, _, rest = path.rpartition(".")  # such as `arm.ReachArm`
        if not (_is_dotted(path) and rest.isidentifier() and _can_be_found(path)):
            return ""
    parts = PurePath(path.removesuffix(".py")).parts
    module = ".".join(parts)
    if not _is_dotted(module) and parts:  # the file is below another folder than the current one
        module = parts[-1]
    if not _is_dotted(module) or (module == name.partition(":")[0] and rest):
        return ""
    if not rest:
        return f"Name the class or function in it, too: {module}:Name."
    return f"Did you mean {module}:{rest}?"


def _can_be_found(module: str) -> bool:
    """Whether Python finds the outermost package of a module, perhaps in the current folder."""
    top = module.split(".")[0]
    return PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is not None


def _parts(name: str, what: str = "name") -> tuple[str, str]:
    module, colon, rest = name.partition(":")
    is_path = module.endswith(".py")
    if is_path or not (colon and _is_dotted(module) and rest) or ":" in rest:
        message = f"{what}: expected module:Name, got {name!r}. {meant_name(name)}"
        raise ConfigError(message.rstrip())
    return module, rest


def _require_modules(trust: Collection[str]) -> None:
    for module in trust:
        if not _is_dotted(module) or module.endswith(".py"):
            parts = PurePath(module.removesuffix(".py")).parts
            fix = f"Did you mean {'.'.join(parts)}?" if _is_dotted(".".join(parts)) else ""
            message = f"trust: expected the names of modules, got {module!r}. {fix}"
            raise ConfigError(message.rstrip())


def _is_dotted(module: str) -> bool:
    return all(part.isidentifier() for part in module.split("."))


def _needs_no_trust(module: str) -> bool:
    """Whether a module is public, in an allowed package, and installed outside of this folder."""
    parts = module.split(".")
    is_public = not any(part.startswith("_") for part in parts)
    return parts[0] in ALLOWED and is_public and not _is_only_here(module)


def _is_only_here(module: str) -> bool:
    """Whether Python would find a module only in the current folder."""
    top = module.split(".")[0]
    working_directory = str(Path.cwd())
    if top in sys.modules or PathFinder.find_spec(top, [working_directory]) is None:
        return False
    other_folders = [folder for folder in sys.path if folder not in ("", working_directory)]
    return PathFinder.find_spec(top, other_folders) is None
