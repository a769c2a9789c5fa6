"""A data set of mixed quality, recorded here: train or load an expert, act, write.

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", whose locomotion data
are mixed in this manner.
"""

import shutil
import time
import warnings
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from preferl.data.arrays import load_episodes, save_episodes
from preferl.data.episodes import Episodes, join
from preferl.data.to_minari import require_new_minari, save_minari
from preferl.errors import ConfigError
from preferl.evaluation.policies import Policy, RandomPolicy
from preferl.evaluation.policy import evaluate_policy
from preferl.evaluation.rollout import task_env
from preferl.online.acting import act, has_states, load_actor, task_environments
from preferl.online.configs import DatasetConfig, Tier
from preferl.online.expert import (
    OnProgress,
    algorithm_for,
    expert,
    medium,
    require_trainable,
    train_expert,
)
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
    mixed, and in `result.json` where each tier begins, its returns, and the mean returns of random
    actions and of the expert, for scores. Checkpoints, the episodes of training and all versions
    stay beside it. Ctrl-C keeps what there is, and the same call with `resume` goes on from the
    last checkpoint or tier. No folder is touched before settings and environment are checked.

    Args:
        config: what is recorded.
        out: the folder; an older run there moves aside, unless it is resumed.
        policy: the expert, in place of training or loading one.
        minari: id of a Minari data set that is written as well, such as `mine/cheetah/mixed-v0`.
        resume: go on with the recording that is in `out`, which must have the same settings.
        on_progress: called with what is done, how far it is, and how far it goes.

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
    recording = _Recording(config, policy, on_progress)
    with open_run(out, config=config, seed=config.seed, resume=resume) as folder:
        try:
            return recording.run(folder, minari)
        except KeyboardInterrupt:
            return {"interrupted": True, "stage": recording.doing}


def spread(episodes: Episodes, *, count: int | None = None, steps: int = 0) -> Episodes:
    """Episodes evenly from the first to the last, in their order; all where there are too few.

    Without a count, as few as have so many steps.
    """

    def evenly(number: int) -> IntArray:
        return np.linspace(0, len(episodes) - 1, number).round().astype(int)

    if count is None:
        counts, lengths = range(1, len(episodes)), episodes.lengths
        count = next((n for n in counts if lengths[evenly(n)].sum() >= steps), len(episodes))
    return episodes[evenly(min(count, len(episodes)))]


@final
class _Recording:
    """One recording, stage by stage; each stage leaves what came of it in the folder."""

    _folder: RunFolder

    def __init__(
        self, config: DatasetConfig, policy: Policy | None, on_progress: OnProgress | None
    ) -> None:
        self.doing = ""
        self._config, self._on_progress = config, on_progress
        env = task_env(config.env)()
        self._states = has_states(env)
        self._policies: dict[str, Policy] = {"random": RandomPolicy(env.action_space, config.seed)}
        env.close()
        if policy is None and config.policy is not None:
            policy = load_actor(
                config.policy,
                trust_pickle=config.trust_pickle,
                vecnormalize=config.vecnormalize,
                device=config.device,
            )
        if policy is not None:
            self._policies["expert"] = policy
        elif not self._has_policies():
            require_trainable(config)
        self._steps: dict[str, int] = {}
        self._experience: Episodes | None = None

    def run(self, folder: RunFolder, minari: str | None) -> dict[str, Any]:
        """Everything in order; what `result.json` holds."""
        self._folder = folder
        began = time.perf_counter()
        if not self._has_policies():
            self._train()
        tiers: dict[str, Episodes] = {tier: self._tier(tier) for tier in self._config.amounts}
        references = {name: self._reference(name, tiers) for name in ("random", "expert")}
        about = {"env": self._config.env, "seed": self._config.seed, "references": references}
        about["tiers"] = self._about(tiers)
        self._report("writing", 0, 1)
        episodes, beside = join(list(tiers.values())), about | {"versions": versions()}
        save_episodes(folder.path("episodes"), episodes, about=beside)
        if minari is not None:
            algorithm = None if self._config.policy else type(algorithm_for(self._config)).__name__
            save_minari(episodes, minari, env=self._config.env, algorithm=algorithm, about=beside)
        seconds = round(time.perf_counter() - began, 2)
        result = about | {"minari": minari, "seconds": seconds, "interrupted": False}
        folder.result(result)
        shutil.rmtree(folder.folder / "tiers", ignore_errors=True)
        return result

    def _train(self) -> None:
        """Train the expert, and find out who is medium on its way."""
        config = self._config
        with closing(JsonlSink(self._folder.path("metrics.jsonl"))) as sink:
            found, self._experience = train_expert(
                config, self._folder, states=self._states, sink=sink, on_progress=self._report
            )
        trained = {"expert": expert(found)}
        if "medium" in config.amounts:
            trained["medium"] = medium(found, self._mean_return("random"))
        for name, checkpoint in trained.items():
            self._steps[name] = checkpoint.step
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
        venv = task_environments(
            config.env, config.environments, seed=config.seed + SEEDS[tier], states=self._states
        )
        with closing(venv):
            return act(
                self._policies[tier],
                venv,
                episodes=amount if config.unit == "episodes" else None,
                steps=amount,
                states=self._states,
                deterministic=config.deterministic,
                on_progress=partial(self._report, f"recording {tier}"),
            )

    def _replay(self) -> Episodes:
        known, amount, unit = self._experience, self._config.amounts["replay"], self._config.unit
        if known is None:
            raise ConfigError.mismatch(
                "replay",
                expected="episodes that ended while training",
                got="none",
                fix="Train for longer than an episode, or leave replay out of the mix.",
            )
        found = spread(known, count=amount if unit == "episodes" else None, steps=amount)
        if (len(found) if unit == "episodes" else found.steps) < amount:
            warnings.warn(
                f"replay: {amount:,} {unit} were asked for, and training made only "
                f"{len(known):,} episodes of {known.steps:,} steps; all of them are taken.",
                stacklevel=2,
            )
        return found

    def _reference(self, name: str, tiers: dict[str, Episodes]) -> float | None:
        """Mean return: of the tier, or of a few episodes where that is not recorded."""
        if name in tiers:
            return float(tiers[name].returns.mean())
        return self._mean_return(name) if name in self._policies else None

    def _mean_return(self, name: str) -> float:
        self._report(f"evaluating {name}", 0, 1)
        return evaluate_policy(
            self._policies[name],
            task_env(self._config.env),
            episodes=REFERENCE_EPISODES,
            seed=self._config.seed + REFERENCE_SEED,
            deterministic=self._config.deterministic,
        ).mean

    def _about(self, tiers: dict[str, Episodes]) -> list[dict[str, Any]]:
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

    def _report(self, doing: str, done: int, total: int) -> None:
        self.doing = doing
        if self._on_progress:
            self._on_progress(doing, done, total)
