"""Published preference labels: folders of Uni-RLHF and of the Preference Transformer.

Both name windows by the row at which they begin in a data set that is loaded separately, and
both write 0 where the first was preferred, 1 where the second was, -1 where neither was. Here
they become the probability that the first is preferred: 1, 0 and 0.5.

Yuan et al. 2024, "Uni-RLHF: Universal Platform and Benchmark Suite for Reinforcement Learning
with Diverse Human Feedback"; Kim et al. 2023, "Preference Transformer: Modeling Human
Preferences using Transformers for RL".
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, final

import numpy as np

from preferl.bounds import Expansion
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segments import crosses_end, cut
from preferl.data.sources.pickles import array_of, load_pickle
from preferl.errors import DataError, StorageError, require_one_of
from preferl.shapes import Array, FloatArray, IntArray

Crossing = Literal["error", "drop", "keep"]

PT_LENGTH = 100
"""Steps per segment where a Preference Transformer file name has no `_q`: all D4RL sets."""


class _Kind(NamedTuple):
    """What tells a kind of label folder, by patterns of names, and what its files leave open."""

    labels: str
    first: str
    second: str
    length: str  # where names say the segment length
    usual: int | None  # steps where none does; None where that is an error
    spare: bool  # whether rows may be more than labels, which belong to the first of them
    crossing: Crossing  # unless it is asked for


_UNIRLHF: Final = _Kind(
    labels=r"(?:human|fake)_label_.*",
    first=r"indices_1_.*",
    second=r"indices_2_(?!num\d).*",
    length=r"_len_(\d+)",
    usual=None,
    spare=False,
    crossing="keep",
)
_PT: Final = _Kind(
    labels=r"label_human",
    first=r"indices_num\d+(?:_q\d+)?",
    second=r"indices_2_num\d+(?:_q\d+)?",
    length=r"_q(\d+)$",
    usual=PT_LENGTH,
    spare=True,
    crossing="error",
)


@final
@dataclass(frozen=True, eq=False)
class LabelRows:
    """A label folder as it is written, before it is joined with the data set it indexes.

    Attributes:
        first: `[P]` rows at which the first segments begin.
        second: `[P]` rows at which the second segments begin.
        preference: `[P]` probability that the first is preferred; 0.5 where they are equal, NaN
            where nobody has answered yet.
        length: `L` steps per segment.
    """

    first: IntArray
    second: IntArray
    preference: FloatArray
    length: int

    def __len__(self) -> int:
        return len(self.preference)


@final
@dataclass(frozen=True)
class LabelReport:
    """What a label folder held, counted before anything was left out.

    Attributes:
        pairs: answered pairs.
        first: pairs in which the first was preferred.
        second: pairs in which the second was preferred.
        ties: pairs judged equal.
        crossing: pairs with a segment that runs across an episode's end.
        dropped: pairs that were left out for it.
        length: `L` steps per segment.
    """

    pairs: int
    first: int
    second: int
    ties: int
    crossing: int
    dropped: int
    length: int

    def to_json(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


@final
@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """Comparisons read from a label folder, and the count of what was in it.

    Attributes:
        comparisons: the pairs that were kept, with the steps they need; each clip once.
        report: counts, of what was left out too.
    """

    comparisons: Comparisons
    report: LabelReport


def load_labels(
    folder: str | Path,
    episodes: Episodes,
    *,
    length: int | None = None,
    crossing: Crossing | None = None,
) -> LabelledPairs:
    """Read a label folder of either kind, told apart by the names of its files.

    Args:
        folder: holds one file of labels and two of rows.
        episodes: the data set that the labels were made for, in the same view of its rows.
        length: `L`; by default what the file names say, and 100 for a Preference Transformer
            folder that does not say.
        crossing: what becomes of pairs with a segment that runs across an episode's end.
            `"error"` refuses them. It is the default for a Preference Transformer folder: its
            segments were drawn inside episodes, so a crossing one shows that `episodes` is
            another data set or another view of it. `"keep"`, the default for Uni-RLHF, keeps
            them: its tool let them be drawn, and though their answers are noisier (the true
            reward agrees with 69 % of them on the door demonstrations, and with 91 % of the
            others), a reward whose likelihood allows for noise learns from them. `"drop"` leaves
            them out, for rewards that cannot bear such noise. The report counts them.

    Raises:
        DataError: missing, ambiguous or damaged files, rows that are not in `episodes`, or
            segments across an end where they are refused.
        StorageError: the folder cannot be read.
        UnsafePickleError: a file that wants to run code.
    """
    kind = _kind(folder)
    rows = _read(folder, kind, length)
    return join_labels(rows, episodes, crossing=crossing or kind.crossing, name=f"{folder}")


def load_unirlhf_labels(
    folder: str | Path,
    episodes: Episodes,
    *,
    length: int | None = None,
    crossing: Crossing = "keep",
) -> LabelledPairs:
    """The same for a Uni-RLHF folder; `load_labels` documents arguments and errors.

    It holds `human_label_*` or `fake_label_*`, `indices_1_*` and `indices_2_*`.
    """
    rows = read_unirlhf_labels(folder, length=length)
    return join_labels(rows, episodes, crossing=crossing, name=f"{folder}")


def load_pt_labels(
    folder: str | Path,
    episodes: Episodes,
    *,
    length: int | None = None,
    crossing: Crossing = "error",
) -> LabelledPairs:
    """The same for a Preference Transformer folder; `load_labels` documents arguments and errors.

    It holds `label_human`, `indices_num*` and `indices_2_num*`.
    """
    rows = read_pt_labels(folder, length=length)
    return join_labels(rows, episodes, crossing=crossing, name=f"{folder}")


def read_labels(folder: str | Path, *, length: int | None = None) -> LabelRows:
    """The rows and preferences of a folder of either kind, without the data set.

    Raises:
        DataError, StorageError, UnsafePickleError: as `load_labels`.
    """
    return _read(folder, _kind(folder), length)


def read_unirlhf_labels(folder: str | Path, *, length: int | None = None) -> LabelRows:
    """The rows and preferences of a Uni-RLHF folder, without the data set.

    Raises:
        DataError, StorageError, UnsafePickleError: as `load_labels`.
    """
    return _read(folder, _UNIRLHF, length)


def read_pt_labels(folder: str | Path, *, length: int | None = None) -> LabelRows:
    """The rows and preferences of a Preference Transformer folder, without the data set.

    Its index files may hold more rows than were labelled; labels belong to the first of them.

    Raises:
        DataError, StorageError, UnsafePickleError: as `load_labels`.
    """
    return _read(folder, _PT, length)


def join_labels(
    rows: LabelRows, episodes: Episodes, *, crossing: Crossing = "drop", name: str = "label rows"
) -> LabelledPairs:
    """Comparisons of the segments that label rows name.

    Args:
        rows: what to look up.
        episodes: the data set that the rows count in.
        crossing: as for `load_labels`; left out by default.
        name: what errors call the rows.

    Raises:
        ConfigError: another `crossing`.
        DataError: rows that are not in `episodes`, or segments across an end that are refused.
    """
    require_one_of("crossing", crossing, Crossing)
    start, row = np.unique(np.concatenate([rows.first, rows.second]), return_inverse=True)
    try:
        segments = cut(episodes, start, rows.length)
    except DataError as error:
        raise DataError(f"{name} does not belong to these episodes: {error}") from error
    pairs = row.reshape(2, len(rows)).T  # [P, 2]
    beyond = crosses_end(episodes, start, rows.length)
    across = beyond[pairs].any(axis=1)
    if crossing == "error" and across.any():
        begin = int(start[beyond][0])
        raise DataError.mismatch(
            f"{name} does not fit these episodes",
            expected="segments inside episodes",
            got=f"{int(across.sum())} of {len(rows)} pairs with one across an episode's end, such "
            f"as rows {begin} to {begin + rows.length - 1}",
            fix="Load the version and view of the data set that the labels were made for, or "
            'pass crossing="drop" or "keep" if they are meant to cross.',
        )
    kept = ~across if crossing == "drop" else np.ones(len(rows), bool)
    report = LabelReport(
        pairs=len(rows),
        first=int((rows.preference > 0.5).sum()),
        second=int((rows.preference < 0.5).sum()),
        ties=int((rows.preference == 0.5).sum()),
        crossing=int(across.sum()),
        dropped=int((~kept).sum()),
        length=rows.length,
    )
    return LabelledPairs(Comparisons.of(segments, pairs[kept], rows.preference[kept]), report)


def _kind(folder: str | Path) -> _Kind:
    """The kind of a folder, told by the names of its files."""
    names = _names(folder)
    found = [
        kind
        for kind in (_UNIRLHF, _PT)
        if any(re.fullmatch(pattern, _stem(name)) for name in names for pattern in kind[:3])
    ]
    if len(found) != 1:
        raise DataError.mismatch(
            f"{folder}",
            expected="the label files of either Uni-RLHF or the Preference Transformer",
            got=f"files of both: {names}" if found else f"neither among {names}",
            fix="Give the folder that holds the three files of one label set.",
        )
    return found[0]


def _read(folder: str | Path, kind: _Kind, asked: int | None) -> LabelRows:
    files = _find(folder, kind)
    length = _length_in_names(files, kind.length, asked) or kind.usual
    if length is None:
        raise DataError.mismatch(
            f"{folder}",
            expected="a segment length in the file names, as in `_len_50`",
            got=[file.name for file in files.values()],
            fix="Pass `length`.",
        )
    first, second = _rows(files["first"]), _rows(files["second"])
    preference = _preference(files["labels"])
    count = len(preference)
    if len(first) != len(second) or len(first) < count or (len(first) > count and not kind.spare):
        raise DataError.mismatch(
            f"{folder}",
            expected="as many rows of first and second segments, and one of each per label",
            got=f"{len(first)} first, {len(second)} second, {count} labels",
            fix="Take the three files from the same label set.",
        )
    return LabelRows(first[:count], second[:count], preference, length)


def _names(folder: str | Path) -> list[str]:
    try:
        return sorted(path.name for path in Path(folder).iterdir())
    except OSError as error:
        raise StorageError.mismatch(
            f"{folder}", expected="a folder of label files", got=error
        ) from error


def _stem(name: str) -> str:
    return name.removesuffix(".pkl").removesuffix(".pickle")


def _find(folder: str | Path, kind: _Kind) -> dict[str, Path]:
    """The one file of each part, by its name: the sorted order differs between the formats."""
    names = _names(folder)
    found = {}
    for part in ("labels", "first", "second"):
        pattern: str = getattr(kind, part)
        matching = [name for name in names if re.fullmatch(pattern, _stem(name))]
        if len(matching) != 1:
            raise DataError.mismatch(
                f"{folder}, file of {part}",
                expected=f"one file named {pattern}",
                got=f"{matching or 'none'} among {names}",
                fix="Keep one label set per folder.",
            )
        found[part] = Path(folder) / matching[0]
    return found


def _length_in_names(files: dict[str, Path], pattern: str, asked: int | None) -> int | None:
    """The segment length that the names and the caller agree on; None if nobody says."""
    matches = [re.search(pattern, _stem(file.name)) for file in files.values()]
    said = {int(match[1]) for match in matches if match} | ({asked} if asked is not None else set())
    if len(said) > 1:
        raise DataError.mismatch(
            "segment length",
            expected="one for a label set",
            got=f"{sorted(said)} in {[file.name for file in files.values()]}"
            + (f" and length={asked}" if asked is not None else ""),
        )
    return next(iter(said), None)


def _array(file: Path) -> Array:
    found = load_pickle(file)
    return np.asarray(array_of(found, f"{file}", Expansion.of(file), expected="one array or list"))


def _rows(file: Path) -> IntArray:
    array = _array(file)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError.mismatch(
            f"{file}",
            expected="whole numbers [P], rows at which segments begin",
            got=f"{array.dtype} of shape {array.shape}",
        )
    return array.astype(np.int64)


def _preference(file: Path) -> FloatArray:
    """`[P]` from codes `[P]` of people or from shares `[P, 2]` that were computed."""
    array = _array(file)
    if array.dtype.kind in "iuf" and array.ndim == 2 and array.shape[1] == 2:
        valid = (array >= 0).all(axis=1) & np.isclose(array.sum(axis=1), 1)
        preference = array[:, 0].astype(np.float64)
        expected = "two shares per pair that sum to 1"
    elif array.dtype.kind in "iuf" and array.ndim == 1:
        valid = np.isin(array, (-1, 0, 1))
        preference = np.where(array == -1, 0.5, 1.0 - array)
        expected = "0 (first preferred), 1 (second) or -1 (equal)"
    else:
        raise DataError.mismatch(
            f"{file}", expected="labels [P] or [P, 2]", got=f"{array.dtype} of shape {array.shape}"
        )
    if not len(array):
        raise DataError.mismatch(f"{file}", expected="at least one label", got="none")
    if not valid.all():
        pair = int((~valid).argmax())
        raise DataError.mismatch(f"{file}, pair {pair}", expected=expected, got=array[pair])
    return preference
