"""Published preference labels: folders of Uni-RLHF and of the Preference Transformer.

Both name windows by the row at which they begin in a data set that is loaded separately. Both write
0 if the first was preferred, 1 if the second was, and -1 if neither was. Here they become the
probability that the first is preferred: 1, 0 and 0.5.

Yuan et al. 2024, "Uni-RLHF: Universal Platform and Benchmark Suite for Reinforcement Learning
with Diverse Human Feedback"; Kim et al. 2023, "Preference Transformer: Modeling Human
Preferences using Transformers for RL", section 5.1 for its queries.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, final

import numpy as np

from preferl.data.columns import naming
from preferl.data.comparisons import Comparisons
from preferl.data.episodes import Episodes
from preferl.data.segment_sampling import crosses_end, cut
from preferl.data.sources.pickles import array_of, load_pickle, pickled
from preferl.errors import DataError, StorageError, in_words, require_in, require_one_of
from preferl.files import writing
from preferl.reading import Expansion
from preferl.shapes import Array, FloatArray, IntArray

Crossing = Literal["error", "drop", "keep"]
Ties = Literal["half", "first"]


class _Kind(NamedTuple):
    """A kind of label folder: its file names, and rules for what its files leave open."""

    files: tuple[str, str, str]  # for labels, for first rows and for second rows
    length: str  # pattern of the segment length in names
    usual: int | None  # steps if no name has a length; None if that is an error
    spare: bool  # whether there may be more rows than labels, which belong to the first rows
    crossing: Crossing  # the default of `crossing`


_UNIRLHF: Final = _Kind(
    (r"(?:human|fake)_label_.*", r"indices_1_.*", r"indices_2_(?!num\d).*"),
    length=r"_len_(\d+)",
    usual=None,
    spare=False,
    crossing="keep",
)
_PT: Final = _Kind(
    (r"label_human", r"indices_num\d+(?:_q\d+)?", r"indices_2_num\d+(?:_q\d+)?"),
    length=r"_q(\d+)$",
    usual=100,  # length in all D4RL sets, whose names have no `_q`
    spare=True,
    crossing="error",
)


@final
@dataclass(frozen=True, eq=False)
class LabelRows:
    """A label folder as it was written, before it is joined with the data set of its rows.

    Attributes:
        first: `[P]` rows at which the first segments begin.
        second: `[P]` rows at which the second segments begin.
        preference: `[P]` probability that the first is preferred; 0.5 if they are equal, NaN if
            nobody has answered yet.
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
    """The contents of a label folder, counted before anything was left out.

    Attributes:
        pairs: answered pairs.
        first: pairs in which the first was preferred.
        second: pairs in which the second was preferred.
        ties: pairs that were answered as equal.
        crossing: pairs with a segment that runs across an episode's end.
        dropped: pairs that were left out for that reason.
        length: `L` steps per segment.
    """

    pairs: int
    first: int
    second: int
    ties: int
    crossing: int
    dropped: int
    length: int

    @classmethod
    def of(
        cls, preference: FloatArray, length: int, *, crossing: int = 0, dropped: int = 0
    ) -> "LabelReport":
        """Count the answers `[P]` to pairs of segments of `length` steps."""
        decided = (preference > 0.5, preference < 0.5, preference == 0.5)
        first, second, ties = (int(rows.sum()) for rows in decided)
        return cls(first + second + ties, first, second, ties, crossing, dropped, length)

    @classmethod
    def of_comparisons(cls, comparisons: Comparisons, *, dropped: int = 0) -> "LabelReport":
        """Count answers, and pairs across an episode's end if the places of segments are known."""
        origin = comparisons.segments.origin
        across = 0
        if origin is not None:
            across = int((origin[:, 0] != origin[:, 2])[comparisons.pairs].any(axis=1).sum())
        length = comparisons.segments.length
        return cls.of(comparisons.preference, length, crossing=across, dropped=dropped)

    def to_json(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


@final
@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """The comparisons that were kept of a label folder, and counts of all that it contained."""

    comparisons: Comparisons
    report: LabelReport


def load_labels(
    folder: str | Path,
    episodes: Episodes,
    *,
    length: int | None = None,
    crossing: Crossing | None = None,
) -> LabelledPairs:
    """Read a label folder. The names of its files tell which kind it is.

    Args:
        folder: holds one file of labels and two of rows. Uni-RLHF has `human_label_*` or
            `fake_label_*`, `indices_1_*` and `indices_2_*`. The Preference Transformer has
            `label_human`, `indices_num*` and `indices_2_num*`, and its labels belong to the first
            rows.
        episodes: the data set for which the labels were made, in the same view of its rows.
        length: `L`; by default the length in the file names, and 100 for a Preference Transformer
            folder without one.
        crossing: what happens to pairs with a segment that runs across an episode's end. `"error"`
            refuses them, which is the default for a Preference Transformer folder. Its segments
            were drawn inside episodes, so a crossing one shows that `episodes` is another data set
            or another view of it. `"keep"` keeps them, which is the default for Uni-RLHF, whose
            tool could draw them. Their answers are noisier: the true reward agrees with 69 % of
            them on the door demonstrations, and with 91 % of the others. A reward whose likelihood
            allows for noise still learns from them. `"drop"` leaves them out, for rewards that
            cannot bear such noise. The report counts them.

    Raises:
        DataError: files are missing, ambiguous or damaged, rows are not in `episodes`, or segments
            cross an end although that is refused.
        StorageError: the folder cannot be read.
        UnsafePickleError: a file wants to run code.
    """
    rows, usual = _read(folder, length)
    return join_labels(rows, episodes, crossing=crossing or usual, name=f"{folder}")


def read_labels(folder: str | Path, *, length: int | None = None) -> LabelRows:
    """Read the rows and preferences of a folder, without the data set; see `load_labels`."""
    return _read(folder, length)[0]


def join_labels(
    rows: LabelRows, episodes: Episodes, *, crossing: Crossing = "drop", name: str = "label rows"
) -> LabelledPairs:
    """Make comparisons of the segments that label rows name.

    Rows count in `episodes`. For `crossing`, see `load_labels`; by default, such pairs are dropped.
    Errors call the rows `name`.

    Raises:
        ConfigError: `crossing` is unknown.
        DataError: rows are not in `episodes`, or segments cross an end although that is refused.
    """
    require_one_of("crossing", crossing, Crossing)
    start, row = np.unique(np.concatenate([rows.first, rows.second]), return_inverse=True)
    with naming(f"{name} does not belong to these episodes"):
        segments = cut(episodes, start, rows.length)
    pairs = row.reshape(2, len(rows)).T  # [P, 2]
    beyond = crosses_end(episodes, start, rows.length)
    across = beyond[pairs].any(axis=1)
    crossed = int(across.sum())
    if crossing == "error" and crossed:
        first_step = int(start[beyond][0])
        raise DataError(
            f"{name} does not fit these episodes: expected segments inside episodes, got {crossed} "
            f"of {len(rows)} pairs with one across an episode's end, such as rows {first_step} to "
            f"{first_step + rows.length - 1}. Load the version and view of the data set that the "
            "labels "
            'were made for, or pass crossing="drop" or "keep" if they are meant to cross.'
        )
    dropped = crossed if crossing == "drop" else 0
    is_kept = ~across if dropped else slice(None)
    report = LabelReport.of(rows.preference, rows.length, crossing=crossed, dropped=dropped)
    return LabelledPairs(Comparisons.of(segments, pairs[is_kept], rows.preference[is_kept]), report)


def label_rows(comparisons: Comparisons, episodes: Episodes) -> LabelRows:
    """Return the rows at which compared segments begin in the episodes they were cut from.

    Raises:
        DataError: the place of a segment is not known, or a segment is padded.
    """
    segments = comparisons.segments
    short = int((segments.real < segments.length).sum())
    if segments.origin is None or short:
        problem = f"{short} shorter ones" if short else "none that are known"
        raise DataError(
            f"segments: expected places of {segments.length} steps each in their episodes, got "
            f"{problem}. Draw the segments from these episodes, without padding."
        )
    episode, step, _ = segments.origin.T
    first, second = (episodes.starts[episode] + step)[comparisons.pairs].T
    return LabelRows(first, second, comparisons.preference, segments.length)


def save_pt_labels(folder: str | Path, rows: LabelRows) -> None:
    """Write answers as the Preference Transformer's label files, which `load_labels` also reads.

    These are `indices_numP_qL`, `indices_2_numP_qL` and `label_human`, pickles of arrays. They are
    in a folder that is replaced if it holds nothing else.

    Raises:
        DataError: there are shares between 0 and 1 other than one half, or a declined answer.
        StorageError: the folder holds something else, or cannot be written to.
    """
    half = rows.preference == 0.5
    decided = np.isin(rows.preference, (0, 1))
    strange = rows.preference[~(half | decided)]
    if len(strange):
        raise DataError(
            f"answers in label files: expected 0, 0.5 or 1, got {strange[0]:g} for one of "
            f"{len(strange)} pairs. Leave them out, write folders of preferl, or let the teacher "
            "answer yes or no."
        )
    folder = Path(folder)
    kind = f"num{len(rows)}_q{rows.length}"
    names = (f"indices_{kind}", f"indices_2_{kind}", "label_human")
    existing_files = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if existing_files and not _matches_all(existing_files, _PT.files):
        raise StorageError(
            f"{folder}: expected a new or empty folder, or one of such labels, got a folder of "
            "something else. Choose another name."
        )
    label = np.where(half, -1, 1 - rows.preference).astype(np.int64)
    with writing(folder) as draft:
        draft.mkdir()
        for name, array in zip(names, (rows.first, rows.second, label), strict=True):
            (draft / name).write_bytes(pickled(array))


def scripted_preferences(
    rows: LabelRows, episodes: Episodes, *, ties: Ties = "half", crossing: Crossing = "drop"
) -> Comparisons:
    """Answer the queries of a label folder by the true reward: more reward is preferred.

    This compares people's answers with exact answers to the same queries.

    Args:
        rows: from `read_labels` or `sample_pt_queries`; answers in them are not used.
        episodes: the data set in which the rows count, with the environment's rewards. They are
            summed in their own precision, since it may decide whether two sums are equal.
        ties: the answer to equal sums. `"half"`, the default, means that the two are equal; the
            original has this for antmaze and robomimic. `"first"` means that the first is
            preferred; the original has this for the other D4RL tasks.
        crossing: see `load_labels`; by default, such pairs are left out.

    Raises:
        ConfigError: `ties` or `crossing` is unknown.
        DataError: rows are not in `episodes`.

    >>> episodes = Episodes(np.zeros((4, 1)), np.zeros((4, 1)), np.array([0.0, 1, 1, 2]),
    ...                     np.zeros(4, bool), np.zeros((1, 1)), np.array([4]))
    >>> rows = LabelRows(np.array([0, 1]), np.array([2, 1]), np.full(2, np.nan), length=2)
    >>> scripted_preferences(rows, episodes).preference.tolist()
    [0.0, 0.5]
    """
    require_one_of("ties", ties, Ties)
    comparisons = join_labels(rows, episodes, crossing=crossing).comparisons
    segments = comparisons.segments
    first, second = segments.rewards[segments.rows()].sum(axis=1)[comparisons.pairs].T
    equal = 0.5 if ties == "half" else 1.0
    preference = np.where(first == second, equal, (first > second).astype(float))
    return replace(comparisons, preference=preference)


def sample_pt_queries(
    lengths: Sequence[int] | IntArray, count: int, query_length: int, seed: int
) -> LabelRows:
    """Draw the same queries as the Preference Transformer's sampler with the same seed.

    Each query is two independent segments. For each segment, an episode is drawn among all except
    the last, with equal probability whatever its length. If it is not longer than the segment,
    another one is drawn. Then its first step is drawn. Most of the published antmaze labels answer
    the queries that seed 3407 draws, in segments of 100, from 999 episodes of 1000 steps and a last
    one, which is never drawn.

    `lengths` are the `[K]` steps of each episode. `seed` is for numpy's older generator, which the
    original used. The preference of the rows is NaN, as nobody has answered yet.

    Raises:
        ConfigError: `count` is negative, or a length is below 1.
        DataError: no episode except the last is longer than `query_length`.
    """
    require_in("count", count, 0, float("inf"))
    require_in("query_length", query_length, 1, float("inf"))
    lengths = np.asarray(lengths)
    starts = np.cumsum(lengths) - lengths
    longest = int(lengths[:-1].max(initial=0))
    if longest <= query_length:
        raise DataError(
            "episodes to ask about: expected one, other than the last, of more than "
            f"{query_length} steps, got lengths up to {longest}."
        )
    random = np.random.RandomState(seed)

    def draw() -> int:
        # One number at a time: how many are used depends on earlier numbers.
        while lengths[episode := random.randint(len(lengths) - 1)] <= query_length:
            pass
        return int(starts[episode] + random.randint(lengths[episode] - query_length + 1))

    rows_drawn = np.array([draw() for _ in range(2 * count)], np.int64).reshape(count, 2)
    return LabelRows(rows_drawn[:, 0], rows_drawn[:, 1], np.full(count, np.nan), query_length)


def _read(folder: str | Path, length: int | None) -> tuple[LabelRows, Crossing]:
    """Return the rows of a folder, and the default of `crossing` for folders of its kind."""
    try:
        names = sorted(path.name for path in Path(folder).iterdir())
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a folder of label files, got {in_words(error)}."
        ) from error
    kinds = [k for k in (_UNIRLHF, _PT) if any(_matching(names, name) for name in k.files)]
    if len(kinds) != 1:
        fix = "Give the folder that holds the three files of one label set."
        if not kinds and {"comparisons", "about.json"} & set(names):  # a run, or its answers
            fix = "Answers that preferl wrote, such as a run's, are read with --comparisons "
            fix += f"{shlex.quote(f'{folder}')}, without --labels (comparisons= in Python)."
        raise DataError(
            f"{folder}: expected the label files of either Uni-RLHF or the Preference Transformer, "
            f"got {'files of both:' if kinds else 'neither among'} {names}. {fix}"
        )
    kind = kinds[0]
    files = []
    for part, pattern in zip(("labels", "first", "second"), kind.files, strict=True):
        matching = _matching(names, pattern)
        if len(matching) != 1:
            raise DataError(
                f"{folder}, file of {part}: expected one file named {pattern}, got "
                f"{matching or 'none'} among {names}. Keep one label set per folder."
            )
        files.append(Path(folder) / matching[0])
    length = _length(folder, [file.name for file in files], kind, length)
    preference = _preference(files[0])
    first = _rows(files[1])
    second = _rows(files[2])
    count = len(preference)
    enough = len(first) >= count if kind.spare else len(first) == count
    if not enough or len(first) != len(second):
        raise DataError(
            f"{folder}: expected as many rows of first and second segments, and one of each "
            f"per label, got {len(first)} first, {len(second)} second, {count} labels. Take "
            "the three files from the same label set."
        )
    return LabelRows(first[:count], second[:count], preference, length), kind.crossing


