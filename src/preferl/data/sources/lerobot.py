"""Robot data sets of LeRobot, format v3.0: columns as Parquet, cameras as videos or pictures.

Cadene et al. 2024, "LeRobot: State-of-the-art Machine Learning for Real-World Robotics in PyTorch".
"""

import hashlib
import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from preferl._optional import require
from preferl.data.columns import as_floats, naming, reading_foreign, require_names
from preferl.data.episodes import Episodes
from preferl.data.on_disk import OnDisk, select_rows
from preferl.data.sources.hub import PREFIX, hub_folder, nested_numbers
from preferl.data.sources.parquet import unpacked_bytes
from preferl.data.videos import VideoFrames
from preferl.errors import DataError, nearest
from preferl.reading import Expansion, inside, read_object
from preferl.shapes import Array, IntArray, Observations, map_observations

VERSION: Final = "v3.0"
INFO: Final = "meta/info.json"
CONVERTER: Final = "python -m lerobot.scripts.convert_dataset_v21_to_v30 --repo-id=OWNER/NAME"

ACTION: Final = "action"
OBSERVATION: Final = "observation."
REWARD: Final = "next.reward"
SUCCESS: Final = "next.success"

COUNTED: Final = ("index", "episode_index", "frame_index")
"""Columns that tell to which frame a row belongs."""

MOST_NUMBERS: Final = 2**25
"""Most numbers in a value of a frame, such as a picture of 4,096 x 2,730 in three colours."""

MOST_FPS: Final = 1000
_FILLED: Final = re.compile(r"\{(video_key|(chunk|file)_index(:0?\d?d)?)\}")
"""What a path fills in, and how wide."""

_EPISODE_COLUMNS: Final = (
    "episode_index", "length", "dataset_from_index", "dataset_to_index",
    "data/chunk_index", "data/file_index",
)  # fmt: skip


