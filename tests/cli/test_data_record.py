"""`preferl data record`: a data set from a command, and what it prints."""

import gymnasium
import numpy as np
import pytest

from helpers.command_line import run
from preferl.cli.data import DataRecordConfig, InspectConfig, data_inspect, data_record
from preferl.data import load_episodes
from preferl.data.arrays import load_arrays
from preferl.online import DatasetConfig, PPOConfig, make_environments, save_policy
from preferl.online.algorithms import build_algorithm
from preferl.testing import PointWorld, make_episodes


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_the_table_and_the_folder(tmp_path, capsys):
    out = tmp_path / "data"
    assert run("data", "record", "--env", "Pendulum-v1", "--mix", "random:2", "--out", out) == 0
    printed = capsys.readouterr().out
    assert "recording random ..." in printed
    assert f"Episodes: {out / 'episodes'}" in printed
    assert "random" in printed
    data_inspect(InspectConfig(str(out / "episodes")))
    assert "float64 [2]" in capsys.readouterr().out  # states


def test_a_saved_policy_acts(tmp_path):
    config = PPOConfig(hidden=(8,))
    made = build_algorithm(config, make_environments("Pendulum-v1", 1, seed=0), seed=0)
    save_policy(tmp_path / "policy", made, config)
    run = DatasetConfig(
        "Pendulum-v1", mix="expert:1", policy=tmp_path / "policy", deterministic=True
    )
    data_record(DataRecordConfig(run, tmp_path / "data"))
    episodes = load_episodes(tmp_path / "data" / "episodes")
    expected, _ = made.predict(episodes.observations, deterministic=True)
    assert episodes.actions == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_a_decision_transformer_acts(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from preferl.offline import DecisionTransformer, DTConfig

    spaces = PointWorld.observation_space, PointWorld.action_space
    agent = DecisionTransformer(
        *spaces, DTConfig(context=3, width=8, layers=1, batch_size=4, horizon=20), seed=0, steps=1
    )
    agent.fit(agent.sequences(make_episodes(np.random.default_rng(0), [20, 20], *spaces)))
    agent.policy(1.0).save(tmp_path / "policy")
    gymnasium.register("preferl-tests/Points-v0", PointWorld)
    try:
        run = DatasetConfig("preferl-tests/Points-v0", mix="expert:2", policy=tmp_path / "policy")
        data_record(DataRecordConfig(run, tmp_path / "data"))
    finally:
        del gymnasium.registry["preferl-tests/Points-v0"]
    assert load_episodes(tmp_path / "data" / "episodes").lengths.tolist() == [20, 20]


@pytest.mark.slow
def test_presets_and_seeds(tmp_path, capsys):
    options = ("--preset", "halfcheetah", "--env", "Pendulum-v1", "--train-steps", "600")
    small = ("--checkpoint-every", "300", "--eval-episodes", "1", "--algorithm.batch-size", "8")
    out = tmp_path / "data"
    assert run("data", "record", *options, *small, "--seeds", "0,1", "--out", out) == 0
    printed = capsys.readouterr().out
    assert "replay, seed 1" in printed
    about = load_arrays(out / "episodes")[1]["about"]
    assert f"Whoever has the id {about['id']} has the same data" in " ".join(printed.split())
    assert load_episodes(out / "episodes").steps == 1_200
    assert run("data", "record", "--preset", "halfchetah") == 2
    assert "halfcheetah" in capsys.readouterr().err
