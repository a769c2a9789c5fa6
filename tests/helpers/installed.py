"""Tests that need an optional package."""

from importlib.util import find_spec

import pytest


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skip where a package is missing; unlike `importorskip`, collecting tests imports none."""
    missing = [module for module in modules if find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
