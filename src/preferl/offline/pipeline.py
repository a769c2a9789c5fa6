"""A whole offline run in a folder: fit a reward, pay recorded episodes, learn, judge, report."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, final

from preferl.errors import require_in
from preferl.evaluation.environments import task_env
from preferl.evaluation.many import evaluate_policies
from preferl.evaluation.policy import PolicyReport
from preferl.files import write_json
from preferl.offline.agents import CLONING, AgentTrainer
from preferl.offline.arms import agent_name, build_arms
from preferl.offline.config import OfflineConfig, OfflineRun
from preferl.offline.inputs import Inputs, load_inputs
from preferl.offline.learned import LearnedReward, learn_reward
from preferl.offline.resume import open_run, read_json
from preferl.offline.scores import ArmScore, score_arms
from preferl.offline.verdict import Verdict, compare
from preferl.reporting import open_sinks, require_places
from preferl.runs import RunFolder

OnProgress = Callable[[str, int, int], None]
"""Told what is being done, in a few words, how much of it is done, and how much there is."""

FIRST_EPISODE = 10_000
"""Seed of the first episode that policies are judged in; the same for all of them."""

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
    implicit Q-learning, and clones beside them. What counts is the policy after the last update:
    none is picked by how it does in the environment.

    The folder holds config and versions, metrics, the reward, every policy, `result.json` and
    `report.html`. Ctrl-C keeps what there is, and the same call with `resume` goes on from
    there, to the same result as if it had not been interrupted.

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
        SpaceError: data of another environment, or a reward of other data.
    """
    run, places = OfflineRun(config, tuple(seeds)), tuple(report_to)
    require_places(places)
    require_in("checkpoint_every", checkpoint_every, 1, float("inf"))
    inputs = load_inputs(config)
    folder = open_run(out, run, inputs.about, resume=resume)
    stages = _Stages(run, inputs, folder, processes, on_progress or (lambda *_: None))
    with closing(open_sinks(places, folder.folder)) as sink:
        trainer = AgentTrainer(config, inputs, folder, sink, checkpoint_every=checkpoint_every)
        try:
            return stages.run(trainer)
        except KeyboardInterrupt:
            return {"interrupted": True, "stage": stages.doing}


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

    def run(self, trainer: AgentTrainer) -> dict[str, Any]:
        """Everything in order; what `result.json` holds."""
        from preferl.offline.report import write_page  # loads what draws

        began = time.perf_counter()
        learned = self._reward() if self._config.policy == "iql" else None
        agents = self._train(trainer, learned)
        arms = self._judge(trainer, agents)
        verdict = compare(
            {arm: score.returns for arm, score in arms.items()},
            {arm: score.episodes for arm, score in arms.items()},
        )
        result = self._result(arms, verdict, learned, time.perf_counter() - began)
        self._begin("writing the report")
        write_page(self._folder, self._config, self._inputs, result, arms, learned)
        self._folder.result(result)
        return result

    def _reward(self) -> LearnedReward:
        fitted = self._config.reward is not None
        on_epoch = self._begin("reading the reward" if fitted else "fitting the reward")
        return learn_reward(self._config, self._inputs, self._folder, self._seeds[0], on_epoch)

    def _train(
        self, trainer: AgentTrainer, learned: LearnedReward | None
    ) -> dict[str, Sequence[str]]:
        """Arms to the names of their agents, all of them trained."""
        names: list[str] = []
        if learned is not None:
            arms = build_arms(
                self._inputs.episodes,
                learned.paid,
                seeds=self._seeds,
                task=self._config.row,
                controls=self._config.controls,
            )
            names += arms.names
            trainer.learn(arms, self._begin(f"training {len(arms.agents)} agents"))
        if learned is None or self._config.controls:
            names.append(CLONING)
            trainer.clone(self._seeds, self._begin(f"training {len(self._seeds)} clones"))
        return {arm: [agent_name(arm, seed) for seed in self._seeds] for arm in names}

    def _judge(
        self, trainer: AgentTrainer, agents: dict[str, Sequence[str]]
    ) -> dict[str, ArmScore]:
        config = self._config
        if not config.episodes or config.env_id is None:
            return {}
        names = [name for group in agents.values() for name in group]
        files = {name: self._folder.path(f"evaluations/{name}.json") for name in names}
        left = [name for name in names if not files[name].is_file()]
        tell = self._begin(f"judging {len(names)} policies")
        done = len(names) - len(left)

        def keep(name: str, report: PolicyReport) -> None:
            nonlocal done
            write_json(files[name], report.to_json())
            done += 1
            tell(done, len(names))

        evaluate_policies(
            {name: trainer.policy(name) for name in left},
            task_env(config.env_id),
            episodes=config.episodes,
            seed=FIRST_EPISODE,
            max_steps=config.row.max_episode_steps if config.row else None,
            processes=self._processes,
            on_report=keep,
        )
        reports = {name: PolicyReport.from_json(read_json(file)) for name, file in files.items()}
        return score_arms(reports, agents, config.row)

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
            "steps": config.steps,
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
