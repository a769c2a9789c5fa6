"""A whole file or folder for every reader of files, for others to damage."""

import gzip
import json
import os
import pickle
import sys
import types
import warnings
import zlib
from unittest import mock

import h5py
import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import torch
from benchmarks.lerobot_maker import CAMERA, make
from gymnasium import spaces

from preferl.cli.online import starting_point
from preferl.data import (
    Comparisons,
    load_comparisons,
    load_episodes,
    save_comparisons,
    save_episodes,
)
from preferl.data.arrays import load_arrays, load_segments, save_segments
from preferl.data.frame_tables import FrameRewards, read_frame_rewards
from preferl.data.sources import (
    load_d4rl,
    load_demonstrations,
    load_drlhp_preferences,
    load_hub_dataset,
    load_minari,
    load_robomimic,
    load_source,
    load_stacked,
    open_lerobot,
    read_labels,
)
from preferl.models import (
    CNNReward,
    CNNRewardConfig,
    LSTMReward,
    LSTMRewardConfig,
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformer,
    PreferenceTransformerConfig,
)
from preferl.models.flax import flax_places, load_flax
from preferl.offline import IQL, IQLConfig, OfflinePolicy
from preferl.offline.decision_transformer.critics import Critics
from preferl.offline.decision_transformer.parameters import LearnedTransformer
from preferl.offline.decision_transformer.pixel_encoder import PixelEncoder
from preferl.offline.decision_transformer.policy import DecisionTransformerPolicy
from preferl.offline.decision_transformer.sequences import InputStatistics, are_pictures
from preferl.offline.learner import load_training
from preferl.offline.learner_configs import DTRConfig, PixelEncoderConfig, TokenShape
from preferl.online import PPOConfig
from preferl.online.algorithms import build_algorithm
from preferl.online.checkpoints.policy_folder import load_policy, save_policy, spaces_alone
from preferl.reporting import read_jsonl
from preferl.store.exchange.answer_table import COLUMNS, read_answers
from preferl.store.exchange.imports import read_chosen
from preferl.store.exchange.tables import writing_table
from preferl.store.store import Store
from preferl.testing import make_episodes
from preferl.testing.feedback_contracts import example_segments
from preferl.training import RewardFunction, load_reward, save_reward
from preferl.training.checkpoint_folder import (
    read_checkpoint,
    read_state,
    write_checkpoint,
    write_state,
)
from preferl.training.publish import publish, read_version
from preferl.training.scaling import RewardScaler

OBSERVATIONS = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-1, 1, (2,))
PICTURES = spaces.Box(0, 255, (10, 10, 3), np.uint8)
RNG = np.random.default_rng(0)


def _pickled(value, protocol):
    return lambda path: path.write_bytes(pickle.dumps(value, protocol))


def _demonstrations():
    return [
        {n: RNG.normal(size=(5, 2)[: 1 + (n != "rewards")]) for n in
         ("observations", "actions", "rewards")}
        for _ in range(2)
    ]  # fmt: skip


def _labels(path):
    path.mkdir()
    for name, value in (
        ("label_human", np.array([0, 1, -1])),
        ("indices_num3_q5", np.array([1, 2, 3])),
        ("indices_2_num3_q5", [4, 5, 6]),
    ):
        (path / name).write_bytes(pickle.dumps(value))


def _drlhp(path):
    module = types.ModuleType("pref_db")
    kind = type("PrefDB", (), {"__module__": "pref_db"})
    module.PrefDB = kind
    sys.modules["pref_db"] = module
    database = kind()
    clips = {n: zlib.compress(pickle.dumps(RNG.integers(0, 9, (3, 4, 4)))) for n in range(3)}
    database.segments = clips
    database.prefs = [(0, 1, (1.0, 0.0)), (1, 2, (0.5, 0.5))]
    path.write_bytes(gzip.compress(pickle.dumps(database)))


def _d4rl(path):
    with h5py.File(path, "w") as file:
        for name in ("observations", "actions", "rewards"):
            shape = (12,) if name == "rewards" else (12, 2)
            file.create_dataset(name, data=RNG.normal(size=shape), compression="gzip")
        row = np.arange(12)
        file.create_dataset("terminals", data=row == 3, compression="gzip")
        file.create_dataset("timeouts", data=row % 6 == 5, compression="gzip")


