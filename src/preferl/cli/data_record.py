"""`preferl data record`: make a data set of mixed quality in any gymnasium environment."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from preferl import evaluation, online
from preferl.cli.console import ProgressLine, echo, print_table, require_done
from preferl.cli.options import ReportTo, Trust, import_trusted
from preferl.cli.parsing import FLAT, Mark, options_of, require_name
from preferl.configs import from_json
from preferl.online.configs import DatasetConfig
from preferl.presets import load_preset, preset_names
from preferl.reading import read_object, reading
from preferl.reporting import PLACES_BY_DEFAULT
from preferl.trust import typed


@dataclass(frozen=True)
class DataRecordConfig:
    """Train or load a policy, and record a data set of mixed quality.

    Attributes:
        run: what to record.
        out: folder of the data set; an older one there moves aside, unless it is resumed.
        minari: id of a Minari data set to write as well, such as mine/cheetah/mixed-v0.
        report_to: where metrics go: jsonl, tensorboard, wandb.
        resume: continue the interrupted recording in `out`.
        preset: settings to start from: halfcheetah, hopper, walker-walk, button-press-topdown,
            sweep-into or handle-pull-side; the options given change them.
        seeds: one recording for each, between commas, all joined; the default is the one of `seed`.
        processes: recordings at a time; by default one for each processor core.
        trust: module of yours that registers an algorithm or the environment; may be given several
            times.
    """

    run: Annotated[DatasetConfig, FLAT]
    out: Path = Path("runs/data")
    minari: str | None = None
    report_to: ReportTo = PLACES_BY_DEFAULT
    resume: bool = False
    preset: str | None = None
    seeds: Annotated[tuple[int, ...], Mark("N,N,...", commas=True)] = ()
    processes: int | None = None
    trust: Trust = ()


def data_record_start(arguments: Sequence[str]) -> DataRecordConfig | None:
    """The config that `--preset` names, for the other options to change."""
    import_trusted(arguments)
    preset = next(reversed(options_of(arguments, "--preset")), None)
    if preset is None:
        return None
    require_name(preset, preset_names("data"), "preset")
    settings = from_json(DatasetConfig, load_preset(preset, "data"))
    return DataRecordConfig(settings, preset=preset)


def data_record(config: DataRecordConfig) -> None:
    """Record, and print what each tier returns and where the data set is."""
    from preferl.online.dataset_seeds import record_seeds  # loads torch

    typed(*config.run.modules, trust=config.trust)
    line = ProgressLine()
    how: dict[str, Any] = {"minari": config.minari, "report_to": config.report_to}
    how |= {"resume": config.resume, "on_progress": line}
    with line.running():
        if config.seeds:
            how |= {"seeds": config.seeds, "processes": config.processes}
            result = record_seeds(config.run, config.out, **how)
        else:
            policy = _offline_policy(config.run)
            result = online.record_dataset(config.run, config.out, policy=policy, **how)
    require_done(result, config.out)
    rows = [
        (
            f"{tier['name']}, seed {tier['seed']}" if "seed" in tier else tier["name"],
            f"{tier['episodes']:,}",
            f"{tier['steps']:,}",
            f"{tier['return']['mean']:,.1f} ± {tier['return']['std']:,.1f}",
            f"{tier['return']['min']:,.1f}",
            f"{tier['return']['max']:,.1f}",
            "–" if tier["success"] is None else f"{tier['success']:.0%}",
        )
        for tier in result["tiers"]
    ]
    heads = ("tier", "episodes", "steps", "return", "lowest", "highest", "success")
    print_table(f"Recorded in {result['env']}", rows, heads)
    also = f" · Minari: {result['minari']}" if result["minari"] else ""
    echo(f"Episodes: {config.out / 'episodes'}{also} ({result['seconds']:.0f} s).")
    echo(f"Whoever has the id {result['id']} has the same data.")


def _offline_policy(config: DatasetConfig) -> "evaluation.Policy | None":
    """The policy of an offline run, if the path is one's; others are read where they act."""
    from preferl.offline.decision_transformer.policy import load_offline_policy

    if config.policy is None or not (about := config.policy / "policy.json").is_file():
        return None
    with reading(about, expected="a file that names the policy's learner"):
        if "learner" not in read_object(about):
            return None
    return load_offline_policy(config.policy, seed=config.seed)
