"""Write a run's report as one self-contained HTML file without scripts or outside resources."""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self, TypeVar, final

from jinja2 import Environment, StrictUndefined

from preferl.errors import DataError
from preferl.files import write_text

RowSource = TypeVar("RowSource")

MISSING: Final = "–"  # shown instead of a number that is not known


@final
@dataclass(frozen=True)
class Fact:
    """A formatted key number, and a note on what to compare it with."""

    label: str
    value: str
    note: str = ""


@final
@dataclass(frozen=True)
class ReportTable:
    """Rows of formatted text; the first column names the row, the others are aligned as numbers.

    Attributes:
        caption: what the table shows.
        columns: heads, one per column. If all are empty, rows are names and values, which wrap on a
            narrow screen.
        rows: in each row, one cell per column.
        emphasis: number of the row that the report is about, or None.

    Raises:
        DataError: a row does not have one cell per column.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    emphasis: int | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise DataError(
                    f"row {row} of table {self.caption!r}: expected {len(self.columns)} cells, got "
                    f"{len(row)}."
                )

    @classmethod
    def of(
        cls,
        caption: str,
        head: str,
        rows_by_name: Mapping[str, RowSource],
        cells: Mapping[str, Callable[[RowSource], str]],
        emphasis: int | None = None,
    ) -> Self:
        """Return a table with a row for each entry of `rows_by_name`.

        `head` is the head of the column of names. `cells` has the other heads, each with a function
        that formats the cell of a row.

        >>> ReportTable.of("Lengths", "word", {"a": "abc"}, {"letters": lambda w: f"{len(w)}"}).rows
        (('a', '3'),)
        """
        rows = tuple(
            (name, *(cell(t) for cell in cells.values())) for name, t in rows_by_name.items()
        )
        return cls(caption, (head, *cells), rows, emphasis)


@final
@dataclass(frozen=True)
class Figure:
    """A drawing, with its message in words (`alt`); two figures with `half` share a row.

    The report includes `svg` unescaped, so it must come from `preferl.evaluation.plots` or another
    trusted source.
    """

    svg: str
    alt: str
    caption: str = ""
    half: bool = False


@final
@dataclass(frozen=True)
class Video:
    """A video from `preferl.video.encode`, and what it shows in words (`alt`).

    Before it plays, the page shows the picture at `start` seconds.
    """

    mp4: bytes = field(repr=False)
    title: str
    alt: str
    caption: str = ""
    start: float = 0.0

    @property
    def source(self) -> str:
        """Return the video as a data URL."""
        address = "data:video/mp4;base64," + base64.b64encode(self.mp4).decode("ascii")
        return f"{address}#t={self.start:.3f}" if self.start else address


@final
@dataclass(frozen=True)
class Section:
    """A heading, then paragraphs of text, tables, videos and figures.

    Tables and figures are below each other. Videos, and half figures, are side by side. A table
    without rows is left out.
    """

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    clips: tuple[Video, ...] = ()
    figures: tuple[Figure, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(table for table in self.tables if table.rows))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing below the heading."""
        return not (self.text or self.tables or self.clips or self.figures)


@final
@dataclass(frozen=True)
class Report:
    """The whole report: a title, one or two sentences, three or four facts, and sections.

    Empty sections are left out. `details` maps names to nested settings, which are folded away at
    the end of the page.
    """

    title: str
    lead: str = ""
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = ()
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        filled_sections = tuple(section for section in self.sections if not section.is_empty)
        object.__setattr__(self, "sections", filled_sections)


def number(value: float, digits: int | None = None) -> str:
    """Format a number with `digits` after the point, or with three digits or more in all.

    >>> number(-1234.5), number(12.34), number(0.5), number(-0.01, 1)
    ('−1,234', '12.3', '0.50', '0.0')
    """
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:z,.{digits}f}".replace("-", "−")


def decimal(value: float | None) -> str:
    """Format a number with three digits after the point, or return `MISSING`."""
    return MISSING if value is None else number(value, 3)


def percent(value: float | None, digits: int = 0) -> str:
    """Format a share in [0, 1] as percent, or return `MISSING`."""
    return MISSING if value is None else f"{100 * value:.{digits}f} %"


def percent_range(interval: tuple[float, float]) -> str:
    """Format the ends of an interval of shares as percent."""
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f} %"


def write_report(path: Path | str, report: Report) -> None:
    """Write the report to a file that is either complete or absent.

    Raises:
        StorageError: the folder cannot be written to.
    """
    write_text(Path(path), render(report))


def render(report: Report) -> str:
    """Render the report as HTML, with all text escaped.

    >>> "&lt;b&gt;" in render(Report(title="A <b> run"))
    True
    """
    template = files("preferl.evaluation").joinpath("report.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    details = {name: list(_flat(values)) for name, values in report.details.items()}
    return environment.from_string(template).render(report=report, details=details)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as dotted names and text."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield prefix + str(name), ", ".join(map(str, value))
        else:
            yield prefix + str(name), "–" if value is None else str(value)
