"""What is imported at the point of use: extras with their install line, and names of packages."""

import importlib
import json
import sys

import pytest

from preferl._optional import require
from preferl.errors import MissingExtraError

LAZY = """
from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from somebodys_package.part import VALUE as VALUE
    from somebodys_package.part import hidden
    from somebodys_package.missing import Missing as Missing

__getattr__, __dir__, __all__ = lazily("somebodys_package")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "somebodys_package").mkdir()
    (tmp_path / "somebodys_package/__init__.py").write_text(LAZY, encoding="utf-8")
    (tmp_path / "somebodys_package/part.py").write_text("VALUE = 3\nhidden = 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("somebodys_package")
    for name in [name for name in sys.modules if name.startswith("somebodys_package")]:
        del sys.modules[name]


def test_a_module_that_is_installed_is_returned():
    assert require("json", extra="none") is json


def test_a_module_that_is_not_installed_comes_with_its_install_line():
    expected = r"^no_such_module.part is not installed. Run: pip install 'preferl\[video\]'$"
    with pytest.raises(MissingExtraError, match=expected) as raised:
        require("no_such_module.part", extra="video")
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


def test_names_are_imported_on_first_use(package):
    assert "somebodys_package.part" not in sys.modules
    assert package.VALUE == 3
    assert "somebodys_package.part" in sys.modules


def test_a_package_lists_what_it_re_exports_and_nothing_else(package):
    assert package.__all__ == dir(package) == ["Missing", "VALUE"]
    for name in ("hidden", "other"):
        with pytest.raises(AttributeError, match=f"'somebodys_package' has no attribute '{name}'"):
            getattr(package, name)


def test_a_listed_name_whose_module_is_missing_is_an_import_error(package):
    with pytest.raises(ModuleNotFoundError, match=r"somebodys_package\.missing"):
        package.Missing  # noqa: B018
