"""Small files that would take all memory or time, or read other files; each with its reader."""

import gzip
import io
import json
import pickle
import struct
import zipfile
import zlib

import av
import h5py
import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import safetensors.numpy
from benchmarks.lerobot_maker import CAMERA, make
from PIL import Image

from helpers.valid_files import OBSERVATIONS, PICTURES, act, decision_transformer, read_minari
from preferl.cli.main import command_parsed
from preferl.cli.online import read_settings
from preferl.configs import from_json
from preferl.data import Comparisons, Segments, load_comparisons, load_episodes, save_comparisons
from preferl.data.sources import (
    load_d4rl,
    load_demonstrations,
    load_drlhp_preferences,
    load_hub_dataset,
    load_pickle,
    load_robomimic,
    load_source,
    load_stacked,
    open_lerobot,
    read_labels,
)
from preferl.models import load_reward_model
from preferl.offline import OfflinePolicy
from preferl.offline.decision_transformer.policy import DecisionTransformerPolicy
from preferl.offline.learner_configs import DTRConfig
from preferl.online import OnlineConfig
from preferl.online.checkpoints.policy_folder import load_policy
from preferl.runs import read_run
from preferl.runs.sweep import Sweep, words_of
from preferl.store.exchange.tables import read_table
from preferl.training import load_reward
from preferl.training.checkpoint_folder import read_state
from preferl.training.publish import read_version

COLUMNS = ("observations", "actions", "rewards", "dones")
BOX = {"kind": "Box", "low": -1.0, "high": 1.0, "shape": [3], "dtype": "float32"}


DEEP = "[" * 200_000 + "]" * 200_000


def _file(content):
    content = content if isinstance(content, bytes) else content.encode()
    return lambda path: path.write_bytes(content)


def _files(contents):
    """Writes a folder of files: bytes and text as they are, anything else as JSON."""

    def write(path):
        for name, content in contents.items():
            text = content if isinstance(content, bytes | str) else json.dumps(content)
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            _file(text)(path / name)

    return write


def _tensors(**shapes):
    return safetensors.numpy.save({n: np.zeros(shape, np.float32) for n, shape in shapes.items()})


def _labels(content):
    return _files(dict.fromkeys(("label_human", "indices_num3", "indices_2_num3"), content))


def _nested(depth, close):
    """A pickle of an object that holds the one before it twice, `depth` times over."""
    content = b"\x80\x02]K\x01a" if close == b"l" else b"\x80\x02K\x01\x85"
    number = 0
    for number in range(depth):
        content += b"q" + bytes([number]) + b"0"
        pair = b"h" + bytes([number])
        content += b"(" + pair * 8 + b"l" if close == b"l" else pair * 2 + b"\x86"
    return content


def _demonstrations(value):
    """A list of one demonstration whose arrays are all this object."""
    content = b"\x80\x02" + value.removeprefix(b"\x80\x02") + b"q\xf0" + b"0"
    names = (b"observations", b"actions", b"rewards")
    items = b"".join(b"X" + struct.pack("<I", len(n)) + n + b"h\xf0" for n in names)
    return content + b"](" + b"}(" + items + b"u" + b"e."


def _many_demonstrations():
    demonstration = {n: np.zeros((1000, 10)) for n in ("observations", "actions")}
    return pickle.dumps([demonstration | {"rewards": np.zeros(1000)}] * 20_000, 2)


def _gzip(size):
    return gzip.compress(b"\x80\x02B" + struct.pack("<I", size) + bytes(size) + b".", 1)


def _clips(packed):
    """A database of preferences whose every clip is this one."""
    clips = b"".join(
        b"K" + bytes([n]) + (b"B" + struct.pack("<I", len(packed)) + packed + b"q\x01")
        if n == 0
        else b"K" + bytes([n]) + b"h\x01"
        for n in range(200)
    )
    prefs = b"](K\x00K\x01K\x01K\x00\x86\x87e"
    name = b"X\x08\x00\x00\x00segments" + b"}(" + clips + b"u" + b"X\x05\x00\x00\x00prefs" + prefs
    return gzip.compress(b"\x80\x02cpref_db\nPrefDB\n)\x81}(" + name + b"ub.")


def _npz(members):
    def write(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)

    return write


def _npy(shape, dtype="<f4", content=b""):
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue() + content


