"""The table of answers as it leaves a store and comes back: its columns, and what a row must say.

One row for each answer that was ever given, also those that were taken back or changed since.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

from preferl.errors import DataError
from preferl.store.clips import CLIP_ID
from preferl.store.names import LONGEST_NAME
from preferl.store.queue import STRENGTHS
from preferl.store.schema import KINDS, Project
from preferl.store.tables import Cell, cell

COLUMNS: Final[Mapping[str, Cell]] = {
    "project": "text",
    "query": "text",
    "purpose": "text",
    "first_clip": "text",
    "second_clip": "text",
    "first_episode": "whole",
    "first_step": "whole",
    "second_episode": "whole",
    "second_step": "whole",
    "annotator": "text",
    "kind": "text",
    "preference": "number",
    "strength": "text",
    "counts": "flag",
    "swapped": "flag",
    "left_clip": "text",
    "right_clip": "text",
    "response_ms": "number",
    "granted": "text",
    "answered": "text",
    "granted_at": "number",
    "answered_at": "number",
    "key": "text",
    "detail": "json",
    "repeat_of": "text",
    "known": "number",
    "quorum": "whole",
    "priority": "number",
    "score": "number",
    "model_version": "whole",
    "asked_at": "number",
    "query_detail": "json",
}
"""Names and what they hold, in order."""

NEEDED: Final = (
    *("query", "purpose", "first_clip", "second_clip", "annotator", "kind", "swapped"),
    *("answered_at", "key", "quorum", "priority", "asked_at"),
)
"""Columns without which a row says nothing."""

OF_QUERY: Final = (
    *("purpose", "first_clip", "second_clip", "repeat_of", "known", "quorum", "priority", "score"),
    *("model_version", "asked_at", "query_detail"),
)
"""Columns that are the same in all rows of a query."""

EXPORTED_AS: Final = "exported_as"
"""Where the detail of a query that came from elsewhere keeps the name it had there."""

ASKED: Final = ("ask", "known", "repeat")
PREFERENCE: Final = {"left": 1.0, "right": 0.0, "equal": 0.5}
QUERY_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]{8}")
LATEST_TIME: Final = 253_402_300_799.0
"""The end of the year 9999, after which there are no dates."""


def query_name(project: Project, number: int, detail: Mapping[str, Any] | None) -> str:
    """A name that a query keeps in every store it is carried to: its number and where it began."""
    carried = (detail or {}).get(EXPORTED_AS)
    return str(carried) if carried else f"{number}-{birthplace(project)}"


def birthplace(project: Project) -> str:
    """Tells queries of this project from those that were carried here."""
    told = f"{project.slug} {project.created_at!r}".encode()
    return blake2b(told, digest_size=4).hexdigest()


def preference_of(kind: str, swapped: bool) -> float | None:
    """The preference for the first clip that an answer about what was seen comes to.

    >>> preference_of("left", swapped=True), preference_of("skip", swapped=False)
    (0.0, None)
    """
    seen = PREFERENCE.get(kind)
    return seen if seen is None or not swapped else 1 - seen


def timestamp(seconds: float | None) -> str | None:
    """Seconds since the epoch in words, as ISO 8601 has it, in UTC.

    >>> timestamp(0.5)
    '1970-01-01T00:00:00.500+00:00'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def checked(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A row that was read, with every cell of its kind and the cells going together.

    Args:
        raw: as it was read; columns that are not needed may be missing, others are left out.
        where: file and row, for errors.

    Raises:
        DataError: naming file, row and column.
    """
    row = {name: _cell(raw, name, kind, where) for name, kind in COLUMNS.items()}
    for name in NEEDED:
        _require(row[name] is not None, where, name, "a value", "none")
    preference = preference_of(row["kind"], row["swapped"])
    sides = row["first_clip"], row["second_clip"]
    left, right = sides[::-1] if row["swapped"] else sides
    purpose = row["purpose"]
    rules = {
        "query": (QUERY_NAME.fullmatch(row["query"]), "a number, a hyphen and 8 digits of hex"),
        "purpose": (purpose in ASKED, f"one of {', '.join(ASKED)}"),
        "first_clip": (CLIP_ID.fullmatch(sides[0]), "32 digits of hex"),
        "second_clip": (CLIP_ID.fullmatch(sides[1]), "32 digits of hex"),
        "annotator": (_is_name(row["annotator"]), f"a name of 1 to {LONGEST_NAME} letters"),
        "kind": (row["kind"] in KINDS, f"one of {', '.join(KINDS)}"),
        "preference": (row["preference"] == preference, f"{preference}, by kind and swapped"),
        "strength": (row["strength"] in (None, *STRENGTHS), f"one of {STRENGTHS}, or nothing"),
        "left_clip": (row["left_clip"] in (None, left), f"{left}, by swapped"),
        "right_clip": (row["right_clip"] in (None, right), f"{right}, by swapped"),
        "response_ms": (_within(row["response_ms"], 1e9), "0 to 1e9 milliseconds"),
        "granted_at": (_within(row["granted_at"], LATEST_TIME), "seconds since the epoch"),
        "answered_at": (_within(row["answered_at"], LATEST_TIME), "seconds since the epoch"),
        "asked_at": (_within(row["asked_at"], LATEST_TIME), "seconds since the epoch"),
        "key": (8 <= len(row["key"]) <= 100, "8 to 100 letters"),
        "repeat_of": (
            (row["repeat_of"] is None) == (purpose != "repeat"),
            "the name of a query for repeats, and only for them",
        ),
        "known": (
            row["known"] in ((0.0, 0.5, 1.0) if purpose == "known" else (None,)),
            "0, 0.5 or 1 for purpose known, and nothing for others",
        ),
        "quorum": (0 <= row["quorum"] <= 10_000, "0 to 10000"),
    }
    for name, (right_so, expected) in rules.items():
        _require(bool(right_so), where, name, expected, repr(row[name]))
    return row


def _cell(raw: Mapping[str, Any], name: str, kind: Cell, where: str) -> Any:
    try:
        return cell(kind, raw.get(name))
    except ValueError as error:
        got = repr(raw.get(name))[:100]
        raise DataError.mismatch(f"{where}, column {name}", expected=error, got=got) from error


def _is_name(name: str) -> bool:
    tidy = name == " ".join(name.split()) and name.isprintable()
    return tidy and 1 <= len(name) <= LONGEST_NAME


def _within(value: float | None, most: float) -> bool:
    return value is None or 0 <= value <= most


def _require(fine: bool, where: str, name: str, expected: object, got: object) -> None:
    if not fine:
        raise DataError.mismatch(f"{where}, column {name}", expected=expected, got=got)
