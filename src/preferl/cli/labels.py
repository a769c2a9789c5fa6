"""What commands about people's labels share: where the labels are, and of which project."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from preferl.errors import StorageError

if TYPE_CHECKING:
    from preferl.store.schema import Project
    from preferl.store.store import Store

FOLDER = "runs/labels"
NAME = "labels"
"""What a project is called that was given no name."""


@dataclass(frozen=True)
class StoreConfig:
    """Where labels are.

    Attributes:
        store: folder of the labels, or the URL of a database, such as
            postgresql://me@host/labels.
        files: folder of clips and videos beside a PostgreSQL database.
        project: short name of the project; may be left out where there is only one.
    """

    store: str = FOLDER
    files: Path | None = None
    project: str | None = None

    def words(self) -> tuple[str, ...]:
        """The same as options of a command, without the project."""
        files = () if self.files is None else ("--files", str(self.files))
        return ("--store", self.store, *files)


@contextmanager
def opened(config: StoreConfig) -> "Iterator[tuple[Store, Project]]":
    """A store that is there, and the project that is meant.

    Raises:
        ConfigError: no such project, or several and none was named.
        StorageError: there is no store.
    """
    from preferl.store.store import Store

    require_store(config.store)
    with Store.open(config.store, config.files) as store:
        named = config.project
        yield store, store.projects.only() if named is None else store.projects.get(named)


@contextmanager
def begun(config: StoreConfig) -> "Iterator[tuple[Store, Project]]":
    """A store, made if it is not there, and a new project in it, called `labels` by default.

    Raises:
        ConfigError: there is a project of this name.
    """
    from preferl.store.store import Store

    with Store.open(config.store, config.files) as store:
        yield store, store.projects.create(config.project or NAME)


def require_store(store: str) -> None:
    """Raise `StorageError` where a folder holds no labels, rather than make an empty store."""
    from preferl.store.store import LABELS

    if "://" not in store and not (Path(store) / LABELS).is_file():
        raise StorageError.mismatch(
            f"store {store}",
            expected="a folder of labels",
            got="none",
            fix="Make one with `preferl annotate create`, or name it with --store.",
        )
