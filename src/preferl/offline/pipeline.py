"""A whole offline run in a folder: fit a reward, pay recorded episodes, learn, judge, report."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, final

from preferl.errors import require_in
from preferl.evaluation.policies import Policy
from preferl.evaluation.policy import PolicyReport, evaluate_policies
from preferl.evaluation.rollout import task_env
from preferl.files import write_json
from preferl.models.build import build_reward_model
from preferl.models.spaces import infer_spaces
from preferl.offline.agents import AgentTrainer, load_agent, load_sequence_agent
from preferl.offline.arms import CLONING, LEARNED, agent_name, build_arms
from preferl.offline.config import OfflineConfig, OfflineRun
from preferl.offline.inputs import Inputs, clonable, load_inputs
from preferl.offline.learned import LearnedReward, learn_reward, read_json
from preferl.offline.scores import (
    ASKED,
    ArmScore,
    Following,
    Verdict,
    asking_name,
    compare,
    score_arms,
)
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink, open_sinks, require_places
from preferl.runs import RunFolder, open_run, require_openable
from preferl.training.device import require_device

OnProgress = Callable[[str, int, int], None]
"""Told what is being done, in a few words, how much of it is done, and how much there is."""

FIRST_EPISODE = 10_000
"""Seed of the first episode that policies are judged in; the same for all of them."""

FOLLOWED = 20
"""Most episodes for each return that is asked for; more would show no more."""

SIMULATORS = ("gymnasium", "gymnasium-robotics", "mujoco")
"""Whose versions belong beside every score."""


def run_offline(
    config: OfflineConfig,
    out: Path | str,
    *,
    seeds: Iterable[int] = (0, 1, 2),
    report_to: Iterable[str] = ("jsonl", "tensorboard"),
    resume: bool = False,
    checkpoint_every: int = 5_000,
    processes: int = 2,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Learn policies from recorded episodes and a learned reward, and hold them against controls.

    A reward is fitted to the labels (or taken from another run), pays each recorded step, and is
    scaled by the range of returns. Agents for all arms and seeds then learn side by side by
    implicit Q-learning, or one after the other as Decision Transformers, and clones beside them.
    What counts is the policy after the last update:
    none is picked by how it does in the environment.

    The folder holds config and versions, metrics, the reward, every policy, `result.json` and
    `report.html`. Ctrl-C keeps what there is, and the same call with `resume` goes on from
    there, to the same result as if it had not been interrupted. Settings and data are checked
    before any folder is touched.

    Args:
        config: of the run.
        out: the folder; an older run there moves aside, unless it is resumed.
        seeds: one agent for each, in each arm; the first also seeds the fit of the reward. Three
            show how much training varies.
        report_to: where numbers go while training: some of `jsonl`, `tensorboard`, `wandb`.
        resume: go on with the run that is in `out`, which must have the same settings.
        checkpoint_every: updates between two states from which training can go on.
        processes: that judge policies side by side; a script needs
            `if __name__ == "__main__":` for more than one.
        on_progress: told how far things are.

    Returns:
        What `result.json` holds; after Ctrl-C only `interrupted` and what was being done.

    Raises:
        ConfigError: a setting out of range, an unknown environment, task or place to report to,
            or a run to resume that has other settings.
        DataError: files that are missing, damaged, or do not belong to each other.
        ResumeError: the run to resume is finished, or there is none; nothing was changed.
        SpaceError: data of another environment, or a reward of other data.
        StorageError: another run is at work in `out`, or it cannot be written to.
    """
    run, places = OfflineRun(config, tuple(seeds)), tuple(report_to)
    require_places(places)
    require_in("checkpoint_every", checkpoint_every, 1, float("inf"))
    require_openable(out, resume=resume)  # before what takes long
    inputs = load_inputs(config)
    _require_learnable(config, inputs)
    with open_run(out, config=run, seed=run.seeds[0], resume=resume, data=inputs.about) as folder:
        stages = _Stages(run, inputs, folder, processes, on_progress or (lambda *_: None))
        with closing(open_sinks(places, folder.folder)) as sink:
            try:
                return stages.run(sink, checkpoint_every)
            except KeyboardInterrupt:
                return {"interrupted": True, "stage": stages.doing}


def _require_learnable(config: OfflineConfig, inputs: Inputs) -> None:
    """Build the reward model and an agent once, as the run will, and let go of them.

    What would only be found out after hours is found out before there is a folder.

    Raises:
        ConfigError: settings of the reward, the agents or the device that cannot be.
        MissingExtraError: the packages of the agents are not installed.
        SpaceError: spaces that the agents do not know.
    """
    require_device(config.device)
    comparisons = inputs.comparisons
    if config.kind.taught and inputs.reward is None and comparisons is not None:
        answers = int(comparisons.answered.sum())
        preset = config.fitting.preset(length=comparisons.segments.length, answers=answers)
        shown = infer_spaces(inputs.episodes.observations, inputs.episodes.actions)
        build_reward_model(preset.model, *shown, seed=0)
    OFFLINE_LEARNERS.build(
        config.policy,
        observation_space=inputs.observation_space,
        action_space=inputs.action_space,
        config=config.settings,
        seed=0,
        seeds=(0,),
        steps=1,
        device=config.device,
    )


