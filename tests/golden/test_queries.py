"""The view of rows, drawn questions and labels equal the published implementation's, exactly."""

import pickle

import numpy as np
import pytest

from preferl.data import Episodes
from preferl.data.sources import (
    LabelRows,
    load_labels,
    read_labels,
    sample_pt_queries,
    scripted_preferences,
)
from preferl.data.sources.d4rl import qlearning_view


@pytest.fixture(scope="module")
def golden(shared):
    return np.load(shared / "golden/preference_transformer/queries.npz")


@pytest.fixture(scope="module")
def episodes(golden):
    rows, lengths = qlearning_view(golden["in:raw_terminals"], golden["in:raw_timeouts"])
    observations = golden["in:obs_qlearning"]
    rewards = golden["in:rewards_qlearning"]
    return Episodes(
        observations,
        observations,
        rewards,
        golden["in:raw_terminals"][rows],
        np.zeros((len(lengths), 3)),
        lengths,
    )


def test_the_view_and_its_episodes(golden):
    rows, lengths = qlearning_view(golden["in:raw_terminals"], golden["in:raw_timeouts"])
    np.testing.assert_array_equal(rows, golden["in:keep_idx"])
    starts, last = golden["out:trj_idx_list"].T
    np.testing.assert_array_equal(np.cumsum(lengths) - lengths, starts)
    # The original's last episode ends one row after the data; it is never drawn.
    np.testing.assert_array_equal(np.cumsum(lengths) - 1, np.append(last[:-1], last[-1] - 1))


@pytest.mark.parametrize(("kind", "ties"), [("lt0", "first"), ("lt1", "half")])
def test_questions_and_scripted_answers(golden, episodes, kind, ties):
    rows = sample_pt_queries(episodes.lengths, 12, 10, seed=3407)
    np.testing.assert_array_equal(rows.first, golden[f"out:{kind}_start_indices"])
    np.testing.assert_array_equal(rows.second, golden[f"out:{kind}_start_indices_2"])
    answered = scripted_preferences(rows, episodes, ties=ties, crossing="error")
    np.testing.assert_array_equal(answered.preference, golden[f"out:{kind}_labels"][:, 0])


def test_people_s_answers_to_the_last_questions(golden, episodes, tmp_path):
    files = {
        "label_human": golden["in:human_labels"].tolist(),
        "indices_num12_q10": golden["out:lt1_start_indices"],
        "indices_2_num12_q10": golden["out:lt1_start_indices_2"],
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(pickle.dumps(content))
    last = load_labels(tmp_path, episodes).comparisons[-8:]
    np.testing.assert_array_equal(last.preference, golden["out:human_labels_last8"][:, 0])
    shown = last.segments[last.pairs[:, 0]].observations
    np.testing.assert_array_equal(shown, golden["out:human_obs1_last8"])


def test_scripted_answers_to_the_last_questions(golden, episodes):
    rows = read = sample_pt_queries(episodes.lengths, 12, 10, seed=3407)
    rows = LabelRows(read.first[-8:], read.second[-8:], read.preference[-8:], 10)
    answered = scripted_preferences(rows, episodes)
    np.testing.assert_array_equal(answered.preference, golden["out:script_labels_last8"][:, 0])


@pytest.mark.parametrize(
    "name", ["antmaze-medium-play-v2", "antmaze-medium-diverse-v2", "antmaze-large-diverse-v2"]
)
def test_published_antmaze_questions(shared, name):
    published = read_labels(shared / "data/preference-transformer-human-labels" / name)
    drawn = sample_pt_queries(np.full(1000, 1000), 1000, published.length, seed=3407)
    assert (drawn.first[0], drawn.second[0]) == (363580, 467701)
    np.testing.assert_array_equal(drawn.first, published.first)
    np.testing.assert_array_equal(drawn.second, published.second)