@final
@dataclass(frozen=True)
class Feature:
    """A column of a data set, with LeRobot's name.

    Attributes:
        name: for example `observation.state`, `action` or `observation.images.front`.
        dtype: "video" or "image" for a camera, or the type of numbers.
        shape: shape of a frame's value; for a camera `(height, width, channels)`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, about: Mapping[str, Any]) -> Self:
        """Return the feature of a name that `INFO` describes.

        Raise `ValueError` for a wrong one.
        """
        shape = tuple(int(side) for side in about["shape"])
        if not (all(side >= 1 for side in shape) and math.prod(shape) <= MOST_NUMBERS):
            raise ValueError(f"{name} of shape {shape}")
        dtype = str(about["dtype"])
        if dtype not in ("video", "image"):
            return cls(name, dtype, shape)
        if len(shape) != 3:
            raise ValueError(f"{name}, a camera of shape {shape}")
        names = about.get("names") or ()
        if names[:1] in (["channels"], ["channel"]):
            shape = (*shape[1:], shape[0])
        depth = bool((about.get("info") or {}).get("is_depth_map"))
        return cls(name, "depth" if depth else dtype, shape)

    @property
    def is_camera(self) -> bool:
        """Whether the values are pictures."""
        return self.dtype in ("video", "image")


@final
class LeRobotFolder:
    """A data set of LeRobot on this machine. Nothing of it is read before it is needed.

    Episodes have the numbers 0 to `K - 1`, as in the files. Pictures are decoded when they are
    used, by file and timestamp.

    Attributes:
        path: folder of the data set.
        fps: frames per second.
        features: all columns by name, including cameras.
        lengths: `[K]` frames of each episode.
        tasks: `K` texts of what the robot had to do.
        observed: names of features that `episodes` reads by default; empty for all numbers.
    """

    def __init__(self, path: Path, *, repository: str = "", observed: tuple[str, ...] = ()) -> None:
        self.path = path
        self.observed = observed
        self._repository = repository
        # Files in the hub's cache are links into a folder beside its snapshots.
        self._root = path.parents[1] if repository else path
        self._pictures: dict[str, OnDisk] = {}
        info = self._info()
        with reading_foreign(path / INFO, "the settings of a LeRobot data set"):
            self.fps = float(info["fps"])
            if not 0 < self.fps <= MOST_FPS:
                raise ValueError(f"fps {self.fps}")
            self.features = {
                name: Feature.of(name, about) for name, about in info["features"].items()
            }
            self._data_path = _template(info["data_path"])
            self._video_path = _template(info.get("video_path") or "")
            episodes = int(info["total_episodes"])
            frames = int(info["total_frames"])
        self._table = self._episode_table()
        self.lengths: IntArray = self._table["length"]
        self.tasks: tuple[str, ...] = tuple(self._table["tasks"])
        self._require_counts(episodes, frames)
        self._require_rows()

    @property
    def source(self) -> str:
        """The absolute folder, or the address on the hub that `open_lerobot` takes."""
        return f"{PREFIX}{self._repository}" if self._repository else f"{self.path.absolute()}"

    @property
    def cameras(self) -> dict[str, tuple[int, ...]]:
        """Shape `(height, width, channels)` of each camera, by name."""
        return {name: f.shape for name, f in self.features.items() if f.is_camera}

    @property
    def starts(self) -> IntArray:
        """`[K]` number of each episode's first frame among all frames; LeRobot's `index`."""
        return np.asarray(np.cumsum(self.lengths) - self.lengths)

    @property
    def counted(self) -> dict[str, IntArray]:
        """`[T]` columns by which tables identify frames, by name."""
        index = np.arange(int(self.lengths.sum()))
        return {
            "index": index,
            "episode_index": np.repeat(np.arange(len(self.lengths)), self.lengths),
            "frame_index": index - np.repeat(self.starts, self.lengths),
        }

    @cached_property
    def content_id(self) -> str:
        """The SHA-256 of the episode and data Parquet files and the sizes of the videos.

        It is the same on every machine. It changes if episodes are added or deleted.
        """
        digest = hashlib.sha256()
        for file in (*self._episode_files(), *self._data_files()[0]):
            with self._inside(file).open("rb") as opened:
                digest.update(f"{file}\0".encode())
                digest.update(hashlib.file_digest(opened, "sha256").digest())
        for feature in self.features.values():
            videos = self._video_files(feature.name)[0] if feature.dtype == "video" else []
            self._require_files(videos)
            for file in videos:
                digest.update(f"{file}\0{self._inside(file).stat().st_size}\0".encode())
        return digest.hexdigest()

    def pictures(self, camera: str) -> OnDisk:
        """Return the pictures of a camera, `[T, height, width, 3]` bytes, decoded when used.

        Raises:
            DataError: there is no such camera, its files are missing or damaged, or they hold other
                pictures than the data set says.
        """
        if camera not in self._pictures:
            self._pictures[camera] = self._open_pictures(camera)
        return self._pictures[camera]

    def _open_pictures(self, camera: str) -> OnDisk:
        feature = self._feature(camera)
        if not feature.is_camera or feature.shape[-1] not in (1, 3):
            raise DataError(
                f"{self.path}, {camera}: expected a camera of colour or grey pictures, got "
                f"{feature.dtype} of shape {feature.shape}. Cameras: {', '.join(self.cameras)}"
            )
        height, width, _ = feature.shape
        sources: list[Any] = []
        if feature.dtype == "image":
            files, part, first = self._data_files()
            sources += [_ParquetPictures(self._inside(f), camera, (height, width)) for f in files]
        else:
            files, part, first = self._video_files(camera)
            self._require_files(files)
            frames = np.zeros(len(files), np.int64)
            np.maximum.at(frames, part, first + self.lengths)
            for file, count in zip(files, frames.tolist(), strict=True):
                video = VideoFrames(self._inside(file), self.fps, (height, width))
                video.require(count)
                sources.append(video)
        return OnDisk(
            sources=tuple(sources),
            part=np.repeat(part, self.lengths),
            row=np.repeat(first, self.lengths) + self.counted["frame_index"],
            row_shape=(height, width, 3),
            dtype=np.dtype(np.uint8),
        )

    def frames(self, camera: str, episode: int, first: int = 0, last: int | None = None) -> Array:
        """Decode frames `first` to `last - 1` of an episode, by default all: `[N, H, W, 3]` bytes.

        Raises:
            DataError: there is no such camera, episode or frame, or files are damaged.
        """
        if not 0 <= episode < len(self.lengths):
            raise DataError(
                f"{self.path}: expected an episode from 0 to {len(self.lengths) - 1}, got {episode}"
            )
        length = int(self.lengths[episode])
        last = length if last is None else last
        if not 0 <= first < last <= length:
            raise DataError(
                f"{self.path}, episode {episode}: expected frames within 0 to {length}, got "
                f"{first} to {last}"
            )
        start = int(self.starts[episode])
        return self.pictures(camera)[start + first : start + last]

    def episodes(
        self,
        features: Sequence[str] = (),
        *,
        episodes: IntArray | None = None,
        pictures: Callable[[str], OnDisk] | None = None,
    ) -> Episodes:
        """Read named features as observations, with actions and with recorded rewards.

        LeRobot does not record what followed an episode's last frame. Its observation is therefore
        repeated as the final one, and no episode terminates. Without `next.reward`, rewards are 0.

        Args:
            features: names of the features to observe. A single one becomes an array, several
                become a dictionary. By default, these are the features of `observed`; or, if it is
                empty, all numbers whose names begin with `observation.`, without cameras. Pictures
                of a camera stay on disk until they are used.
            episodes: numbers of the episodes to read; by default all.
            pictures: maps a camera to the observations of its `T` frames; by default `pictures` of
                this data set.

        Raises:
            DataError: features are unknown, files are missing or damaged, or numbers disagree.
        """
        chosen = tuple(features) or self.observed or self._states()
        view = pictures or self.pictures
        numbers = np.arange(len(self.lengths)) if episodes is None else np.asarray(episodes)
        lengths = self.lengths[numbers]
        ends = np.cumsum(lengths)
        rows = np.repeat(self.starts[numbers] - ends + lengths, lengths) + np.arange(ends[-1])
        names = [name for name in chosen if not self._feature(name).is_camera]
        recorded = [name for name in (REWARD, SUCCESS) if name in self.features]
        self._feature(ACTION)
        columns = self._columns([*names, ACTION, *recorded])
        columns = {name: column[rows] for name, column in columns.items()}
        steps: dict[str, Any] = {
            name: columns[name] if name in columns else view(name).select(rows) for name in chosen
        }
        observations: Observations = steps[chosen[0]] if len(chosen) == 1 else steps
        success = columns.get(SUCCESS)
        select_last = partial(select_rows, rows=ends - 1)
        with naming(self.path):
            return Episodes(
                observations=observations,
                actions=columns[ACTION],
                rewards=as_floats(columns.get(REWARD, np.zeros(len(rows), np.float32)).ravel()),
                terminated=np.zeros(len(rows), bool),
                final_observations=map_observations(select_last, observations),
                lengths=lengths,
                success=None if success is None else success.ravel().astype(bool),
            )

    def _info(self) -> Mapping[str, Any]:
        with reading_foreign(self.path / INFO, "the settings of a LeRobot data set"):
            info = read_object(self._inside(INFO))
            version = str(info.get("codebase_version"))
        if version != VERSION:
            raise DataError(
                f"{self.path}: expected a LeRobot data set of version {VERSION}, got {version}. "
                f"Convert it with LeRobot: {CONVERTER}"
            )
        return info

    def _feature(self, name: str) -> Feature:
        if name not in self.features:
            near = nearest(name, self.features)
            raise DataError(
                f"{self.path}: expected one of the features {', '.join(self.features)}, got "
                f"{name}. {near}".rstrip()
            )
        return self.features[name]

    def _states(self) -> tuple[str, ...]:
        """Return the names of the observed numbers."""
        seen = [f for name, f in self.features.items() if name.startswith(OBSERVATION)]
        states = tuple(f.name for f in seen if not f.is_camera and f.dtype != "string")
        if not states:
            raise DataError(
                f"{self.path}: expected numbers named {OBSERVATION}…, got none. Name a camera: "
                f"{self.path}:{next(iter(self.cameras), 'FEATURE')}"
            )
        return states

    def _inside(self, file: str) -> Path:
        return inside(self._root, str(self.path.relative_to(self._root) / file))

    def _require_files(self, files: Collection[str]) -> None:
        """Raise `DataError` if a file is missing, after fetching files of the hub."""
        if self._repository:
            hub_folder(self._repository, files, revision=self.path.name)
        for file in files:
            with reading_foreign(self.path, "files inside of its folder", "Get another copy."):
                place = self._inside(file)
            if not place.is_file():
                raise DataError(
                    f"{self.path}: expected the file {file}, got none. Copy the whole folder."
                )

    def _episode_files(self) -> list[str]:
        folder = self.path / "meta" / "episodes"
        return sorted(f"{file.relative_to(self.path)}" for file in folder.rglob("*.parquet"))

    def _episode_table(self) -> dict[str, Any]:
        """Return the table of episodes: columns of numbers `[K]` by name, and the tasks' texts."""
        videos = [
            f"videos/{name}/{column}"
            for name, feature in self.features.items()
            if feature.dtype == "video"
            for column in ("chunk_index", "file_index", "from_timestamp")
        ]
        names = [*_EPISODE_COLUMNS, *videos]
        files = self._episode_files()
        if not files:
            raise DataError(
                f"{self.path}: expected tables of episodes in meta/episodes, got none. Copy the "
                "whole folder."
            )
        self._require_files(files)
        paths = [self._inside(file) for file in files]
        columns: dict[str, Any] = read_numbers(paths, dict.fromkeys(names, ()))
        for name, column in columns.items():
            if not name.endswith("timestamp"):
                if column.dtype.kind not in "iu":
                    raise DataError(f"{self.path}, {name}: expected whole numbers, got {column}")
                columns[name] = column.astype(np.int64)
        with reading_foreign(f"{self.path}, tasks", "texts in each row"):
            tables = [read_table(path, ["tasks"], texts=("tasks",)) for path in paths]
            tasks = [row for table in tables for row in table["tasks"].to_pylist()]
            return columns | {"tasks": [" / ".join(task) for task in tasks]}

    def _require_counts(self, episodes: int, frames: int) -> None:
        """Raise `DataError` unless the table of episodes is consistent and agrees with `INFO`."""
        counts = (len(self.lengths), int(self.lengths.sum()))
        if counts != (episodes, frames) or not episodes:
            raise DataError(
                f"{self.path}: expected {episodes} episodes of {frames} frames in all, as {INFO} "
                f"says, got {counts[0]} of {counts[1]}. Copy the whole folder."
            )
        expected = {
            "episode_index": np.arange(episodes),
            "dataset_from_index": self.starts,
            "dataset_to_index": self.starts + self.lengths,
        }
        for name, numbers in expected.items():
            wrong = (self._table[name] != numbers) | (self.lengths < 1)
            if wrong.any():
                k = int(wrong.argmax())
                raise DataError(
                    f"{self.path}, {name} of episode {k}: expected {numbers[k]} and at least one "
                    f"frame, got {self._table[name][k]} and {self.lengths[k]} frames"
                )

    def _require_rows(self) -> None:
        """Raise `DataError` unless each data file has as many rows as its episodes have frames.

        Before this check, nothing of the declared size is allocated.
        """
        files, part, _ = self._data_files()
        self._require_files(files)
        for number, name in enumerate(files):
            file = self._inside(name)
            with reading_foreign(file, "a whole Parquet file"):
                Expansion.of(file).add(unpacked_bytes(file, columns=COUNTED))
                rows = require("pyarrow.parquet", extra="parquet").read_metadata(file).num_rows
            frames = int(self.lengths[part == number].sum())
            if rows != frames:
                raise DataError(
                    f"{file}: expected {frames} rows, as the table of episodes says, got {rows}. "
                    "Copy the whole folder."
                )

    def _data_files(self) -> tuple[list[str], IntArray, IntArray]:
        """Return the data files.

        For each episode, `[K]`, the number of its file and its first row.
        """
        files, part = self._files_of("data/", self._data_path, "")
        first_episode = np.unique(part, return_index=True)[1]
        return files, part, self.starts - self.starts[first_episode][part]

    def _video_files(self, camera: str) -> tuple[list[str], IntArray, IntArray]:
        """Return a camera's videos.

        For each episode, `[K]`, its video's number and its first frame.
        """
        files, part = self._files_of(f"videos/{camera}/", self._video_path, camera)
        seconds = self._table[f"videos/{camera}/from_timestamp"]
        if not ((seconds >= 0) & (seconds * self.fps < 2**31)).all():
            raise DataError(f"{self.path}, {camera}: expected times from 0 on, got {seconds}")
        return files, part, np.rint(seconds * self.fps).astype(np.int64)

    def _files_of(self, prefix: str, template: str, camera: str) -> tuple[list[str], IntArray]:
        columns = [self._table[f"{prefix}{name}"] for name in ("chunk_index", "file_index")]
        places, part = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        files = [
            template.format(chunk_index=chunk, file_index=file, video_key=camera)
            for chunk, file in places.tolist()
        ]
        return files, part.ravel()

    def _columns(self, names: Sequence[str]) -> dict[str, Array]:
        """Read features of numbers `[T, *shape]` for all frames."""
        shapes = {name: self._feature(name).shape for name in names}
        texts = [name for name in names if self.features[name].dtype == "string"]
        if texts:
            raise DataError(f"{self.path}: expected features of numbers, got {', '.join(texts)}")
        paths = [self._inside(file) for file in self._data_files()[0]]
        columns = read_numbers(paths, dict.fromkeys(COUNTED, ()) | shapes)
        for name, numbers in self.counted.items():
            if (columns.pop(name) != numbers).any():
                raise DataError(
                    f"{self.path}, {name}: expected the frames of the table of episodes, got other "
                    "frames. Copy the whole folder."
                )
        return columns


