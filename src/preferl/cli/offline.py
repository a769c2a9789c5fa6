"""`preferl offline`: learn policies from recorded episodes, and from labels or a reward."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from preferl.cli.console import ProgressLine, echo, print_table, require_done
from preferl.cli.options import ReportTo, Trust, import_trusted
from preferl.cli.parsing import FLAT, Mark
from preferl.offline import OfflineConfig
from preferl.reporting import PLACES_BY_DEFAULT
from preferl.trust import typed

if TYPE_CHECKING:
    from preferl.evaluation.curve import Evaluation

starting_point = import_trusted


@dataclass(frozen=True)
class OfflineRunConfig:
    """Learn policies from recorded episodes, and from labels or a reward, beside controls.

    Attributes:
        run: data, reward, agents and how they are evaluated.
        seeds: seeds of the agents, between commas; each condition has one agent per seed.
        out: folder of the run; an older run there is moved away, unless it is resumed.
        resume: continue the interrupted run in `out`.
        report_to: where metrics go: jsonl, tensorboard, wandb.
        checkpoint_every: updates between two checkpoints.
        processes: how many processes evaluate policies side by side; one for each processor core is
            fastest.
        trust: module of yours that registers the reward's model or the learner; may be given
            several times.
    """

    run: Annotated[OfflineConfig, FLAT]
    seeds: Annotated[tuple[int, ...], Mark("N,N,...", commas=True)] = (0, 1, 2)
    out: Path = Path("runs/offline")
    resume: bool = False
    report_to: ReportTo = PLACES_BY_DEFAULT
    checkpoint_every: int = 5_000
    processes: int = 2
    trust: Trust = ()


def offline_run(config: OfflineRunConfig) -> None:
    """Make an offline run: learn and evaluate policies, and print their returns."""
    from preferl.offline import run_offline
    from preferl.offline.experiment.conditions import NO_ANSWERS

    typed(*config.run.modules)
    line = ProgressLine()
    last_evaluation = ""

    def show_progress(stage: str, done: int, total: int) -> None:
        line(stage, done, total, last_evaluation if stage.startswith("training") else "")

    def show_evaluation(agents: str, evaluation: "Evaluation") -> None:
        nonlocal last_evaluation
        last_evaluation = f"{agents}: {evaluation.in_words}"
        line.note(f"{evaluation.step:>9,} updates · {last_evaluation}")

    with line.running():
        result = run_offline(
            config.run,
            config.out,
            seeds=config.seeds,
            report_to=config.report_to,
            resume=config.resume,
            checkpoint_every=config.checkpoint_every,
            processes=config.processes,
            on_progress=show_progress,
            on_evaluation=show_evaluation,
        )
    require_done(result, config.out)
    if result["conditions"]:
        _print_conditions(result)
    if result["comparison"]:
        echo(result["comparison"]["text"], style="" if result["comparison"]["passed"] else "bold")
    if config.run.uses_true_reward:
        echo(NO_ANSWERS)
    echo(
        f"Policies: {config.out / 'policies'} · report: {config.out / 'report.html'} "
        f"({result['seconds']:.0f} s)."
    )


def _print_conditions(result: dict[str, Any]) -> None:
    conditions = result["conditions"]
    heads = {"normalised_score": "score", "return": "return", "success_rate": "success"}
    first_condition = next(iter(conditions.values()))
    heads = {name: head for name, head in heads.items() if first_condition[name] is not None}
    print_table(
        f"{result['env']}, {result['episodes']} episodes for each of {len(result['seeds'])} seeds",
        [
            (name, *(_cell(head, values[head]) for head in heads))
            for name, values in conditions.items()
        ],
        ("reward", *heads.values()),
        bold=0,
    )


def _cell(name: str, value: dict[str, Any]) -> str:
    if name == "success_rate":
        return f"{value['mean']:.0%}"
    spread = "" if value["std"] is None else f" ± {value['std']:,.1f}"
    return f"{value['mean']:,.1f}{spread}"
