"""A new project is told how to draw what people see, not what the agent sees."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from preferl.errors import CheckpointError, ConfigError, StorageError
from preferl.online.wrappers.gymnasium_envs import HumanPreferencesEnvWrapper
from preferl.store.store import Store

PICTURE = spaces.Box(0, 255, (16, 16, 3), np.uint8)
BODY = spaces.Box(0, 1, (3,), np.float32)


class Looks(gymnasium.Env[dict[str, Any], Any]):
    action_space = spaces.Discrete(2)

    def __init__(self, parts: dict[str, spaces.Space[Any]]) -> None:
        self.observation_space = spaces.Dict(parts)


def frames(folder: Any, parts: dict[str, spaces.Space[Any]], **more: Any) -> Any:
    HumanPreferencesEnvWrapper(Looks(parts), log_dir=folder, **more).close()
    with Store.open(folder) as store:
        return store.projects.get("drlhp").frames


def test_one_of_two_cameras_is_drawn_as_it_is(tmp_path) -> None:
    cameras = {"front": PICTURE, "hand": PICTURE}
    one = {"obs_transform_func": lambda o: o["front"], "transformed_space": PICTURE}
    assert frames(tmp_path / "one", cameras, **one) == {"kind": "pixels"}
    assert frames(tmp_path / "two", cameras) is None  # which of them is for people to say


def test_numbers_in_place_of_a_picture_are_not_drawn_as_one(tmp_path) -> None:
    parts = {"picture": PICTURE, "body": BODY}
    body = {"obs_transform_func": lambda o: o["body"], "transformed_space": BODY}
    assert frames(tmp_path / "body", parts, **body) is None
    assert frames(tmp_path / "all", parts) == {"kind": "pixels"}


def test_half_a_transform_makes_no_project(tmp_path) -> None:
    with pytest.raises(ConfigError, match="both or neither"):
        HumanPreferencesEnvWrapper(
            Looks({"body": BODY}), log_dir=tmp_path, obs_transform_func=lambda o: o["body"]
        )
    assert not list(tmp_path.iterdir())


def test_a_refused_wrapper_closes_its_store(tmp_path, monkeypatch) -> None:
    closed = []
    close = Store.close
    monkeypatch.setattr(Store, "close", lambda store: (closed.append(store), close(store)))
    env = gymnasium.make("CartPole-v1")
    with pytest.raises((StorageError, CheckpointError)):
        HumanPreferencesEnvWrapper(
            env, log_dir=tmp_path, pretrained_reward_predictor_dir=tmp_path / "none"
        )
    assert len(closed) == 1
