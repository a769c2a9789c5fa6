"""A data set of mixed quality, recorded here: train or load an expert, act, write.

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", whose locomotion data
are mixed in this manner.
"""

import shutil
import time
import warnings
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, cast, final

import numpy as np

from preferl.data.arrays import load_episodes, save_episodes
from preferl.data.episodes import Episodes, join
from preferl.data.to_minari import require_new_minari, save_minari
from preferl.errors import ConfigError
from preferl.evaluation.environments import task_env
from preferl.evaluation.policies import Policy, RandomPolicy
from preferl.evaluation.policy import evaluate_policy
from preferl.online.acting import act, task_environments, tells_states
from preferl.online.configs import DatasetConfig, Tier
from preferl.online.expert import (
    ExpertTraining,
    OnProgress,
    algorithm_for,
    expert,
    medium,
    require_trainable,
)
from preferl.online.foreign_policy import load_actor
from preferl.online.saving import load_policy
from preferl.reporting import JsonlSink
from preferl.runs import RunFolder, open_run, require_openable, versions
from preferl.shapes import IntArray

SEEDS: Final = {"random": 10_000, "medium": 11_000, "expert": 12_000}
"""Of the first episode of each tier, beyond the seed of the run: others than those of training."""

REFERENCE_EPISODES: Final = 20
"""By which a reference is measured whose tier is not recorded."""

REFERENCE_SEED: Final = 40_000
"""Of the first of them, beyond the seed of the run."""


