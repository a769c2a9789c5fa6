"""How a published reward lies on disk: a numbered folder that says what belongs in it."""

from pathlib import Path
from typing import Any, Final, NamedTuple

from gymnasium import spaces

from preferl.files import write_json
from preferl.models.spaces import space_from_json, space_to_json
from preferl.reading import read_object, reading
from preferl.training.reward_function import RewardFunction
from preferl.training.saving import load_reward
from preferl.versioned import VERSION, require_whole, version_folder, versions

ABOUT: Final = "version.json"
SPACES: Final = "spaces.json"


class Version(NamedTuple):
    """A published reward, its number from 1, and what was said of it."""

    number: int
    reward: RewardFunction
    metrics: dict[str, Any]


def read_version(folder: Path | str, number: int, *, device: str = "cpu") -> Version:
    """Read one version; all of its reward's files have to be as they were published.

    Raises:
        CheckpointError: it is not there, cut short, changed, or half of it is missing.
    """
    path = version_folder(folder, number)
    with reading(path, expected="a whole published reward"):
        about = read_object(path / ABOUT)
        metrics = dict(about["metrics"])
        require_whole(path, about["files"])
    return Version(number, load_reward(path, device=device), metrics)


def newest_reward(folder: Path | str, *, device: str = "cpu") -> Version:
    """The newest of a folder of versions, one version by its own folder, or a saved reward as 1.

    Raises:
        CheckpointError: none of these, or a damaged one.
        StorageError: the folder cannot be read.
    """
    path = Path(folder)
    if published := versions(path):
        return read_version(path, published[-1], device=device)
    if (path / ABOUT).is_file() and VERSION.fullmatch(path.name):
        return read_version(path.parent, int(path.name), device=device)
    return Version(1, load_reward(path, device=device), {})


def tell_spaces(
    folder: Path | str, observations: spaces.Space[Any], actions: spaces.Space[Any]
) -> None:
    """Leave word of an agent's spaces, so that whoever fits the reward need not guess them.

    Args:
        folder: of all versions; made if it is not there.
        observations: as the reward will be given them.
        actions: of the agent.

    Raises:
        StorageError: the folder cannot be written to.
        SpaceError: spaces that rewards do not know.
    """
    said = {"observations": space_to_json(observations), "actions": space_to_json(actions)}
    write_json(Path(folder) / SPACES, said)


def told_spaces(folder: Path | str) -> tuple[spaces.Space[Any], spaces.Space[Any]] | None:
    """What `tell_spaces` left, observations and actions; None if nobody did.

    Raises:
        CheckpointError: a damaged file.
    """
    path = Path(folder) / SPACES
    with reading(path, expected="two spaces"):
        if not path.exists():
            return None
        said = read_object(path)
        return space_from_json(said["observations"]), space_from_json(said["actions"])
