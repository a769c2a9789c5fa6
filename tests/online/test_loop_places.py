"""Which answers each member sees stays the same, whichever answers a run forgets or finds."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from helpers.resumable_runs import KilledError, assert_same, everything
from preferl.feedback import AnswerFilter
from preferl.models import MLPRewardConfig
from preferl.online import OnlineConfig, PPOConfig, learn_from_preferences
from preferl.online.reports import IterationReport
from preferl.store import Store, StoredFeedback
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


def test_a_run_that_forgets_answers_comes_to_the_same_after_a_kill(fits, tmp_path):
    config = replace(TINY, max_comparisons=20, prepare=(AnswerFilter(beta=0.0),))
    expected = learn_from_preferences(config)
    whole = fits.copy()
    numbers = everything(expected.learner.algorithm)

    def end(report: IterationReport) -> None:
        if report.iteration == 2:
            raise KilledError

    with pytest.raises(KilledError):
        learn_from_preferences(config, on_iteration=end, checkpoints=tmp_path)
    fits.clear()
    report = learn_from_preferences(config, checkpoints=tmp_path)
    assert fits == whole[2:]
    assert_same(everything(report.learner.algorithm), numbers)
    np.testing.assert_array_equal(
        report.reward.member_rewards(report.experience),
        expected.reward.member_rewards(expected.experience),
    )


def test_counts_stay_as_others_answer_the_same_queries_later(fits, tmp_path):
    with Store.open(tmp_path) as store:
        project = store.projects.create("pendulum", repeat_share=0.0, quorum=2)
        ann, bo = (store.people.invite(project.id, name).annotator.id for name in ("Ann", "Bo"))
        people = {0: (ann, 8), 1: (bo, 12), 2: (ann, 20)}

        def answer(report: IterationReport) -> None:
            store.clips.video_ready(project.id, store.clips.without_video(project.id, 1_000))
            person, count = people.get(report.iteration, (ann, 0))
            for _ in range(count):
                (question,) = store.queue.claim(project.id, person, 1).queries
                store.queue.answer(person, question.token, f"key-{question.token}", "left")

        feedback = StoredFeedback(store, combine="each")
        report = learn_from_preferences(TINY, feedback=feedback, on_iteration=answer)
    _, first, second, third = [one.fit and one.fit.pairs for one in report.iterations[:4]]
    assert (first, second, third) == (8, 20, 40)
    assert len(fits[-1]) < third, "some queries have two answers"
    assert_counts_stay(fits)
