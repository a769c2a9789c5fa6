"""Every public name is importable and documented, and every listing is complete."""

import ast
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import preferl

ROOT = Path(preferl.__file__).parent
PACKAGES = ["preferl"] + [
    module.name
    for module in pkgutil.walk_packages(preferl.__path__, "preferl.")
    if module.ispkg and not module.name.startswith("preferl.cli")
]
LISTING = [name for name in PACKAGES if "__all__" in vars(import_module(name))]


def imported_names(package: str) -> set[str]:
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


@pytest.mark.parametrize("package", LISTING)
def test_listings_are_complete(package):
    listed = import_module(package).__all__
    assert len(listed) == len(set(listed))
    missing = imported_names(package) - set(listed)
    assert not missing, f"{package}.__all__ lacks {sorted(missing)}"


@pytest.mark.parametrize("package", LISTING)
def test_every_name_is_there_and_documented(package):
    module = import_module(package)
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            text = inspect.getdoc(thing) or ""
            generated = text.startswith(f"{name}(")  # what a dataclass says without a docstring
            assert len(text.split()) > 3, f"{package}.{name} has no docstring with content"
            assert not generated, f"{package}.{name} has no docstring of its own"


def test_packages_that_hold_names_list_them():
    unlisted = {name for name in PACKAGES if imported_names(name)} - set(LISTING)
    assert not unlisted


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


def test_packages_list_few_names():
    sizes = {name: len(import_module(name).__all__) for name in LISTING if name != "preferl"}
    assert {name: size for name, size in sizes.items() if size > 25} == {}


@pytest.mark.parametrize("package", LISTING)
def test_no_module_hides_a_name_that_is_imported_on_first_use(package):
    module = import_module(package)
    modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    for name in modules & set(module.__all__):
        assert name in vars(module), f"import {name} at once, or the module hides it"
        assert not inspect.ismodule(getattr(module, name))


def test_other_names_are_refused_as_usual():
    with pytest.raises(AttributeError, match="module 'preferl' has no attribute 'Episode'"):
        preferl.Episode  # noqa: B018
    with pytest.raises(ImportError, match="Episode"):
        from preferl import Episode  # noqa: F401
    testing = import_module("preferl.testing")
    with pytest.raises(AttributeError, match="check_nothing"):
        testing.check_nothing  # noqa: B018


def test_the_version_is_where_the_build_looks_for_it():
    lines = (ROOT / "__init__.py").read_text(encoding="utf-8").splitlines()
    assert f'__version__ = "{preferl.__version__}"' in lines


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda f: f.stem)
def test_every_file_says_what_it_is(file):
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert len(text.split()) > 3 or file.name == "__main__.py", f"{file} has no docstring"
