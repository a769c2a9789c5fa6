"""What all offline learners share: agents side by side, progress, states and cloning."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.point_agents import SMALL, SPACES, agents
from preferl.errors import SEED_LIMIT, CheckpointError, DivergenceError
from preferl.offline import IQL, BehaviourCloning, CloningConfig, IQLConfig, Transitions
from preferl.offline.learner import load_training
from preferl.testing import make_episodes

EPISODES = make_episodes(np.random.default_rng(0), [40, 60, 50])


@pytest.fixture(scope="module")
def steps():
    return Transitions.of(EPISODES)


def clones(*, planned=6, seeds=(0, 1), **settings):
    config = CloningConfig(hidden=(8,), batch_size=16, **settings)
    return BehaviourCloning(*SPACES, config, seeds=seeds, steps=planned)


@pytest.mark.parametrize("kind", [IQL, BehaviourCloning])
def test_agents_learn_the_same_alone_as_side_by_side(kind, steps):
    config = (IQLConfig if kind is IQL else CloningConfig)(
        hidden=(16, 16), batch_size=32, dropout=0.1
    )
    seeds = (5, 0, 7)
    together = kind(*SPACES, config, seeds=seeds, steps=20)
    metrics = together.fit(steps, 20)
    seen = steps.observations[:20].numpy()
    for number, seed in enumerate(seeds):
        alone = kind(*SPACES, config, seeds=[seed], steps=20)
        expected = alone.fit(steps, 20)
        for name, values in expected.items():
            assert metrics[name][number] == pytest.approx(values[0], abs=2e-4), name
        np.testing.assert_allclose(
            together.policies()[number].predict(seen)[0],
            alone.policies()[0].predict(seen)[0],
            atol=2e-4,
        )


def test_agents_of_one_seed_begin_alike_in_all_conditions(steps):
    conditions = clones(seeds=(3, SEED_LIMIT + 3, 4))
    first, same, other = conditions.state()["policy.values.weight_0"]
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    conditions.fit(steps, 1)
    first, same, _ = conditions.state()["policy.values.weight_0"]
    assert not torch.equal(first, same)  # their minibatches differ


@pytest.mark.parametrize(("kind", "precision"), [(IQL, "bfloat16"), (BehaviourCloning, "float32")])
def test_a_run_that_was_stopped_goes_on_exactly(kind, precision, steps, tmp_path):
    config = (IQLConfig if kind is IQL else CloningConfig)(
        hidden=(16, 16), batch_size=32, dropout=0.1, precision=precision
    )
    whole, first, second = (kind(*SPACES, config, seeds=[0, 1], steps=40) for _ in range(3))
    whole.fit(steps, 38)
    first.fit(steps, 23)
    save_file(first.state(), tmp_path / "state.safetensors")
    first.fit(steps, 3)  # the state is a copy
    second.load_state(load_file(tmp_path / "state.safetensors"))
    assert second.step == 23
    second.fit(steps, 15)
    expected = whole.state()
    got = second.state()
    assert set(expected) == set(got)
    for name, tensor in expected.items():
        assert torch.equal(tensor, got[name]), name


def test_states_of_other_agents_are_refused():
    state = agents().state()
    for other in (
        agents(seeds=(0, 2)),
        agents(seeds=(0,)),
        agents(replace(SMALL, hidden=(16, 16))),
    ):
        before = other.state()
        with pytest.raises(CheckpointError, match="training state of agents"):
            other.load_state(state)
        assert all(torch.equal(tensor, before[name]) for name, tensor in other.state().items())


def test_progress_is_reported_every_so_often_and_at_the_end(steps):
    calls = []
    both = agents()
    both.fit(steps, 7, every=5, on_progress=lambda step, metrics: calls.append((step, metrics)))
    last = both.fit(steps, 5, every=5, on_progress=lambda s, m: calls.append((s, m)))
    assert [step for step, _ in calls] == [5, 7, 10, 12]
    assert both.step == 12
    assert last == calls[-1][1]
    assert all(values.shape == (2,) and np.isfinite(values).all() for values in last.values())


def learned(agents, state, **how):
    """The updates at which progress was reported."""
    calls = []
    agents.learn(EPISODES, None, state, on_progress=lambda step, _: calls.append(step), **how)
    return calls


@pytest.mark.parametrize(
    ("kind", "fault"),
    [(IQL, "observations"), (BehaviourCloning, "learning rate")],
)
def test_a_training_that_diverges_leaves_no_state(kind, fault, tmp_path):
    config = (IQLConfig if kind is IQL else CloningConfig)(hidden=(8,), batch_size=16)
    episodes = EPISODES
    if fault == "observations":
        episodes = replace(episodes, observations=episodes.observations * np.float32(1e30))
    else:
        config = replace(config, learning_rate=1e20)
    learner = kind(*SPACES, config, seeds=[0, 1], steps=40)
    with pytest.raises(DivergenceError, match=r"the training diverged .* lower the learning rate"):
        learner.learn(
            episodes,
            None,
            tmp_path / "state",
            checkpoint_every=20,
            on_progress=lambda *_: None,
        )
    assert not (tmp_path / "state").exists()


def test_planned_updates_are_made_once_and_each_checkpoint_is_on_disk(tmp_path):
    state = tmp_path / "state.safetensors"
    whole = clones()
    assert learned(whole, state, checkpoint_every=4) == [4, 6]
    assert int(load_training(state)["step"]) == 6
    again = clones()
    assert learned(again, state, checkpoint_every=4) == []
    for name, tensor in whole.state().items():
        assert torch.equal(tensor, again.state()[name]), name


def test_a_file_that_is_cut_off_is_named(tmp_path):
    file = tmp_path / "state.safetensors"
    save_file(clones().state(), file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"training state .*state\.safetensors.*Remove it"):
        load_training(file)


def test_policies_are_copies_that_name_their_learner(steps):
    both = clones()
    first, second = both.policies()
    seen = steps.observations[:5].numpy()
    before = first.predict(seen)[0]
    both.fit(steps, 6)
    np.testing.assert_array_equal(first.predict(seen)[0], before)
    assert not np.array_equal(before, second.predict(seen)[0])
    assert first.learner == "BehaviourCloning"
