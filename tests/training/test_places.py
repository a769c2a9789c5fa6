"""Places of queries: in the order first seen, and for good."""

from preferl.training.places import AnswerPlaces


def test_places_are_those_of_a_table_that_only_grows(rng):
    places = AnswerPlaces()
    known = {}
    for start in range(0, 60, 7):
        places = AnswerPlaces(places.queries.tolist())  # as a resumed run does
        queries = rng.integers(start - 30, start + 10, rng.integers(0, 25))
        expected = [known.setdefault(query, len(known)) for query in queries.tolist()]
        assert places(queries).tolist() == expected
    assert places.queries.tolist() == list(known)
    assert len(places) == len(known)
