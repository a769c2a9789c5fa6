"""`preferl data record`: make a data set of mixed quality in any gymnasium environment."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from preferl.cli.offline import StageProgress, require_done
from preferl.online.configs import DatasetConfig

if TYPE_CHECKING:
    from preferl.evaluation.policies import Policy


@dataclass(frozen=True)
class DataRecordConfig:
    """Train or load a policy, and record a data set of mixed quality.

    Attributes:
        run: what is recorded.
        out: folder of the data set; an older one there moves aside, unless it is resumed.
        minari: id of a Minari data set to write as well, such as mine/cheetah/mixed-v0.
        resume: go on with the recording in `out` that was interrupted.
    """

    run: Annotated[DatasetConfig, tyro.conf.arg(name="")]
    out: Path = Path("runs/data")
    minari: str | None = None
    resume: bool = False


def run_data_record(config: DataRecordConfig) -> None:
    """Record, and print what each tier returns and where the data set is."""
    from preferl.online import record_dataset, use_threads
    from preferl.trust import typed

    typed(config.run.env)
    use_threads(1)
    console = Console()
    with StageProgress(console).running() as progress:
        result = record_dataset(
            config.run,
            config.out,
            policy=_offline_policy(config.run),
            minari=config.minari,
            resume=config.resume,
            on_progress=progress,
        )
    require_done(console, result, config.out)
    _summarise(console, result, config.out)


def _offline_policy(config: DatasetConfig) -> "Policy | None":
    """The policy of an offline run, if the path is one's; others are read where they act."""
    from preferl.offline import DecisionTransformerPolicy, OfflinePolicy
    from preferl.offline.decision_policy import KIND
    from preferl.reading import read_object, reading

    if config.policy is None or not (config.policy / "policy.json").is_file():
        return None
    with reading(config.policy / "policy.json", expected="a file that says whose policy it is"):
        about = read_object(config.policy / "policy.json")
    if "learner" not in about:
        return None
    kind = DecisionTransformerPolicy if about.get("kind") == KIND else OfflinePolicy
    return kind.load(config.policy, seed=config.seed)


def _summarise(console: Console, result: dict[str, Any], out: Path) -> None:
    table = Table(title=f"Recorded in {result['env']}")
    for head in ("tier", "episodes", "steps", "return", "lowest", "highest"):
        table.add_column(head, justify="left" if head == "tier" else "right")
    for tier in result["tiers"]:
        returns = tier["return"]
        spread = f"{returns['mean']:,.1f} ± {returns['std']:,.1f}"
        ends = (f"{returns['min']:,.1f}", f"{returns['max']:,.1f}")
        counts = (f"{tier['episodes']:,}", f"{tier['steps']:,}")
        table.add_row(tier["name"], *counts, spread, *ends)
    console.print(table)
    also = f" · Minari: {result['minari']}" if result["minari"] else ""
    console.print(
        f"Episodes: {out / 'episodes'}{also} ({result['seconds']:.0f} s).",
        highlight=False,
        soft_wrap=True,
    )