def open_lerobot(source: str | Path) -> LeRobotFolder:
    """Open a data set of LeRobot, of format v3.0.

    Args:
        source: a folder, or `hub:OWNER/NAME` for one on the hub, whose videos are downloaded when
            they are needed. The features to observe may follow: `FOLDER:NAME,NAME`.

    Raises:
        DataError: there is no such data set, it has another version, files are missing, or it is
            damaged.
        MissingExtraError: pyarrow is not installed; or huggingface_hub, which the hub needs.
    """
    name, observed = split_features(source)
    if not name.startswith(PREFIX):
        return LeRobotFolder(Path(name), observed=observed)
    repository = name.removeprefix(PREFIX)
    folder = hub_folder(repository, ["meta/**", "data/**"])
    return LeRobotFolder(folder, repository=repository, observed=observed)


def holds_lerobot(source: str | Path) -> bool:
    """Whether a source for `open_lerobot` is a data set of LeRobot, of any version."""
    name, _ = split_features(source)
    if not name.startswith(PREFIX):
        return (Path(name) / INFO).is_file()
    hub = require("huggingface_hub", extra="hub")
    try:
        return bool(hub.file_exists(name.removeprefix(PREFIX), INFO, repo_type="dataset"))
    except Exception:  # a network may raise anything; `datasets` may have it in its cache
        return False


