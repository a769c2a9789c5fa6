"""Folders in object storage. Programs use a copy on their machine, and send new files.

An object is either complete or absent. A folder is sent as one archive, so the same is true of it.
"""

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from preferl._optional import require
from preferl.errors import ConfigError, StorageError
from preferl.files import writing
from preferl.reading import inside, reading

PACKAGES: Final = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs")}
"""For each scheme of a URL: the package for such storage, and the extra that installs it."""

URL: Final = re.compile(r"(s3|gs)://[a-z0-9][a-z0-9._-]+(/[\w.=+@-]+)*/?", re.ASCII)
"""A bucket and folders in it. URLs with an account, a query or a second scheme do not match."""

ARCHIVE: Final = ".zip"
"""Ending of objects that contain a folder; files in it are stored as they are."""

PARALLEL_FETCHES: Final = 16
"""How many files a program fetches at the same time."""

CACHE: Final = "PREFERL_CACHE"
"""Environment variable for the folder of copies; by default, it is `~/.cache/preferl`."""

Location = str | Path
"""A folder of this machine, or the URL of one in object storage."""


def is_url(location: Location) -> bool:
    """Whether a location is written as a URL, valid or not."""
    return "://" in str(location)


@final
class SyncedFolder:
    """A folder on this machine, which may be the copy of one in object storage.

    Names are relative paths inside the folder, with `/` between folders. A name without an ending
    is the name of a folder. If there is no object storage, nothing is sent or fetched.

    Args:
        location: a folder, `file:///folder`, `s3://bucket/folder` or `gs://bucket/folder`.
            Credentials and endpoints come from the environment variables that other programs for
            these services read, too.

    Attributes:
        path: the folder on this machine.
        url: URL of the folder in object storage, or None.

    Raises:
        ConfigError: the URL is not one of these kinds.
        MissingExtraError: the package for this storage is not installed.
    """

    def __init__(self, location: Location) -> None:
        self.url: str | None = None
        self._storage: Any = None
        text = str(location)
        if not is_url(location):
            self.path = Path(location)
        elif text.startswith("file:///"):
            self.path = Path(url2pathname(urlsplit(text).path))
        else:
            if not (URL.fullmatch(text) and ".." not in text):
                raise ConfigError(
                    "URL: expected a folder, s3://bucket/folder, gs://bucket/folder or "
                    f"file:///folder, got {text}."
                )
            self.url = text.rstrip("/")
            scheme, _, self._root = self.url.partition("://")
            package, extra = PACKAGES[scheme]
            require(package, extra=extra)
            self._storage = require("fsspec", extra=extra).filesystem(scheme)
            self.path = cache_folder() / blake2b(self.url.encode(), digest_size=8).hexdigest()

    @classmethod
    def at(cls, location: "Location | SyncedFolder") -> "SyncedFolder":
        """Return the folder at a location; return a `SyncedFolder` as it is."""
        return location if isinstance(location, SyncedFolder) else cls(location)

    def __str__(self) -> str:
        return self.url or str(self.path)

    def inside(self, name: str) -> Path:
        """Return a name's path on this machine, fetched or not.

        Symbolic links on this machine are followed.

        Raises:
            StorageError: the name leads out of the folder.

        >>> SyncedFolder("runs/rewards").inside("s3://other/bucket/00001").as_posix()
        'runs/rewards/s3:/other/bucket/00001'
        """
        words = name.replace("\\", "/").split("/")
        if name.startswith("/") or "\x00" in name or ".." in words:
            raise StorageError(f"name in {self}: expected a name inside the folder, got {name!r}.")
        return self.path / name

    def fetch(self, name: str, *, again: bool = False) -> Path:
        """Return the path of a file or folder on this machine, after fetching it if it is missing.

        The path does not exist if storage has no such name. With `again`, the copy is replaced,
        since the content in storage may have changed.

        Raises:
            StorageError: storage cannot be reached, or its content is damaged.
        """
        path = self.inside(name)
        if self.url is None or (path.exists() and not again):
            return path
        with tempfile.TemporaryDirectory(prefix="preferl-") as folder:
            fetched = Path(folder) / "fetched"
            with self._reaching(missing=False):
                self._storage.get_file(self._object(name), str(fetched))
            if fetched.is_file():
                with writing(path) as draft:
                    if self._object(name).endswith(ARCHIVE):
                        _unpack(fetched, draft, f"{self}/{name}")
                    else:
                        shutil.move(fetched, draft)
        return path

    def fetch_all(self, names: Sequence[str]) -> list[Path]:
        """Return the paths of several names, fetched in parallel, since each waits long."""
        if self.url is None:
            return [self.inside(name) for name in names]
        with ThreadPoolExecutor(PARALLEL_FETCHES) as pool:
            return list(pool.map(self.fetch, names))

    @contextmanager
    def writing(
        self, name: str, *, durable: bool = True, exclusive: bool = False
    ) -> Iterator[Path]:
        """Yield a temporary path. When the block succeeds, its content gets this name.

        The content is sent before it appears here, so that all machines see the same content.

        Args:
            name: name of the file or folder.
            durable: see `preferl.files.writing`.
            exclusive: refuse a name that another program has sent already.

        Raises:
            StorageError: the content cannot be written or sent, or the name is refused. Nothing of
                the content remains then.
        """
        with writing(self.inside(name), durable=durable) as draft:
            yield draft
            if self.url is not None:
                self._send(draft, name, exclusive=exclusive)

    def names(self) -> list[str]:
        """Return the names of files and folders in storage; none if the folder is missing.

        Raises:
            StorageError: the folder cannot be read, or storage cannot be reached.
        """
        if self.url is None:
            expected = "a folder that can be read"
            fix = "Name a folder, and see that its disk is there."
            is_read = reading(self.path, expected=expected, fix=fix, error=StorageError)
            with is_read, suppress(FileNotFoundError):
                return [path.name for path in self.path.iterdir()]
            return []
        objects: list[str] = []
        with self._reaching(missing=False):
            self._storage.invalidate_cache(self._root)
            objects = self._storage.ls(self._root, detail=False)
        return [name.rpartition("/")[2].removesuffix(ARCHIVE) for name in objects]

    def remove(self, name: str) -> None:
        """Remove a file or folder here and in storage; do nothing if it is missing.

        Raises:
            StorageError: the file cannot be removed, or storage cannot be reached.
        """
        path = self.inside(name)
        renamed = path.with_name(f".{path.name}.old")
        if self.url is not None:
            with self._reaching(missing=False):
                self._storage.rm_file(self._object(name))
        with reading(path, expected="something that can be removed", error=StorageError):
            with suppress(FileNotFoundError):
                path.rename(renamed)  # first, so that no program reads a folder while it is removed
            if renamed.is_dir():
                shutil.rmtree(renamed, ignore_errors=True)
            else:
                renamed.unlink(missing_ok=True)

    def _send(self, draft: Path, name: str, *, exclusive: bool) -> None:
        """Send a file, or a folder as an archive."""
        with tempfile.TemporaryDirectory(prefix="preferl-") as folder, self._reaching():
            if draft.is_dir():
                draft = _pack(draft, Path(folder) / "packed")
            mode = "create" if exclusive else "overwrite"
            target = self._object(name)
            try:
                self._storage.put_file(str(draft), target, mode=mode)
            except FileExistsError:  # an earlier attempt of this program may have sent it
                if self._storage.cat_file(target) != draft.read_bytes():
                    raise

    def _object(self, name: str) -> str:
        """Return the object of a name: a file, or the archive of a folder."""
        return f"{self._root}/{name}{'' if Path(name).suffix else ARCHIVE}"

    @contextmanager
    def _reaching(self, *, missing: bool = True) -> Iterator[None]:
        """Turn the errors of a storage's package into `StorageError`.

        If `missing` is false, a missing name is not an error.
        """
        expected = "storage that can be reached, with the rights to do this"
        fix = "Check the network and the credentials in the environment, and try again."
        try:
            yield
        except Exception as error:  # each package has its own errors
            if isinstance(error, FileNotFoundError) and not missing:
                return
            if isinstance(error, FileExistsError):
                expected = "a name that nobody has sent yet"
                fix = "Let one program write there."
            reason = f"{type(error).__name__}: {error}".rstrip(".")
            raise StorageError(f"{self}: expected {expected}, got {reason}. {fix}") from error


def cache_folder() -> Path:
    """Return the folder of copies: the one of the environment variable, or the user's default."""
    if folder := os.environ.get(CACHE):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "preferl"


def _pack(folder: Path, packed: Path) -> Path:
    """Write all files of a folder and its subfolders into an archive, uncompressed."""
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder))
    return packed


def _unpack(packed: Path, folder: Path, name: str) -> None:
    """Write the files of an archive into a new folder. Refuse archives that `_pack` did not write.

    The files of such archives might be compressed, overlap or have paths outside, and fill the
    disk.
    """
    with reading(name, expected="an archive as preferl sends it", error=StorageError):
        try:
            with zipfile.ZipFile(packed) as archive:
                members = archive.infolist()
                stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
                if (
                    not stored
                    or sum(member.file_size for member in members) > packed.stat().st_size
                ):
                    raise ValueError("files that are larger than their archive")
                folder.mkdir()
                for member in members:
                    file = inside(folder, member.filename)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(member) as source, file.open("xb") as target:
                        shutil.copyfileobj(source, target)
        except zipfile.BadZipFile as error:
            raise ValueError(str(error)) from error
