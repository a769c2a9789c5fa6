"""Models as folders: every number comes back, and nothing else is taken for a model."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors import SafetensorError

import preferl
from preferl.errors import CheckpointError, SpaceError, StorageError
from preferl.models import (
    Ensemble,
    LSTMRewardConfig,
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
    load_reward_model,
    save_reward_model,
)
from preferl.models.spaces import space_from_json, space_to_json
from preferl.shapes import map_observations
from preferl.testing import sample_steps
from preferl.training.batches import to_tensors

OBSERVATIONS = spaces.Dict(
    [("wrist", spaces.Box(-1, 1, (2,))), ("arm", spaces.Discrete(3, start=1))]
)
ACTIONS = spaces.MultiDiscrete([2, 3], start=[1, 0])
CONFIG = MLPRewardConfig(hidden=(8,), members=2, pooling="mean", bounded=True)

SPACES = [
    OBSERVATIONS,
    spaces.Dict([("b", spaces.Dict([("d", ACTIONS), ("c", ACTIONS)])), ("a", ACTIONS)]),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(np.array([-np.inf, 0.1], np.float32), np.array([0.3, np.inf], np.float32)),
    spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
    spaces.Box(-1, 1, ()),
    spaces.Discrete(3, start=-1, dtype=np.int32),
    spaces.MultiDiscrete([[2, 3]], start=[[1, -5]]),
    spaces.MultiBinary([2, 3]),
]


def model(*, seed=0, mixed=False):
    first = MLPReward(OBSERVATIONS, ACTIONS, CONFIG, seed=seed)
    other = MLPReward(OBSERVATIONS, ACTIONS, replace(CONFIG, hidden=()), seed=seed + 1)
    made = Ensemble([first, other]) if mixed else first
    rng = np.random.default_rng(seed)
    made.encoder.observe(
        *(to_tensors(sample_steps(s, 9, rng), "cpu") for s in (OBSERVATIONS, ACTIONS))
    )
    return made.eval()


def ask(model):
    rng = np.random.default_rng(5)
    steps = (to_tensors(sample_steps(s, 6, rng), "cpu") for s in (OBSERVATIONS, ACTIONS))
    windows = (map_observations(lambda a: a.unflatten(0, (2, 3)), part) for part in steps)
    with torch.no_grad():
        return torch.cat([o.flatten() for o in model(*windows, torch.ones(2, 3, dtype=torch.bool))])


@pytest.mark.parametrize("mixed", [False, True])
def test_every_number_comes_back(tmp_path, mixed):
    saved = model(mixed=mixed)
    save_reward_model(tmp_path / "it", saved)
    loaded = load_reward_model(tmp_path / "it")
    assert not loaded.training
    assert loaded.observation_space == OBSERVATIONS
    assert list(loaded.observation_space) == ["wrist", "arm"]
    for name, tensor in saved.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    assert loaded.encoder.count == 9
    assert torch.equal(ask(loaded), ask(saved))
    assert sorted(p.name for p in (tmp_path / "it").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back_with_dtype_start_and_order(space):
    again = space_from_json(json.loads(json.dumps(space_to_json(space), allow_nan=False)))
    assert again == space
    assert again.dtype == space.dtype
    if isinstance(space, spaces.Dict):
        assert list(again) == list(space)
        assert [list(part) for part in again.values() if isinstance(part, spaces.Dict)] == [
            list(part) for part in space.values() if isinstance(part, spaces.Dict)
        ]


def test_spaces_without_a_file_format_are_refused():
    with pytest.raises(SpaceError, match="space"):
        space_to_json(spaces.Text(3))
    with pytest.raises(SpaceError, match="known kind"):
        space_from_json({"kind": "Text"})


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("", {"format": 2, "preferl": "9.9"}, r"expected 1, got 2.*written by preferl 9\.9"),
        ("", {"model": []}, "the shape of a known model"),
        ("", {"action_space": {"kind": "Text"}}, "the shape of a known model"),
        ("model", {"kind": "oracle"}, "the shape of a known model"),
        ("model", {"members": "two"}, "the shape of a known model"),
        ("model", {"colour": "red"}, "the shape of a known model"),
        ("model", {"hidden": [10**15]}, "the shape of a known model"),
        ("model", {"hidden": [9]}, "belong to different models"),
    ],
)
def test_folders_of_other_models_are_refused(tmp_path, part, changes, words):
    save_reward_model(tmp_path, model())
    file = tmp_path / "config.json"
    about = json.loads(file.read_text())
    (about[part] if part else about).update(changes)
    file.write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=words):
        load_reward_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"half", "whole model.safetensors"),
        ("config.json", b"\xff\xfe", "config.json"),
        ("config.json", b"[1, 2]", "got list, not an object of JSON"),
        ("config.json", None, "restore it from a copy"),
    ],
)
def test_damaged_folders_are_refused(tmp_path, name, content, words):
    save_reward_model(tmp_path, model())
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        load_reward_model(tmp_path)


def test_missing_and_foreign_folders_are_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    for name in ("absent", "file", "."):
        with pytest.raises(CheckpointError, match="a folder with a whole"):
            load_reward_model(tmp_path / name)


@pytest.mark.parametrize("kind", [OSError, SafetensorError])
def test_a_failing_save_leaves_what_was_there(tmp_path, monkeypatch, kind):
    save_reward_model(tmp_path / "it", model())

    def full(tensors, file):
        Path(file).write_bytes(b"half")
        raise kind("No space left on device (os error 28)")

    monkeypatch.setattr("preferl.models.folder.save_file", full)
    with pytest.raises(StorageError, match="No space left"):
        save_reward_model(tmp_path / "it", model(seed=3))
    with pytest.raises(StorageError, match="No space left"):
        save_reward_model(tmp_path / "new", model(seed=3))
    assert [path.name for path in tmp_path.iterdir()] == ["it"]
    assert torch.equal(ask(load_reward_model(tmp_path / "it")), ask(model()))


def test_nothing_in_the_package_loads_a_pickle_but_the_restricted_reader():
    root = Path(preferl.__file__).parent
    found = set()
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = {a.name for a in node.names} if isinstance(node, ast.Import) else set()
            module = node.module if isinstance(node, ast.ImportFrom) else None
            loads = isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "torch.load",
                "th.load",
            )
            allows = isinstance(node, ast.keyword) and node.arg == "allow_pickle"
            if loads or (allows and ast.unparse(node.value) != "False"):
                found.add(file.relative_to(root).as_posix())
            if {"pickle", "cloudpickle", "dill", "joblib", "shelve"} & (names | {module}):
                found.add(file.relative_to(root).as_posix())
    assert found == {"data/sources/pickles.py"}


@pytest.mark.parametrize(
    "config",
    [
        MLPRewardConfig((8,), members=2),
        LSTMRewardConfig(width=8),
        PreferenceTransformerConfig(width=8, heads=2, preference_width=4),
    ],
)
def test_a_seed_makes_the_same_weights_and_touches_no_global_stream(config):
    before = torch.random.get_rng_state()
    box = spaces.Box(-1, 1, (3,))
    models = [build_reward_model(config, box, box, seed=seed) for seed in (1, 1, 2)]
    one, same, other = (list(model.parameters()) for model in models)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(map(torch.equal, one, same))
    assert not all(map(torch.equal, one, other))
