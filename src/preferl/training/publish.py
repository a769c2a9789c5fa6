"""Rewards in numbered folders: one program publishes them, and other programs read them.

A version is either complete or absent, even after a power loss. Version numbers come from the
folder itself, never from a clock.
"""

import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, final

from preferl.errors import CheckpointError, ConfigError, StorageError, require_in
from preferl.files import write_json
from preferl.models.spaces import Space, space_from_json, space_to_json
from preferl.printing import get_logger
from preferl.reading import read_object, reading
from preferl.remote import Location, SyncedFolder
from preferl.runs.lock import FolderLock
from preferl.runs.versioned import (
    VERSION,
    digests,
    remove_versions,
    require_whole,
    version_folder,
    version_name,
    versions,
)
from preferl.training.reward_function import RewardFunction, load_reward, save_reward

LOGGER = get_logger(__name__)

KEEP: Final = 5
"""Number of versions that stay: enough that no version is removed while a program reads it."""

LOCK: Final = "publisher"
"""File that holds the publisher's lock."""

ABOUT: Final = "version.json"
SPACES: Final = "spaces.json"


class Version(NamedTuple):
    """A published reward, its number from 1, and the metrics published with it."""

    number: int
    reward: RewardFunction
    metrics: dict[str, Any]


def read_version(folder: Location | SyncedFolder, number: int, *, device: str = "cpu") -> Version:
    """Read one version; raise `CheckpointError` if its files differ from the published ones."""
    # Fetch again: if the folder was emptied, numbers restart, and a local copy is outdated.
    path = SyncedFolder.at(folder).fetch(version_name(number), again=True)
    with reading(path, expected="a whole published reward"):
        description = read_object(path / ABOUT)
        metrics = dict(description["metrics"])
        require_whole(path, description["files"])
    return Version(number, load_reward(path, device=device), metrics)


def newest_reward(folder: Location, *, device: str = "cpu") -> Version:
    """Read the newest version in a folder. It may also be the folder of a version or saved reward.

    A saved reward counts as version 1.
    """
    synced = SyncedFolder(folder)
    if published := versions(synced):
        return read_version(synced, published[-1], device=device)
    if synced.url is not None:
        raise CheckpointError(
            f"{synced}: expected published rewards, got none. Name the folder of all versions, and "
            "check that a reward was published."
        )
    path = synced.path
    if (path / ABOUT).is_file() and VERSION.fullmatch(path.name):
        return read_version(path.parent, int(path.name), device=device)
    return Version(1, load_reward(path, device=device), {})


def write_spaces(folder: Location | SyncedFolder, observations: Space, actions: Space) -> None:
    """Write the spaces of a reward's inputs into its folder, for the program that fits it."""
    description = {"observations": space_to_json(observations), "actions": space_to_json(actions)}
    with SyncedFolder.at(folder).writing(SPACES) as draft:
        write_json(draft, description)


def read_spaces(folder: Location | SyncedFolder) -> tuple[Space, Space] | None:
    """Read the observation and action spaces that `write_spaces` wrote; None if there are none."""
    path = SyncedFolder.at(folder).fetch(SPACES, again=True)
    with reading(path, expected="two spaces"):
        if not path.exists():
            return None
        description = read_object(path)
        return space_from_json(description["observations"]), space_from_json(description["actions"])


def publish(folder: Location, reward: RewardFunction, *, keep: int = KEEP, **about: Any) -> int:
    """Publish one reward through a new `Publisher`; `about` goes to `Publisher.publish`."""
    with Publisher(folder, keep=keep) as publisher:
        return publisher.publish(reward, **about)


@final
class Publisher:
    """The one program that publishes rewards into a folder; a context manager.

    Args:
        folder: folder of all versions; created if missing. A folder in object storage is given by
            its URL (see `preferl.remote`).
        keep: number of versions that stay, at least 1; older ones are removed.

    Raises:
        ConfigError: `keep` is below 1, or the URL is not one of object storage.
        StorageError: on entering, if another program on this machine publishes into the folder. In
            object storage, `publish` raises it if a program on another machine has published the
            same version.
    """

    def __init__(self, folder: Location, *, keep: int = KEEP) -> None:
        require_in("keep", keep, 1, float("inf"))
        self.synced = SyncedFolder(folder)
        self.folder = self.synced.path
        self._keep = keep
        self._lock = FolderLock(self.folder, LOCK, "publisher")

    def __enter__(self) -> Self:
        self._lock.take()
        remove_versions(self.synced)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def publish(
        self,
        reward: RewardFunction,
        *,
        version: int | None = None,
        metrics: Mapping[str, Any] | None = None,
        write_extra: Callable[[Path], None] = lambda _: None,
    ) -> int:
        """Publish a version and return its number.

        Args:
            reward: a model of this library, combined by `mean` or `lower_bound`.
            version: number of the version, above all earlier ones; the next one by default.
            metrics: numbers for readers, as JSON.
            write_extra: writes more files into the version's folder, for the publisher.

        Raises:
            ConfigError: the number is not above the earlier ones, JSON cannot hold the metrics, or
                the reward cannot be saved.
            StorageError: the folder cannot be written to or is full, or another program has
                published this version. Nothing is published then.
                published this version. Nothing is published then.
        """
        earlier = versions(self.synced)
        newest_number = max(earlier, default=0)
        number = newest_number + 1 if version is None else version
        if not number > newest_number:
            raise ConfigError(f"version: expected above {newest_number}, the latest, got {number}.")
        with reading("a version's metrics", expected="what JSON holds", error=ConfigError):
            plain = json.loads(json.dumps(dict(metrics or {}), allow_nan=False))
        with self.synced.writing(version_name(number), exclusive=True) as draft:
            save_reward(draft, reward)
            files = digests(draft)
            write_json(draft / ABOUT, {"version": number, "metrics": plain, "files": files})
            write_extra(draft)
        remove_versions(self.synced, [*earlier, number][: -self._keep])
        return number


