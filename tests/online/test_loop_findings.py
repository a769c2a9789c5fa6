"""The loop measures its parts, and reports what is wrong while it runs and in the end."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.tiny_runs import KilledError, tiny
from preferl.feedback import ScriptedTeacher
from preferl.models import MLPRewardConfig
from preferl.online import learn_from_preferences

TINY = tiny(
    steps=800,
    comparisons=200,
    segment_length=5,
    initial_steps=300,
    initial_fraction=0.5,
    model=MLPRewardConfig(hidden=(8,), members=3),
)


class FirstEpisodes:
    """Always the clips of a run's first two episodes, the other way round in each round."""

    def __init__(self):
        self.rounds = 0

    def __call__(self, segments, count, rng):
        self.rounds += 1
        pair = [np.flatnonzero(segments.origin[:, 0] == number)[0] for number in (0, 1)]
        return np.tile(pair[:: (-1) ** self.rounds], (count, 1))

    def segments_for(self, queries):
        return 5_000  # so that these clips are among them


def first_is_better(shown, rng):
    return np.ones(len(shown))


def test_a_pair_that_is_answered_both_ways_in_two_rounds_is_found():
    config = replace(TINY, segment_length=20, initial_steps=40, comparisons=2)
    report = learn_from_preferences(config, teacher=first_is_better, sampler=FirstEpisodes())
    first, second, _ = report.iterations
    assert np.isnan(first.contradicted)
    assert second.contradicted == 1
    assert "contradictory" in [one.name for one in report.findings]


def test_a_resumed_run_keeps_seconds_and_finds_the_same(tmp_path, caplog):
    config = replace(TINY, teacher=ScriptedTeacher(guess_rate=1.0), iterations=3)
    whole = learn_from_preferences(config)
    caplog.clear()
    first = []

    def end(report):
        first.append(report)
        if report.iteration == 3:
            raise KilledError

    with pytest.raises(KilledError):
        learn_from_preferences(config, on_iteration=end, checkpoints=tmp_path)
    report = learn_from_preferences(config, checkpoints=tmp_path)
    assert sum(message.startswith("at_chance: ") for message in caplog.messages) == 1
    assert report.findings == whole.findings
    assert [one.seconds for one in report.iterations[:3]] == [one.seconds for one in first[:3]]
