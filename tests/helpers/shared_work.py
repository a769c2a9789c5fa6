"""The same fits and relabelling by one process, and by several that share the work."""

import os
import signal
from dataclasses import replace

import numpy as np
import torch
from gymnasium import spaces
from torch.distributed import TCPStore

from helpers.programs import start
from preferl.data import Comparisons, split
from preferl.errors import PreferlError
from preferl.models import (
    CNNReward,
    CNNRewardConfig,
    MLPReward,
    MLPRewardConfig,
    PreferenceTransformer,
    PreferenceTransformerConfig,
    RewardModel,
)
from preferl.testing import make_comparisons, make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import (
    AdaptivePenalty,
    CosineSchedule,
    FitCheckpoints,
    RewardFunction,
    RewardTrainer,
    RewardTrainerConfig,
    World,
    relabel,
    reward_function,
)

LENGTHS = (3, 40, 7, 1, 60, 22, 5, 5, 90, 2, 31)
PICTURES = spaces.Box(0, 255, (12, 12, 1), np.uint8)

Fit = tuple[RewardModel, RewardTrainerConfig, Comparisons, Comparisons | None]


def perceptrons(rng):
    """Whatever a fit can have: trust, noise, crops, penalty; the last batch is of one pair."""
    answers = make_comparisons(rng, pairs=65)
    wrong = np.where(np.arange(65) % 4 == 3, 1 - answers.preference, answers.preference)
    answers = replace(answers, preference=wrong, annotator=np.arange(65) % 4)
    config = RewardTrainerConfig(
        epochs=60, batch_size=16, minibatch_size=8, learning_rate=1e-2, noise="fitted",
        trust=True, crop=2, crops=2, patience=4, penalty=AdaptivePenalty(1e-4, band=(1.0, 1.1)),
    )  # fmt: skip
    return (
        MLPReward(POINT_SPACE, PUSH_SPACE, MLPRewardConfig((16,), 3), seed=0),
        config,
        answers,
        None,
    )


def transformer(rng, dropout=0.0):
    shape = PreferenceTransformerConfig(16, 1, 2, context=5, preference_width=16, dropout=dropout)
    model = PreferenceTransformer(POINT_SPACE, PUSH_SPACE, shape, seed=0)
    config = RewardTrainerConfig(epochs=6, batch_size=16, schedule=CosineSchedule(), patience=None)
    return model, config, *split(make_comparisons(rng, pairs=60), rng, validation=0.3)


def pictures(rng):
    episodes = make_episodes(rng, [20, 9, 30], PICTURES, PUSH_SPACE)
    answers = make_comparisons(rng, pairs=24, length=4, episodes=episodes)
    model = CNNReward(PICTURES, PUSH_SPACE, CNNRewardConfig((3,), (2,), 4, 8, 2), seed=0)
    return model, RewardTrainerConfig(epochs=4, batch_size=7), answers, None


def normalised_pictures(rng):
    model, *rest = pictures(rng)
    shape = replace(model.config, batch_norm=True)
    return CNNReward(PICTURES, PUSH_SPACE, shape, seed=0), *rest


FITS = {
    "perceptrons": perceptrons,
    "transformer": transformer,
    "normalised": normalised_pictures,
    "seeds": transformer,
    "dropout": lambda rng: transformer(rng, 0.2),
    "pictures": pictures,
}


def fitted(kind, world, seed=3, **how):
    """What a fit comes to."""
    model, config, *answers = FITS[kind](np.random.default_rng(0))
    report = RewardTrainer(model, config, seed=seed, world=world).fit(*answers, **how)
    found = {name: np.asarray(value) for name, value in vars(report).items() if _is_plain(value)}
    found["trust"] = np.array([(one.value, one.low, one.high) for one in report.trust])
    found["likelihood"] = np.array([report.likelihood.noise, report.likelihood.scale])
    return found | {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def relabelled(world):
    """Rewards of episodes of unequal lengths, in batches so small that there are many."""
    reward_function.CHUNK = 16
    reward_function.TRACED = 50
    found = {}
    for kind in ("perceptrons", "transformer"):
        model, *_ = FITS[kind](np.random.default_rng(0))
        episodes = make_episodes(np.random.default_rng(1), LENGTHS)
        reward = RewardFunction(model).scaled(episodes, world=world)
        found[kind] = np.asarray(relabel(episodes, reward, world=world).rewards)
    return found


def exchanged(world):
    """What the exchanges themselves come to."""
    weight, unused, shared = (torch.zeros(2, requires_grad=True) for _ in range(3))
    (weight.sum() * (world.rank + 1) + (shared.sum() if world.is_first else 0.0)).backward()
    world.sum_gradients([weight, unused, shared])
    grads = [
        torch.full((2,), torch.nan) if p.grad is None else p.grad for p in (weight, unused, shared)
    ]
    bits = np.array([0.0, -0.0, np.nan, 1e-45, -np.inf, 0.1], np.float32)
    mine = np.zeros_like(bits)
    mine[world.part(6)] = bits[world.part(6)]
    numbers = torch.arange(1.0, 6.0, requires_grad=True)
    own = numbers[world.part(5)]
    mean = world.mean(own.square().mean(), len(own))
    mean.log().backward()
    slope = np.asarray(numbers.grad) / world.size  # as averaging over processes does
    return {
        "gradients": torch.stack(grads).numpy(),
        "bits": world.merge(torch.from_numpy(mine)).numpy().view(np.uint32),
        "mean": mean.detach().numpy(),
        "slope": world.sum(torch.from_numpy(slope)).numpy(),
        "choice": np.array([world.decide(world.is_first), world.decide(not world.is_first)]),
    }


def killed(world, folder, epoch):
    """What a fit with dropout comes to that resumes; the first process is killed in an epoch."""

    def on_epoch(number, metrics):
        if number == epoch:
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoints = FitCheckpoints(folder / "checkpoints", seconds=0)
    return fitted("dropout", world, on_epoch=on_epoch, checkpoints=checkpoints)


def numbers_of(kind, world, folder):
    """What a kind of work comes to."""
    match kind.split():
        case ["relabel"]:
            return relabelled(world)
        case ["exchange"]:
            return exchanged(world)
        case ["resumed", epoch]:
            return killed(world, folder, int(epoch))
    return fitted(kind, world, seed=world.rank if kind == "seeds" else 3)


def main(folder, rank, size, port, kinds):
    """Write what the process of a rank finds; 0 of 1 is alone."""
    torch.set_num_threads(1)
    if size > 1:
        about = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        about["TORCHELASTIC_USE_AGENT_STORE"] = True  # as torchrun does
        os.environ |= {name: str(value) for name, value in about.items()}
    world = World.join()
    assert (world.rank, world.size) == (rank, size)
    for kind in kinds:
        try:
            numbers = numbers_of(kind, world, folder)
        except PreferlError as error:
            (folder / f"{kind}.{size}.{rank}.txt").write_text(f"{error}")
            raise SystemExit(1) from error
        np.savez(folder / f"{kind}.{size}.{rank}.npz", **numbers)


def run(folder, size, *kinds):
    """The exit statuses of so many processes that share this work."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    programs = [start(main, folder, rank, size, store.port, kinds) for rank in range(size)]
    for program in programs:
        program.join()
    return [program.exitcode for program in programs]


def _is_plain(value):
    return isinstance(value, int | float | np.ndarray)
