"""`preferl data record`: make a data set of mixed quality in any gymnasium environment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from preferl import evaluation, online
from preferl.cli.console import ProgressLine, echo, print_table, require_done
from preferl.cli.options import ReportTo, Trust, import_trusted
from preferl.online.configs import DatasetConfig
from preferl.reading import read_object, reading
from preferl.reporting import PLACES_BY_DEFAULT
from preferl.trust import typed

starting_point = import_trusted


@dataclass(frozen=True)
class DataRecordConfig:
    """Train or load a policy, and record a data set of mixed quality."""

    run: Annotated[DatasetConfig, tyro.conf.arg(name="")]  # what to record.
    # folder of the data set; an older one there moves aside, unless it is resumed.
    out: Path = Path("runs/data")
    # id of a Minari data set to write as well, such as mine/cheetah/mixed-v0.
    minari: str | None = None
    report_to: ReportTo = PLACES_BY_DEFAULT  # where metrics go: jsonl, tensorboard, wandb.
    resume: bool = False  # continue the interrupted recording in `out`.
    # module of yours that registers an algorithm or the environment; may be given several times.
    trust: Trust = ()


def data_record(config: DataRecordConfig) -> None:
    """Record, and print what each tier returns and where the data set is."""
    typed(*config.run.modules, trust=config.trust)
    online.use_threads(1)
    line = ProgressLine()
    with line.running():
        result = online.record_dataset(
            config.run,
            config.out,
            policy=_offline_policy(config.run),
            minari=config.minari,
            report_to=config.report_to,
            resume=config.resume,
            on_progress=line,
        )
    require_done(result, config.out)
    rows = [
        (
            tier["name"],
            f"{tier['episodes']:,}",
            f"{tier['steps']:,}",
            f"{tier['return']['mean']:,.1f} ± {tier['return']['std']:,.1f}",
            f"{tier['return']['min']:,.1f}",
            f"{tier['return']['max']:,.1f}",
        )
        for tier in result["tiers"]
    ]
    heads = ("tier", "episodes", "steps", "return", "lowest", "highest")
    print_table(f"Recorded in {result['env']}", rows, heads)
    also = f" · Minari: {result['minari']}" if result["minari"] else ""
    echo(f"Episodes: {config.out / 'episodes'}{also} ({result['seconds']:.0f} s).")


def _offline_policy(config: DatasetConfig) -> "evaluation.Policy | None":
    """The policy of an offline run, if the path is one's; others are read where they act."""
    from preferl.offline.decision_transformer.policy import load_offline_policy

    if config.policy is None or not (about := config.policy / "policy.json").is_file():
        return None
    with reading(about, expected="a file that names the policy's learner"):
        if "learner" not in read_object(about):
            return None
    return load_offline_policy(config.policy, seed=config.seed)
