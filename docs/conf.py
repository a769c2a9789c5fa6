"""How Sphinx makes a site of these pages; `make docs` writes it to docs/_build/html.

The pages are plain Markdown, so that they read well without the site, too. `_toc.yml` orders them.
"""

import ast
import os
import re
from functools import reduce
from importlib import import_module
from inspect import isbuiltin
from pathlib import Path
from typing import Any

import jupytext
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.typing import stringify_annotation

import preferl
from preferl import shapes

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FORGE = "https://github.com/preferl/preferl"
NOTEBOOKS = {
    "examples/pendulum_tutorial.py": "notebooks/pendulum",
    "examples/labels_to_reward.py": "notebooks/labels",
}
"""Scripts that are shown as notebooks, and their pages."""

project = "preferl"
author = "The preferl developers"
project_copyright = author
version = release = preferl.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_external_toc",
]
exclude_patterns = ["_build"]
language = "en-GB"
default_role = "literal"  # docstrings write code between single backticks
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "preferl"
html_favicon = "../src/preferl/annotate/static/mark.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(DOCS / "_static" / "scorer.js")
html_copy_source = False

myst_heading_anchors = 4  # by GitHub's rule, so that links lead to the same place on both

autodoc_default_options = {"member-order": "bysource", "special-members": "__call__"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_attr_annotations = False
napoleon_use_ivar = True  # the fields of a dataclass are documented in its docstring
copybutton_exclude = ".linenos, .gp, .go"  # of a console, what is typed

nb_execution_mode = "cache"  # a notebook runs again once its code has changed
nb_execution_cache_path = str(DOCS / "_build" / "notebooks-run")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 900
nb_merge_streams = True

ARRAYS = {
    stringify_annotation(getattr(shapes, name), "smart"): name
    for name in ("Observations", "FloatArray", "IntArray", "BoolArray", "Array")
}
"""What annotations of arrays stand for, and how they are written."""

INLINE = "module://matplotlib_inline.backend_inline"
"""Shows the figures of a notebook below its cells, whatever the environment prefers."""

LINK = re.compile(r"\]\((\.\./[^)\s#]+)")


PARAMETERS = re.compile(r"<dl>\n(?:<dd>.*?</dd>\n)+</dl>", re.S)
"""Of a signature that has a line for each."""


def write_notebooks() -> None:
    """Make the notebooks of scripts: one to read on the site, and the same to download."""
    for script, page in NOTEBOOKS.items():
        notebook = jupytext.read(ROOT / script, fmt="py:percent")
        notebook.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        download = DOCS / "_build" / "notebooks" / f"{Path(page).name}.ipynb"
        (DOCS / page).parent.mkdir(exist_ok=True)
        download.parent.mkdir(parents=True, exist_ok=True)
        jupytext.write(notebook, download, fmt="ipynb")
        links = f"{{download}}`Download this notebook <../_build/notebooks/{download.name}>`, or "
        links += f"take [the script that it is made of]({FORGE}/blob/main/{script})."
        notebook.cells[0].source += f"\n\n{links}"
        jupytext.write(notebook, DOCS / f"{page}.ipynb", fmt="ipynb")


def lead_out(_: Sphinx, page: str, source: list[str]) -> None:
    """Let links to files outside this folder lead to the forge, or to a script's notebook."""
    folder = (DOCS / page).parent

    def target(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(folder / link[1]))
        if path.is_relative_to(DOCS):
            return link[0]
        name = path.relative_to(ROOT).as_posix()
        if name in NOTEBOOKS:
            return f"]({os.path.relpath(DOCS / NOTEBOOKS[name], folder)}.ipynb"
        return f"]({FORGE}/{'tree' if path.is_dir() else 'blob'}/main/{name}"

    source[0] = LINK.sub(target, source[0])


def list_names(_: Sphinx, page: str, source: list[str]) -> None:
    """List on the page of `preferl` where each of its names is documented."""
    if page != "api/preferl":
        return
    source[0] += "\n| name | |\n|---|---|\n"
    for name in sorted(set(preferl.__all__) - {"__version__"}, key=str.lower):
        home = preferl_homes()[name]
        first = (getattr(preferl, name).__doc__ or "").strip().split("\n\n")[0]
        sentence = " ".join(first.split()).replace("|", "\\|")
        source[0] += f"| {{py:obj}}`{name} <{home}.{name}>` | {sentence} |\n"


def preferl_homes() -> dict[str, str]:
    """The package that documents each name of `preferl`, as its file imports them."""
    return {name: home for name, home in imported(preferl.__name__).items() if "preferl" in home}


def imported(package: str) -> dict[str, str]:
    """The module from which a package's file imports each name."""
    tree = ast.parse(Path(import_module(package).__file__ or "").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def leave_out_builtins(*about: Any) -> bool | None:
    """Leave out defaults of fields such as `input`, whose docstrings are Python's."""
    return True if isbuiltin(about[3]) else None


def describe_constant(
    _: Sphinx, what: str, name: str, _obj: object, _options: object, lines: list[str]
) -> None:
    """Take a constant's docstring from the module in which it is written."""
    if what != "data":
        return
    package, short = name.rsplit(".", 1)
    if home := imported(package).get(short):
        lines[:] = ModuleAnalyzer.for_module(home).find_attr_docs().get(("", short), lines)


def write_signature(
    _: Sphinx, what: str, _name: str, _obj: object, _options: object, signature: str, gives: str
) -> tuple[str, str] | None:
    """Write `FloatArray` for what it stands for, and defaults in a way that can be parsed."""
    if what == "class" and signature == "(*args, **kwargs)":  # a protocol's
        return "", ""
    if not signature:  # a module has none
        return None
    signature = re.sub(r"<function (\w+)[^>]*>", r"\1", signature).replace("<factory>", "...")
    known = ARRAYS.items()
    given, gives = (
        reduce(lambda text, one: text.replace(*one), known, text or "")
        for text in (signature, gives)
    )
    return given, gives


def mend_markup(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    """Mend what stops screen readers: headings without a level, lists without terms."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )
    context["body"] = PARAMETERS.sub(
        lambda found: (
            found[0]
            .replace("<dl>", '<span class="parameters">')
            .replace("dl>", "span>")
            .replace("dd>", "span>")
        ),
        context.get("body", ""),
    )


def setup(app: Sphinx) -> None:
    """Connect what is written above."""
    os.environ["MPLBACKEND"] = INLINE
    write_notebooks()
    app.connect("source-read", lead_out)
    app.connect("source-read", list_names)
    app.connect("html-page-context", mend_markup, priority=900)  # after the theme
    app.connect("autodoc-skip-member", leave_out_builtins)
    app.connect("autodoc-process-signature", write_signature)
    app.connect("autodoc-process-docstring", describe_constant, priority=400)
