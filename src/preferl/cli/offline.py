"""`preferl offline`: learn policies from recorded episodes and labels."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from tyro.constructors import PrimitiveConstructorSpec

from preferl.cli.runs import INTERRUPTED
from preferl.offline import OfflineConfig


def _split(words: list[str]) -> list[str]:
    return [part for word in words for part in word.split(",") if part]


def _list_of(kind: type[Any], example: str) -> Any:
    """Values after one option, between commas or spaces."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=example,
        instance_from_str=lambda words: tuple(kind(word) for word in _split(words)),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [",".join(map(str, values))],
    )


@dataclass(frozen=True)
class OfflineRunConfig:
    """Learn policies from recorded episodes and labels (or a fitted reward), beside controls.

    Attributes:
        run: data, reward, agents and how they are judged.
        seeds: one agent for each, in each arm, between commas.
        out: folder of the run; an older run there moves aside, unless it is resumed.
        resume: go on with the run in `out` that was interrupted.
        report_to: where numbers go while training: some of jsonl, tensorboard, wandb.
        checkpoint_every: updates between two states from which training can go on.
        processes: that judge policies side by side; as many as there are processor cores.
    """

    run: Annotated[OfflineConfig, tyro.conf.arg(name="")]
    seeds: Annotated[tuple[int, ...], _list_of(int, "N,N,...")] = (0, 1, 2)
    out: Path = Path("runs/offline")
    resume: bool = False
    report_to: Annotated[tuple[str, ...], _list_of(str, "NAME,NAME,...")] = (
        "jsonl",
        "tensorboard",
    )
    checkpoint_every: int = 5_000
    processes: int = 2


class StageProgress:
    """A live line with a bar on a terminal, and one plain line per stage elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._doing, self._task = "", self._bar.add_task("starting", total=1)

    def __call__(self, doing: str, done: int, total: int) -> None:
        """Show how far a stage is; a new one begins a new line."""
        if doing != self._doing:
            self._doing = doing
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task(doing, total=total)
            if not self._console.is_terminal:
                self._console.print(f"{doing} ...", highlight=False)
        self._bar.update(self._task, completed=done, total=total)

    @contextmanager
    def running(self) -> Iterator["StageProgress"]:
        """Keep the line alive for the block."""
        if not self._console.is_terminal:
            yield self
            return
        with self._bar:
            yield self


def run_offline(config: OfflineRunConfig) -> None:
    """Learn, judge, write the report, and print what the policies earn and what that shows."""
    from preferl.offline import run_offline as run
    from preferl.trust import typed

    typed(config.run.env)
    console = Console()
    with StageProgress(console).running() as progress:
        result = run(
            config.run,
            config.out,
            seeds=config.seeds,
            report_to=config.report_to,
            resume=config.resume,
            checkpoint_every=config.checkpoint_every,
            processes=config.processes,
            on_progress=progress,
        )
    require_done(console, result, config.out)
    _summarise(console, result, config.out)


def require_done(console: Console, result: dict[str, Any], out: Path) -> None:
    """Leave with the status of an interruption, and words on how to go on, if it was one."""
    if result["interrupted"]:
        console.print(
            f"Stopped while {result['stage']}. What there is lies in {out}; "
            "the same command with --resume goes on.",
            highlight=False,
            soft_wrap=True,
        )
        raise SystemExit(INTERRUPTED)


def _summarise(console: Console, result: dict[str, Any], out: Path) -> None:
    if result["arms"]:
        console.print(_table(result))
    if result["verdict"]:
        style = "" if result["verdict"]["passed"] else "bold"
        console.print(result["verdict"]["text"], style=style, highlight=False, soft_wrap=True)
    console.print(
        f"Policies: {out / 'policies'} · report: {out / 'report.html'} "
        f"({result['seconds']:.0f} s).",
        highlight=False,
        soft_wrap=True,
    )


def _table(result: dict[str, Any]) -> Table:
    seeds, episodes = len(result["seeds"]), result["episodes"]
    table = Table(title=f"{result['env']}, {episodes} episodes for each of {seeds} seeds")
    table.add_column("paid by")
    shown = {"normalised_score": "score", "return": "return", "success_rate": "success"}
    first = next(iter(result["arms"].values()))
    shown = {name: head for name, head in shown.items() if first[name] is not None}
    for head in shown.values():
        table.add_column(head, justify="right")
    for k, (arm, values) in enumerate(result["arms"].items()):
        cells = [_cell(values[name], percent=name == "success_rate") for name in shown]
        table.add_row(arm, *cells, style="" if k else "bold")
    return table


def _cell(value: dict[str, Any], *, percent: bool) -> str:
    if percent:
        return f"{value['mean']:.0%}"
    spread = "" if value["std"] is None else f" ± {value['std']:,.1f}"
    return f"{value['mean']:,.1f}{spread}"
