"""Which answers each member sees stays the same, whichever answers a run forgets or finds."""

from dataclasses import replace
from itertools import pairwise

import pytest

from preferl.feedback import AnswerFilter
from preferl.models import MLPRewardConfig
from preferl.online import OnlineConfig, PPOConfig, learn_from_preferences
from preferl.store.clips import clip_ids
from preferl.training import RewardTrainer, RewardTrainerConfig

TINY = OnlineConfig(
    environments=2,
    steps=1_000,
    comparisons=48,
    iterations=4,
    schedule="constant",
    segment_length=10,
    initial_steps=300,
    algorithm=PPOConfig(n_steps=50, batch_size=50, n_epochs=1),
    model=MLPRewardConfig(hidden=(8,), members=3),
    trainer=RewardTrainerConfig(epochs=2),
    eval_every=0,
)


@pytest.fixture
def fits(monkeypatch) -> list[dict[tuple[str, str], tuple[float, ...]]]:
    """Of each fit, the counts of every member for each pair of clips."""
    seen = []
    fit = RewardTrainer.fit

    def spy(self, train, *held_out, places, **options):
        counts = self.bootstrap(places.max() + 1)[:, places].T.tolist()
        names = clip_ids(train.segments)
        found = {}
        for (first, second), own in zip(train.pairs.tolist(), map(tuple, counts), strict=True):
            assert found.setdefault((names[first], names[second]), own) == own
        seen.append(found)
        return fit(self, train, *held_out, places=places, **options)

    monkeypatch.setattr(RewardTrainer, "fit", spy)
    return seen


def assert_counts_stay(fits: list[dict[tuple[str, str], tuple[float, ...]]]) -> None:
    known = {}
    for before, after in pairwise(fits):
        assert before.keys() & after.keys()
        assert after.keys() - before.keys()
        known |= before
        assert all(known.get(pair, counts) == counts for pair, counts in after.items())
    assert len(set(known.values())) > 10


@pytest.mark.parametrize("prepare", [(), (AnswerFilter(beta=0.0),)], ids=["plain", "rime"])
@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_counts_stay_as_the_oldest_answers_are_forgotten(fits, prepare, validation):
    config = replace(TINY, max_comparisons=20, prepare=prepare, validation=validation)
    learn_from_preferences(config)
    assert len(fits) == 4
    assert fits[1].keys() - fits[2].keys(), "some are forgotten"
    assert_counts_stay(fits)
