"""imitation 1.0.1 at the same work, through its public classes."""

import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import torch
import workloads as w
from imitation.algorithms import preference_comparisons as pc
from imitation.data.types import TrajectoryWithRew
from imitation.policies.base import FeedForward32Policy, NormalizeFeaturesExtractor
from imitation.rewards.reward_nets import BasicRewardNet, RewardEnsemble
from imitation.util import logger
from imitation.util.networks import RunningNorm
from imitation.util.util import make_vec_env
from stable_baselines3 import PPO
from worker import grown, serve

torch.set_num_threads(1)
SPACES = (
    gym.spaces.Box(-np.inf, np.inf, (w.OBSERVATION,), np.float32),
    gym.spaces.Box(-1, 1, (w.ACTION,), np.float32),
)


def about() -> dict[str, str]:
    names = ("imitation", "torch", "numpy", "gymnasium", "stable-baselines3")
    return {name: version(name) for name in names}


def quiet() -> Any:
    """A logger that writes nowhere."""
    return logger.configure(tempfile.mkdtemp(), format_strs=[])


def trajectories(data: w.Experience, *, infos: bool = False) -> list[TrajectoryWithRew]:
    """Episodes; with infos, one small dictionary per step, as its AgentTrainer records them."""
    return [
        TrajectoryWithRew(
            obs=observations,
            acts=actions,
            infos=np.array([{"original_env_rew": float(reward)} for reward in rewards])
            if infos
            else None,
            terminal=True,
            rews=rewards,
        )
        for observations, actions, rewards in zip(
            data.observations, data.actions, data.rewards, strict=True
        )
    ]


def dataset(data: w.Experience, asked: w.Questions) -> pc.PreferenceDataset:
    infos = np.array([{} for _ in range(w.LENGTH)])  # without any, it makes them at every pass

    def fragment(episode: int, start: int) -> TrajectoryWithRew:
        end = start + w.LENGTH
        return TrajectoryWithRew(
            obs=data.observations[episode, start : end + 1],
            acts=data.actions[episode, start:end],
            infos=infos,
            terminal=False,
            rews=data.rewards[episode, start:end],
        )

    fragments = [
        (fragment(*first), fragment(*second))
        for first, second in np.stack([asked.episode, asked.start], -1).tolist()
    ]
    answers = pc.PreferenceDataset()
    answers.push(fragments, asked.preference)
    return answers


def network(normalise: bool) -> BasicRewardNet:
    layer = RunningNorm if normalise else None
    return BasicRewardNet(*SPACES, hid_sizes=w.HIDDEN, normalize_input_layer=layer)


def preference_model(members: int, *, normalise: bool = True) -> pc.PreferenceModel:
    """Of the tutorial's network, which keeps running statistics of its inputs, or without them."""
    torch.manual_seed(0)
    networks = [network(normalise) for _ in range(members)]
    return pc.PreferenceModel(networks[0] if members == 1 else RewardEnsemble(*SPACES, networks))


def fit(members: int, *, normalise: bool = True) -> Callable[[], dict[str, Any]]:
    answers = dataset(*w.fitting())
    kind = pc.BasicRewardTrainer if members == 1 else pc.EnsembleTrainer

    def trainer() -> pc.RewardTrainer:
        return kind(
            preference_model(members, normalise=normalise),
            pc.CrossEntropyRewardLoss(),
            np.random.default_rng(0),
            batch_size=w.BATCH,
            epochs=w.EPOCHS,
            custom_logger=quiet(),
        )

    def repetition() -> dict[str, Any]:
        trainer().train(answers)
        return {"units": w.EPOCHS * w.FIT_PAIRS}

    trainer().train(answers, epoch_multiplier=1 / w.EPOCHS)
    return repetition


def select() -> Callable[[], dict[str, Any]]:
    """Scoring alone: the candidates are drawn beforehand."""
    rng = np.random.default_rng(0)
    candidates = w.QUESTIONS * w.OVERSAMPLING
    drawn = pc.RandomFragmenter(rng, warning_threshold=0, custom_logger=quiet())(
        trajectories(w.selecting()), w.LENGTH, candidates
    )

    class Drawn(pc.Fragmenter):
        def __call__(self, num_pairs: int, **_: Any) -> Any:
            return drawn[:num_pairs]

    def active(factor: int) -> pc.ActiveSelectionFragmenter:
        return pc.ActiveSelectionFragmenter(
            preference_model(w.MEMBERS), Drawn(quiet()), factor, "probability", quiet()
        )

    fragmenter = active(w.OVERSAMPLING)

    def repetition() -> dict[str, Any]:
        chosen = fragmenter([], w.LENGTH, w.QUESTIONS)
        return {"units": candidates, "chosen": len(chosen)}

    active(1)([], w.LENGTH, 20)
    return repetition


