"""Episodes written as a data set of Minari, for everybody who reads those."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from preferl._optional import require
from preferl.data.episodes import Episodes
from preferl.errors import DataError
from preferl.shapes import Array, Observations, map_observations


def require_new_minari(name: str) -> None:
    """Raise unless a Minari data set of this name can be written, which is best known beforehand.

    Raises:
        DataError: a malformed id, or one that is on this machine.
        MissingExtraError: minari is not installed.
    """
    minari = require("minari", extra="minari")
    try:
        require("minari.dataset.minari_dataset", extra="minari").parse_dataset_id(name)
    except (TypeError, ValueError) as error:
        raise DataError.mismatch(
            f"Minari id {name!r}", expected="a name such as mine/cheetah/mixed-v0", got=error
        ) from error
    if name in minari.list_local_datasets():
        raise DataError.mismatch(
            f"Minari id {name!r}",
            expected="one that is not on this machine",
            got="one that is",
            fix=f"Raise its version, or remove it: minari delete {name}",
        )


def save_minari(
    episodes: Episodes,
    name: str,
    *,
    env: str,
    algorithm: str | None = None,
    description: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write a Minari data set on this machine, in HDF5.

    The last observation of each episode is its final one. States become the infos `qpos` and
    `qvel` where MuJoCo simulates the environment and nothing else is placed, and the info `state`
    elsewhere; there is none for the final observation.

    Args:
        episodes: in the observations and actions of the environment.
        name: id of the data set.
        env: id of the environment, from which Minari takes spaces and specification.
        algorithm: who acted.
        description: for people.
        about: what else its metadata tell, under the name `preferl`. `references` in it, with
            the mean returns `random` and `expert`, become Minari's reference scores; `tiers`,
            with `name` and `episodes` of each in their order, become the info of every episode;
            `versions` become what the data set requires.

    Raises:
        DataError: a malformed id, or one that is on this machine.
        MissingExtraError: minari is not installed.
    """
    from preferl.simulators import make_registered  # loads gymnasium

    require_new_minari(name)
    minari = require("minari", extra="minari")
    about = dict(about or {})
    references = about.get("references", {})
    known = {"algorithm_name": algorithm, "description": description}
    made = make_registered(env)
    with warnings.catch_warnings():
        # An author, a link and more are for those who publish; minari warns of each.
        warnings.filterwarnings("ignore", ".* is set to None", UserWarning)
        dataset = minari.create_dataset_from_buffers(
            name,
            list(_buffers(episodes, made)),
            env=made,
            ref_min_score=references.get("random"),
            ref_max_score=references.get("expert"),
            requirements=_requirements(about),
            data_format="hdf5",
            jpeg_encoding=False,
            **known,
        )
    made.close()
    dataset.storage.update_metadata({"preferl": about})
    tiers = [tier["name"] for tier in about.get("tiers", ()) for _ in range(tier["episodes"])]
    if tiers:
        dataset.storage.update_episode_metadata([{"tier": tier} for tier in tiers])


def _buffers(episodes: Episodes, env: Any) -> Iterator[Any]:
    """One buffer per episode, as minari takes them without JAX."""
    buffer = require("minari.data_collector", extra="minari").EpisodeBuffer
    infos = _infos(episodes, env)
    for k, (start, end) in enumerate(zip(episodes.starts, episodes.ends, strict=True)):
        rows = slice(start, end)
        yield buffer(
            id=k,
            observations=_with_final(episodes, k, rows),
            actions=np.asarray(episodes.actions[rows]),
            rewards=np.asarray(episodes.rewards[rows]),
            terminations=np.asarray(episodes.terminated[rows]),
            truncations=episodes.truncated[rows],
            infos={key: array[rows] for key, array in infos.items()},
        )


def _with_final(episodes: Episodes, k: int, rows: slice) -> Observations:
    """`[T + 1, *obs]` of one episode."""
    return map_observations(
        lambda steps, final: np.concatenate([steps[rows], final[k : k + 1]]),
        episodes.observations,
        episodes.final_observations,
    )


def _infos(episodes: Episodes, env: Any) -> dict[str, Array]:
    """`[T, ...]` what it takes to draw each step."""
    from preferl.simulators import is_mujoco

    if episodes.states is None:
        return {}
    if not is_mujoco(env):
        return {"state": np.asarray(episodes.states)}
    nq, nv = env.unwrapped.model.nq, env.unwrapped.model.nv
    if episodes.states.shape[1] != nq + nv:  # something is placed anew in each episode
        return {"state": np.asarray(episodes.states)}
    return {
        "qpos": np.asarray(episodes.states[:, :nq]),
        "qvel": np.asarray(episodes.states[:, nq:]),
    }


def _requirements(about: Mapping[str, Any]) -> list[str]:
    packages = about.get("versions", {}).get("packages", {})
    simulators = ("gymnasium", "gymnasium-robotics", "mujoco")
    return [f"{name}=={packages[name]}" for name in simulators if name in packages]
