"""The site builds without a warning, documents every public name, and has no broken link."""

import re
from collections import Counter
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import preferl

SOURCE = Path(preferl.__file__).parent


class Links(HTMLParser):
    """Where a page leads, and the places on it that can be led to."""

    def __init__(self, page):
        super().__init__()
        self.targets = set()
        self.places = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.places |= {attributes.get("id"), attributes.get("name")}
        self.targets |= {attributes.get("href"), attributes.get("src")} - {None}


def broken_links(folder):
    """Links within a folder of pages that lead nowhere, with the page they are on."""
    pages = {page: Links(page) for page in folder.rglob("*.html")}
    broken = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            place = unquote(parts.fragment)
            if not file.exists() or (place and file in pages and place not in pages[file].places):
                broken.append((page.relative_to(folder).as_posix(), target))
    return sorted(broken)


def public_names():
    """Each name that a package lists, behind the package."""
    for file in sorted(SOURCE.rglob("__init__.py")):
        package = ".".join(["preferl", *file.parent.relative_to(SOURCE).parts])
        for name in getattr(import_module(package), "__all__", []):
            if name != "__version__":
                yield package, name


def undocumented(folder):
    """Public names that no page documents; those of `preferl` are links to their packages."""
    from sphinx.util.inventory import InventoryFile

    found = InventoryFile.loads((folder / "objects.inv").read_bytes(), uri="")
    documented = {item for kind, items in found.data.items() if "py:" in kind for item in items}
    led_to = {target.partition("#")[2] for target in Links(folder / "api/preferl.html").targets}
    last = {place.rpartition(".")[2] for place in led_to & documented}
    return [
        f"{package}.{name}"
        for package, name in public_names()
        if (name not in last if package == "preferl" else f"{package}.{name}" not in documented)
    ]


def listed_twice(folder):
    """Pages that the contents list more than once."""
    text = (folder / "index.html").read_text("utf-8")
    listed = re.findall(r'class="toctree-l\d[^>]*><a [^>]*href="([^"#]+)"', text)
    assert len(listed) > 50
    return [page for page, times in Counter(listed).items() if times > 1]


@pytest.mark.slow
def test_the_site_is_whole(site):
    assert broken_links(site) == []
    assert listed_twice(site) == []
    assert undocumented(site) == []
    assert "Search.setIndex" in (site / "searchindex.js").read_text("utf-8")