def draw() -> Callable[[], dict[str, Any]]:
    episodes = trajectories(w.drawing())
    fragmenter = pc.RandomFragmenter(
        np.random.default_rng(0), warning_threshold=0, custom_logger=quiet()
    )

    def repetition() -> dict[str, Any]:
        fragmenter(episodes, w.LENGTH, w.DRAWN_PAIRS)
        return {"units": w.DRAWN_PAIRS}

    fragmenter(episodes, w.LENGTH, 10)
    return repetition


def job() -> Callable[[], dict[str, Any]]:
    t = w.TUTORIAL

    def repetition() -> dict[str, Any]:
        rng = np.random.default_rng(0)
        venv = make_vec_env(t["env"], rng=rng, n_envs=t["environments"])
        net = BasicRewardNet(
            venv.observation_space, venv.action_space, normalize_input_layer=RunningNorm
        )
        agent = PPO(
            policy=FeedForward32Policy,
            policy_kwargs={
                "features_extractor_class": NormalizeFeaturesExtractor,
                "features_extractor_kwargs": {"normalize_class": RunningNorm},
            },
            env=venv,
            seed=0,
            device="cpu",
            n_steps=t["rollout"],
            **t["ppo"],
        )
        generator = pc.AgentTrainer(
            algorithm=agent,
            reward_fn=net,
            venv=venv,
            exploration_frac=t["exploration"],
            rng=rng,
            custom_logger=quiet(),
        )
        loop = pc.PreferenceComparisons(
            generator,
            net,
            num_iterations=t["turns"],
            fragmenter=pc.RandomFragmenter(rng, warning_threshold=0, custom_logger=quiet()),
            preference_gatherer=pc.SyntheticGatherer(rng=rng, custom_logger=quiet()),
            reward_trainer=pc.BasicRewardTrainer(
                pc.PreferenceModel(net),
                pc.CrossEntropyRewardLoss(),
                rng,
                epochs=w.EPOCHS,
                custom_logger=quiet(),
            ),
            fragment_length=t["length"],
            transition_oversampling=1,
            initial_comparison_frac=t["initial_fraction"],
            initial_epoch_multiplier=t["initial_epochs"] / w.EPOCHS,
            query_schedule="hyperbolic",
            custom_logger=quiet(),
        )
        result = loop.train(t["steps"], t["comparisons"])
        return {
            "units": 1,
            "agent_steps": agent.num_timesteps,
            "accuracy": float(result["reward_accuracy"]),
        }

    return repetition


def storage(infos: bool) -> dict[str, float]:
    rng = np.random.default_rng(0)
    makings: dict[str, Any] = {}
    data = w.drawing()
    torch.zeros(1)

    def build() -> pc.PreferenceDataset:
        own = w.Experience(*(a.copy() for a in (data.observations, data.actions, data.rewards)))
        makings["fragments"] = pc.RandomFragmenter(rng, warning_threshold=0, custom_logger=quiet())(
            trajectories(own, infos=infos), w.LENGTH, w.DRAWN_PAIRS
        )
        answers = pc.PreferenceDataset()
        answers.push(makings["fragments"], rng.integers(2, size=w.DRAWN_PAIRS).astype(np.float32))
        return answers

    answers, traced, resident = grown(build, makings.clear)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "preferences.pkl"
        answers.save(path)
        file = path.stat().st_size
    return {"file_bytes": file, "traced_bytes": traced, "resident_bytes": resident}


if __name__ == "__main__":
    serve(
        about,
        {
            "fit": lambda: fit(1),
            "fit_plain": lambda: fit(1, normalise=False),
            "fit_ensemble": lambda: fit(w.MEMBERS),
            "fit_ensemble_plain": lambda: fit(w.MEMBERS, normalise=False),
            "select": select,
            "draw": draw,
            "job": job,
        },
        {"storage": lambda: storage(False), "storage_recorded": lambda: storage(True)},
    )
