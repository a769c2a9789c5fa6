"""Save and restore the state of environments and of all wrappers around them.

The state consists of attributes that hold numbers, text, arrays or generators, and of MuJoCo's own
state. Classic control and most wrappers have no other state. Environments in other processes are
not saved.
"""

import enum
import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers.utils import RunningMeanStd
from stable_baselines3.common.monitor import ResultsWriter
from stable_baselines3.common.running_mean_std import RunningMeanStd as SB3RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

from preferl._optional import require
from preferl.envs.simulators import is_mujoco
from preferl.errors import CheckpointError
from preferl.online.wrappers.feedback_controls import FeedbackControls
from preferl.shapes import Array
from preferl.store.stages import PLACES, StateReader
from preferl.training.checkpoint_folder import is_plain

OF_THE_AGENT: Final = (
    VecNormalize,
    gymnasium.wrappers.NormalizeObservation,
    gymnasium.wrappers.NormalizeReward,
    gymnasium.wrappers.vector.NormalizeObservation,
    gymnasium.wrappers.vector.NormalizeReward,
)
"""Layers with statistics that an agent has learned with, and without which it cannot act."""

NESTED: Final = (RunningMeanStd, SB3RunningMeanStd, StackedObservations)
"""Classes of attributes of wrappers whose own attributes are saved too."""

FIXED: Final = (
    *(spaces.Space, EnvSpec, gymnasium.Env, gymnasium.vector.VectorEnv, VecEnv, type),
    *(types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType),
    *(functools.partial, enum.Enum, ResultsWriter, StateReader),
)
"""Classes of attributes that are not saved, because the script makes them with the environment."""

DRAWING: Final = ("pygame", "glfw", "OpenGL", "gymnasium.envs.mujoco.mujoco_rendering")
"""Modules of objects that only draw. They are not saved."""

PASSING: Final = frozenset(
    {"metadata", "render_mode", "envs", "env_fns", "class_attributes", "_previous_data"}
    | {"_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs"}
    | {"buf_obs", "buf_dones", "buf_rews", "buf_infos", "reset_infos"}
)
"""Attributes that are not saved.

The next step or reset writes them again, or they are arguments of the constructor, or layers.
"""


def layers(env: Any) -> Iterator[Any]:
    """Yield an environment and everything inside it, outermost first."""
    yield env
    inside = vars(env)
    for part in [*inside.get("envs", ()), inside.get("venv"), inside.get("env")]:
        if isinstance(part, gymnasium.Env | VecEnv | gymnasium.vector.VectorEnv):
            yield from layers(part)


def env_state(env: Any) -> dict[str, Any]:
    """Return the state of all layers, and the `problems` that would make episodes restart."""
    problems: list[str] = []
    states = [_layer_state(layer, problems) for layer in layers(env)]
    return {"drawing": sampling(env.action_space), "layers": states, "problems": problems}


def restore_env(env: Any, state: Mapping[str, Any]) -> None:
    """Restore the state of an environment that was built in the same way.

    If there are problems, half a state would be worse than none. Then only generators, layers of
    this library, and statistics that the agent has learned with are restored. `CheckpointError` is
    raised if the environment was built in another way.
    """
    present_layers = list(layers(env))
    saved_layers = state["layers"]
    present = " > ".join(type(layer).__name__ for layer in present_layers)
    saved = " > ".join(layer_state["class"] for layer_state in saved_layers)
    if present != saved:
        raise CheckpointError(
            f"environment: expected the layers that were saved, {saved}, got {present}. Build it "
            "in the same way as when the run began."
        )
    for layer, saved_layer in zip(present_layers, saved_layers, strict=True):
        attributes = saved_layer["attributes"]
        is_restored = not state["problems"] or isinstance(layer, (FeedbackControls, *OF_THE_AGENT))
        if not is_restored:
            plain = attributes["plain"].items()
            drawing = {name: part for name, part in plain if isinstance(part, np.random.Generator)}
            attributes = {"plain": drawing, "nested": {}}
        _restore(layer, attributes)
        if is_restored and "mujoco" in saved_layer:
            _restore_mujoco(layer, saved_layer["mujoco"])
        if isinstance(layer, FeedbackControls):
            layer.restore(saved_layer["own"])
    restore_sampling(env.action_space, state["drawing"])