def _robomimic(path):
    from preferl.data.sources.robomimic import OBSERVATION_KEYS

    with h5py.File(path, "w") as file:
        for number in range(2):
            group = file.create_group(f"data/demo_{number}")
            for key in OBSERVATION_KEYS:
                group[f"obs/{key}"] = RNG.normal(size=(4, 2))
            group["actions"] = RNG.normal(size=(4, 2))
            group["rewards"] = group["dones"] = np.zeros(4)
        file["data"].attrs["env_args"] = '{"env_name": "Lift"}'


def _stacked(path):
    shapes = {"observations": (2, 4, 3), "actions": (2, 4, 2), "rewards": (2, 4)}
    arrays = {name: RNG.normal(size=shape) for name, shape in shapes.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays, dones=np.zeros((2, 4), bool))


def _minari(path):
    from minari import create_dataset_from_buffers
    from minari.data_collector import EpisodeBuffer

    pictures = spaces.Box(0, 255, (32, 32, 3), np.uint8)
    seen = {"eye": RNG.integers(0, 255, (4, 32, 32, 3)).astype(np.uint8), "arm": np.ones((4, 3))}
    episode = EpisodeBuffer(
        id=0,
        observations=seen,
        actions=np.ones((3, 2), np.float32),
        rewards=np.ones(3),
        terminations=np.zeros(3, bool),
        truncations=np.zeros(3, bool),
        infos={"state": np.ones((4, 2))},
    )
    path.mkdir()
    with mock.patch.dict(os.environ, MINARI_DATASETS_PATH=str(path)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        create_dataset_from_buffers(
            "mine/set-v0",
            [episode],
            observation_space=spaces.Dict({"eye": pictures, "arm": OBSERVATIONS}),
            action_space=ACTIONS,
        )


def read_minari(path):
    """Read the data set `mine/set-v0` of a folder of data sets."""
    with mock.patch.dict(os.environ, MINARI_DATASETS_PATH=str(path)):
        return load_minari("mine/set-v0")


def _table():
    steps = {"observations": [[[1.0, 2.0]] * 3] * 2, "actions": [[[0.5]] * 3] * 2}
    flat = {"rewards": [[1.0, 2.0, 3.0]] * 2, "dones": [[False, False, True]] * 2}
    return pyarrow.table(steps | flat)


def _arrow(path, **options):
    table = _table()
    with pyarrow.ipc.new_file(
        str(path), table.schema, options=pyarrow.ipc.IpcWriteOptions(**options)
    ) as writer:
        writer.write_table(table)


def _comparisons():
    pairs = np.array([[0, 1], [1, 2]])
    return Comparisons(example_segments(), pairs, np.array([1.0, 0.5]), np.ones(2))


def _reward(path):
    model = MLPReward(OBSERVATIONS, ACTIONS, MLPRewardConfig(hidden=(4,), members=2), seed=0)
    scaler = RewardScaler(np.zeros(2), np.ones(2))
    save_reward(path, RewardFunction(model.eval(), scaler=scaler))


def _saved(model):
    return lambda path: save_reward(path, RewardFunction(model.eval()))


def _ppo(path):
    config = PPOConfig(hidden=(4,))
    env = spaces_alone(OBSERVATIONS, ACTIONS)
    save_policy(path, build_algorithm(config, env, seed=0), config)


def _iql():
    return IQL(OBSERVATIONS, ACTIONS, IQLConfig(hidden=(4, 4), batch_size=4), seeds=[3], steps=1)


def decision_transformer(observations=OBSERVATIONS, *, regulariser=None):
    """A small one, whose parameters nobody trained; it needs none of Hugging Face's code."""
    pictures = are_pictures(observations)
    width = 4
    positions = 6
    pixel_config = PixelEncoderConfig(kernels=(3,), strides=(3,), filters=2, size=5)
    seen = 5 if pictures else 3
    sizes = {
        "embed_timestep": (7, width), "embed_return": (width, 1), "embed_state": (width, seen),
        "embed_action": (width, 2), "embed_ln": (width,), "encoder.wpe": (positions, width),
        "encoder.ln_f": (width,), "predict_action.0": (2, width),
    }  # fmt: skip
    layer = {
        "ln_1": (width,), "ln_2": (width,), "attn.c_attn": (width, 3 * width),
        "attn.c_proj": (width, width), "mlp.c_fc": (width, 9), "mlp.c_proj": (9, width),
    }  # fmt: skip
    sizes |= {f"encoder.h.{n}.{name}": size for n in range(2) for name, size in layer.items()}
    parameters = {f"{name}.weight": torch.randn(size) for name, size in sizes.items()}
    for name, size in sizes.items():  # GPT-2 has its matrices the other way round
        if name in ("embed_timestep", "encoder.wpe"):
            continue
        units = size[-1] if ".attn." in name or ".mlp." in name else size[0]
        parameters[f"{name}.bias"] = torch.randn(units)
    generator = torch.Generator().manual_seed(0)
    parts = {}
    if pictures:
        parts["pixel_encoder"] = PixelEncoder(observations, pixel_config, generator)
    if regulariser is not None:
        parts["critics"] = Critics(seen + 2, regulariser, generator=generator)
    for part, module in parts.items():
        parameters |= {f"{part}.{name}": t for name, t in module.state_dict().items()}
    states = 1 if pictures else seen
    statistics = InputStatistics(
        context=2,
        horizon=7,
        discount=1.0,
        scale=10.0,
        longest=7,
        quantiles=(0.0, 5.0, 9.0),
        mean=np.zeros(states, np.float32),
        deviation=np.ones(states, np.float32),
    )
    learned = LearnedTransformer(
        observations,
        ACTIONS,
        {name: tensor.contiguous() for name, tensor in parameters.items()},
        TokenShape(layers=2, heads=2, squashed=True),
        statistics,
        hub={"model_type": "decision_transformer"},
        pixel_encoder=pixel_config,
        regulariser=regulariser,
    )
    return DecisionTransformerPolicy(learned, target=5.0)


def act(path):
    """Load a Decision Transformer and let it act twice."""
    policy = DecisionTransformerPolicy.load(path)
    space = policy.observation_space
    seen = np.zeros((1, *(space.shape or ())), space.dtype)
    _, state = policy.predict(seen)
    policy.earned(state, np.ones(1))
    policy.predict(seen, state)


def _training(path):
    from safetensors.torch import save_file

    save_file(_iql().state(), path)


def _state():
    return {
        "numbers": [1, 2.5, None, (True, "x"), float("inf")],
        "arrays": {"a": np.arange(3), "b": np.float32(2)},
        "segments": example_segments(),
        "generator": np.random.default_rng(3),
    }


def _write_state(path):
    path.mkdir()
    write_state(path, _state())


def _flax_model():
    return MLPReward(OBSERVATIONS, ACTIONS, MLPRewardConfig(hidden=(), normalise=False), seed=0)


def _flax(path):
    places = flax_places(_flax_model())
    with path.open("wb") as file:
        np.savez(file, **{name: place.detach().numpy() for name, place in places.items()})


def _rows():
    row = {
        "project": "dots", "query": "1-0000000a", "purpose": "ask", "first_clip": "0" * 32,
        "second_clip": "1" * 32, "annotator": "Ann", "kind": "left", "preference": 1.0,
        "counts": True, "swapped": False, "answered_at": 1.7e9, "asked_at": 1.6e9,
        "key": "key-00001", "quorum": 1, "priority": 0.0, "detail": {"a": 1},
    }  # fmt: skip
    return [row, row | {"key": "key-00002", "annotator": "Bob"}]


def _answers(name):
    def write(path):
        path.mkdir()
        with writing_table(path / name, COLUMNS) as add:
            add([[row.get(name) for name in COLUMNS] for row in _rows()])

    return write, lambda path: list(read_answers(path / name))


def _chosen(path):
    clips = [{"observations": [[n, 1.0], [2.0, 3.0]], "actions": [[0], [1]]} for n in range(2)]
    path.mkdir()
    text = json.dumps({"chosen": clips[0], "rejected": clips[1]}) + "\n"
    (path / "chosen.jsonl").write_text(text)


def _store(path):
    with Store.open(path) as store:
        store.projects.create("dots", question="Which is better?")


def _open_store(path):
    with Store.open(path) as store:
        for project in store.projects.all():
            store.people.all(project.id)


def _lerobot(path):
    make(path, [3, 2, 4], per_file=2, side=64)


def _lerobot_read(path):
    """Read all that a data set holds: numbers, and pictures of its camera."""
    folder = open_lerobot(path)
    folder.episodes()
    assert len(folder.content_id) == 64
    folder.pictures(CAMERA)[:]


def _progress(path):
    _lerobot(path / "set")
    frames = FrameRewards(open_lerobot(path / "set"), np.arange(9.0), version="1")
    frames.write(path / "progress.parquet", "progress")


def _progress_read(path):
    read_frame_rewards(path / "progress.parquet", open_lerobot(path / "set"))


VALID = {
    "demonstrations": (_pickled(_demonstrations(), 2), load_demonstrations),
    "demonstrations of protocol 0": (_pickled(_demonstrations(), 0), load_source),
    "demonstrations of protocol 5": (_pickled(_demonstrations(), 5), load_source),
    "labels": (_labels, read_labels),
    "drlhp": (_drlhp, load_drlhp_preferences),
    "d4rl": (_d4rl, load_d4rl),
    "robomimic": (_robomimic, load_robomimic),
    "stacked": (_stacked, load_stacked),
    "minari": (_minari, read_minari),
    "parquet": (lambda path: pyarrow.parquet.write_table(_table(), path), load_hub_dataset),
    "arrow": (_arrow, load_hub_dataset),
    "arrow, compressed": (lambda path: _arrow(path, compression="zstd"), load_hub_dataset),
    "lerobot": (_lerobot, _lerobot_read),
    "progress": (_progress, _progress_read),
    "comparisons": (lambda path: save_comparisons(path, _comparisons()), load_comparisons),
    "segments": (lambda path: save_segments(path, example_segments()), load_segments),
    "episodes": (lambda path: save_episodes(path, make_episodes(RNG, [3, 2])), load_episodes),
    "arrays": (lambda path: save_comparisons(path, _comparisons()), load_arrays),
    "reward": (_reward, load_reward),
    "reward of pictures": (
        _saved(CNNReward(PICTURES, ACTIONS, CNNRewardConfig(filters=2, hidden=4), seed=0)),
        load_reward,
    ),
    "reward of an lstm": (
        _saved(LSTMReward(OBSERVATIONS, ACTIONS, LSTMRewardConfig(width=8), seed=0)),
        load_reward,
    ),
    "reward of a transformer": (
        _saved(
            PreferenceTransformer(
                OBSERVATIONS,
                ACTIONS,
                PreferenceTransformerConfig(width=8, heads=2, preference_width=4, context=5),
                seed=0,
            )
        ),
        load_reward,
    ),
    "published reward": (
        lambda path: publish(path, RewardFunction(_flax_model().eval())),
        lambda path: read_version(path, 1),
    ),
    "offline policy": (lambda path: _iql().policies()[0].save(path), OfflinePolicy.load),
    "decision transformer": (lambda path: decision_transformer().save(path), act),
    "decision transformer with critics": (
        lambda path: decision_transformer(regulariser=DTRConfig(hidden=(4, 4))).save(path),
        act,
    ),
    "decision transformer of pictures": (
        lambda path: decision_transformer(PICTURES).save(path),
        act,
    ),
    "training state": (_training, lambda path: _iql().load_state(load_training(path))),
    "policy": (_ppo, load_policy),
    "state": (_write_state, read_state),
    "checkpoint": (
        lambda path: write_checkpoint(path, _state(), steps=3, run={"seed": 1}),
        lambda path: read_checkpoint(path, run={"seed": 1}),
    ),
    "flax": (_flax, lambda path: load_flax(_flax_model(), path)),
    "answers": _answers("a.jsonl"),
    "answers in csv": _answers("a.csv"),
    "answers in parquet": _answers("a.parquet"),
    "chosen": (_chosen, lambda path: read_chosen(path / "chosen.jsonl")),
    "settings": (
        lambda path: path.write_text("config:\n  env: Pendulum-v1\n  steps: 10000\n"),
        lambda path: starting_point(["--config", str(path)]),
    ),
    "metrics": (lambda path: path.write_text('{"step": 1, "loss": 0.5}\n' * 3), read_jsonl),
    "store": (_store, _open_store),
}