@final
class _Stages:
    """One run, stage by stage; each leaves its outcome in the folder and is not done twice."""

    def __init__(
        self,
        run: OfflineRun,
        inputs: Inputs,
        folder: RunFolder,
        processes: int,
        tell: OnProgress,
    ) -> None:
        self.doing = ""
        self._config, self._seeds = run.config, run.seeds
        self._inputs, self._folder = inputs, folder
        self._processes, self._tell = processes, tell

    def run(self, sink: MetricSink, checkpoint_every: int) -> dict[str, Any]:
        """Everything in order; what `result.json` holds."""
        from preferl.offline.report import write_page  # loads what draws

        began = time.perf_counter()
        learned = self._reward() if self._config.kind.taught else None
        agents = self._train(sink, checkpoint_every, learned)
        arms = self._judge(agents, learned)
        following = self._follow(learned)
        verdict = compare(
            {arm: score.returns for arm, score in arms.items()},
            {arm: score.episodes for arm, score in arms.items()},
        )
        result = self._result(arms, verdict, learned, time.perf_counter() - began)
        result["following"] = None if following is None else following.to_json()
        self._begin("writing the report")
        write_page(self._folder, self._config, self._inputs, result, arms, learned)
        self._folder.result(result)
        return result

    def _reward(self) -> LearnedReward:
        fitted = self._config.reward is not None
        on_epoch = self._begin("reading the reward" if fitted else "fitting the reward")
        return learn_reward(self._config, self._inputs, self._folder, self._seeds[0], on_epoch)

    def _train(
        self, sink: MetricSink, checkpoint_every: int, learned: LearnedReward | None
    ) -> dict[str, Sequence[int]]:
        """Arms to the seeds of their agents, all of them trained."""
        config, inputs = self._config, self._inputs
        trainer = AgentTrainer(
            config, inputs, self._folder, sink, checkpoint_every=checkpoint_every
        )
        names: list[str] = []
        if learned is not None:
            arms = build_arms(
                inputs.episodes,
                learned.paid,
                seeds=self._seeds,
                task=config.row,
                controls=config.controls,
                scaled=not self._sequences,
            )
            names += arms.names
            trainer.learn(arms, self._begin(f"training {len(arms.agents)} agents"))
        if learned is None or (config.controls and clonable(inputs)):
            names.append(CLONING)
            trainer.clone(self._seeds, self._begin(f"training {len(self._seeds)} clones"))
        return dict.fromkeys(names, self._seeds)

    def _judge(
        self, agents: dict[str, Sequence[int]], learned: LearnedReward | None
    ) -> dict[str, ArmScore]:
        if not self._judges:
            return {}
        each = {agent_name(arm, s): (arm, s) for arm, seeds in agents.items() for s in seeds}
        reward = None if learned is None else learned.reward
        reports = self._evaluate(
            f"judging {len(each)} policies",
            each,
            lambda name: load_agent(self._folder, self._config, *each[name], reward),
            self._config.episodes,
        )
        named = {arm: [agent_name(arm, s) for s in seeds] for arm, seeds in agents.items()}
        return score_arms(reports, named, self._config.row)

    def _follow(self, learned: LearnedReward | None) -> Following | None:
        """What the taught policies earn when they are asked for more or less."""
        if not (self._judges and self._sequences) or learned is None:
            return None
        agents = {agent_name(LEARNED, seed): seed for seed in self._seeds}
        policies = {
            name: load_sequence_agent(self._folder, LEARNED, seed, learned.reward)
            for name, seed in agents.items()
        }
        each = {asking_name(name, target): (name, target) for name in agents for target in ASKED}
        reports = self._evaluate(
            f"asking for {len(ASKED)} returns",
            each,
            lambda one: policies[each[one][0]].asking(each[one][1]),
            min(FOLLOWED, self._config.episodes),
        )
        return Following.of(reports, list(policies.values()), list(agents))

    def _evaluate(
        self, doing: str, names: Iterable[str], policy: Callable[[str], Policy], episodes: int
    ) -> dict[str, PolicyReport]:
        """Reports by name; those that the folder has are not made again."""
        config = self._config
        files = {name: self._folder.path(f"evaluations/{name}.json") for name in names}
        left = [name for name, file in files.items() if not file.is_file()]
        tell, done = self._begin(doing), len(files) - len(left)

        def keep(name: str, report: PolicyReport) -> None:
            nonlocal done
            write_json(files[name], report.to_json())
            done += 1
            tell(done, len(files))

        evaluate_policies(
            {name: policy(name) for name in left},
            task_env(config.env_id or ""),
            episodes=episodes,
            seed=FIRST_EPISODE,
            max_steps=config.row.max_episode_steps if config.row else None,
            processes=self._processes,
            on_report=keep,
        )
        return {name: PolicyReport.from_json(read_json(file)) for name, file in files.items()}

    @property
    def _sequences(self) -> bool:
        """Whether agents are Decision Transformers."""
        return self._config.kind.asked

    @property
    def _judges(self) -> bool:
        return bool(self._config.episodes) and self._config.env_id is not None

    def _result(
        self,
        arms: dict[str, ArmScore],
        verdict: Verdict | None,
        learned: LearnedReward | None,
        seconds: float,
    ) -> dict[str, Any]:
        config, labels = self._config, self._inputs.labels
        return {
            "task": config.row.name if config.row else None,
            "env": config.env_id,
            "policy": config.policy,
            "seeds": list(self._seeds),
            "steps": config.updates,
            "episodes": config.episodes,
            "simulators": _installed(SIMULATORS),
            "arms": {arm: score.to_json() for arm, score in arms.items()},
            "verdict": None if verdict is None else verdict.to_json(),
            "reward": None if learned is None else learned.to_json(),
            "labels": None if labels is None else labels.to_json(),
            "seconds": round(seconds, 2),
            "interrupted": False,
        }

    def _begin(self, doing: str) -> Callable[[int, int], None]:
        """Say what comes next; a function that tells how far it is."""
        self.doing = doing
        self._tell(doing, 0, 1)
        return partial(self._tell, doing)


def _installed(packages: Sequence[str]) -> dict[str, str]:
    """Versions of the packages that are there."""
    known = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()}
    return {name: known[name] for name in packages if name in known}
