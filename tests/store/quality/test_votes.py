import re

import numpy as np
import pytest

from preferl.errors import DataError
from preferl.store.quality.votes import CANNOT_TELL, EQUAL, FIRST, SECOND, Votes

NAN = np.nan


def test_what_each_answer_means():
    votes = Votes.of(
        [0, 1, 2, 3], [0] * 4, [1, 0.5, 0, NAN], swapped=np.array([True, True, True, False])
    )
    assert votes.category.tolist() == [FIRST, EQUAL, SECOND, CANNOT_TELL]
    assert votes.left[:3].tolist() == [0, 0.5, 1]  # the first clip was on the right
    assert np.isnan(votes.left[3])
    assert votes.counts.tolist() == [True, True, True, False]


def test_some_rows_keep_the_annotators():
    votes = Votes.of([3, 5], [0, 1], [1, 0], names=["ann", "bob"])
    kept = votes[votes.query == 5]
    assert (len(kept), kept.annotator.tolist(), kept.names) == (1, [1], ("ann", "bob"))


def test_repeats_are_joined_to_the_same_persons_answer_in_any_order():
    votes = Votes.of(
        query=[9, 2, 2, 8, 7],
        annotator=[1, 0, 1, 0, 0],
        preference=[1, 0, 0.5, 1, 1],
        repeat_of=np.array([2, -1, -1, 3, 2]),
    )
    repeats, originals = votes.repeated()
    # 8 repeats query 3, which nobody answered
    assert repeats.tolist() == [0, 4]
    assert originals.tolist() == [2, 1]
    assert votes.first_answers.query.tolist() == [2, 2]


def test_no_votes_at_all():
    votes = Votes.of([], [], [])
    assert (len(votes), votes.annotators, votes.category.tolist()) == (0, 0, [])
    assert [rows.tolist() for rows in votes.repeated()] == [[], []]


WRONG = (
    ({"preference": [1.0]}, "Votes.preference: expected [2], got (1,)"),
    ({"preference": [0.7, 1]}, "Votes.preference: expected 1, 0.5, 0 or NaN, got 0.7"),
    ({"known": np.array([2.0, 1])}, "Votes.known: expected 1, 0.5, 0 or NaN, got 2.0"),
    ({"annotator": [0, 2], "names": "ab"}, "Votes.annotator: expected 0 to 1, got 2"),
    ({"query": [-1, 0]}, "Votes.query: expected at least 0, got -1"),
    ({"repeat_of": np.array([-2, 0])}, "Votes.repeat_of: expected at least -1, got -2"),
    ({"names": "aa"}, "Votes.names: expected different names"),
    ({"annotator": [0, 0]}, "got 2 of '0' to query 4"),
    ({"known": np.array([1.0, NAN])}, "Votes.known: expected one value for each query"),
    ({"repeat_of": np.array([3, -1])}, "got two for query 4"),
)


def test_votes_that_cannot_be():
    good = {"query": [4, 4], "annotator": [0, 1], "preference": [1.0, 0.0]}
    Votes.of(**good)
    for columns, message in WRONG:
        with pytest.raises(DataError, match=re.escape(message)):
            Votes.of(**(good | columns))


def test_columns_of_the_wrong_kind():
    votes = Votes.of([0], [0], [1])
    columns = {name: getattr(votes, name) for name in Votes.__dataclass_fields__}
    with pytest.raises(DataError, match=r"Votes.swapped: expected bool"):
        Votes(**(columns | {"swapped": np.zeros(1)}))
    with pytest.raises(DataError, match=r"Votes.query: expected whole numbers"):
        Votes(**(columns | {"query": np.zeros(1)}))
