"""Write episodes as a Minari data set."""

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from preferl._optional import require
from preferl.data.episodes import Episodes, end_to_end
from preferl.envs.config import SIMULATORS
from preferl.errors import DataError, in_words
from preferl.printing import get_logger
from preferl.shapes import Array

if TYPE_CHECKING:
    from preferl.envs.checks import Environment

ENDS: Final = {"min": "random", "max": "expert"}
"""Maps each of Minari's two reference scores to the policy with that mean return."""

LOGGER = get_logger(__name__)


def require_new_minari(name: str) -> None:
    """Raise what `save_minari` would raise for this name; call it before recording."""
    minari = require("minari", extra="minari")
    what = f"Minari id {name!r}"
    try:
        require("minari.dataset.minari_dataset", extra="minari").parse_dataset_id(name)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what}: expected a name such as mine/cheetah/mixed-v0, got {in_words(error)}."
        ) from error
    if name in minari.list_local_datasets():
        raise DataError(
            f"{what}: expected a new one, got one that exists on this machine. Raise its version, "
            f"or remove it: minari delete {name}"
        )


def require_minari_env(env: "Environment") -> None:
    """Raise an error unless Minari can store the environment's spaces; call it before recording.

    The environment is closed. If Minari cannot make it again (see `save_minari`), a message is
    logged.

    Raises:
        DataError: Minari cannot describe a space.
        MissingExtraError: minari is not installed.
    """
    written = require("minari.serialization", extra="minari").serialize_space
    for name in ("observation_space", "action_space"):
        space = getattr(env, name)
        try:
            written(space)
        except NotImplementedError as error:
            raise DataError(
                f"{name} for the Minari data set: expected a space that Minari can hold, got "
                f"{space}. Wrap the environment, or leave it out."
            ) from error
    if not _can_be_made_again(env):
        LOGGER.warning(
            "Minari cannot make %s again: the data set will have its spaces, but not the "
            "environment. Tell those who load it how you made it.",
            env,
        )
    env.close()


def save_minari(
    episodes: Episodes,
    name: str,
    *,
    env: "str | Environment",
    algorithm: str | None = None,
    description: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write a Minari data set on this machine, in HDF5.

    The last observation of each episode is its final one. If MuJoCo simulates the environment and
    states hold nothing else, they become the infos `qpos` and `qvel`. Otherwise they become the
    info `state`. The final observation has no state.

    The data set has no environment if gymnasium cannot make it again from its specification:
    because it was registered with a function, or because a wrapper does not record its arguments.
    Minari's `recover_environment` then refuses.

    Args:
        episodes: episodes with the observations and actions of the environment.
        name: id of the data set.
        env: the environment or its id. Minari takes spaces and specification from it. It is closed.
        algorithm: name of the algorithm that acted.
        description: text for people.
        about: further metadata, stored under the name `preferl`. Three of its keys have further
            uses. `references`, with the mean returns `random` and `expert`, becomes Minari's
            reference scores. `tiers`, with `name` and `episodes` of each in order, becomes the info
            of every episode. `versions` become the requirements of the data set.

    Raises:
        DataError: the id is malformed, or a data set with this id exists on this machine.
        MissingExtraError: minari is not installed.
    """
    from preferl.envs.simulators import make_registered  # loads gymnasium

    require_new_minari(name)
    minari = require("minari", extra="minari")
    about = dict(about or {})
    references = about.get("references", {})
    packages = about.get("versions", {}).get("packages", {})
    made = make_registered(env) if isinstance(env, str) else env
    with warnings.catch_warnings():
        # Minari warns about each missing field for publishing, such as an author.
        warnings.filterwarnings("ignore", "(.* is set to|env_spec is) None", UserWarning)
        dataset = minari.create_dataset_from_buffers(
            name,
            list(_buffers(episodes, made)),
            env=made if _can_be_made_again(made) else None,
            observation_space=made.observation_space,
            action_space=made.action_space,
            algorithm_name=algorithm,
            description=description,
            requirements=[f"{key}=={packages[key]}" for key in SIMULATORS if key in packages],
            data_format="hdf5",
            jpeg_encoding=False,
        )
    made.close()
    means = {end: references.get(of) for end, of in ENDS.items()}
    # Minari itself keeps reference scores only if it can make the environment.
    scores = {f"ref_{end}_score": mean for end, mean in means.items() if mean is not None}
    dataset.storage.update_metadata(scores | {"preferl": about})
    tiers = [tier["name"] for tier in about.get("tiers", ()) for _ in range(tier["episodes"])]
    if tiers:
        dataset.storage.update_episode_metadata([{"tier": tier} for tier in tiers])


def _can_be_made_again(env: Any) -> bool:
    """Whether gymnasium can write an environment's specification and make it again from it."""
    import gymnasium

    try:
        env.spec.to_json()
        gymnasium.make(env.spec).close()
    except Exception:  # specifications and makers are other people's code
        return False
    return True


def _buffers(episodes: Episodes, env: Any) -> Iterator[Any]:
    """Yield a buffer per episode, in a form that minari takes without JAX."""
    buffer = require("minari.data_collector", extra="minari").EpisodeBuffer
    for k, episode in enumerate(episodes):
        infos = _infos(episode.states, env)
        if episode.success is not None:
            infos["success"] = episode.success
        yield buffer(
            id=k,
            observations=end_to_end(
                "observations", [episode.observations, episode.final_observations]
            ),
            actions=episode.actions,
            rewards=episode.rewards,
            terminations=episode.terminated,
            truncations=episode.truncated,
            infos=infos,
        )


def _infos(states: Array | None, env: Any) -> dict[str, Array]:
    """Return arrays `[T, ...]` by name, from which a simulator renders each step."""
    from preferl.envs.simulators import is_mujoco

    if states is None:
        return {}
    nq, nv = (env.unwrapped.model.nq, env.unwrapped.model.nv) if is_mujoco(env) else (0, 0)
    if nq + nv != states.shape[1]:  # not of MuJoCo, or objects move between episodes
        return {"state": states}
    return {"qpos": states[:, :nq], "qvel": states[:, nq:]}
