"""Label folders: recognised by their names, one convention, rows that fit the data."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from helpers.numbered_steps import numbered_episodes
from preferl.data.sources import (
    LabelRows,
    load_demonstrations,
    load_labels,
    read_labels,
    sample_pt_queries,
    scripted_preferences,
)
from preferl.errors import DataError

NAME = "domain_adroit_env_door-human-v1_num_4_len_5.pkl"
FIRST = np.array([0, 12, 3, 8])
SECOND = np.array([20, 5, 3, 30], np.int32)

# data set, pairs, steps per segment, labels 0 / 1 / -1, largest labelled row
PT_TABLE = """
    Can_mh 500 100 167 177 156 62352
    Can_ph 100 50 24 42 34 22729
    Lift_mh 500 100 188 118 194 30720
    Lift_ph 100 50 35 10 55 9270
    Square_mh 500 100 168 237 95 80276
    Square_ph 100 50 41 31 28 29573
    antmaze-large-diverse-v2 1000 100 358 376 266 998477
    antmaze-large-play-v2 1000 100 200 163 637 998217
    antmaze-medium-diverse-v2 1000 100 342 370 288 998477
    antmaze-medium-play-v2 1000 100 243 269 488 998477
    hammer-cloned-v1 100 100 22 39 39 992010
    hammer-human-v1 100 100 38 31 31 10809
    hopper-medium-expert-v2 100 100 32 40 28 1995328
    hopper-medium-replay-v2 500 100 121 188 191 401337
    pen-cloned-v1 100 100 21 39 40 496046
    pen-human-v1 100 100 38 27 35 4663
    walker2d-medium-expert-v2 100 100 30 46 24 1994936
    walker2d-medium-replay-v2 500 100 164 219 117 300093