def _stacked(size):
    shape = (10, size // 10)
    arrays = {n: _npy(shape, "|u1", bytes(size)) for n in ("rewards", "dones")}
    return arrays | {n: _npy(shape, "|u1", bytes(size)) for n in ("observations", "actions")}


def _arrays(files, arrays, **about):
    return _files(files | {"about.json": {"format": 1, "arrays": arrays} | about})


def _hdf5(fill):
    def write(path):
        with h5py.File(path, "w", libver="latest") as file:
            fill(file)

    return write


def _columns(file, rows, **settings):
    file.create_dataset("observations", (rows, 10), "f4", **settings)
    file.create_dataset("actions", (rows, 2), "f4", **settings)
    for name in ("rewards", "terminals", "timeouts"):
        file.create_dataset(name, (rows,), "f4", **settings)


def _small(file, **others):
    for name in ("observations", "actions", "rewards", "terminals", "timeouts"):
        if name not in others:
            file[name] = np.zeros((4, 2) if name[0] in "oa" else 4, np.float32)


def _zeros(file):
    _columns(file, 10, compression="gzip", chunks=True)
    del file["observations"]
    settings = {"compression": "gzip", "compression_opts": 9, "chunks": (100_000, 10)}
    array = file.create_dataset("observations", (10_000_000, 10), "f4", **settings)
    whole = zlib.compress(bytes(4_000_000), 9)
    for row in range(0, 10_000_000, 100_000):
        array.id.write_direct_chunk((row, 0), whole)


def _lying_chunk(file):
    """A chunk of 8 bytes that unpacks to 320 megabytes."""
    _small(file, rewards=None)
    array = file.create_dataset("rewards", (4,), "f4", compression="gzip", chunks=(4,))
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(2**24)) for _ in range(20)) + packer.flush()
    array.id.write_direct_chunk((0,), packed)


def _shared(file):
    """One demonstration of twenty megabytes under a thousand names."""
    group = file.create_group("data/demo_0")
    for name in ("actions", "rewards", "dones"):
        group[name] = np.zeros((500_000, 10) if name == "actions" else 500_000, np.float32)
    keys = ("object", "robot0_joint_pos", "robot0_joint_pos_cos", "robot0_joint_pos_sin",
            "robot0_joint_vel", "robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos",
            "robot0_gripper_qvel")  # fmt: skip
    group["obs/object"] = np.zeros((500_000, 1), np.float32)
    for key in keys[1:]:
        group[f"obs/{key}"] = group["obs/object"]
    for number in range(1, 1000):
        file[f"data/demo_{number}"] = group


def _model(config, **others):
    spaces = {"observation_space": BOX, "action_space": BOX}
    about = {"format": 1, "preferl": "0", "model": config} | spaces | others
    return _files({"config.json": about, "model.safetensors": _tensors(a=(100,))})


def _policy(about, **tensors):
    spaces = {"observation_space": BOX, "action_space": BOX, "normalisation": None}
    about = {"format": 1, "preferl": "0"} | about
    weights = _tensors(**(tensors or {"a": (9,)}))
    return _files({"policy.json": spaces | about, "policy.safetensors": weights})


def _sb3_policy(algorithm, **settings):
    config = {"algorithm": f"stable_baselines3:{algorithm}", "settings": settings}
    return _policy({"kind": "SB3Config", "config": config})


def _transformer(changes, *, pictures=False):
    """A Decision Transformer with other settings beside its parameters."""

    def write(path):
        regulariser = None if pictures else DTRConfig(hidden=(4, 4))
        seen = PICTURES if pictures else OBSERVATIONS
        decision_transformer(seen, regulariser=regulariser).save(path)
        about = json.loads((path / "policy.json").read_text())
        for part, values in changes.items():
            about[part] |= values
        (path / "policy.json").write_text(json.dumps(about))

    return write


def _table(rows, dtype=np.float32):
    """An episode of so many zeros for each column."""
    zeros = pyarrow.ListArray.from_arrays([0, rows], pyarrow.array(np.zeros(rows, dtype)))
    return pyarrow.table(dict.fromkeys(COLUMNS, zeros))


def _parquet(path):
    pyarrow.parquet.write_table(_table(15_000_000), path, compression="zstd")


def _arrow(path):
    table = _table(15_000_000)
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table)


def _words(columns):
    """Columns whose text is written once and stands in every one of many rows."""

    def write(path):
        table = pyarrow.table(columns)
        pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=True)

    return write