def sampling(space: Any) -> list[np.random.Generator | None]:
    """Return the generators of a space and of spaces in it; None for spaces that never sampled."""
    return [part._np_random for part in _spaces(space)]


def restore_sampling(space: Any, generators: list[np.random.Generator | None]) -> None:
    """Give a space the generators that `sampling` returned, so that its draws continue."""
    for part, generator in zip(_spaces(space), generators, strict=True):
        part._np_random = generator


def _spaces(space: Any) -> Iterator[Any]:
    yield space
    inner = getattr(space, "spaces", ())
    for part in inner.values() if isinstance(inner, Mapping) else inner:
        yield from _spaces(part)


def _layer_state(layer: Any, problems: list[str]) -> dict[str, Any]:
    simulated = isinstance(layer, gymnasium.Env) and layer is layer.unwrapped and is_mujoco(layer)
    passing = PASSING | {"model", "data"} if simulated else PASSING
    name = type(layer).__name__
    state: dict[str, Any] = {"class": name}
    if isinstance(layer, FeedbackControls):
        state["own"] = layer.snapshot()
        problems = []  # the layer restores itself
    state["attributes"] = _attributes(layer, name, passing, problems)
    if simulated:
        state["mujoco"] = _mujoco_state(layer)
    return state


def _attributes(
    thing: Any, where: str, passing: frozenset[str], problems: list[str]
) -> dict[str, Any]:
    """Return plain attributes by name as `plain`, and attributes of nested objects as `nested`."""
    plain: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    for name, value in _items(thing).items():
        if name in passing or _is_fixed(value):
            continue
        inside = value.values() if isinstance(value, dict) else [value]
        if any(isinstance(part, NESTED) for part in inside):
            nested[name] = _attributes(value, f"{where}.{name}", passing, problems)
        elif is_plain(value):
            plain[name] = value
        else:
            problems.append(f"{where}.{name} is a {type(value).__name__}")
    return {"plain": plain, "nested": nested}


def _restore(thing: Any, state: Mapping[str, Any]) -> None:
    items = _items(thing)
    for name, value in state["plain"].items():
        present: Any = items.get(name)
        both_generators = isinstance(present, np.random.Generator) and isinstance(
            value, np.random.Generator
        )
        if both_generators and type(present.bit_generator) is type(value.bit_generator):
            # other objects may hold it, too
            present.bit_generator.state = value.bit_generator.state
        else:
            items[name] = value
    for name, attributes in state["nested"].items():
        _restore(items[name], attributes)


def _items(thing: Any) -> dict[str, Any]:
    return thing if isinstance(thing, dict) else vars(thing)


def _is_fixed(value: Any) -> bool:
    if isinstance(value, dict) and value:
        return all(map(_is_fixed, value.values()))
    inside = f"{type(value).__module__}."
    return isinstance(value, FIXED) or inside.startswith(tuple(f"{name}." for name in DRAWING))


def _mujoco_state(env: Any) -> dict[str, Any]:
    """Return all that MuJoCo knows of a moment, so that the next step is the same to the last bit.

    `derived` are numbers that the last step computed and environments read, such as positions.
    """
    mujoco = require("mujoco", extra="mujoco")
    integration_state = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(env.model, integration_state))
    mujoco.mj_getState(env.model, env.data, integration, integration_state)
    return {
        "integration": integration,
        "derived": {name: array.copy() for name, array in _mujoco_arrays(env.data).items()},
        "placed": {name: getattr(env.model, name).copy() for name in PLACES},
    }


def _restore_mujoco(env: Any, state: Mapping[str, Any]) -> None:
    """Restore the state of a MuJoCo environment of the same model."""
    mujoco = require("mujoco", extra="mujoco")
    model = env.model
    data = env.data
    for name, array in state["placed"].items():
        getattr(model, name)[:] = array
    mujoco.mj_forward(model, data)  # makes room for contacts in the arrays
    mujoco.mj_setState(model, data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)
    present = _mujoco_arrays(data)
    for name, array in state["derived"].items():
        if name in present and present[name].shape == array.shape:
            present[name][:] = array


def _mujoco_arrays(data: Any) -> dict[str, Array]:
    """Return the arrays of numbers that MuJoCo computes."""
    attributes = ((name, getattr(data, name)) for name in dir(data) if not name.startswith("_"))
    arrays = {name: value for name, value in attributes if isinstance(value, np.ndarray)}
    return {name: array for name, array in arrays.items() if array.size and array.flags.writeable}
