"""Plain text of a project as safe HTML: paragraphs and lists, nothing else."""

import re

from markupsafe import Markup, escape

BULLET = re.compile(r"^\s*[-*•]\s+(.*)$")
NUMBER = re.compile(r"^\s*\d{1,3}[.)]\s+(.*)$")


def prose(text: str) -> Markup:
    r"""Blocks between blank lines as paragraphs; lines with a dash or number as lists.

    Everything is escaped before anything is added.

    >>> print(prose("Watch <both>.\n\n- the door\n- the hand"))
    <p>Watch &lt;both&gt;.</p>
    <ul><li>the door</li><li>the hand</li></ul>
    """
    blocks = [block.splitlines() for block in re.split(r"\n\s*\n", text.strip()) if block.strip()]
    return Markup("\n").join(Markup("").join(_runs(block)) for block in blocks)


def _runs(lines: list[str]) -> list[Markup]:
    """The lists and paragraphs of one block, in which a list may follow a line of text."""
    parts: list[Markup] = []
    held: list[Markup] = []
    tag = "p"
    for line in lines:
        bullet, number = BULLET.match(line), NUMBER.match(line)
        found = bullet or number
        now = "ul" if bullet else "ol" if number else "p"
        if now != tag and held:
            parts.append(_wrapped(tag, held))
            held = []
        tag = now
        held.append(escape(found[1] if found else line.strip()))
    return [*parts, _wrapped(tag, held)] if held else parts


def _wrapped(tag: str, items: list[Markup]) -> Markup:
    if tag == "p":
        return Markup("<p>") + Markup(" ").join(items) + Markup("</p>")
    inside = Markup("").join(Markup("<li>") + item + Markup("</li>") for item in items)
    return Markup(f"<{tag}>") + inside + Markup(f"</{tag}>")
