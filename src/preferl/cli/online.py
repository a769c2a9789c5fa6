"""`preferl online`: learn from comparisons while acting."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from preferl.cli.options import Trust, import_trusted, options_of
from preferl.errors import ConfigError
from preferl.online import OnlineConfig
from preferl.online.configs import EvaluationConfig
from preferl.trust import admitted, typed

if TYPE_CHECKING:
    from preferl.feedback import Feedback
    from preferl.online.loop import IterationReport

MOST_SETTINGS = 2**16
"""Bytes of a file of settings, which takes some 40 of them for each."""

OLD_NAMES_OF = "OnlineConfig"
"""Config whose former names this command takes as options."""


@dataclass(frozen=True)
class OnlineRunConfig:
    """Learn from comparisons while acting, answered by a script or by you.

    Attributes:
        run: the environment, its agent, the queries and the reward.
        judge: how the outcome is evaluated.
        preset: settings to start from; the options given change them.
        config: a YAML or JSON file of settings to start from, such as a run's config.json.
        out: folder of the run; an older run there moves aside, unless it is resumed.
        resume: continue the interrupted run in `out`.
        ask: ask you at the terminal.
        trust: module of yours that registers a reward model or algorithm, or that the file of
            `config` may import, such as that of an environment; may be given several times.
    """

    run: Annotated[OnlineConfig, tyro.conf.arg(name="")] = field(default_factory=OnlineConfig)
    judge: EvaluationConfig = field(default_factory=EvaluationConfig)
    preset: str | None = None
    config: Path | None = None
    out: Path = Path("runs/online")
    resume: bool = False
    ask: bool = False
    trust: Trust = ()


def starting_point(arguments: Sequence[str]) -> OnlineRunConfig:
    """The config that `--preset` or `--config` names, for the other options to change."""
    from preferl.configs import from_json
    from preferl.presets import load_preset

    preset, file = (
        next(iter(options_of(arguments, name)), None) for name in ("--preset", "--config")
    )
    if preset and file:
        expected, fix = "--preset or --config", "Drop one."
        raise ConfigError.mismatch("settings", expected=expected, got="both", fix=fix)
    settings = load_preset(preset) if preset else _read(Path(file)) if file else {}
    if file and "env" in settings and not options_of(arguments, "--env"):
        admitted(settings["env"], source=file, trust=options_of(arguments, "--trust"))
    import_trusted(arguments)
    return OnlineRunConfig(run=from_json(OnlineConfig, settings), preset=preset)


def run_online(config: OnlineRunConfig) -> None:
    """Learn, evaluate, write the report, and print where it is."""
    typed(config.run.env, trust=config.trust)
    run_with_progress(config.run, config.judge, config.out, ask=config.ask, resume=config.resume)


def run_with_progress(
    run: OnlineConfig,
    judge: EvaluationConfig,
    out: Path,
    *,
    ask: bool = False,
    show: Callable[[Any, int], None] | None = None,
    feedback: "Feedback | None" = None,
    true_reward: Any = None,
    resume: bool | None = None,
) -> None:
    """Run, with a live line, a table at the end and the path of the report.

    With `ask` the person at the terminal answers, and `show` presents each pair, by default as
    sparklines. `resume` is None where a command cannot continue the run in the folder.
    The other arguments are those of `preferl.online.run_online`.
    """
    from preferl.cli.console import ProgressLine, echo
    from preferl.feedback import PromptTeacher
    from preferl.online import run_online, use_threads

    use_threads(1)
    who = "people in a browser" if feedback else "you" if ask else "a scripted teacher"
    echo(
        f"Teaching {run.env} from {run.comparisons} comparisons answered by {who}: "
        f"{run.steps:,} steps, seed {run.seed}."
    )
    line = ProgressLine("learning", live=not (ask or feedback))
    began = time.perf_counter()

    def show_iteration(report: "IterationReport") -> None:
        news = f"{report.comparisons} answers · return {report.mean_return:,.0f}"
        if report.fit is not None:
            news += f" · held-out accuracy {report.fit.validation_accuracy[-1]:.0%}"
        line("learning", report.env_steps, run.steps, news)
        if not line.live:
            seconds = time.perf_counter() - began
            echo(f"{report.env_steps:>9,} of {run.steps:,} steps · {seconds:4.0f} s · {news}")

    with line.running():
        line("learning", 0, run.steps, "first steps")
        result = run_online(
            run,
            out,
            judge=judge,
            teacher=PromptTeacher(show=show) if ask else None,
            feedback=feedback,
            true_reward=true_reward,
            on_iteration=show_iteration,
            on_stage=lambda doing: line(doing, 1, 1),
            resume=bool(resume),
        )
    _summarise(result, out, resumable=resume is not None)


def _summarise(result: dict[str, Any], out: Path, *, resumable: bool) -> None:
    from preferl.cli.console import echo, interrupt, print_table

    if result["interrupted"]:
        hint = " The same command with --resume continues from there." if resumable else ""
        interrupt(
            f"Stopped after {result['env_steps']:,} steps and {result['comparisons']} answers. "
            f"The results so far are in {out}.{hint}"
        )
    names = {
        "random": "random policy",
        "taught": f"taught by {result['comparisons']} comparisons",
        "oracle": "trained on the true reward",
    }
    policies = result["policies"]
    rows = [
        (
            names[name],
            f"{policy['mean']:,.0f}",
            f"{policy['interval'][0]:,.0f} to {policy['interval'][1]:,.0f}",
            f"{min(policy['returns']):,.0f}",
        )
        for name, policy in policies.items()
    ]
    print_table(
        f"True return of {result['env']}, {policies['taught']['episodes']} episodes each",
        rows,
        ("agent", "mean", "95 % interval", "worst"),
        bold=list(policies).index("taught"),
    )
    accuracy = (result["reward"] or {}).get("accuracy")
    if accuracy is None:
        echo("The reward was not evaluated: the held-out clips do not differ in true return.")
    else:
        echo(f"The reward model answers {accuracy:.0%} of unseen queries correctly.")
    echo(f"Learned in {result['seconds']:.0f} s. Report: {out / 'report.html'}")


def _entries(value: Any, known: dict[int, int]) -> int:
    """Values in nested settings when each alias is written out; what is shared is counted once."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_SETTINGS  # one that holds itself has no end
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_entries(part, known) for part in parts)
    return known[id(value)]


def _read(path: Path) -> dict[str, Any]:
    import yaml

    from preferl.reading import read_bytes, reading

    with reading(path, expected="a YAML or JSON file of settings", error=ConfigError):
        try:
            data = yaml.safe_load(read_bytes(path, MOST_SETTINGS).decode("utf-8"))  # JSON is YAML
        except yaml.YAMLError as error:
            raise ValueError(error) from error
        if _entries(data, {}) > MOST_SETTINGS:
            raise ValueError("aliases that stand for more than all other settings")
    if not isinstance(data, dict):
        raise ConfigError.mismatch(f"{path}", expected="settings by name", got=type(data).__name__)
    settings: dict[str, Any] = data.get("config", data)
    return settings
