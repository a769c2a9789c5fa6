"""What the commands that make runs share: a progress line, and a run from config to report."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

INTERRUPTED = 130
"""Exit status of a command that Ctrl-C ended, as shells have it."""

if TYPE_CHECKING:
    from preferl.feedback import Feedback
    from preferl.online import EvaluationConfig, IterationReport, OnlineConfig


class IterationProgress:
    """A live line on a terminal, and one plain line per iteration elsewhere."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[news]}"),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("learning", total=steps, news="first steps")
        self._began = time.perf_counter()
        self._live = False

    def __call__(self, report: "IterationReport") -> None:
        """Show what an iteration did."""
        news = f"{report.comparisons} answers · return {report.mean_return:,.0f}"
        if report.fit is not None:
            news += f" · held-out accuracy {report.fit.validation_accuracy[-1]:.0%}"
        self._bar.update(self._task, completed=report.env_steps, news=news)
        if not self._live:
            seconds = time.perf_counter() - self._began
            self._console.print(
                f"{report.env_steps:>9,} of {self._steps:,} steps · {seconds:4.0f} s · {news}",
                highlight=False,
                soft_wrap=True,
            )

    def stage(self, doing: str) -> None:
        """Show what comes after learning."""
        self._bar.update(self._task, completed=self._steps, description=doing, news="")
        if not self._live:
            self._console.print(f"{doing} ...", highlight=False)

    @contextmanager
    def running(self, *, live: bool = True) -> Iterator["IterationProgress"]:
        """Keep the line alive for the block; plain lines where a person types in between."""
        self._live = live and self._console.is_terminal
        if not self._live:
            yield self
            return
        with self._bar:
            yield self


def run_with_progress(
    run: "OnlineConfig",
    judge: "EvaluationConfig",
    out: Path,
    *,
    ask: bool = False,
    show: Callable[[Any, int], None] | None = None,
    feedback: "Feedback | None" = None,
    true_reward: Any = None,
    resume: bool | None = None,
) -> None:
    """Run, with a live line, a table at the end and the path of the report.

    Args:
        run: what is learned.
        judge: how it is evaluated.
        out: folder of the run.
        ask: whether the person at the terminal answers.
        show: presents a pair to that person; numbers as sparklines if None.
        feedback: takes the questions to people in a browser.
        true_reward: for the report's EPIC distance.
        resume: go on with the run that is in the folder; None where a command cannot.
    """
    from preferl.feedback import PromptTeacher
    from preferl.online import run_online, use_threads

    use_threads(1)
    console = Console()
    teacher = PromptTeacher(show=show) if ask else None
    who = "people in a browser" if feedback else "you" if ask else "a scripted teacher"
    console.print(
        f"Teaching {run.env} from {run.comparisons} comparisons answered by {who}: "
        f"{run.steps:,} steps, seed {run.seed}.",
        highlight=False,
        soft_wrap=True,
    )
    progress = IterationProgress(console, run.steps)
    with progress.running(live=not (ask or feedback)):
        result = run_online(
            run,
            out,
            judge=judge,
            teacher=teacher,
            feedback=feedback,
            true_reward=true_reward,
            on_iteration=progress,
            on_stage=progress.stage,
            resume=bool(resume),
        )
    _summarise(console, result, out, resumable=resume is not None)


def _summarise(console: Console, result: dict[str, Any], out: Path, *, resumable: bool) -> None:
    if result["interrupted"]:
        hint = " The same command with --resume goes on from there." if resumable else ""
        console.print(
            f"Stopped after {result['env_steps']:,} steps and {result['comparisons']} answers. "
            f"What there is lies in {out}.{hint}",
            highlight=False,
            soft_wrap=True,
        )
        raise SystemExit(INTERRUPTED)
    table = Table(title=f"True return of {result['env']}, {_episodes(result)} episodes each")
    for head in ("agent", "mean", "95 % interval", "worst"):
        table.add_column(head, justify="left" if head == "agent" else "right")
    names = {
        "random": "random policy",
        "taught": f"taught by {result['comparisons']} comparisons",
        "oracle": "paid the true reward",
    }
    for name, policy in result["policies"].items():
        low, high = policy["interval"]
        cells = (f"{policy['mean']:,.0f}", f"{low:,.0f} to {high:,.0f}")
        worst = f"{min(policy['returns']):,.0f}"
        table.add_row(names[name], *cells, worst, style="bold" if name == "taught" else "")
    console.print(table)
    accuracy = (result["reward"] or {}).get("accuracy")
    if accuracy is None:
        console.print("The held-out clips do not differ in true return: the reward is unjudged.")
    else:
        console.print(f"The reward model answers {accuracy:.0%} of unseen questions rightly.")
    console.print(
        f"Learned in {result['seconds']:.0f} s. Report: {out / 'report.html'}", soft_wrap=True
    )


def _episodes(result: dict[str, Any]) -> int:
    return int(result["policies"]["taught"]["episodes"])
