"""`preferl reward evaluate`: a reward beside its controls, EPIC, and a report."""

import json

import pytest

from helpers.command_line import run
from helpers.offline_runs import LENGTH
from preferl.data import concatenate, load_comparisons, save_comparisons
from preferl.models import MLPReward
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction, save_reward

OWN = """
def reward(observations, actions, following):
    return -((observations + actions) ** 2).sum(-1) + 0.99 * following[:, 0] - observations[:, 0]
"""


@pytest.fixture
def fitted(answered, tmp_path):
    """A reward that learned nothing, and data to evaluate it on."""
    save_reward(tmp_path / "run/reward", RewardFunction(MLPReward(POINT_SPACE, PUSH_SPACE, seed=0)))
    return (tmp_path / "run", *answered)


def evaluate(*words):
    return run("reward", "evaluate", *words)


def fit(*words):
    return run("reward", "fit", *words)


def test_controls_are_in_the_table_the_numbers_and_the_report(fitted, tmp_path, capsys):
    files = ("--json", tmp_path / "it.json", "--report", tmp_path / "it.html")
    assert evaluate(*fitted, *files) == 0
    numbers = json.loads((tmp_path / "it.json").read_text())
    assert set(numbers["controls"]) == {"random", "negated", "zero"}
    assert numbers["accuracy"] + numbers["controls"]["negated"]["accuracy"] == pytest.approx(1)
    assert numbers["spearman"] == pytest.approx(-numbers["controls"]["negated"]["spearman"])
    assert numbers["controls"]["zero"]["accuracy"] == 0.5
    assert numbers["labels"]["length"] == LENGTH
    out = capsys.readouterr().out
    for word in ("learned", "random", "negated", "zero", "EPIC"):
        assert word in out
    assert "epic: the true reward was not given" in out
    page = (tmp_path / "it.html").read_text()
    assert f"{numbers['controls']['random']['log_loss']:.3f}" in page
    assert "run on labels" in page
    assert "EPIC distance" not in page


def test_epic_distance_from_a_reward_of_ones_own(fitted, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_reward_of_tests.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    true = ("--true-reward", "own_reward_of_tests:reward", "--json", "it.json")
    assert evaluate(*fitted, *true, "--report", "it.html") == 0
    assert "EPIC distance" in (tmp_path / "it.html").read_text()
    numbers = json.loads((tmp_path / "it.json").read_text())
    opposite = numbers["controls"]["negated"]["epic"]
    assert 0 < numbers["epic"] < 1
    assert numbers["epic"] ** 2 + opposite**2 == pytest.approx(1)  # (1 - r) / 2 and (1 + r) / 2
    assert numbers["controls"]["zero"]["epic"] is None
    assert f"{numbers['epic']:.3f}" in capsys.readouterr().out


def labelled(seed, name, tmp_path):
    """Answers of a script about the fixture's episodes, in a folder."""
    words = (tmp_path / "episodes", "--out", tmp_path / name, "--queries", 40, "--length", LENGTH)
    assert run("data", "label", *words, "--seed", seed) == 0
    return tmp_path / name


def test_pairs_of_the_fit_are_left_out_whichever_folder_they_are_in(fitted, tmp_path, capsys):
    quick = ("--epochs", 1, "--hidden", 4, "--report-to", "jsonl", "--out", tmp_path / "fit")
    first, others = (labelled(seed, f"of {seed}", tmp_path) for seed in (0, 1))
    assert "Another --seed than 0 draws other pairs" in capsys.readouterr().out
    assert fit("--comparisons", first, *quick) == 0
    again = labelled(0, "again", tmp_path)
    known, fresh = (load_comparisons(folder) for folder in (again, others))
    save_comparisons(tmp_path / "both", concatenate([fresh[:10], known[:30].swapped()]))

    def evaluated(folder):
        capsys.readouterr()
        files = ("--json", tmp_path / "it.json", "--report", tmp_path / "it.html")
        assert evaluate(tmp_path / "fit", "--comparisons", folder, *files) == 0
        numbers = json.loads((tmp_path / "it.json").read_text())
        return numbers, capsys.readouterr().out, (tmp_path / "it.html").read_text()

    numbers, out, page = evaluated(again)
    assert "Reward on 40 answers that it was fitted to" in out
    assert "Reward on 40 answers that it was fitted to" in page
    assert (numbers["seen"], numbers["left_out"]) == (40, [])

    numbers, out, page = evaluated(tmp_path / "both")
    for text in (out, page):
        assert "Reward on 10 answers that it was not fitted to" in text
        assert "Left out: 30 of 40 pairs, which the reward was fitted to." in text
    assert (numbers["seen"], numbers["left_out"]) == (0, [*range(10, 40)])
    assert numbers["decided"] + numbers["ties"] == 10

    alone, out, _ = evaluated(others)
    assert alone["left_out"] == []
    assert "fitted to" not in out