def record_dataset(
    config: DatasetConfig,
    out: Path | str,
    *,
    policy: Policy | None = None,
    minari: str | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Record a data set of mixed quality, and leave a folder that holds it.

    The folder has the data set in `episodes` (see `load_episodes`), tier after tier as they are
    mixed, and what is known about it in `result.json`: where each tier begins, its returns, and
    the mean returns of random actions and of the expert, which scores can be measured against.
    Checkpoints, what was lived through while training and the versions of everything stay beside
    it. Ctrl-C keeps what there is, and the same call with `resume` goes on from the last
    checkpoint or recorded tier. Settings are checked, and the environment is made, before any
    folder is touched.

    Args:
        config: what is recorded.
        out: the folder; an older run there moves aside, unless it is resumed.
        policy: the expert, in place of training or loading one.
        minari: id of a Minari data set that is written as well, such as `mine/cheetah/mixed-v0`.
        resume: go on with the recording that is in `out`, which must have the same settings.
        on_progress: told how far things are.

    Returns:
        What `result.json` holds; after Ctrl-C only `interrupted` and what was being done.

    Raises:
        CheckpointError: a policy, or what is there of a training, that is damaged.
        ConfigError: a setting out of range, an unknown environment, a run to resume that has
            other settings, or no checkpoint that could be medium.
        DataError: a Minari id that is malformed or taken.
        MissingExtraError: minari or the package of the environment is not installed.
        ResumeError: the recording to resume is finished, or there is none; nothing was changed.
        StorageError: another run is at work in `out`, or it cannot be written to.
    """
    if policy is not None:
        config.require_no_training()
    out = Path(out)
    require_openable(out, resume=resume)  # before what takes long
    if minari is not None:
        require_new_minari(minari)
    recording = _Recording(config, policy, on_progress or (lambda *_: None))
    with open_run(out, config=config, seed=config.seed, resume=resume) as folder:
        try:
            return recording.run(folder, minari)
        except KeyboardInterrupt:
            return {"interrupted": True, "stage": recording.doing}


def spread(episodes: Episodes, *, count: int | None = None, steps: int = 0) -> Episodes:
    """Episodes evenly from the first to the last, in their order; all where there are too few.

    Args:
        episodes: of a training.
        count: how many; None counts steps.
        steps: as few as have so many steps.
    """
    counts = range(1, len(episodes) + 1)
    if count is None:
        enough = (n for n in counts if episodes.lengths[_even(len(episodes), n)].sum() >= steps)
        count = next(enough, len(episodes))
    return episodes[_even(len(episodes), min(count, len(episodes)))]


def _even(length: int, count: int) -> IntArray:
    return np.linspace(0, length - 1, count).round().astype(int)


@final
class _Recording:
    """One recording, stage by stage; each stage leaves what came of it in the folder."""

    _folder: RunFolder

    def __init__(self, config: DatasetConfig, policy: Policy | None, tell: OnProgress) -> None:
        self.doing = ""
        self._config, self._told = config, tell
        env = task_env(config.env)()
        self._states = tells_states(env)
        self._policies: dict[str, Policy] = {"random": RandomPolicy(env.action_space, config.seed)}
        env.close()
        if policy is not None:
            self._policies["expert"] = policy
        elif config.policy is not None:
            self._policies["expert"] = load_actor(
                config.policy,
                trust_pickle=config.trust_pickle,
                vecnormalize=config.vecnormalize,
                device=config.device,
            )
        elif not self._has_policies():
            require_trainable(config)
        self._steps: dict[str, int] = {}
        self._experience: Episodes | None = None

    def run(self, folder: RunFolder, minari: str | None) -> dict[str, Any]:
        """Everything in order; what `result.json` holds."""
        self._folder = folder
        began = time.perf_counter()
        self._find_policies()
        tiers = {tier: self._tier(tier) for tier in self._config.amounts}
        references = {name: self._reference(name, tiers) for name in ("random", "expert")}
        about = {
            "env": self._config.env,
            "seed": self._config.seed,
            "references": references,
            "tiers": self._about(tiers),
        }
        self._write(join(list(tiers.values())), about, minari)
        seconds = round(time.perf_counter() - began, 2)
        result = about | {"minari": minari, "seconds": seconds, "interrupted": False}
        self._folder.result(result)
        shutil.rmtree(self._folder.folder / "tiers", ignore_errors=True)
        return result

    def _find_policies(self) -> None:
        """Train the expert, and choose who is medium on its way, where they are needed."""
        config = self._config
        if self._has_policies():
            return
        with closing(JsonlSink(self._folder.path("metrics.jsonl"))) as sink:
            training = ExpertTraining(
                config, self._folder, states=self._states, sink=sink, on_progress=self._tell
            )
            found = training.run()
        self._experience = training.experience
        chosen = {"expert": expert(found)}
        if "medium" in config.amounts:
            chosen["medium"] = medium(found, self._judged("random"))
        self._steps = {name: checkpoint.step for name, checkpoint in chosen.items()}
        for name, checkpoint in chosen.items():
            self._policies[name] = load_policy(checkpoint.policy, device=config.device)

    def _has_policies(self) -> bool:
        return set(self._config.amounts) <= set(self._policies)

    def _tier(self, tier: Tier) -> Episodes:
        folder = self._folder.path(f"tiers/{tier}")
        if not folder.is_dir():
            save_episodes(folder, self._replay() if tier == "replay" else self._acted(tier))
        return load_episodes(folder)

    def _acted(self, tier: Tier) -> Episodes:
        config, amount = self._config, self._config.amounts[tier]
        episodes = amount if config.unit == "episodes" else None
        venv = task_environments(
            config.env, config.environments, seed=config.seed + SEEDS[tier], states=self._states
        )
        try:
            return act(
                self._policies[tier],
                venv,
                episodes=episodes,
                steps=amount,
                states=self._states,
                deterministic=config.deterministic,
                on_progress=partial(self._tell, f"recording {tier}"),
            )
        finally:
            venv.close()

    def _replay(self) -> Episodes:
        lived, amount = self._experience, self._config.amounts["replay"]
        if lived is None:
            raise ConfigError.mismatch(
                "replay",
                expected="episodes that ended while training",
                got="none",
                fix="Train for longer than an episode, or leave replay out of the mix.",
            )
        by_episodes = self._config.unit == "episodes"
        found = spread(lived, count=amount) if by_episodes else spread(lived, steps=amount)
        if (len(found) if by_episodes else found.steps) < amount:
            warnings.warn(
                f"replay: {amount:,} {self._config.unit} were asked for, and training made only "
                f"{len(lived):,} episodes of {lived.steps:,} steps; all of them are taken.",
                stacklevel=2,
            )
        return found

    def _reference(self, name: str, tiers: Mapping[Tier, Episodes]) -> float | None:
        """Mean return: of the tier, or of a few episodes where that is not recorded."""
        if name in tiers:
            return float(tiers[cast("Tier", name)].returns.mean())
        return self._judged(name) if name in self._policies else None

    def _judged(self, name: str) -> float:
        self._tell(f"judging {name}", 0, 1)
        return evaluate_policy(
            self._policies[name],
            task_env(self._config.env),
            episodes=REFERENCE_EPISODES,
            seed=self._config.seed + REFERENCE_SEED,
            deterministic=self._config.deterministic,
        ).mean

    def _about(self, tiers: Mapping[Tier, Episodes]) -> list[dict[str, Any]]:
        """A row per tier, in their order."""
        firsts = np.cumsum([0, *(len(episodes) for episodes in tiers.values())])
        return [
            {
                "name": name,
                "first": int(first),
                "episodes": len(episodes),
                "steps": episodes.steps,
                "trained": self._steps.get(name),
                "return": {
                    word: round(float(getattr(episodes.returns, word)()), 3)
                    for word in ("mean", "std", "min", "max")
                },
            }
            for first, (name, episodes) in zip(firsts, tiers.items(), strict=False)
        ]

    def _write(self, episodes: Episodes, about: dict[str, Any], minari: str | None) -> None:
        self._tell("writing", 0, 1)
        about = about | {"versions": versions()}
        save_episodes(self._folder.path("episodes"), episodes, about=about)
        if minari is not None:
            algorithm = None if self._config.policy else type(algorithm_for(self._config)).__name__
            save_minari(episodes, minari, env=self._config.env, algorithm=algorithm, about=about)

    def _tell(self, doing: str, done: int, total: int) -> None:
        self.doing = doing
        self._told(doing, done, total)