def _repeated(rows, size):
    indices = pyarrow.array(np.zeros(rows, np.int32))
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["x" * size]))


def _one_page(path):
    """Lists of millions of numbers in one page of few bytes, and a footer that says one."""
    rows = 7_500_000
    table = _table(rows, np.float64)
    settings = {"data_page_size": 2**30, "max_rows_per_page": 2**30}
    pyarrow.parquet.write_table(table, path, compression="zstd", **settings)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    number = b""  # as Thrift writes it
    signed = 2 * rows
    while signed:
        number += bytes([signed & 127 | (128 if signed > 127 else 0)])
        signed >>= 7
    one = b"\x82" + b"\x80" * (len(number) - 2) + b"\x00"
    path.write_bytes(content[:footer] + content[footer:].replace(number, one))


def _list_of_answers(path):
    numbers = pyarrow.array(np.zeros(8_000_000))
    lists = pyarrow.ListArray.from_arrays([0, len(numbers)], numbers)
    _words({"chosen": ["{}"], "other": lists})(path.with_name("lists.parquet"))


def _arrow_dictionary(path):
    """A packed dictionary of a column that nobody needs."""
    words = pyarrow.array(np.zeros(250_000_000, np.int8))
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0], pyarrow.int32()), words)
    table = pyarrow.table({"other": column})
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_stream(str(path), table.schema, options=options) as writer:
        writer.write_table(table)


def _long_and_short():
    """Texts of which numpy would make each as long as the longest."""
    return [np.array(["x" * 200_000])] + [np.array(["y"])] * 1_500


def _minari_folder(path, space, fill):
    """Write a data set `mine/set-v0` of one episode of four steps, whose rest `fill` adds."""
    folder = path / "mine" / "set-v0" / "data"
    folder.mkdir(parents=True)
    about = {
        "total_episodes": 1, "total_steps": 4, "data_format": "hdf5", "minari_version": "0.5.4",
        "observation_space": json.dumps(space), "dataset_id": "mine/set-v0",
        "action_space": json.dumps({"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}),
    }  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps(about))
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        episode = file.create_group("episode_0")
        episode["actions"] = np.zeros(4, np.int64)
        for name in ("rewards", "terminations", "truncations"):
            episode[name] = np.zeros(4, float if name == "rewards" else bool)
        fill(episode)


def _minari_references(name):
    """Forty thousand references to one text of 60,000 bytes."""

    def write(path):
        places = []

        def fill(episode):
            if name != "observations":
                episode["observations"] = np.zeros((5, 1), np.float32)
            array = episode.create_dataset(name, (40_000,), h5py.vlen_dtype(np.uint8))
            array[0] = np.zeros(60_000, np.uint8)
            places.append(array.id.get_offset())

        _minari_folder(path, {"type": "Box", **BOX, "low": [-1], "high": [1], "shape": [1]}, fill)
        file = path / "mine" / "set-v0" / "data" / "main_data.hdf5"
        content = bytearray(file.read_bytes())
        at = places[0]
        content[at : at + 640_000] = content[at : at + 16] * 40_000
        file.write_bytes(content)

    return write


def _minari_pictures(path):
    """Pictures of many more pixels than their space has."""
    packed = io.BytesIO()
    Image.fromarray(np.zeros((6_000, 6_000, 3), np.uint8)).save(packed, "PNG", compress_level=1)

    def fill(episode):
        array = episode.create_dataset("observations", (5,), h5py.vlen_dtype(np.uint8))
        for row in range(5):
            array[row] = np.frombuffer(packed.getvalue(), np.uint8)

    low = np.zeros((32, 32, 3), int)
    space = {"dtype": "uint8", "low": low.tolist(), "high": (low + 255).tolist()}
    _minari_folder(path, {"type": "Box", "shape": [32, 32, 3], **space}, fill)


def _padded_clips(path):
    steps = np.arange(400)
    block = np.zeros((400, 3), np.float32)
    segments = Segments(block, block, np.zeros(400), steps, np.ones(400, int), 4)
    save_comparisons(path, Comparisons.of(segments, steps.reshape(-1, 2), np.ones(200)))
    about = json.loads((path / "about.json").read_text())
    (path / "about.json").write_text(json.dumps(about | {"length": 2**20}))


def _laughs(width, depth, sep):
    """Lists of aliases of lists: `width ** depth` numbers, once they are written out."""
    lists = [f"a0: &a0 [{', '.join(['1'] * width)}]"]
    for number in range(1, depth):
        aliases = ", ".join([f"*a{number - 1}"] * width)
        lists.append(f"a{number}: &a{number} [{aliases}]")
    return sep.join(lists)


def _metrics(rows):
    """Rows of metrics, each with a name of its own."""
    return "".join(f'{{"step": {row}, "m{row}": 1}}\n' for row in range(rows))


def _merged():
    """Merge keys, each of which stands for ten of those before it."""
    lines = ["a0: &a0 {" + ", ".join(f"k{n}: 1" for n in range(10)) + "}"]
    for number in range(1, 8):
        tens = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} {{<<: [{tens}]}}")
    return "\n".join(lines)


