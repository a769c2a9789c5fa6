"""Columns of `datasets`: whichever file holds them, the same episodes; wrong ones are named."""

import numpy as np
import pytest

from preferl.data import Task
from preferl.data.sources import load_hub_dataset, load_source
from preferl.errors import DataError

pa = pytest.importorskip("pyarrow", reason="the extra preferl[parquet] is not installed")
parquet = pytest.importorskip("pyarrow.parquet")

LENGTHS = (3, 1, 4)


def columns(**changes):
    """Three episodes as nested lists, numbered throughout."""
    number = iter(range(100))
    found = {
        "observations": [[[next(number), 0.5] for _ in range(n)] for n in LENGTHS],
        "actions": [[[-1.0, step, 1.0] for step in range(n)] for n in LENGTHS],
        "rewards": [[float(step) for step in range(n)] for n in LENGTHS],
        "dones": [[step == n - 1 for step in range(n)] for n in LENGTHS],
    }
    return found | changes


def table(**changes):
    return pa.table({k: v for k, v in columns(**changes).items() if v is not None})


def write(path, **changes):
    parquet.write_table(table(**changes), path)
    return path


def check(episodes, dones=True):
    assert episodes.lengths.tolist() == list(LENGTHS)
    assert episodes.observations[:, 0].tolist() == list(range(8))
    assert episodes.actions.shape == (8, 3)
    assert episodes.rewards.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert np.flatnonzero(episodes.terminated).tolist() == ([2, 3, 7] if dones else [])
    assert episodes.final_observations[:, 0].tolist() == [2, 3, 7]


def test_parquet_whatever_its_name(tmp_path):
    check(load_source(write(tmp_path / "data")))
    check(load_hub_dataset(write(tmp_path / "data.parquet")))


@pytest.mark.parametrize("kind", ["new_file", "new_stream"])
def test_arrow_of_both_kinds(tmp_path, kind):
    held = table()
    with getattr(pa.ipc, kind)(str(tmp_path / "data"), held.schema) as writer:
        for batch in held.to_batches(max_chunksize=1):  # several buffers
            writer.write_batch(batch)
    check(load_source(tmp_path / "data"))


@pytest.mark.parametrize("form", ["list", "large", "fixed"])
def test_every_kind_of_list(tmp_path, form):
    inner = {"list": pa.list_, "large": pa.large_list, "fixed": lambda t: pa.list_(t, 2)}[form]
    outer = pa.list_ if form == "list" else pa.large_list
    kind = outer(inner(pa.float32()))
    held = table()
    place = held.column_names.index("observations")
    column = pa.array(columns()["observations"], kind)
    parquet.write_table(held.set_column(place, "observations", column), tmp_path / "data")
    episodes = load_source(tmp_path / "data")
    check(episodes)
    assert episodes.observations.dtype == np.float32


def test_a_copy_of_datasets_on_disk(tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    one = datasets.Dataset.from_dict(columns())
    one.save_to_disk(tmp_path / "one", num_shards=2)
    check(load_source(tmp_path / "one"))
    both = datasets.DatasetDict({"train": one, "test": one.select([0])})
    both.save_to_disk(tmp_path / "both")
    check(load_source(tmp_path / "both"))
    assert load_hub_dataset(tmp_path / "both", split="test").lengths.tolist() == [3]
    with pytest.raises(DataError, match=r"of split 'valid', got splits \['test', 'train'\]"):
        load_hub_dataset(tmp_path / "both", split="valid")


def test_from_the_hub_by_name(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    asked = []

    def load_dataset(*names, split):
        asked.append((*names, split))
        return datasets.Dataset.from_dict(columns())

    monkeypatch.setattr("huggingface_hub.file_exists", lambda *_, **__: False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    check(load_source("hub:someone/replays:halfcheetah-expert-v2"))
    check(load_source("hub:someone/replays"))
    assert asked == [
        ("someone/replays", "halfcheetah-expert-v2", "train"),
        ("someone/replays", None, "train"),
    ]


def test_a_hub_that_does_not_have_it(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")

    def load_dataset(*_, **__):
        raise RuntimeError("Dataset scripts are no longer supported")

    monkeypatch.setattr("huggingface_hub.file_exists", lambda *_, **__: False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=r"no longer supported.*give a Parquet copy"):
        load_source("hub:someone/replays")


def test_a_time_limit_is_no_end(tmp_path):
    path = write(tmp_path / "data")
    task = Task("short", random=0, expert=1, max_episode_steps=4)
    assert np.flatnonzero(load_source(path, task=task).terminated).tolist() == [2, 3]


def test_a_part_of_a_larger_table(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    twice = datasets.Dataset.from_dict({name: rows * 2 for name, rows in columns().items()})
    monkeypatch.setattr("huggingface_hub.file_exists", lambda *_, **__: False)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: twice.select(range(3, 6)))
    episodes = load_source("hub:someone/replays")
    check(episodes)


def test_chunks_of_unequal_widths(tmp_path):
    held = pa.concat_tables([table(), table(observations=[[[1.0, 2.0, 3.0]] * n for n in LENGTHS])])
    with pa.ipc.new_stream(str(tmp_path / "data"), held.schema) as writer:
        writer.write_table(held)
    with pytest.raises(DataError, match="observations, chunks of the file: expected rows of"):
        load_source(tmp_path / "data")


def test_pictures_keep_their_axes(tmp_path):
    pictures = [[[[[n, n]] * 3] * 2] * n for n in LENGTHS]
    episodes = load_source(write(tmp_path / "data", observations=pictures))
    assert episodes.observations.shape == (8, 2, 3, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dones": None}, r"no dones among \['observations', 'actions', 'rewards'\]"),
        (
            {"actions": [[[0.0]] * n for n in (3, 1, 3)]},
            "actions of episode 2: expected 4 steps, the number of rewards, got 3",
        ),
        (
            {"observations": [[[1.0, 2.0]] * 3, [[1.0]], [[1.0, 2.0]] * 4]},
            "observations, list 3: expected 2 numbers, as in the first, got 1",
        ),
        ({"rewards": [1.0, 2.0, 3.0]}, "rewards: expected a list of steps in each row, got double"),
        ({"rewards": [["a"] * n for n in LENGTHS]}, "expected only numbers, got string"),
        ({"rewards": [[None] * n for n in LENGTHS]}, "expected only numbers"),
        ({"rewards": [None, [1.0], [1.0] * 4]}, "expected lists, got 1 nulls"),
        ({"dones": [[True] * n for n in LENGTHS]}, "true only at the last step"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, words):
    with pytest.raises(DataError, match=words):
        load_source(write(tmp_path / "data", **changes))


def test_empty_rows_and_tables(tmp_path):
    empty = {name: [rows[0], [], rows[2]] for name, rows in columns().items()}
    with pytest.raises(DataError, match="at least one step, got none in row 1"):
        load_source(write(tmp_path / "row", **empty))
    parquet.write_table(table().slice(0, 0), tmp_path / "none")
    with pytest.raises(DataError, match="at least one step, got no row"):
        load_source(tmp_path / "none")


def test_a_footer_over_which_pyarrow_ends_the_program(tmp_path):
    path = write(tmp_path / "data")
    optional = b"\x35\x02\x18"  # of the column, as Thrift writes it
    name = b"\x0cobservations"
    assert path.read_bytes().count(optional + name) == 1
    path.write_bytes(path.read_bytes().replace(optional + name, b"\x35\x03\x18" + name))
    with pytest.raises(
        DataError, match=r"whole Parquet file, got .*a column that is there -2 times"
    ):
        load_hub_dataset(path)
