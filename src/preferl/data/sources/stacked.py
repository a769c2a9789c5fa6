"""Episodes of one length as stacked arrays in `.npz` files, as recorded side by side."""

from pathlib import Path
from typing import Literal

import numpy as np

from preferl.data.arrays import load_npz
from preferl.data.columns import as_floats, check, naming, reading_foreign, require_numbers
from preferl.data.episodes import Episodes, join
from preferl.errors import require_one_of

LastObservation = Literal["reset", "reached"]

_FIELDS = ("observations", "actions", "rewards", "dones")


def load_stacked(path: str | Path, *, last_observation: LastObservation = "reset") -> Episodes:
    """Read `.npz` files of `observations [K, T, *obs]`, `actions`, `rewards` and `dones`.

    Each episode gives `T - 1` steps: its last row has no observation of its own step. `dones` may
    only mark that last row: they are time limits, so no episode terminates. Such files do not
    record whether a task was solved.

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
    check(files, path, "a folder with .npz files", "none")
    return join([_episodes(file, last_observation) for file in files])


def _episodes(file: Path, last: LastObservation) -> Episodes:
    with reading_foreign(file, "a whole .npz file of numbers"):
        arrays = load_npz(file, _FIELDS)
    axes = arrays["rewards"].shape
    enough = len(axes) == 2 and axes[0] >= 1 and axes[1] >= 2
    check(enough, f"{file}, rewards", "shape [K, T], T at least 2", axes)
    for name, array in arrays.items():
        expected = f"numbers of shape {axes} and more"
        require_numbers(f"{file}, {name}", array, expected, axes=2)
        check(array.shape[:2] == axes, f"{file}, {name}", expected, array.shape)
    early = arrays["dones"][:, :-1].any(axis=1)
    expected = "none before the last row, since episodes are of one length"
    got = f"one inside episode {int(early.argmax())}"
    check(not early.any(), f"{file}, dones", expected, got)
    episodes, steps = axes[0], axes[1] - 1
    flat = {name: array[:, :-1].reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    with naming(file):
        return Episodes(
            observations=flat["observations"],
            actions=flat["actions"],
            rewards=as_floats(flat["rewards"]),
            terminated=np.zeros(episodes * steps, bool),
            final_observations=arrays["observations"][:, -1 if last == "reached" else -2],
            lengths=np.full(episodes, steps),
        )
