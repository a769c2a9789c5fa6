"""The report of an offline run: its numbers by hand, and the parts that it leaves out."""

import re

import numpy as np

from helpers.offline_runs import config_of, recorded
from preferl.offline import OfflineConfig
from preferl.offline.experiment.conditions import ConditionScore, target_sweep
from preferl.offline.experiment.inputs import Inputs, OpenRun
from preferl.offline.experiment.report import shown_episode, write_page
from preferl.reporting import Sinks
from preferl.runs import RunFolder
from preferl.testing import PointWorld

SPACES = PointWorld.observation_space, PointWorld.action_space
RESULT = {"seeds": [4, 7], "comparison": None, "steps": 1500, "simulators": {}, "following": None}


def page_of(folder, scores=None, episodes=None, **changes):
    """The report of cloning, of scores made by hand."""
    config = OfflineConfig(demonstrations="a", policy="bc", env="E", episodes=3)
    episodes = recorded(np.random.default_rng(0), episodes=5) if episodes is None else episodes
    inputs = Inputs(episodes, *SPACES, None, None, None)
    result = RESULT | changes
    opened = OpenRun(config, result["seeds"], inputs, RunFolder(folder), Sinks(), lambda *_: None)
    write_page(opened, result, scores or {})
    return (folder / "report.html").read_text()


def score(*returns, success=None):
    rates = None if success is None else np.array(success)
    return ConditionScore(np.array(returns), np.array(returns), None, rates)


def test_scores_are_means_and_deviations_over_seeds(tmp_path):
    page = page_of(tmp_path, {"cloning": score(-1.0, 3.0, success=(0.25, 0.75))})
    assert "1.0 ± 2.8" in page  # the root of 8
    assert "50.0 ± 35.4" in page
    assert "of 3 episodes for each of 2 seeds" in page
    assert "E, cloned" in page
    assert "5 of them, 100 steps" in page
    assert "1,500" in page


def test_success_is_the_score_wherever_scores_are_shown(tmp_path):
    scores = {
        "learned": score(5.0, 6.0, 7.0, success=(0.5, 0.75, 1.0)),
        "zero": score(8.0, 9.0, 10.0, success=(0.25, 0.25, 0.5)),
    }
    page = page_of(tmp_path, scores, seeds=[4, 7, 9], comparison={"text": "Worse."})
    heads = re.findall(r"<th[^>]*>([^<]+)</th>", page)
    assert heads[:4] == ["reward", "success in %", "return", "by seed"]
    assert "50.0, 75.0, 100.0" in page
    assert "Means: learned reward 75.0, no reward 33.3." in page
    assert "Learned reward minus each control, seed by seed: success in %" in page
    assert "41.7" in page  # differences of 25, 50 and 50, which deviate by 14.4
    assert "5.8 to 77.5" in page
    assert "The comparison in words is of returns." in page


def test_intervals_of_success_stay_among_percentages(tmp_path):
    """The headline of 75, 100 and 100 % is not 91.7 ± 14.4."""
    scores = {
        "learned": score(5.0, 6.0, 7.0, success=(0.75, 1.0, 1.0)),
        "zero": score(8.0, 9.0, 10.0, success=(0.0, 0.0, 0.5)),
    }
    page = page_of(tmp_path, scores, seeds=[4, 7, 9], comparison={"text": "Worse."})
    (low, high), *_ = re.findall(r"95\s% interval ([\d.]+) to ([\d.]+)\s%", page)
    assert 0 < float(low) < 91.7 < float(high) <= 100
    (value,) = re.findall(r"<dt>Success</dt>\s*<dd class=\"value\">([^<]+)<", page)
    assert value == "91.7 %"
    differences = re.findall(r"<td>(-?[\d.]+) to (-?[\d.]+)</td>", page)
    assert [-100 <= float(end) <= 100 for pair in differences for end in pair] == [True, True]


def test_five_seeds_have_an_interquartile_mean(tmp_path):
    page = page_of(tmp_path, {"cloning": score(-9.0, 2.0, 3.0, 4.0, 90.0)}, seeds=[*range(5)])
    heads = re.findall(r"<th[^>]*>([^<]+)</th>", page)
    assert heads[:4] == ["reward", "return", "interquartile mean", "by seed"]
    assert "3.0 (" in page
    page = page_of(tmp_path, {"cloning": score(1.0, 2.0, 3.0, 4.0)}, seeds=[*range(4)])
    assert "interquartile" not in page, "of four, a resample often leaves out nothing but copies"


def test_a_sweep_shows_how_far_target_returns_matter(tmp_path):
    sweep = target_sweep(("q0", "q1"), [10.0, 20.0], np.array([[1.0, 4.0], [3.0, 8.0]]))
    page = page_of(tmp_path, {}, following=sweep)
    assert "from the lowest mean to the highest it is 4.0" in page  # 2 and 6
    assert "seeds deviate by 2.2" in page  # the root of (2 + 8) / 2
    assert "6.0 ± 2.8" in page
    assert "Rank correlation of both: 1.000" in page


def test_without_an_environment_the_best_recorded_episode_is_shown(data):
    episodes = recorded(np.random.default_rng(0), episodes=6)
    best = episodes.returns.argmax()
    inputs = Inputs(episodes, *SPACES, None, None, None)
    config = config_of(data, episodes=0)
    shown = shown_episode(OpenRun(config, (0,), inputs, RunFolder(data), Sinks(), print))
    assert shown.episode.returns.tolist() == [episodes.returns[best]]
    assert shown.frames is None
