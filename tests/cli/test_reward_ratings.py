"""`preferl reward fit` takes the ratings of a store or a folder, unless told to ignore them."""

import json

import numpy as np
import pytest

from helpers.command_line import run
from helpers.numbered_videos import random_segments
from preferl.store.exchange.exports import export_segments
from preferl.store.store import Store

QUICK = ("--epochs", 2, "--hidden", 8, "--report-to", "jsonl")


@pytest.fixture
def labels(tmp_path):
    """The folder of a store where somebody rated twelve clips, and compared none."""
    with Store.open(tmp_path / "labels") as store:
        project = store.projects.create("arm", ratings=True)
        pairs = np.arange(12).reshape(6, 2)
        store.queries.ask(project.id, random_segments(12, 6, seed=1), pairs)
        ann = store.people.invite(project.id, "Ann").annotator.id
        clips = sorted(
            {name for pair in store.queries.pairs(project.id, range(1, 7)) for name in pair}
        )
        for number, clip in enumerate(clips):
            outcome = "success" if number < 5 else None
            key = f"key-{number:05}"
            store.ratings.rate(project.id, ann, clip, key, rating=1 + number % 5, outcome=outcome)
        export_segments(store, project.id, tmp_path / "clips")
    return tmp_path / "labels"


@pytest.mark.parametrize("source", ["store", "comparisons"])
def test_ratings_alone_are_fitted(labels, tmp_path, capsys, source):
    folder = labels if source == "store" else tmp_path / "clips"
    out = tmp_path / "run"
    assert run("reward", "fit", f"--{source}", folder, *QUICK, "--out", out) == 0
    text = capsys.readouterr().out
    assert "12 ratings and 5 outcomes of single clips." in text
    assert "Rank agreement (Kendall's tau)" in text
    fit = json.loads((out / "result.json").read_text())["fit"]
    assert fit["pairs"] == 0
    assert (fit["ratings"]["ratings"], fit["ratings"]["outcomes"]) == (12, 5)
    assert np.shape(fit["ratings"]["thresholds"]) == (3, 1, 5)


def test_ratings_are_left_out_if_they_are_ignored(labels, tmp_path, capsys):
    words = ("reward", "fit", "--store", labels, "--ratings", "ignore", *QUICK)
    assert run(*words, "--out", tmp_path / "run") != 0
    assert "ratings" not in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
