"""The agents of an offline run, and their training, beside those of other runs if need be."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, final

import numpy as np

from preferl.configs import to_json
from preferl.data.comparisons import Comparisons, concatenate
from preferl.feedback.step_rewards import Reward
from preferl.models.folder import OFFLINE_POLICY
from preferl.offline.experiment.config import OfflineConfig
from preferl.offline.experiment.curves import AgentCurves
from preferl.offline.experiment.inputs import Inputs
from preferl.registry import OFFLINE_LEARNERS
from preferl.reporting import MetricSink
from preferl.runs import RunFolder
from preferl.shapes import FloatArray


@final
@dataclass(frozen=True, eq=False)
class Agents:
    """Agents of one run that learn in the same way, and where what they learn goes."""

    config: OfflineConfig
    inputs: Inputs
    folder: RunFolder
    sink: MetricSink
    curves: AgentCurves
    reward: Reward | None  # by which policies with a target return act
    policy: str
    labels: tuple[str, ...]  # of the `C` conditions; metrics are means over their agents
    names: tuple[str, ...]  # of the `C * S` agents, those of a condition side by side
    seeds: tuple[int, ...]  # `C * S`
    signals: FloatArray | None  # `[C * S, T]` rewards, or `[C * S, P]` answers; None of clones

    @property
    def state(self) -> str:
        """Name of the file, or folder, that their training resumes from."""
        kind = OFFLINE_LEARNERS.config(self.policy)
        return f"{kind.prefix or self.policy}.safetensors" if kind.together else self.names[0]

    @property
    def updates(self) -> int:
        """Of each agent."""
        return self.config.steps or OFFLINE_LEARNERS.config(self.policy).updates

    @property
    def kind(self) -> str:
        """What agents that can learn as one computation have in common, as text."""
        settings = OFFLINE_LEARNERS.config(self.policy).of_run(self.config)
        return json.dumps([self.policy, self.updates, self.config.implied, to_json(settings)])

    @property
    def trained(self) -> bool:
        """Whether the folder has all their policies."""
        return all((path / OFFLINE_POLICY.config).is_file() for path in self.places())

    def places(self) -> list[Path]:
        """The folder of each policy."""
        return [self.folder.path(f"policies/{name}") for name in self.names]

    def learners(self) -> list["Agents"]:
        """All of them as one, or each by itself where a learner takes one at a time."""
        if OFFLINE_LEARNERS.config(self.policy).together:
            return [self]
        return [
            replace(
                self,
                labels=(name,),
                names=(name,),
                seeds=(self.seeds[k],),
                signals=None if self.signals is None else self.signals[k : k + 1],
            )
            for k, name in enumerate(self.names)
        ]

    def report(
        self, policies: Callable[[], Sequence[Any]], step: int, metrics: Mapping[str, FloatArray]
    ) -> None:
        """Log metrics `[C * S]` of an update, and evaluate the agents that are due."""
        prefix = OFFLINE_LEARNERS.config(self.policy).prefix or self.policy
        values = {
            f"{prefix}/{label}/{name}": float(rows.mean())
            for name, value in metrics.items()
            for label, rows in zip(self.labels, np.split(value, len(self.labels)), strict=True)
        }
        self.sink.log(values, step)
        self.curves.offer(self.names, policies, step, self.reward)


def build_learner(
    config: OfflineConfig,
    inputs: Inputs,
    policy: str,
    *,
    seeds: Sequence[int],
    steps: int = 1,
    device: str | None = None,
) -> Any:
    """The learner of a policy's name, for one agent or several."""
    return OFFLINE_LEARNERS.build(
        policy,
        observation_space=inputs.observation_space,
        action_space=inputs.action_space,
        config=OFFLINE_LEARNERS.config(policy).of_run(config),
        seed=seeds[0],
        seeds=seeds,
        steps=steps,
        device=device or config.device,
    )


def train(
    groups: Sequence[Agents],
    state: Path,
    *,
    device: str,
    checkpoint_every: int,
    on_update: Callable[[int, int], None],
) -> None:
    """Train agents of the same kind and episodes as one learner, from where they stopped.

    `state` is the file that training resumes from; it goes once all policies are in their folders.
    """
    if all(group.trained for group in groups):
        return
    first = groups[0]
    kind = OFFLINE_LEARNERS.config(first.policy)
    seeds = [seed for group in groups for seed in group.seeds]
    how: dict[str, Any] = {"seeds": seeds, "steps": first.updates, "device": device}
    learner = build_learner(first.config, first.inputs, first.policy, **how)
    ends = [0, *accumulate(len(group.names) for group in groups)]
    own = [slice(*rows) for rows in pairwise(ends)]

    def policies(rows: slice) -> list[Any]:
        return list(learner.policies()[rows])

    def report(step: int, metrics: Mapping[str, Any]) -> None:
        columns = {name: np.atleast_1d(values) for name, values in metrics.items()}
        for group, rows in zip(groups, own, strict=True):
            of_group = {name: column[rows] for name, column in columns.items()}
            group.report(partial(policies, rows), step, of_group)
        on_update(step, first.updates)

    how = {"on_progress": report, "checkpoint_every": checkpoint_every}
    signals = _stacked(groups)
    if kind.learns_from == "answers":
        how["comparisons"] = concatenate([*_answers(groups)])
        if first.config.implied:  # by what each condition answers to the queries asked
            how["implied"] = True
    curves = [group.curves.every for group in groups if group.curves.every]
    if curves:  # evaluations are made at the reports of progress
        how["every"] = min(*curves, kind.every)
    learner.learn(first.inputs.episodes, signals, state, **how)
    places = [place for group in groups for place in group.places()]
    for place, policy in zip(places, learner.policies(), strict=True):
        policy.save(place)
    if state.is_dir():  # only now that the policies are there
        shutil.rmtree(state, ignore_errors=True)
    else:
        state.unlink(missing_ok=True)


def _stacked(groups: Sequence[Agents]) -> FloatArray | None:
    """The signals of all agents; answers of a run are NaN to the agents of the others."""
    signals = [group.signals for group in groups if group.signals is not None]
    if not signals:
        return None
    if OFFLINE_LEARNERS.config(groups[0].policy).learns_from == "rewards" or len(signals) == 1:
        return np.concatenate(signals)
    columns = [*accumulate((one.shape[1] for one in signals), initial=0)]
    rows = [*accumulate((len(one) for one in signals), initial=0)]
    stacked = np.full((rows[-1], columns[-1]), np.nan, np.float32)
    for k, one in enumerate(signals):
        stacked[rows[k] : rows[k + 1], columns[k] : columns[k + 1]] = one
    return stacked


def _answers(groups: Sequence[Agents]) -> Iterator[Comparisons]:
    """The comparisons of each run."""
    for group in groups:
        if group.inputs.comparisons is not None:
            yield group.inputs.comparisons


def shared_state(groups: Sequence[Agents]) -> str:
    """Name of the file that training of several runs' agents resumes from, by what they learn."""
    about = [
        [group.kind, to_json(group.config), group.seeds, group.inputs.about] for group in groups
    ]
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=8)
    return f"{digest.hexdigest()}.safetensors"
