"""Episodes of one length as stacked arrays in `.npz` files, as recorded side by side."""

from pathlib import Path
from typing import Literal

import numpy as np

from preferl.data.arrays import load_npz
from preferl.data.columns import as_floats, require_numbers
from preferl.data.episodes import Episodes, join
from preferl.errors import DataError, require_one_of
from preferl.reading import reading
from preferl.shapes import Array

LastObservation = Literal["reset", "reached"]

_FIELDS = ("observations", "actions", "rewards", "dones")


def load_stacked(path: str | Path, *, last_observation: LastObservation = "reset") -> Episodes:
    """Read `.npz` files of `observations [K, T, *obs]`, `actions`, `rewards` and `dones`.

    Each episode gives `T - 1` steps: its last row has no observation of its own step. `dones` may
    only mark that last row: they are time limits, so no episode terminates. Whether a task was
    solved is not in such files.

    Args:
        path: a file, or a folder whose `.npz` files are read in the order of their names.
        last_observation: what the last row observed. `"reset"` (the default, the safe one): a
            simulator that resets by itself left the next episode's first observation there, so
            it is left out and the observation before stands in for what followed. `"reached"`:
            it is what followed the last step.

    Raises:
        ConfigError: another `last_observation`.
        DataError: no such files, damaged ones, missing arrays, axes that do not agree, a done
            inside an episode, or NaN.
    """
    require_one_of("last_observation", last_observation, LastObservation)
    path = Path(path)
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise DataError.mismatch(f"{path}", expected="a folder with .npz files", got="none")
    return join([_episodes(_read(file), file, last_observation) for file in files])


def _read(file: Path) -> dict[str, Array]:
    fix = "Check the path, and that the file was copied whole."
    with reading(file, expected="a whole .npz file of numbers", fix=fix, error=DataError):
        return load_npz(file, _FIELDS)


def _episodes(arrays: dict[str, Array], file: Path, last: LastObservation) -> Episodes:
    axes = arrays["rewards"].shape
    if len(axes) != 2 or axes[0] < 1 or axes[1] < 2:
        raise DataError.mismatch(
            f"{file}, rewards", expected="shape [K, T], T at least 2", got=axes
        )
    for name, array in arrays.items():
        expected = f"numbers of shape {axes} and more"
        require_numbers(f"{file}, {name}", array, expected, axes=2)
        if array.shape[:2] != axes:
            raise DataError.mismatch(f"{file}, {name}", expected=expected, got=array.shape)
    early = arrays["dones"][:, :-1].any(axis=1)
    if early.any():
        raise DataError.mismatch(
            f"{file}, dones",
            expected="none before the last row, since episodes are of one length",
            got=f"one inside episode {int(early.argmax())}",
        )
    episodes, steps = axes[0], axes[1] - 1
    flat = {name: array[:, :-1].reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    try:
        return Episodes(
            observations=flat["observations"],
            actions=flat["actions"],
            rewards=as_floats(flat["rewards"]),
            terminated=np.zeros(episodes * steps, bool),
            final_observations=arrays["observations"][:, -1 if last == "reached" else -2],
            lengths=np.full(episodes, steps),
        )
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
