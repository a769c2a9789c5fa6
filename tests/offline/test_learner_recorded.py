"""Agents that learn on a GPU, with recorded updates and without, as on the processor."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.point_agents import SPACES
from preferl.offline import (
    CPL,
    IPL,
    IQL,
    BehaviourCloning,
    CloningConfig,
    CPLConfig,
    IPLConfig,
    IQLConfig,
    Transitions,
)
from preferl.offline.transitions import Batch, Minibatches
from preferl.testing import make_comparisons, make_episodes
from preferl.training.recorded import RecordedUpdate

pytestmark = pytest.mark.gpu

EPISODES = make_episodes(np.random.default_rng(0), [40, 60, 50])
LEARNERS = {
    IQL: IQLConfig(hidden=(16, 16), batch_size=32),
    BehaviourCloning: CloningConfig(hidden=(16, 16), batch_size=32),
    CPL: CPLConfig(hidden=(16, 16), batch_size=32, pairs=8, dropout=0.0),
    IPL: IPLConfig(hidden=(16, 16), batch_size=32, pairs=8, dropout=0.0),
}


def on_gpu(part):
    return part.to("cuda") if isinstance(part, Tensor) else part


@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.__name__)
def test_updates_from_the_same_minibatches_are_the_same(rng, kind):
    seeds = [0, 1, 2]
    steps = Transitions.of(EPISODES)
    here, there = (
        kind(*SPACES, LEARNERS[kind], seeds=seeds, steps=20, device=device)
        for device in ("cpu", "cuda")
    )
    if kind in (CPL, IPL):
        comparisons = make_comparisons(rng)
        for learner in (here, there):
            learner.set_answers(comparisons)
        there._pairs = _moved(here._pairs)
    minibatches = Minibatches(steps, here._scale, seeds, 32)
    for update in range(10):
        batch = minibatches(update)
        here._prepare()
        there._prepare()
        expected = here._update(here._batch(lambda _, batch=batch: batch))
        got = there._update(there._batch(lambda _, batch=batch: Batch(*map(on_gpu, batch))))
        here.step = update + 1
        there.step = update + 1
        for name, values in expected.items():
            torch.testing.assert_close(
                got[name].cpu(), values, rtol=1e-3, atol=1e-4, equal_nan=True, msg=name
            )
    seen = EPISODES.observations[:20]
    for one, other in zip(here.policies(), there.policies(), strict=True):
        np.testing.assert_allclose(one.predict(seen)[0], other.predict(seen)[0], atol=1e-3)


def _moved(batches):
    """The same minibatches of pairs, on a GPU."""

    def drawn(update):
        batch = batches(update)
        return type(batch)(*map(on_gpu, batch))

    return drawn


@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_updates_that_are_replayed_are_those_that_are_not(kind, precision, dropout):
    config = replace(LEARNERS[kind], precision=precision, dropout=dropout)
    steps = Transitions.of(EPISODES, device="cuda")
    replayed, usual = (
        kind(*SPACES, config, seeds=[0, 1], steps=100, device="cuda") for _ in range(2)
    )
    if kind in (CPL, IPL):
        for learner in (replayed, usual):
            learner.set_answers(make_comparisons(np.random.default_rng(0)))
    assert isinstance(replayed._make_update, RecordedUpdate)
    usual._fresh_update = lambda: usual._update
    usual._make_update = usual._update
    metrics = replayed.fit(steps, 90)
    expected = usual.fit(steps, 90)
    for name, values in expected.items():
        np.testing.assert_allclose(metrics[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
    for name, tensor in usual.state().items():
        torch.testing.assert_close(replayed.state()[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
