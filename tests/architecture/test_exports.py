"""Every public name is importable, and every listing is complete."""

import ast
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import preferl

ROOT = Path(preferl.__file__).parent


@pytest.fixture(scope="module")
def packages():
    """Names of all packages but those of the command line."""
    modules = pkgutil.walk_packages(preferl.__path__, "preferl.")
    names = [module.name for module in modules if module.ispkg]
    return ["preferl", *(name for name in names if not name.startswith("preferl.cli"))]


@pytest.fixture(scope="module")
def listing(packages):
    """Packages that list their public names, by name."""
    modules = {name: import_module(name) for name in packages}
    return {name: module for name, module in modules.items() if hasattr(module, "__all__")}


def imported_names(package):
    """What a package's own file imports from its modules, for type checkers or at once."""
    file = Path(import_module(package).__file__ or "")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = list(tree.body)
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.body
    return {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}.")
        for alias in node.names
        if not alias.name.startswith("_")
    }


def test_listings_are_complete(packages, listing):
    for name, module in listing.items():
        listed = module.__all__
        assert all(hasattr(module, each) for each in listed), name
        assert len(listed) == len(set(listed)), name
        missing = imported_names(name) - set(listed)
        assert not missing, f"{name}.__all__ lacks {sorted(missing)}"
    assert {name for name in packages if imported_names(name)} <= listing.keys()


def test_names_at_the_top_are_those_of_their_packages():
    from preferl import data, models

    assert preferl.Episodes is data.Episodes
    assert preferl.MLPReward is models.MLPReward
    listed = set(preferl.__all__)
    assert imported_names("preferl") | {"__version__"} == listed == set(dir(preferl))


def test_what_users_need_is_at_the_top_and_that_is_not_everything():
    needed = {"FeedbackVecEnv", "FeedbackVectorEnv", "HumanPreferencesEnvWrapper", "Store"}
    needed |= {"DecisionTransformer", "DTConfig", "FeedbackCallback", "FeedbackConfig"}
    assert needed | {"StoredFeedback", "launch"} <= set(preferl.__all__)
    assert len(preferl.__all__) <= 70


def test_no_module_hides_a_name_that_is_imported_on_first_use(listing):
    for module in listing.values():
        modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
        for name in modules & set(module.__all__):
            assert name in vars(module), f"import {name} at once, or the module hides it"
            assert not inspect.ismodule(getattr(module, name))
