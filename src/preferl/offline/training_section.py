"""The part of an offline run's page about how its agents learned."""

import re
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from preferl.errors import StorageError
from preferl.evaluation.plots import Curve, learning_curves
from preferl.evaluation.report import Figure, Section
from preferl.offline.arms import MEANING
from preferl.offline.config import OfflineConfig
from preferl.offline.inputs import Inputs
from preferl.reporting import read_jsonl
from preferl.runs import RunFolder
from preferl.shapes import FloatArray


def training_section(folder: RunFolder, config: OfflineConfig, inputs: Inputs) -> Section | None:
    """What agents told while they learned; None where that was not written down."""
    try:
        columns = read_jsonl(folder.path("metrics.jsonl"))
    except StorageError:  # numbers were not asked to go there
        return None
    valued = _curves(columns, {f"{config.policy}/{arm}/value": MEANING[arm] for arm in MEANING})
    matched = [curve for arm in MEANING if (curve := _of_seeds(columns, arm)) is not None]
    if not valued and not matched:
        return None
    figures = []
    if valued:
        figures.append(
            Figure(
                learning_curves(valued, x_label="updates", y_label="expected return"),
                "What agents of each arm expect to be paid, over updates.",
                "Mean over seeds of the value of a minibatch, each in the scale of its own reward.",
            )
        )
    if matched:
        what, unit = _loss(config, inputs)
        figures.append(
            Figure(
                learning_curves(matched, x_label="updates", y_label=unit),
                "How far predicted actions are from recorded ones, over updates.",
                f"{what}. Thin lines are seeds, the others their means.",
            )
        )
    return Section("How they learned", figures=tuple(figures))


def _loss(config: OfflineConfig, inputs: Inputs) -> tuple[str, str]:
    """What Decision Transformers make small, in words, and its unit."""
    if np.issubdtype(inputs.episodes.actions.dtype, np.integer):
        what, unit = "Cross-entropy of actions, in nats", "nats"
    elif config.transformer.action_loss == "gaussian":
        what = (
            "Nats by which each number of an action is unlikely, up to a constant: less is better"
        )
        unit = "nats"
    else:
        what = "Mean square error of actions, each number of which is in [−1, 1]"
        unit = "square error"
    critics = ", with what the critics add to it" if config.settings.regulariser else ""
    return what + critics, unit


def _curves(columns: Mapping[str, FloatArray], labels: Mapping[str, str]) -> list[Curve]:
    """Of those columns that are there."""
    curves = []
    for name, label in labels.items():
        if name in columns:
            told = np.isfinite(columns[name])
            steps, place = _latest(columns["step"][told])
            curves.append(Curve(label, steps, columns[name][told][place]))
    return curves


def _of_seeds(columns: Mapping[str, FloatArray], arm: str) -> Curve | None:
    """Losses of an arm's Decision Transformers, at the updates of which all of them tell."""
    names = [name for name in columns if re.fullmatch(rf"dt/{arm}-\d+/loss", name)]
    curves = _curves(columns, {name: name for name in names})
    if not curves:
        return None
    steps = reduce(np.intersect1d, [curve.steps for curve in curves])
    values = [curve.values[np.isin(curve.steps, steps)] for curve in curves]
    return Curve(MEANING[arm], steps, np.stack(values)) if len(steps) else None


def _latest(steps: FloatArray) -> tuple[FloatArray, Any]:
    """Steps in order, and where each was reported last: a resumed run reports some again."""
    unique, first = np.unique(steps[::-1], return_index=True)
    return unique, len(steps) - 1 - first