def split_features(source: str | Path) -> tuple[str, tuple[str, ...]]:
    """Split `FOLDER:NAME,NAME` into the data set and names of features.

    >>> split_features("hub:me/robot:observation.state,observation.images.top")
    ('hub:me/robot', ('observation.state', 'observation.images.top'))
    """
    name = str(source)
    begin = len(PREFIX) if name.startswith(PREFIX) else 0
    if Path(name).exists() or ":" not in name[begin:]:
        return name, ()
    place, _, features = name.rpartition(":")
    return place, tuple(features.split(","))


def _template(path: str) -> str:
    """Return a format string of paths that fills in chunk, file and key, and nothing else."""
    if set("{}") & set(_FILLED.sub("", path)):
        raise ValueError(f"a path {path!r}, which fills in more than chunk, file and key")
    return path


def read_table(file: Path, columns: Sequence[str], *, texts: Collection[str] = ()) -> Any:
    """Read columns of a Parquet file as an Arrow table, after counting their size.

    Args:
        file: the file.
        columns: their names.
        texts: those of them that are lists of texts. They are read as dictionaries, since a text
            that 100,000 episodes share would count as often.

    Raises:
        DataError: the file or a column is missing, the file is damaged, or it is far larger in
            memory.
    """
    parquet = require("pyarrow.parquet", extra="parquet")
    with reading_foreign(file, "a whole Parquet file"):
        Expansion.of(file).add(unpacked_bytes(file, columns=columns, texts_once=texts))
        require_names(file, columns, parquet.read_schema(file).names, "columns")
        return parquet.read_table(  # joins nested columns of several row groups
            file,
            columns=list(columns),
            partitioning=None,
            read_dictionary=[f"{name}.list.element" for name in texts],
        )


