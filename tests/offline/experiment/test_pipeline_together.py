"""Agents of several runs that learn as one computation."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.offline_runs import LENGTH, config_of, run
from preferl.cli.data import LabelConfig, data_label
from preferl.data import save_episodes
from preferl.errors import ConfigError, DataError
from preferl.offline import OfflinePolicy, OfflineRun, train_together
from preferl.offline.learner_configs import CPLConfig
from preferl.reporting import read_jsonl
from preferl.testing import make_episodes

CPL = {"policy": "cpl", "cpl": CPLConfig(hidden=(16,), batch_size=32, pairs=8)}


def answers(data, folder, seed):
    """Answers of our own format to queries of their own."""
    where = {"path": f"{data / 'episodes'}", "out": folder}
    data_label(LabelConfig(**where, queries=30 + seed, length=LENGTH, seed=seed))
    return folder


def runs_of(data, tmp_path, **settings):
    """Two runs of one seed each, with answers of their own."""
    return {
        tmp_path / f"together/{seed}": OfflineRun(
            config_of(
                data,
                labels=None,
                episodes=0,
                comparisons=answers(data, tmp_path / f"answers/{seed}", seed),
                **settings,
            ),
            (seed,),
        )
        for seed in (0, 1)
    }


def test_runs_get_the_agents_that_they_would_train_alone(data, tmp_path):
    runs = runs_of(data, tmp_path, **CPL, implied=True)
    train_together(runs, tmp_path / "states")
    assert not [*(tmp_path / "states").iterdir()]
    for folder, (seed, one) in zip(runs, enumerate(runs.values()), strict=True):
        alone = tmp_path / f"alone/{seed}"
        run(one.config, alone, seeds=(seed,))
        assert not run(one.config, folder, seeds=(seed,), resume=True)["interrupted"]
        names = {file.name for file in (alone / "policies").iterdir()}
        assert names == {file.name for file in (folder / "policies").iterdir()}
        for name in names:
            mine, theirs = (OfflinePolicy.load(of / f"policies/{name}") for of in (folder, alone))
            seen = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
            np.testing.assert_allclose(mine.predict(seen)[0], theirs.predict(seen)[0], atol=1e-3)
        metrics, others = (read_jsonl(of / "metrics.jsonl") for of in (folder, alone))
        assert {*metrics} == {*others}


def stop_late(doing, done, _):
    if "agents" in doing and done > 20:
        raise KeyboardInterrupt


def test_runs_that_join_later_go_on_beside_those_that_have_their_policies(data, tmp_path):
    runs = runs_of(data, tmp_path)
    states = tmp_path / "states"
    train_together(dict([*runs.items()][:1]), states)
    with pytest.raises(KeyboardInterrupt):
        train_together(runs, states, on_progress=stop_late, checkpoint_every=20)
    (state,) = states.iterdir()
    train_together(runs, states)
    assert not state.exists()
    assert len([*tmp_path.glob("together/*/policies/*/*.safetensors")]) == 12


def test_training_does_not_go_on_from_that_of_other_runs(data, tmp_path):
    runs = runs_of(data, tmp_path)
    states = tmp_path / "states"
    first, second = ({folder: one} for folder, one in runs.items())
    with pytest.raises(KeyboardInterrupt):
        train_together(first, states, on_progress=stop_late, checkpoint_every=20)
    (state,) = states.iterdir()
    train_together(second, states)
    assert [*states.iterdir()] == [state]
    train_together(first, states)
    assert not state.exists()


def test_runs_that_cannot_learn_together_are_refused(data, tmp_path):
    runs = runs_of(data, tmp_path)
    (first, one), (second, two) = runs.items()
    save_episodes(tmp_path / "others", make_episodes(np.random.default_rng(1), [30, 20]))
    others = replace(two.config, demonstrations=f"{tmp_path / 'others'}")
    with pytest.raises(DataError, match="episodes of the runs"):
        train_together({first: one, second: OfflineRun(others, (1,))}, tmp_path / "states")
    sequences = {first: OfflineRun(config_of(data, policy="dt"), (0,))}
    with pytest.raises(ConfigError, match="policies: expected learners of several agents at once"):
        train_together(sequences, tmp_path / "states")
    with pytest.raises(ConfigError, match="checkpoint_every"):
        train_together(runs, tmp_path / "states", checkpoint_every=0)
    assert not (tmp_path / "together").exists()


@pytest.mark.gpu
def test_agents_learn_together_on_a_gpu(data, tmp_path):
    runs = runs_of(data, tmp_path)
    train_together(runs, tmp_path / "states", device="cuda")
    for folder, (seed, one) in zip(runs, enumerate(runs.values()), strict=True):
        assert not run(one.config, folder, seeds=(seed,), resume=True)["interrupted"]
