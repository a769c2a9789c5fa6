"""Where `preferl reward` finds labels: in a store, or in a folder about recorded episodes."""

from pathlib import Path
from typing import TYPE_CHECKING

from preferl.cli.labels import StoreConfig, opened
from preferl.errors import ConfigError

if TYPE_CHECKING:
    from preferl.cli.reward import EvaluateConfig, FitConfig
    from preferl.data import Comparisons, Episodes
    from preferl.data.sources import LabelReport
    from preferl.training import FitReport


def labelled(config: "FitConfig") -> "tuple[Episodes, Comparisons, LabelReport]":
    """The answers that a config names, what the reward is scaled over, and counts.

    Raises:
        ConfigError: neither a store nor labels with their episodes, or both.
    """
    from preferl.data.sources import load_source

    if (config.store is None) == (config.labels is None):
        expected = "--store, or --labels and --demonstrations"
        got = "both" if config.store is not None else "neither"
        raise ConfigError.mismatch("labels", expected=expected, got=got)
    if config.labels is not None and config.demonstrations is not None:
        return read(config.demonstrations, config.labels, config)
    if config.store is None:
        fix = "Give --demonstrations with the episodes that the labels count in."
        raise ConfigError.mismatch("episodes", expected="some", got="none", fix=fix)
    comparisons = _stored(config)
    if config.demonstrations is None:
        episodes = comparisons.segments.episodes()
    else:
        episodes = load_source(config.demonstrations, task=config.task)
    return episodes, comparisons, _counts(comparisons)


def _stored(config: "FitConfig") -> "Comparisons":
    from preferl.store.feedback import StoredFeedback

    place = StoreConfig(config.store or "", config.files, config.project)
    with opened(place) as (store, project):
        return StoredFeedback(store, project.id, combine=config.combine).comparisons()


def publish(config: "FitConfig", report: "FitReport", reward: Path) -> None:
    """Show people how good the reward is that their answers made."""
    place = StoreConfig(config.store or "", config.files, config.project)
    with opened(place) as (store, project):
        before = store.reports.rewards(project.id)
        store.reports.publish_reward(
            project.id,
            1 + (before[-1].version if before else 0),
            answers=report.pairs,
            accuracy=report.left_out_accuracy,
            interval=report.left_out_interval,
            detail={"reward": str(reward)},
        )


def _counts(comparisons: "Comparisons") -> "LabelReport":
    from preferl.data.sources import LabelReport

    preference = comparisons.preference
    return LabelReport(
        pairs=len(comparisons),
        first=int((preference > 0.5).sum()),
        second=int((preference < 0.5).sum()),
        ties=int((preference == 0.5).sum()),
        crossing=0,
        dropped=0,
        length=comparisons.segments.length,
    )


def read(
    demonstrations: Path, labels: Path, config: "FitConfig | EvaluateConfig"
) -> "tuple[Episodes, Comparisons, LabelReport]":
    """Episodes, what a label folder says of them, and counts."""
    from preferl.data.sources import load_labels, load_source

    episodes = load_source(demonstrations, task=config.task)
    found = load_labels(labels, episodes, length=config.length, crossing=config.crossing)
    return episodes, found.comparisons, found.report