def _settings(**settings):
    return _file(json.dumps(settings))


ALIASES = f"gymnasium.wrappers:TransformReward: {{{_laughs(10, 9, ', ')}}}"
"""A wrapper whose arguments, once aliases are written out, are a billion numbers."""
DEEP_WRAPPER = "gymnasium.wrappers:X: {a: " + "[" * 3000 + "]" * 3000 + "}"


def _parsed_sweep(path):
    """A sweep, and the settings of each of its runs."""
    sweep = Sweep.from_json(read_settings(path), "sweep.yaml")
    return [command_parsed(sweep.command, words_of(one)) for one in sweep.by_name().values()]


def _parsed_settings(path):
    return from_json(OnlineConfig, read_settings(path))


def _lerobot(damage):
    """A data set of LeRobot of which something else becomes of what it declares."""

    def write(path):
        make(path, [3, 2], per_file=2, side=64)
        damage(path)

    return write


def _endless_episodes(path):
    file = path / "meta/episodes/chunk-000/file-000.parquet"
    table = pyarrow.parquet.read_table(file)
    ends = {"length": [2**40, 2**40], "dataset_from_index": [0, 2**40]}
    for name, numbers in (ends | {"dataset_to_index": [2**40, 2**41]}).items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pyarrow.array(numbers))
    pyarrow.parquet.write_table(table, file)
    info = json.loads((path / "meta/info.json").read_text())
    (path / "meta/info.json").write_text(json.dumps(info | {"total_frames": 2**41}))