"""
PT_SETS = [
    (name, *map(int, numbers))
    for name, *numbers in (line.split() for line in PT_TABLE.strip().splitlines())
]


def _folder(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(pickle.dumps(content, 4))
    return folder


def _unirlhf(folder, *, kind="human", labels=(0, 1, -1, 0), first=FIRST, second=SECOND):
    labels = np.array(labels)
    return _folder(
        folder,
        **{
            f"{kind}_label_{NAME}": labels,
            f"indices_1_{NAME}": first,
            f"indices_2_{NAME}": second,
        },
    )


def _pt(folder, *, labels=(0, 1, -1), first=FIRST, second=SECOND, name="num3_q5"):
    return _folder(
        folder,
        **{
            "label_human": list(labels),
            f"indices_{name}": first,
            f"indices_2_{name}": second,
        },
    )


def test_unirlhf_folders(tmp_path):
    loaded = load_labels(_unirlhf(tmp_path), numbered_episodes(), crossing="keep")
    comparisons = loaded.comparisons
    assert comparisons.preference.tolist() == [1, 0, 0.5, 1]
    shown = comparisons.segments[comparisons.pairs].observations[..., 0, 0]
    assert shown.tolist() == [[0, 20], [12, 5], [3, 3], [8, 30]]
    assert comparisons.segments.length == 5


def test_computed_labels_are_shares(tmp_path):
    shares = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.25, 0.75]]
    rows = read_labels(_unirlhf(tmp_path, kind="fake", labels=shares))
    assert rows.preference.tolist() == [1, 0, 0.5, 0.25]


def test_pt_folders_label_their_first_rows(tmp_path):
    loaded = load_labels(_pt(tmp_path), numbered_episodes(), crossing="keep")
    comparisons = loaded.comparisons
    assert comparisons.preference.tolist() == [1, 0, 0.5]
    shown = comparisons.segments[comparisons.pairs].observations[..., 0, 0]
    assert shown.tolist() == [[0, 20], [12, 5], [3, 3]]


def test_lengths_come_from_the_names(tmp_path):
    assert read_labels(_pt(tmp_path / "a", name="num3_q50")).length == 50
    assert read_labels(_pt(tmp_path / "b", name="num3")).length == 100
    assert read_labels(_unirlhf(tmp_path / "c")).length == 5


def test_lengths_can_be_given_where_names_are_silent(tmp_path):
    assert read_labels(_pt(tmp_path / "a", name="num3"), length=7).length == 7
    silent = {"human_label_x": np.array([0]), "indices_1_x": FIRST[:1], "indices_2_x": FIRST[:1]}
    folder = _folder(tmp_path / "b", **silent)
    assert read_labels(folder, length=7).length == 7
    with pytest.raises(DataError, match="Pass `length`"):
        read_labels(folder)


def test_files_are_found_by_name_in_any_order(tmp_path, monkeypatch):
    _unirlhf(tmp_path / "a")
    _pt(tmp_path / "b")
    (tmp_path / "a" / "README.md").write_text("unrelated")
    (tmp_path / "b" / ".DS_Store").write_text("unrelated")
    expected = {name: read_labels(tmp_path / name).first.tolist() for name in "ab"}
    assert expected == {"a": [0, 12, 3, 8], "b": [0, 12, 3]}
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: sorted(listed(self), reverse=True))
    assert {name: read_labels(tmp_path / name).first.tolist() for name in "ab"} == expected


def test_pairs_across_an_end_are_left_out_and_counted(tmp_path):
    folder = _unirlhf(tmp_path)
    episodes = numbered_episodes()
    loaded = load_labels(folder, episodes, crossing="drop")
    report = loaded.report
    assert (report.pairs, report.first, report.second, report.ties) == (4, 2, 1, 1)
    assert (report.crossing, report.dropped, report.length) == (1, 1, 5)
    assert loaded.comparisons.preference.tolist() == [1, 0, 0.5]
    kept = load_labels(folder, episodes)
    assert (kept.report.crossing, kept.report.dropped, len(kept.comparisons)) == (1, 0, 4)
    origin = kept.comparisons.segments.origin[kept.comparisons.pairs[3, 0]]
    assert origin.tolist() == [0, 8, 1]


def test_pt_folders_that_cross_an_end_are_of_other_data(tmp_path):
    folder = _pt(tmp_path)  # the second pair's window at 8 is in no episode of 10
    crossing = _pt(tmp_path / "crossing", first=np.array([0, 8, 3]), second=np.array([20, 5, 3]))
    assert load_labels(folder, numbered_episodes()).report.crossing == 0
    with pytest.raises(DataError, match=r"crossing does not fit.* 1 of 3 pairs.* rows 8 to 12\."):
        load_labels(crossing, numbered_episodes())
    dropped = load_labels(crossing, numbered_episodes(), crossing="drop")
    assert (dropped.report.crossing, dropped.report.dropped) == (1, 1)
    assert len(load_labels(crossing, numbered_episodes(), crossing="keep").comparisons) == 3


def test_labels_of_other_data_are_noticed(tmp_path):
    with pytest.raises(DataError, match=r"does not belong.*\[0, 20\] of these 25 steps.*\[0, 30\]"):
        load_labels(_unirlhf(tmp_path), numbered_episodes((25,)))


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ((0, 1, 2, 0), r"pair 2: expected 0 \(first preferred\).*got 2"),
        ((0, 1, 0.5, 0), "pair 2.*got 0.5"),
        ([[1.0, 0.0], [0.9, 0.9]] * 2, "pair 1: expected two shares"),
        ([[1.0, np.nan]] * 4, "pair 0"),
        ([[-1.0, 2.0]] * 4, "pair 0"),
        (("a", "b", "c", "d"), "<U1"),
        (np.zeros((4, 3)), r"\(4, 3\)"),
        ((), "at least one label"),
        ((0, 1), "4 first, 4 second, 2 labels"),
    ],
)
def test_other_labels_are_refused(tmp_path, labels, match):
    with pytest.raises(DataError, match=match):
        read_labels(_unirlhf(tmp_path, labels=labels))


def test_ambiguous_folders_are_refused(tmp_path):
    _unirlhf(tmp_path / "a")
    with pytest.raises(DataError, match=r"expected one file.*Keep one label set"):
        read_labels(_unirlhf(tmp_path / "a", kind="fake"))
    _pt(tmp_path / "b")
    with pytest.raises(DataError, match="expected one file"):
        read_labels(_pt(tmp_path / "b", name="num9"))
    _pt(tmp_path / "c")
    with pytest.raises(DataError, match="files of both"):
        read_labels(_unirlhf(tmp_path / "c"))


def test_a_run_in_place_of_labels_leads_to_the_option_that_reads_it(tmp_path):
    (tmp_path / "my run" / "comparisons").mkdir(parents=True)
    with pytest.raises(DataError, match=r"--comparisons '.*/my run', without --labels"):
        read_labels(tmp_path / "my run")


@pytest.fixture(scope="module")
def door(shared):
    return load_demonstrations(shared / "data" / "adroit-door-human" / "door-v0_demos.pickle")


def _agreement(comparisons):
    """How often the true rewards prefer what the labels prefer, ties left out."""
    returns = comparisons.segments.returns()[comparisons.pairs]
    agrees = (returns[:, 0] > returns[:, 1]) == (comparisons.preference > 0.5)
    return float(agrees[comparisons.decided].mean())


def _door_labels(shared, kind):
    return shared / "data" / "adroit-door-human" / f"door-human-v1_{kind}_labels"


def test_computed_door_labels_agree_with_the_rewards(shared, door):
    loaded = load_labels(_door_labels(shared, "fake"), door, crossing="keep")
    assert len(loaded.comparisons) == 1600
    assert _agreement(loaded.comparisons) == pytest.approx(0.985, abs=0.002)


def test_human_door_labels(shared, door):
    folder = _door_labels(shared, "human")
    kept, dropped = (load_labels(folder, door, crossing=c) for c in ("keep", "drop"))
    report = dropped.report
    assert (report.pairs, report.first, report.second, report.ties) == (1600, 737, 747, 116)
    assert (report.crossing, report.dropped, report.length) == (522, 522, 50)
    assert _agreement(kept.comparisons) == pytest.approx(0.838, abs=0.001)
    assert _agreement(dropped.comparisons) == pytest.approx(0.909, abs=0.001)


@pytest.mark.parametrize(("name", "pairs", "length", "first", "second", "ties", "largest"), PT_SETS)
def test_pt_label_sets(shared, name, pairs, length, first, second, ties, largest):
    rows = read_labels(shared / "data" / "preference-transformer-human-labels" / name)
    assert (len(rows), len(rows.first), len(rows.second), rows.length) == (pairs,) * 3 + (length,)
    counts = [(rows.preference == value).sum() for value in (1, 0, 0.5)]
    assert counts == [first, second, ties]
    assert max(rows.first.max(), rows.second.max()) == largest


ROWS = LabelRows(np.array([0, 1, 0]), np.array([2, 0, 3]), np.array([0.0, 0.0, 1.0]), 2)


@pytest.mark.parametrize(("ties", "expected"), [("half", [0, 1, 0.5]), ("first", [0, 1, 1])])
def test_more_reward_is_preferred(ties, expected):
    episodes = numbered_episodes([5], [0.0, 1, 3, 1, 0])  # sums by start: 1, 4, 4, 1
    answered = scripted_preferences(ROWS, episodes, ties=ties)
    assert answered.preference.tolist() == expected
    shown = answered.segments[answered.pairs].observations[..., 0, 0]
    assert shown.tolist() == [[0, 2], [1, 0], [0, 3]]


def test_segments_across_an_end():
    episodes = numbered_episodes([2, 3], [0.0, 1, 3, 1, 0])  # the window at 1 crosses
    assert len(scripted_preferences(ROWS, episodes)) == 2
    assert scripted_preferences(ROWS, episodes, crossing="keep").preference.tolist() == [0, 1, 0.5]
    with pytest.raises(DataError, match="1 of 3 pairs"):
        scripted_preferences(ROWS, episodes, crossing="error")


def test_sums_have_the_precision_of_the_rewards():
    rewards = np.array([1.0, 0.0, 1.0, 1e-9], np.float32)
    rows = LabelRows(np.array([0]), np.array([2]), np.array([np.nan]), 2)
    assert scripted_preferences(rows, numbered_episodes([4], rewards)).preference.tolist() == [0.5]
    exact = numbered_episodes([4], rewards.astype(np.float64))
    assert scripted_preferences(rows, exact).preference.tolist() == [0]


def test_questions_stay_inside_long_episodes_but_the_last():
    lengths = np.array([5, 20, 11, 10, 30])  # of segments of 10, only those at 5 and 25 are longer
    rows = sample_pt_queries(lengths, 300, 10, seed=1)
    starts = np.concatenate([rows.first, rows.second])
    assert set(starts) == {*range(5, 16), 25, 26}
    assert 0.4 < (starts >= 25).mean() < 0.6  # episodes are drawn evenly, whatever their length
    assert np.isnan(rows.preference).all()
    assert (len(rows), rows.length) == (300, 10)
