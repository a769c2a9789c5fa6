"""Sinks for training metrics: JSON lines, TensorBoard, Weights & Biases, or several at once."""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np

from preferl._optional import require
from preferl.errors import ConfigError, DataError, StorageError, in_words
from preferl.reading import Expansion, parse_json, reading
from preferl.shapes import Array, FloatArray


class MetricSink(Protocol):
    """Takes metrics as they come up."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Record named numbers.

        `step` counts environment steps unless a caller documents another unit.
        """
        ...

    def close(self) -> None:
        """Write what is pending, and close files."""
        ...


def _writing_to(place: Path | str) -> AbstractContextManager[None]:
    expected = "a place that can be written to"
    fix = "Change its permissions or free some space."
    return reading(place, expected=expected, fix=fix, error=StorageError)


@final
class JsonlSink:
    """Writes one JSON object per line and call, with null instead of NaN.

    A line is on disk before `log` returns. A resumed run continues the file. If a crash cut off the
    last line, that line is dropped first.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        self._path = path
        with _writing_to(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
            self._file = path.open("a", encoding="utf-8")

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Append one line: the numbers, and the step as `step`.

        Raise `StorageError` if that fails.
        """
        line = {name: float(v) if math.isfinite(v) else None for name, v in values.items()}
        text = json.dumps(line | {"step": int(step)}, allow_nan=False)
        with _writing_to(self._path):
            self._file.write(text + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file; raise `StorageError` if the disk cannot take what is pending."""
        with _writing_to(self._path):
            self._file.close()


@final
class TensorBoardSink:
    """Writes scalars for TensorBoard, as event files in a folder.

    Raises:
        StorageError: the folder cannot be written to.
    """

    def __init__(self, folder: Path | str) -> None:
        tensorboard = require("torch.utils.tensorboard", extra="all")
        self._folder = folder
        with _writing_to(folder):
            self._writer: Any = tensorboard.SummaryWriter(str(folder))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add one point per name; raise `StorageError` if that fails."""
        with _writing_to(self._folder):
            for name, value in values.items():
                self._writer.add_scalar(name, float(value), int(step))

    def close(self) -> None:
        """Flush and close the event file; raise `StorageError` if that fails."""
        with _writing_to(self._folder):
            self._writer.close()


@final
class WandbSink:
    """Sends numbers to Weights & Biases.

    Arguments that are None come from the environment variables of Weights & Biases: `WANDB_PROJECT`
    ("preferl" if it is not set), `WANDB_ENTITY`, `WANDB_MODE`, and all others that it reads.

    Args:
        project: the project there.
        entity: the user or team to whom the project belongs.
        name: the run's name; if None, the service draws one.
        folder: where the service keeps local files.
        mode: `"online"`, `"offline"` to upload later with `wandb sync`, or `"disabled"`.

    Raises:
        ConfigError: nobody is signed in, or the service refuses the run.
        MissingExtraError: wandb is not installed.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        entity: str | None = None,
        name: str | None = None,
        folder: Path | str | None = None,
        mode: str | None = None,
    ) -> None:
        wandb = require("wandb", extra="wandb")
        where = project or os.environ.get("WANDB_PROJECT") or "preferl"
        settings = {"project": where, "entity": entity, "name": name, "mode": mode}
        settings["dir"] = None if folder is None else str(folder)
        try:
            self._run: Any = wandb.init(**{k: v for k, v in settings.items() if v is not None})
        except wandb.Error as error:
            raise ConfigError(
                "Weights & Biases: expected somebody who is signed in, and may write to the "
                f"project, got {in_words(error)}. Run `wandb login` or set WANDB_API_KEY; "
                "WANDB_MODE=offline keeps the run here, to be uploaded later with `wandb sync`."
            ) from error

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log the numbers, and the step as one of them, since wandb refuses steps that go back."""
        self._run.log({**values, "step": int(step)})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


@final
class Sinks:
    """Several sinks as one; if there are none, numbers are dropped."""

    def __init__(self, *sinks: MetricSink) -> None:
        self._sinks = sinks

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Pass the numbers to each sink."""
        for sink in self._sinks:
            sink.log(values, step)

    def close(self) -> None:
        """Close each sink, even if closing another one fails."""
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)


PLACES: Final[Mapping[str, Callable[[Path], MetricSink]]] = {
    "jsonl": lambda folder: JsonlSink(folder / "metrics.jsonl"),
    "tensorboard": lambda folder: TensorBoardSink(folder / "tensorboard"),
    "wandb": lambda folder: WandbSink(name=folder.name, folder=folder),
}
"""Sinks that `open_sinks` can make for a run's folder, by name."""


PLACES_BY_DEFAULT: Final = ("jsonl", "tensorboard")
"""Sinks of runs that train, by default. Both write on this machine."""


def require_places(places: Sequence[str]) -> None:
    """Check the places for `open_sinks`, before a folder is made.

    Raises:
        ConfigError: a place is not one of `PLACES`, or is named twice.
        MissingExtraError: wandb is named but not installed.
    """
    if not set(places) <= PLACES.keys() or len(set(places)) < len(places):
        raise ConfigError(
            f"report_to: expected some of {', '.join(PLACES)}, got {', '.join(places)}."
        )
    if "wandb" in places:
        require("wandb", extra="wandb")


def open_sinks(places: Sequence[str], folder: Path) -> MetricSink:
    """Open sinks for some of `PLACES`, all in the folder of a run, and return them as one.

    In Weights & Biases, the run has the name of the folder.

    Raises:
        ConfigError, MissingExtraError: see `require_places`; or nobody is signed in to wandb.
        StorageError: the folder cannot be written to.
    """
    require_places(places)
    with ExitStack() as opened:  # closes the first sinks if opening a later one fails
        sinks = [opened.enter_context(closing(PLACES[place](folder))) for place in places]
        opened.pop_all()
    return Sinks(*sinks)


def read_jsonl(path: Path | str) -> dict[str, FloatArray]:
    """Read what `JsonlSink` wrote, as columns with a row per line; NaN if a line lacks the name.

    If a crash cut off the last line, that line is left out.

    Raises:
        StorageError: the file cannot be read.
        DataError: another line is not a JSON object of numbers, or so many lines have different
            names that the columns would be far larger than the file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     sink = JsonlSink(f"{folder}/metrics.jsonl")
    ...     sink.log({"loss": 0.5}, step=1)
    ...     sink.close()
    ...     read_jsonl(f"{folder}/metrics.jsonl")["loss"].tolist()
    [0.5]
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8, got {in_words(error)}.") from error
    except OSError as error:
        raise StorageError(f"{path}: expected a readable file, got {in_words(error)}.") from error
    rows: list[dict[str, float]] = []
    for line in text.split("\n")[:-1]:
        try:
            values = parse_json(line).items()
            rows.append({str(name): math.nan if v is None else float(v) for name, v in values})
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            number = len(rows) + 1
            raise DataError(
                f"line {number} of {path}: expected a JSON object of numbers, got {line:.200}."
            ) from error
    number_of = {name: n for n, name in enumerate(dict.fromkeys(chain.from_iterable(rows)))}
    Expansion.of(Path(path)).add(8 * len(number_of) * len(rows))
    columns = np.full((len(number_of), len(rows)), math.nan)
    for row, values in enumerate(rows):
        for name, value in values.items():
            columns[number_of[name], row] = value
    return dict(zip(number_of, columns, strict=True))


def common_series(found: Iterable[tuple[Array, FloatArray]]) -> tuple[Array, FloatArray]:
    """Join several `series`: return the steps `[n]` that all have, and their values `[S, n]`.

    If there are no series, there are no steps.

    >>> first = np.array([1, 2]), np.array([0.5, 0.4])
    >>> second = np.array([2, 3]), np.array([0.3, 0.2])
    >>> [column.tolist() for column in common_series([first, second])]
    [[2], [[0.4], [0.3]]]
    """
    several = list(found)
    if not several:
        return np.empty(0), np.empty((0, 0))
    common = reduce(np.intersect1d, [steps for steps, _ in several])
    return common, np.stack([values[np.isin(steps, common)] for steps, values in several])


def series(columns: Mapping[str, FloatArray], name: str) -> tuple[Array, FloatArray]:
    """Return the steps at which a metric was logged, in increasing order, and its values there.

    A resumed run logs some steps again; the last value counts.

    >>> metrics = {"step": np.array([1.0, 2.0, 2.0]), "loss": np.array([0.5, 0.4, 0.3])}
    >>> [column.tolist() for column in series(metrics, "loss")]
    [[1.0, 2.0], [0.5, 0.3]]
    """
    is_known = np.isfinite(columns[name]) & np.isfinite(columns["step"])
    steps, last = np.unique(columns["step"][is_known][::-1], return_index=True)
    return steps, columns[name][is_known][::-1][last]
