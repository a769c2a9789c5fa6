"""What learns and rewards on a GPU does the same as on the processor, but for rounding."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.point_agents import SPACES
from preferl.models import (
    LSTMRewardConfig,
    MLPRewardConfig,
    PreferenceTransformerConfig,
    build_reward_model,
)
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
from preferl.online.wrappers.tensor_rewards import TensorRewards
from preferl.testing import make_comparisons, make_episodes
from preferl.training import (
    RewardFunction,
    RewardTrainer,
    RewardTrainerConfig,
    load_reward,
    relabel,
    save_reward,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

EPISODES = make_episodes(np.random.default_rng(0), [40, 60, 50])
MODELS = {
    "mlp": MLPRewardConfig(hidden=(16, 16), members=3),
    "nmr": LSTMRewardConfig(width=32, context=6),
    "pt": PreferenceTransformerConfig(width=16, heads=2, preference_width=8, context=6),
}
LEARNERS = {
    IQL: IQLConfig(hidden=(16, 16), batch_size=32),
    BehaviourCloning: CloningConfig(hidden=(16, 16), batch_size=32),
    CPL: CPLConfig(hidden=(16, 16), batch_size=32, pairs=8, dropout=0.0),
    IPL: IPLConfig(hidden=(16, 16), batch_size=32, pairs=8, dropout=0.0),
}


def on_gpu(part):
    return part.to("cuda") if isinstance(part, Tensor) else part


@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.__name__)
def test_updates_from_the_same_minibatches_are_the_same(kind):
    seeds, steps = [0, 1, 2], Transitions.of(EPISODES)
    here, there = (
        kind(*SPACES, LEARNERS[kind], seeds=seeds, steps=20, device=device)
        for device in ("cpu", "cuda")
    )
    if kind in (CPL, IPL):
        comparisons = make_comparisons(np.random.default_rng(0))
        for learner in (here, there):
            learner.set_answers(comparisons)
        there._pairs = _moved(here._pairs)
    minibatches = Minibatches(steps, here._scale, seeds, 32)
    for update in range(10):
        batch = minibatches(update)
        expected = here._update(batch)
        got = there._update(Batch(*map(on_gpu, batch)))
        here.step, there.step = update + 1, update + 1
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


@pytest.mark.parametrize("kind", [IQL, BehaviourCloning], ids=lambda kind: kind.__name__)
def test_a_run_that_was_stopped_goes_on_exactly(kind):
    config, steps = replace(LEARNERS[kind], dropout=0.1), Transitions.of(EPISODES, device="cuda")
    whole, first, second = (
        kind(*SPACES, config, seeds=[0, 1], steps=80, device="cuda") for _ in range(3)
    )
    whole.fit(steps, 70)
    first.fit(steps, 41)
    second.load_state(first.state())
    second.fit(steps, 29)
    for name, tensor in whole.state().items():
        torch.testing.assert_close(tensor, second.state()[name], rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_rewards_learn_as_on_the_processor(name, precision, tmp_path):
    comparisons = make_comparisons(np.random.default_rng(0), pairs=64)
    config = RewardTrainerConfig(epochs=5, batch_size=16, precision=precision)
    losses, found = [], []
    for device in ("cpu", "cuda"):
        model = build_reward_model(MODELS[name], *SPACES, seed=0)
        report = RewardTrainer(model, config, seed=0, device=device).fit(comparisons)
        losses.append(report.train_loss[-1])
        save_reward(tmp_path / device, RewardFunction(model))
        found.append(load_reward(tmp_path / device, device="cuda").member_rewards(EPISODES))
    assert losses[1] == pytest.approx(losses[0], rel=0.2)
    same = load_reward(tmp_path / "cuda", device="cpu").member_rewards(EPISODES)
    np.testing.assert_allclose(found[1], same, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_rewards_of_tensors_on_a_gpu_are_those_of_relabelled_episodes(name):
    model = build_reward_model(MODELS[name], *SPACES, seed=0)
    expected = relabel(EPISODES, RewardFunction(model)).rewards[: EPISODES.lengths[0]]
    rewards = TensorRewards(RewardFunction(model.to("cuda")))
    for step, value in enumerate(expected):
        seen, actions = (
            torch.from_numpy(np.asarray(part[step : step + 1], np.float32)).cuda()
            for part in (EPISODES.observations, EPISODES.actions)
        )
        first = torch.tensor([step == 0], device="cuda")
        found = rewards(seen, actions, first)
        assert found.is_cuda
        assert float(found) == pytest.approx(float(value), rel=1e-3, abs=1e-3)
