"""Runs side by side: which settings differ, what can be concluded, and the page."""

import pytest

from helpers import written_runs
from preferl.errors import ConfigError
from preferl.evaluation.report import render
from preferl.evaluation.run_comparison import (
    cautions,
    comparison_report,
    differing_settings,
    short_names,
)
from preferl.online import PPOConfig
from preferl.runs import read_run


@pytest.fixture
def runs(tmp_path):
    paths = [
        written_runs.online(tmp_path / "one/run", -150.0),
        written_runs.online(tmp_path / "two/run", -300.0, seed=1, comparisons=400),
        written_runs.online(tmp_path / "three/run", -200.0, algorithm=PPOConfig(n_steps=64)),
    ]
    return short_names([read_run(path) for path in paths])


def test_names_are_the_shortest_ends_that_differ(runs):
    assert list(runs) == ["one/run", "two/run", "three/run"]


def test_one_run_and_one_twice_are_refused(tmp_path):
    run = read_run(written_runs.online(tmp_path / "run"))
    for several in ([run], [run, run]):
        with pytest.raises(ConfigError, match="two or more folders"):
            short_names(several)


def test_settings_of_one_kind_only_are_not_rows(runs):
    found = differing_settings(runs)
    assert found["seed"] == ("0", "1", "0")
    assert found["algorithm.kind"] == ("SACConfig", "SACConfig", "PPOConfig")
    assert found["algorithm.gamma"] == ("0.9", "0.9", "0.99")
    assert "algorithm.n_epochs" not in found, "which a single run has"
    assert "env" not in found


def test_cautions_name_what_cannot_be_concluded(runs, tmp_path):
    assert [words.split(":")[0] for words in cautions(runs)] == ["One agent each"]
    others = [written_runs.offline(tmp_path / "off", {0: 1.0, 1: 2.0})]
    others.append(written_runs.online(tmp_path / "part", finished=False))
    more = short_names([*runs.values(), *map(read_run, others)])
    found = cautions(more)
    assert "Pendulum-v1 (return), Reacher-v5 (return)" in found[0]
    assert "part" in found[1]
    assert "off" not in found[2]


def test_the_page_holds_scores_curves_rewards_and_settings(runs, tmp_path):
    page = render(comparison_report(runs))
    for words in (
        "3 runs side by side", "Return of the exploring policy", "Accuracy on left-out answers",
        "algorithm.kind", "80.0 %", "−150", "67 to 89 %", "All settings of one/run",
    ):  # fmt: skip
        assert words in page, words
    assert page.count("<svg") == 4  # episodes, two curves, accuracies
    assert "Versions that differ" not in page


def test_agents_of_different_kinds_share_a_drawing_of_their_evaluations(tmp_path):
    paths = []
    for policy, agent in {"iql": "learned", "dt": "true", "bc": "cloning"}.items():
        paths.append(written_runs.offline(tmp_path / policy, {0: 1.0, 1: 2.0}, policy_name=policy))
        written_runs.evaluations(
            paths[-1], {f"{agent}-{seed}": {10: 1.0, 20: 2.0 + seed} for seed in (0, 1)}
        )
    page = render(comparison_report(short_names([read_run(path) for path in paths])))
    assert "Evaluated return while learning, over updates. Last: iql 2.50, dt 2.50, bc" in page
    assert "Thin lines are seeds, the others their means. Bands are 95 % intervals" in page
