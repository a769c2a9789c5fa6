from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from preferl.data.sources.pickles import load_pickle
from preferl.statistics import wilson_interval
from preferl.store.quality.agreement import (
    agreement_of,
    agreement_report,
    agreement_with_people,
    krippendorff_alpha,
)
from preferl.store.quality.votes import Votes

NAN = np.nan


def plain_alpha(units):
    """Alpha written as its definition: disagreement within units over disagreement overall."""
    units = [unit for unit in units if len(unit) > 1]
    pool = [value for unit in units for value in unit]
    if not pool:
        return NAN
    within = sum(
        sum(a != b for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in units
    ) / len(pool)
    overall = sum(a != b for a, b in permutations(pool, 2)) / (len(pool) * (len(pool) - 1))
    return 1 - within / overall if overall else NAN


def votes_of(table):
    """Votes of `[A, Q]` preferences in which -1 is no answer at all."""
    annotator, query = np.nonzero(table != -1)
    return Votes.of(
        query, annotator, table[annotator, query], names=[str(row) for row in range(len(table))]
    )


def alpha_of(votes):
    return krippendorff_alpha(votes.first_answers.counts_by_query()[1])


def load_stop_sign(folder):
    """Fifty pairs judged twice by eight people; the second pass repeats the first."""
    files = [folder / f"stop_sign_preferences_{person}.pkl" for person in range(1, 9)]
    chosen = np.array([np.asarray(load_pickle(file)) for file in files])  # [8, 2, 50, 2]
    first_wins = (chosen[..., 0] < chosen[..., 1]).astype(float)
    annotator, judged, pair = np.indices(first_wins.shape).reshape(3, -1)
    return Votes.of(
        query=judged * 50 + pair,
        annotator=annotator,
        preference=first_wins.ravel(),
        repeat_of=np.where(judged == 1, pair, -1),
    )


def test_models_agree_with_people_as_cohen_counts():
    """Cohen's kappa by hand: 0.7 agree, and 0.5 would by chance."""
    ann = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1.0, 1])
    net = np.array([1, 1, 1, 1, 0, 0, 0, 0, 1, 1, NAN, -1])
    bob = np.array([-1, -1, -1, -1, -1, -1, -1, -1, -1, 1, -1, -1])
    votes = votes_of(np.stack([ann, net]))
    votes = replace(votes, names=("ann", "net"), is_model=np.array([False, True]))
    (net_alone,) = agreement_with_people(votes)
    assert (net_alone.name, net_alone.queries, net_alone.agreement) == ("net", 10, 0.7)
    assert (net_alone.low, net_alone.high) == wilson_interval(7, 10)
    assert net_alone.kappa == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert agreement_report(votes, np.random.default_rng(0)).queries == 0, "one person alone"
    votes = replace(votes_of(np.stack([ann, net, bob])), is_model=np.array([False, True, False]))
    (shared,) = agreement_with_people(votes)  # half of the people agree on the last pair
    assert shared.agreement == pytest.approx(0.75)


answers = st.lists(
    st.lists(st.sampled_from([1.0, 0.5, 0.0, NAN, -1.0]), min_size=8, max_size=8),
    min_size=2,
    max_size=4,
)


@given(answers, st.randoms())
@settings(max_examples=50)
def test_alpha_is_its_definition_and_ignores_names_and_order(table, random):
    table = np.array(table)
    kept = (1.0, 0.5, 0.0)
    expected = plain_alpha([[v for v in unit if v in kept] for unit in table.T.tolist()])
    alpha = alpha_of(votes_of(table))
    assert alpha == pytest.approx(expected, nan_ok=True, abs=1e-9)
    rows = list(range(len(table)))
    columns = list(range(8))
    random.shuffle(rows)
    random.shuffle(columns)
    shuffled = votes_of(table[rows][:, columns])
    assert alpha_of(shuffled) == pytest.approx(alpha, nan_ok=True, abs=1e-9)
    mirrored = np.where(table == -1, -1, 1 - table)
    assert alpha_of(votes_of(mirrored)) == pytest.approx(alpha, nan_ok=True, abs=1e-9)


def test_repeats_are_not_other_people(rng):
    votes = votes_of(np.array([[1, 0, 1], [1, 0, 0]]))
    more = Votes.of(
        [*votes.query, 10, 11],
        [*votes.annotator, 0, 0],
        [*votes.preference, 0, 0],
        repeat_of=np.array([-1] * 6 + [0, 2]),
    )
    assert alpha_of(more) == alpha_of(votes)
    assert agreement_report(more, rng).pairs == 3


@pytest.mark.parametrize("queries", [0, 9])
def test_little_data_is_reported(queries, rng):
    report = agreement_report(votes_of(rng.integers(2, size=(2, queries)) * 1.0), rng)
    assert (report.alpha, report.low, report.high) == (None, None, None)
    assert report.note.startswith(f"not enough data: {queries} of at least 10")
    assert report.queries == report.pairs == queries


def test_answers_that_are_all_the_same_say_nothing(rng):
    report = agreement_report(votes_of(np.ones((3, 20))), rng)
    assert report.note == "not enough data: all answers are the same"
    assert (report.alpha, report.raw, report.chance, report.pairs) == (None, 1, 1, 60)


def test_the_interval_is_the_plain_bootstrap_over_queries(rng):
    table = rng.choice([1.0, 0.5, 0.0], size=(3, 40))
    table[1] = np.where(rng.random(40) < 0.7, table[0], table[1])
    report = agreement_report(votes_of(table), rng)
    rows = rng.integers(40, size=(400, 40))
    plain = [plain_alpha(table[:, some].T.tolist()) for some in rows]
    assert report.alpha == pytest.approx(plain_alpha(table.T.tolist()))
    np.testing.assert_allclose(
        [report.low, report.high], np.quantile(plain, [0.025, 0.975]), atol=0.04
    )


def test_eight_people_and_the_stop_sign(shared, rng):
    votes = load_stop_sign(shared / "data/stop-sign-eight-annotators")
    repeats, originals = votes.repeated()
    same = votes.preference[repeats] == votes.preference[originals]
    by_person = np.bincount(votes.annotator[repeats], same) / 50
    np.testing.assert_allclose(
        by_person, [0.90, 0.70, 0.82, 0.64, 0.94, 0.80, 1.00, 0.84], atol=1e-9
    )
    report = agreement_report(votes, rng)
    assert report.raw == pytest.approx(0.53, abs=0.005)
    assert report.alpha == pytest.approx(0.05, abs=0.01)
    assert report.low < 0.05 < report.high
    assert report.pairs == 50 * 8 * 7 / 2


KRIPPENDORFF = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""
"""The reliability data of "Computing Krippendorff's Alpha-Reliability" (2011): four observers."""


def test_alpha_of_the_published_example(rng):
    values = np.array([[0 if v == "." else int(v) for v in line.split()]
                       for line in KRIPPENDORFF.split("\n") if line])  # fmt: skip
    counts = (values[:, :, None] == np.arange(1, 6)).sum(0)
    assert round(krippendorff_alpha(counts), 4) == 0.7434
    assert round(krippendorff_alpha(counts, "ordinal"), 3) == 0.815
    units = [[int(value) for value in unit if value] for unit in values.T]
    assert plain_alpha(units) == pytest.approx(krippendorff_alpha(counts), abs=1e-12)
    report = agreement_of(counts, rng, units="clips", scale="ordinal")
    assert report.low < report.alpha < 1
    assert report.queries == 11, "with two values or more"