def _matching(names: list[str], pattern: str) -> list[str]:
    return [name for name in names if re.fullmatch(pattern, _stem(name))]


def _matches_all(names: list[str], patterns: Sequence[str]) -> bool:
    return all(any(re.fullmatch(p, _stem(name)) for p in patterns) for name in names)


def _stem(name: str) -> str:
    return name.removesuffix(".pkl").removesuffix(".pickle")


def _length(folder: str | Path, names: list[str], kind: _Kind, asked: int | None) -> int:
    """Return the segment length on which the names and the caller agree."""
    matches = [re.search(kind.length, _stem(name)) for name in names]
    lengths = {int(match[1]) for match in matches if match}
    lengths |= set() if asked is None else {asked}
    if len(lengths) > 1:
        raise DataError(
            f"segment length: expected one for a label set, got {sorted(lengths)} in {names} and "
            f"length={asked}."
        )
    length = next(iter(lengths), 0) or kind.usual
    if length is None:
        raise DataError(
            f"{folder}: expected a segment length in the file names, as in `_len_50`, got "
            f"{names}. Pass `length`."
        )
    return length


def _array(file: Path) -> tuple[Array, str]:
    """Return the array in a file, and its description in errors."""
    content = load_pickle(file)
    array = array_of(content, f"{file}", Expansion.of(file), expected="one array or list")
    return np.asarray(array), f"{array.dtype} of shape {array.shape}"


def _rows(file: Path) -> IntArray:
    array, actual = _array(file)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{file}: expected whole numbers [P], rows at which segments begin, got {actual}."
        )
    return array.astype(np.int64)


def _preference(file: Path) -> FloatArray:
    """Return preferences `[P]` from people's codes `[P]`, or from computed shares `[P, 2]`."""
    array, actual = _array(file)
    shares = array.shape[1:] == (2,)
    if array.dtype.kind not in "iuf" or not (array.ndim == 1 or shares):
        raise DataError(f"{file}: expected labels [P] or [P, 2], got {actual}.")
    if not len(array):
        raise DataError(f"{file}: expected at least one label, got none.")
    if shares:
        valid = (array >= 0).all(axis=1) & np.isclose(array.sum(axis=1), 1)
        preference = array[:, 0].astype(np.float64)
        expected = "two shares per pair that sum to 1"
    else:
        valid = np.isin(array, (-1, 0, 1))
        preference = np.where(array == -1, 0.5, 1.0 - array)
        expected = "0 (first preferred), 1 (second) or -1 (equal)"
    pair = int((~valid).argmax())
    if not valid.all():
        raise DataError(f"{file}, pair {pair}: expected {expected}, got {array[pair]}.")
    return preference