@final
class PublishedReward:
    """The published reward that a program uses; it changes only on request.

    Either call `refresh` between rollouts, which reads the disk. Or call `watch` once, and then
    `switch` between rollouts, which does not read the disk. Neither waits for the publisher. An
    unreadable version never replaces a readable one.

    Args:
        folder: folder into which a `Publisher` publishes, or its URL; it may not exist yet.
        device: device of the models.

    Attributes:
        next: version that `watch` has read and `switch` will bring into use, or None.
        problem: why the newest version cannot be read, or None.
    """

    def __init__(self, folder: Location, *, device: str = "cpu") -> None:
        self.synced = SyncedFolder(folder)
        self.folder = self.synced.path
        self.next: Version | None = None
        self.problem: str | None = None
        self._device = device
        self._in_use: Version | None = None
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def watched(self) -> bool:
        """Whether new versions are read in the background."""
        return self._watcher is not None

    @property
    def version(self) -> int:
        """The number of the version in use; 0 before the first one."""
        return 0 if self._in_use is None else self._in_use.number

    @property
    def reward(self) -> RewardFunction | None:
        """The reward in use, or None before the first version."""
        return None if self._in_use is None else self._in_use.reward

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics that were published with the version in use."""
        return {} if self._in_use is None else self._in_use.metrics

    def refresh(self) -> bool:
        """Use the newest version that can be read; return whether the version in use changed."""
        newer_version = self._newer_than(self.version)
        self._in_use = newer_version or self._in_use
        return newer_version is not None

    def watch(self, seconds: float = 1.0) -> Self:
        """Look for new versions in the background every `seconds`, so that `switch` need not."""
        if self._watcher is None:
            self._stop = threading.Event()  # an older thread may still run, with its own event
            work = partial(self._keep_reading, seconds, self._stop)
            name = "published-reward"
            self._watcher = threading.Thread(target=work, name=name, daemon=True)
            self._watcher.start()
        return self

    def snapshot(self) -> dict[str, Any] | None:
        """Return the version in use, for `restore`; None before the first."""
        return None if self._in_use is None else self._in_use._asdict()

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """Use the version of a snapshot, or none, even if newer ones have been published.

        The next `switch` or `refresh` brings a newer version into use.
        """
        self._in_use = None if snapshot is None else Version(**snapshot)

    def switch(self) -> bool:
        """Switch to the version that `watch` has read; return whether it is newer."""
        next_version = self.next
        newer = next_version is not None and next_version.number > self.version
        self._in_use = next_version if newer else self._in_use
        return newer

    def close(self, seconds: float = 10.0) -> None:
        """Stop watching, and wait at most `seconds` for a read; the version in use stays."""
        if self._watcher is not None:
            self._stop.set()
            self._watcher.join(seconds)
            self._watcher = None

    def _keep_reading(self, seconds: float, stop: threading.Event) -> None:
        while True:
            pending = 0 if self.next is None else self.next.number
            self.next = self._newer_than(max(self.version, pending)) or self.next
            if stop.wait(seconds):
                return

    def _forget_copies(self) -> None:
        """Remove local copies of versions that are no longer needed."""
        if self.synced.url is not None:
            for number in versions(self.folder)[:-KEEP]:
                SyncedFolder(self.folder).remove(version_name(number))

    def _newer_than(self, number: int) -> Version | None:
        newer_version = None
        problem = None
        try:
            for newer in reversed([v for v in versions(self.synced) if v > number]):
                try:
                    newer_version = read_version(self.synced, newer, device=self._device)
                    self._forget_copies()
                    break
                except StorageError:
                    raise
                except Exception as error:  # a broken file may raise anything
                    if version_folder(self.folder, newer).is_dir():  # otherwise it was just removed
                        problem = problem or f"Reward version {newer} cannot be read: {error}"
        except OSError as error:
            problem = f"Rewards cannot be read: {error}"
        if problem is not None and problem != self.problem:
            used = number if newer_version is None else newer_version.number
            LOGGER.warning("%s Version %d stays in use.", problem, used)
        self.problem = problem
        return newer_version
