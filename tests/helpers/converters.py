"""The converters of `docs/migrate`, which are no part of the package."""

import importlib.util
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "docs/migrate"


def imported(name):
    """A converter as a module."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
