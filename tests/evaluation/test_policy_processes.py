"""Policies evaluated in several processes: the same reports, however many there are."""

import os

import gymnasium
import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.evaluation import RandomPolicy, evaluate_policies, evaluate_policy

SPACE = gymnasium.spaces.Box(-2, 2, (1,), np.float32)


class Ends:
    """A policy that takes its process with it."""

    def predict(self, *_, **__):
        os._exit(3)


def policies():
    return {f"random {seed}": RandomPolicy(SPACE, seed) for seed in (2, 0, 1)}


@pytest.mark.parametrize("processes", [1, 2])
def test_reports_are_those_of_each_policy_alone(processes, tmp_path, monkeypatch):
    (tmp_path / "multiprocessing.py").write_text("raise ImportError('of the current folder')")
    monkeypatch.chdir(tmp_path)
    means = []
    reports = evaluate_policies(
        policies(),
        "Pendulum-v1",
        episodes=3,
        seed=5,
        parallel=2,
        max_steps=20,
        processes=processes,
        on_report=lambda name, report: means.append((name, report.mean)),
    )
    assert list(reports) == list(policies())
    assert sorted(means) == sorted((name, report.mean) for name, report in reports.items())
    for name, policy in policies().items():
        alone = evaluate_policy(policy, "Pendulum-v1", episodes=3, seed=5, parallel=2, max_steps=20)
        assert reports[name].returns.tolist() == alone.returns.tolist()


def test_what_cannot_be_sent_is_named():
    many = {"a": RandomPolicy(SPACE, 0), "b": RandomPolicy(SPACE, 1)}
    with pytest.raises(ConfigError, match=r"policy 'a'.*processes=1"):
        evaluate_policies(many, lambda: gymnasium.make("Pendulum-v1"), episodes=1, seed=0)


def test_a_process_that_dies_is_an_error():
    with pytest.raises(ConfigError, match="one of them died"):
        evaluate_policies({"a": Ends(), "b": Ends()}, "Pendulum-v1", episodes=1, seed=0)


def test_nothing_to_evaluate_and_bad_settings():
    assert evaluate_policies({}, "Pendulum-v1", seed=0) == {}
    with pytest.raises(ConfigError, match="processes"):
        evaluate_policies(policies(), "Pendulum-v1", seed=0, processes=0)
    with pytest.raises(ConfigError, match="episodes"):
        evaluate_policies(policies(), "Pendulum-v1", seed=0, episodes=0, processes=1)
