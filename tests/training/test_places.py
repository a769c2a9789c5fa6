"""Places of queries: in the order first seen, and for good."""

import numpy as np

from preferl.training.places import AnswerPlaces


def test_places_are_those_of_a_table_that_only_grows(rng):
    places = AnswerPlaces()
    known = {}
    for start in range(0, 60, 7):
        queries = rng.integers(start - 30, start + 10, rng.integers(0, 25))
        expected = [known.setdefault(query, len(known)) for query in queries.tolist()]
        assert places(queries).tolist() == expected
    assert places.queries.tolist() == list(known)
    assert len(places) == len(known)


def test_places_go_on_from_the_queries_that_were_kept():
    first = AnswerPlaces()
    first(np.array([8, 3, 5]))
    again = AnswerPlaces(first.queries.tolist())
    assert again(np.array([5, 9, 8])).tolist() == first(np.array([5, 9, 8])).tolist() == [2, 3, 0]
