"""Options that commands share, and help that shows optional values by their type."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from preferl.errors import StorageError
from preferl.registry import imported
from preferl.trust import typed

if TYPE_CHECKING:
    from preferl.store import Store
    from preferl.store.schema import Project

FOLDER = "runs/labels"
NAME = "labels"  # of a project, by default

Crossing = Literal["drop", "keep", "error"]
Trust = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="MODULE")]
"""`--trust MODULE`, once for each module that data may name (see `preferl.trust`)."""


@dataclass(frozen=True)
class StoreConfig:
    """Where labels are."""

    # folder of the labels, or the URL of a database (postgresql://me@host/labels).
    store: str = FOLDER
    files: Path | None = None  # folder of clips and videos beside a PostgreSQL database.
    # short name of the project; may be left out where there is only one.
    project: str | None = None

    def options(self) -> tuple[str, ...]:
        """The same as options of a command, without the project."""
        files = () if self.files is None else ("--files", str(self.files))
        return ("--store", self.store, *files)


Labels = Annotated[StoreConfig, tyro.conf.arg(name="")]


@contextmanager
def opened(config: StoreConfig, *, new: bool = False) -> "Iterator[tuple[Store, Project]]":
    """Open a store and the project that a config names, or its only one.

    With `new` the project is made, called `labels` by default, and the store if it is not there.
    """
    from preferl.store import Store

    if not new:
        require_store(config.store)
    with Store.open(config.store, config.files) as store:
        projects, name = store.projects, config.project
        if new:
            yield store, projects.create(name or NAME)
        else:
            yield store, projects.only() if name is None else projects.get(name)


def require_store(store: str) -> None:
    """Raise `StorageError` where a folder holds no labels, rather than make an empty store."""
    from preferl.store.store import LABELS

    if "://" not in store and not (Path(store) / LABELS).is_file():
        fix = "Make one with `preferl annotate create`, or name it with --store."
        what = f"store {store}"
        raise StorageError.mismatch(what, expected="a folder of labels", got="none", fix=fix)


def options_of(arguments: Sequence[str], name: str) -> list[str]:
    """All values that an option is given."""
    after = (value for word, value in pairwise(arguments) if word == name)
    joined = (word.partition("=")[2] for word in arguments if word.startswith(f"{name}="))
    return [*after, *joined]


def import_trusted(arguments: Sequence[str]) -> Any:
    """Import the modules that `--trust` names, for what they add to `preferl.registry`.

    It is the `starting_point` of commands whose options change no values read from elsewhere.
    """
    for module in typed(trust=options_of(arguments, "--trust")):
        imported(module, source="--trust")
    return tyro.MISSING_NONPROP


def comma_separated(kind: type[Any], metavar: str) -> Any:
    """The rule for a tuple after one option, between commas or spaces."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=metavar,
        instance_from_str=lambda words: tuple(
            kind(part) for word in words for part in word.split(",") if part
        ),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [",".join(map(str, values))],
    )


def plain_metavars() -> ConstructorRegistry:
    """Rules that show `Path | None` as PATH instead of {None}|PATH; a context manager.

    What is accepted stays the same, and the default beside it shows that it may be left out.
    """
    rules = ConstructorRegistry()
    usual = False  # while the rules of tyro itself are asked for

    @rules.primitive_rule
    def without_none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        nonlocal usual
        if usual or NoneType not in get_args(info.type):
            return None
        usual = True
        try:
            spec = ConstructorRegistry.get_primitive_spec(info)
        finally:
            usual = False
        if not isinstance(spec, PrimitiveConstructorSpec):
            return None
        metavar = spec.metavar.removeprefix("{None}|").replace("{None,", "{", 1)
        return replace(spec, metavar=metavar)

    return rules