def _large_frames(path):
    """Frames of 4,096 x 4,096 in a video whose container says 64 x 64."""
    file = next(path.glob("videos/*/*/*.mp4"))
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width = stream.height = 4096
        stream.pix_fmt = "yuv420p"
        stream.options = {"preset": "ultrafast"}
        for _ in range(5):
            picture = np.zeros((4096, 4096, 3), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    content = bytearray(file.read_bytes())
    place = content.index(b"avc1", content.index(b"stsd")) + 28
    content[place : place + 4] = struct.pack(">HH", 64, 64)
    file.write_bytes(content)


def _large_pictures(path):
    """A PNG of 10,000 x 10,000 in a column of pictures of 64 x 64."""
    info = json.loads((path / "meta/info.json").read_text())
    info["features"][CAMERA]["dtype"] = "image"
    (path / "meta/info.json").write_text(json.dumps(info))
    packed = io.BytesIO()
    Image.new("L", (10_000, 10_000)).save(packed, "PNG")
    file = path / "data/chunk-000/file-000.parquet"
    pictures = pyarrow.array([{"bytes": packed.getvalue(), "path": "a.png"}] * 5)
    table = pyarrow.parquet.read_table(file).append_column(CAMERA, pictures)
    pyarrow.parquet.write_table(table, file)


def _read_lerobot(path):
    open_lerobot(path).pictures(CAMERA)[:]


BOMBS = {
    "pickle, length": (_file(b"\x80\x05\x96" + struct.pack("<Q", 2**34) + b"."), load_pickle),
    "pickle, frame": (_file(b"\x80\x04\x95" + struct.pack("<Q", 2**34) + b"."), load_pickle),
    "pickle, hash": (_file(b"\x80\x02}" + _nested(60, b"t")[2:] + b"K\x01s."), load_pickle),
    "pickle, lists": (_file(_demonstrations(_nested(9, b"l"))), load_demonstrations),
    "pickle, texts": (
        lambda path: path.write_bytes(
            pickle.dumps([dict.fromkeys(("observations", "actions", "rewards"), _long_and_short())])
        ),
        load_demonstrations,
    ),
    "pickle, buffers": (_labels(pickle.dumps([bytearray(200_000)] * 3_000, 5)), read_labels),
    "pickle, shared": (lambda path: path.write_bytes(_many_demonstrations()), load_demonstrations),
    "gzip": (lambda path: path.write_bytes(_gzip(250_000_000)), load_drlhp_preferences),
    "gzip, clips": (
        lambda path: path.write_bytes(_clips(zlib.compress(bytes(30_000_000)))),
        load_drlhp_preferences,
    ),
    "npz": (lambda path: _npz(_stacked(50_000_000))(path), load_stacked),
    "npz, declared": (
        _npz({n: _npy((10**4, 10**6)) for n in COLUMNS}),
        load_stacked,
    ),
    "npy, declared": (
        _arrays({"actions.npy": _npy((2**40,))}, ["actions"]),
        load_episodes,
    ),
    "npy, no bytes each": (
        _arrays({"actions.npy": _npy((2**60,), "|S0")}, ["actions"]),
        load_episodes,
    ),
    "npy, header": (
        _arrays(
            {"actions.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"(" * 9000},
            ["actions"],
        ),
        load_comparisons,
    ),
    "hdf5, unwritten": (_hdf5(lambda file: _columns(file, 10**9)), load_d4rl),
    "hdf5, chunks of nothing": (
        _hdf5(lambda file: _columns(file, 10**9, compression="gzip", chunks=True)),
        load_source,
    ),
    "hdf5, compressed": (_hdf5(_zeros), load_d4rl),
    "hdf5, lying chunk": (_hdf5(_lying_chunk), load_d4rl),
    "hdf5, shared": (_hdf5(_shared), load_robomimic),
    "reward, wide": (_model({"kind": "mlp", "hidden": [10**6, 10**6]}), load_reward_model),
    "reward, members": (_model({"kind": "mlp", "members": 10**9}), load_reward),
    "reward, layers": (_model({"kind": "transformer", "layers": 10**9}), load_reward_model),
    "reward, positions": (_model({"kind": "transformer", "positions": 10**9}), load_reward_model),
    "reward, recurrent": (_model({"kind": "lstm", "width": 10**6}), load_reward_model),
    "reward, pictures": (
        _model(
            {"kind": "cnn", "members": 10**6},
            observation_space=BOX | {"shape": [84, 84, 3], "dtype": "uint8", "low": 0, "high": 255},
        ),
        load_reward_model,
    ),
    "reward, kernels": (
        _model(
            {"kind": "cnn", "kernels": [9_000, 1, 1, 1], "filters": 1, "hidden": 1},
            observation_space=BOX | {"shape": [84, 84, 3], "dtype": "uint8", "low": 0, "high": 255},
        ),
        load_reward_model,
    ),
    "reward, ensemble": (
        _model({"kind": "ensemble", "models": [{"kind": "mlp"}] * 10_000}),
        load_reward_model,
    ),
    "reward, space": (
        _model({"kind": "mlp"}, observation_space=BOX | {"shape": [10**5, 10**5]}),
        load_reward_model,
    ),
    "reward, type of a space": (
        _model({"kind": "mlp"}, observation_space=BOX | {"dtype": "U1000000000"}),
        load_reward_model,
    ),
    "policy, wide": (
        _policy({"kind": "PPOConfig", "config": {"hidden": [10**6, 10**6]}}),
        load_policy,
    ),
    "policy, wide by its own settings": (
        _sb3_policy("PPO", policy_kwargs={"net_arch": [30_000, 30_000]}),
        load_policy,
    ),
    "policy, many critics": (_sb3_policy("SAC", policy_kwargs={"n_critics": 10**9}), load_policy),
    "clips, padding": (_padded_clips, load_comparisons),
    "policy, space": (
        _policy(
            {"format": 1, "log_std_bounds": [-1, 1], "observation_space": BOX | {"shape": [2**40]}}
        ),
        OfflinePolicy.load,
    ),
    "policy, layers of nothing": (
        _policy(
            {"format": 1, "log_std_bounds": [-1, 1], "learner": "IQL"}
            | {"observation_space": BOX | {"shape": [0]}},
            weight_0=(2**28, 0),
            bias_0=(1,),
            weight_1=(3, 0),
            bias_1=(3,),
            log_std=(3,),
        ),
        OfflinePolicy.load,
    ),
    "transformer, layers": (_transformer({"shape": {"layers": 10**9}}), act),
    "transformer, context": (_transformer({"conditions": {"context": 10**8}}), act),
    "transformer, horizon": (_transformer({"conditions": {"horizon": 10**9}}), act),
    "transformer, critics": (_transformer({"regulariser": {"hidden": [16_000, 16_000]}}), act),
    "transformer, pictures": (
        _transformer({"pixel_encoder": {"filters": 10**3, "size": 10**6}}, pictures=True),
        act,
    ),
    "transformer, kernels": (
        _transformer({"pixel_encoder": {"kernels": [9_000]}}, pictures=True),
        act,
    ),
    "lerobot, endless episodes": (_lerobot(_endless_episodes), _read_lerobot),
    "lerobot, large frames": (_lerobot(_large_frames), _read_lerobot),
    "lerobot, large pictures": (_lerobot(_large_pictures), _read_lerobot),
    "parquet": (_parquet, load_hub_dataset),
    "parquet, words": (
        lambda path: _words(dict.fromkeys(COLUMNS, _repeated(3000, 10**6)))(path),
        load_hub_dataset,
    ),
    "parquet, words of answers": (
        lambda path: _words({"key": _repeated(3000, 10**6)})(path.with_name("a.parquet")),
        lambda path: list(read_table(path.with_name("a.parquet"))),
    ),
    "parquet, one page": (_one_page, load_hub_dataset),
    "parquet, lists of answers": (
        _list_of_answers,
        lambda path: list(read_table(path.with_name("lists.parquet"))),
    ),
    "arrow": (_arrow, load_hub_dataset),
    "arrow, dictionary": (_arrow_dictionary, load_hub_dataset),
    "minari, references": (_minari_references("observations"), read_minari),
    "minari, pictures": (_minari_pictures, read_minari),
    "yaml, a billion laughs": (
        _file(_laughs(9, 12, "\n") + "\nconfig: {n_steps: *a11}"),
        read_settings,
    ),
    "run, a metric a row": (
        _files(
            {
                "config.json": {
                    "kind": "OnlineConfig",
                    "seed": 0,
                    "config": {"env": "CartPole-v1"},
                },
                "metrics.jsonl": _metrics(14_000),
            }
        ),
        read_run,
    ),
    "yaml, merge keys": (_file(_merged()), read_settings),
    "yaml, aliases in a wrapper": (
        _settings(env="CartPole-v1", wrappers=[ALIASES]),
        _parsed_settings,
    ),
    "yaml, deep wrapper": (
        _settings(env="CartPole-v1", wrappers=[DEEP_WRAPPER]),
        _parsed_settings,
    ),
    "sweep, aliases in a text": (
        _settings(command="online run", options={"wrappers": ALIASES}),
        _parsed_sweep,
    ),
    "sweep, aliases in settings of an option": (
        _settings(command="online run", options={"env_kwargs": ALIASES}),
        _parsed_sweep,
    ),
    "sweep, a billion runs": (
        _settings(command="online run", grid={f"a{n}": [*range(10)] for n in range(9)}),
        _parsed_sweep,
    ),
    "sweep, options by runs": (
        _settings(
            command="online run",
            grid={"seed": [*range(5000)]} | {f"a{n}": [1] for n in range(1000)},
        ),
        _parsed_sweep,
    ),
    "json, deep settings": (_file(DEEP), read_settings),
    "json, deep rows": (
        _files({"rows.jsonl": DEEP}),
        lambda path: list(read_table(path / "rows.jsonl")),
    ),
    "json, deep arrays": (_files({"about.json": DEEP}), load_episodes),
    "json, deep reward": (_files({"config.json": DEEP}), load_reward_model),
    "json, deep version": (
        _files({"00001/version.json": DEEP}),
        lambda path: read_version(path, 1),
    ),
    "json, deep policy": (_files({"policy.json": DEEP}), DecisionTransformerPolicy.load),
    "json, deep state": (_files({"state.json": DEEP}), read_state),
    "json, numbers without end": (
        _model({"kind": "mlp", "hidden": [10**400]}),
        load_reward_model,
    ),
    "json, lists for names": (
        _arrays({}, {"a": 1}, kind="episodes"),
        load_episodes,
    ),
    "labels, lists": (_labels(_nested(9, b"l") + b"."), read_labels),
}