def read_numbers(files: Iterable[Path], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Read columns of Parquet files end to end, as arrays of numbers `[T, *shape]`.

    Args:
        files: the files.
        shapes: shape of a value of each column, by the column's name.

    Raises:
        DataError: see `read_table`; or values are not numbers, or have another shape.
    """
    parts: dict[str, list[Array]] = {name: [] for name in shapes}
    for file in files:
        table = read_table(file, [*shapes])
        for name, shape in shapes.items():
            parts[name].append(_numbers_of(table[name], shape, f"{file}, {name}"))
    return {name: np.concatenate(part) for name, part in parts.items()}


def _numbers_of(column: Any, shape: tuple[int, ...], name: str) -> Array:
    """Return the numbers of an Arrow column as `[T, *shape]`; they may be nested in lists."""
    values = column.combine_chunks()
    numbers, sizes = nested_numbers(values, name)
    if any((size != side).any() for size, side in zip(sizes, shape, strict=False)) or (
        numbers.size != len(values) * math.prod(shape)
    ):
        raise DataError(f"{name}: expected values of shape {shape}, got others")
    return numbers.reshape(len(values), *shape)


@final
@dataclass(frozen=True)
class _ParquetPictures:
    """Pictures in a column of a Parquet file, as PNG or JPEG."""

    path: Path
    column: str
    size: tuple[int, int]

    def __getitem__(self, rows: IntArray) -> Array:
        image = require("PIL.Image", extra="parquet")
        wanted, place = np.unique(rows, return_inverse=True)
        pictures = np.empty((len(wanted), *self.size, 3), np.uint8)
        with reading_foreign(self.path, "PNG or JPEG pictures in each row"):
            for number, data in enumerate(self._packed(wanted)):
                picture = image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
                if (picture.height, picture.width) != self.size:  # checked before it is unpacked
                    raise DataError(
                        f"{self.path}, {self.column}: expected pictures of {self.size} pixels, as "
                        f"the data set says, got {picture.height} x {picture.width}"
                    )
                pictures[number] = np.asarray(picture.convert("RGB"))
        return pictures[place]

    def _packed(self, rows: IntArray) -> Iterator[bytes]:
        """Yield the bytes of the pictures in these rising rows, from the groups that hold them."""
        parquet = require("pyarrow.parquet", extra="parquet")
        column = [self.column]
        size = unpacked_bytes(self.path, columns=column, texts_once=column)
        Expansion.of(self.path).add(size)
        # A picture may be in many rows. A dictionary holds it once.
        with parquet.ParquetFile(self.path, read_dictionary=[f"{self.column}.bytes"]) as file:
            groups = range(file.num_row_groups)
            ends = np.cumsum([file.metadata.row_group(group).num_rows for group in groups])
            group_of_row = np.searchsorted(ends, rows, side="right")
            for group in np.unique(group_of_row).tolist():
                pictures = file.read_row_group(group, columns=column)[self.column]
                first = int(ends[group]) - len(pictures)
                for row in rows[group_of_row == group].tolist():
                    yield pictures[row - first]["bytes"].as_py()
