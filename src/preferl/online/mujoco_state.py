"""All that MuJoCo knows of a moment, so that the next step comes out the same to the last bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from preferl._optional import require
from preferl.shapes import Array
from preferl.simulators import Environment
from preferl.store.stages import PLACES


def mujoco_state(env: Environment) -> dict[str, Any]:
    """How a MuJoCo environment stands.

    Args:
        env: without wrappers.

    Returns:
        `integration`, from which the next step is computed; `derived`, what the last step left for
        environments to read, such as where bodies were; `placed`, what an episode put elsewhere.
    """
    mujoco = require("mujoco", extra="mujoco")
    stage: Any = env
    whole = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(stage.model, whole))
    mujoco.mj_getState(stage.model, stage.data, integration, whole)
    return {
        "integration": integration,
        "derived": {name: array.copy() for name, array in _arrays(stage.data).items()},
        "placed": {name: getattr(stage.model, name).copy() for name in PLACES},
    }


def put_mujoco_back(env: Environment, state: Mapping[str, Any]) -> None:
    """Bring a MuJoCo environment of the same model to where another one stood."""
    mujoco = require("mujoco", extra="mujoco")
    stage: Any = env
    for name, array in state["placed"].items():
        getattr(stage.model, name)[:] = array
    mujoco.mj_forward(stage.model, stage.data)  # so that arrays have room for contacts
    mujoco.mj_setState(
        stage.model, stage.data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION
    )
    present = _arrays(stage.data)
    for name, array in state["derived"].items():
        if name in present and present[name].shape == array.shape:
            present[name][:] = array


def _arrays(data: Any) -> dict[str, Array]:
    """Arrays of numbers among what MuJoCo computes."""
    named = {name: getattr(data, name) for name in dir(data) if not name.startswith("_")}
    return {
        name: value
        for name, value in named.items()
        if isinstance(value, np.ndarray) and value.size and value.flags.writeable
    }
