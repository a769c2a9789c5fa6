"""Reading a path or id of any kind of data; the content decides which."""

import re
from pathlib import Path

from preferl.data.arrays import load_episodes
from preferl.data.episodes import Episodes
from preferl.data.sources.d4rl import load_d4rl
from preferl.data.sources.demonstrations import load_demonstrations
from preferl.data.sources.hdf5 import SIGNATURE, open_hdf5
from preferl.data.sources.hub import PREFIX, holds_columns, load_hub_dataset
from preferl.data.sources.minari import load_minari
from preferl.data.sources.robomimic import check_observation_order, load_robomimic
from preferl.data.sources.stacked import load_stacked
from preferl.data.tasks import Task
from preferl.errors import DataError

_ZIP = b"PK\x03\x04"
_MINARI_ID = re.compile(r"[\w/-]+-v\d+")


def load_source(source: str | Path, *, task: str | Task | None = None) -> Episodes:
    """Read episodes of any kind, each reader with its defaults.

    A folder of preferl or of `.npz` files, a pickle of demonstrations, a D4RL or robomimic HDF5
    file, an `.npz` file of stacked episodes, columns of `datasets` as Parquet, Arrow or a
    `save_to_disk` folder or on the hub, or a Minari data set on this machine. The content of files
    decides, so that their names do not matter.

    A robomimic file does not record in which order its simulator puts observations together, so
    there is a warning: a policy played on another order sees noise (`check_observation_order`).

    Args:
        source: a path, `hub:OWNER/NAME` or `hub:OWNER/NAME:CONFIG` for the hub, or the id of a
            Minari data set, with `minari:` before it or as it is.
        task: row of `preferl.data.TASKS`, which a D4RL file may need, and which holds the time
            limit for columns.

    Raises:
        ConfigError: an unknown task.
        DataError: nothing of these kinds, or damaged; the message names what it was taken for.
        MissingExtraError: a library for the format is not installed.
    """
    name, place = str(source), Path(source)
    if name.startswith("minari:"):
        return load_minari(name.removeprefix("minari:"))
    if name.startswith(PREFIX):
        return load_hub_dataset(name, task=task)
    if place.is_dir():
        if (place / "about.json").is_file():
            return load_episodes(place)
        if holds_columns(place):
            return load_hub_dataset(place, task=task)
        return load_stacked(place) if any(place.glob("*.npz")) else load_episodes(place)
    if place.is_file():
        return _load_file(place, task)
    if _MINARI_ID.fullmatch(name):
        return load_minari(name)
    expected = "a file, a folder, or the id of a Minari data set such as D4RL/door/human-v2"
    raise DataError.mismatch(name, expected=expected, got="none of them")


def _load_file(path: Path, task: str | Task | None) -> Episodes:
    with path.open("rb") as file:
        head = file.read(len(SIGNATURE))
    if head == SIGNATURE or path.suffix in (".hdf5", ".h5"):
        with open_hdf5(path) as held:
            robomimic = "data" in held and "observations" not in held
        if not robomimic:
            return load_d4rl(path, task=task)
        check_observation_order(path)
        return load_robomimic(path)
    if holds_columns(path):
        return load_hub_dataset(path, task=task)
    if head.startswith(_ZIP) or path.suffix == ".npz":
        return load_stacked(path)
    return load_demonstrations(path)
