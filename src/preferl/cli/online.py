"""`preferl online`: learn from comparisons while acting."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from preferl import online
from preferl.cli.console import ProgressLine, echo, interrupt, print_table
from preferl.cli.options import Trust, import_trusted, options_of
from preferl.configs import from_json
from preferl.errors import ConfigError
from preferl.feedback import Feedback, PromptTeacher
from preferl.online import OnlineConfig
from preferl.online.configs import EvaluationConfig
from preferl.presets import load_preset
from preferl.reading import read_bytes, reading
from preferl.trust import admitted, typed

if TYPE_CHECKING:
    from preferl.online.loop import IterationReport

MOST_SETTINGS = 2**16  # bytes of a file of settings, which takes some 40 of them for each
OLD_NAMES_OF = "OnlineConfig"


@dataclass(frozen=True)
class OnlineRunConfig:
    """Learn from comparisons while acting, answered by a script or by you."""

    # the environment, its agent, the queries and the reward.
    run: Annotated[OnlineConfig, tyro.conf.arg(name="")] = field(default_factory=OnlineConfig)
    # how the outcome is evaluated.
    judge: EvaluationConfig = field(default_factory=EvaluationConfig)
    preset: str | None = None  # settings to start from; the options given change them.
    # a YAML or JSON file of settings to start from, such as a run's config.json.
    config: Path | None = None
    # folder of the run; an older run there moves aside, unless it is resumed.
    out: Path = Path("runs/online")
    resume: bool = False  # continue the interrupted run in `out`.
    ask: bool = False  # ask you at the terminal.
    # name of the teacher to start from, such as mistake, or its settings as a file has them:
    # "{kind: skip, typical: 20}"; the options of the teacher change it.
    teacher: str | None = None
    # module of yours that registers a reward model, algorithm, sampler or teacher, or that the file
    # of `config` may import, such as that of an environment; may be given several times.
    trust: Trust = ()


def starting_point(arguments: Sequence[str]) -> OnlineRunConfig:
    """The config that `--preset` or `--config` names, for the other options to change."""
    import yaml

    preset, file, teacher = (
        next(iter(options_of(arguments, name)), None)
        for name in ("--preset", "--config", "--teacher")
    )
    if preset and file:
        expected, fix = "--preset or --config", "Drop one."
        raise ConfigError.mismatch("settings", expected=expected, got="both", fix=fix)
    settings = load_preset(preset) if preset else read_settings(Path(file)) if file else {}
    if file and "env" in settings and not options_of(arguments, "--env"):
        admitted(settings["env"], source=file, trust=options_of(arguments, "--trust"))
    if teacher:
        try:
            settings = settings | {"teacher": yaml.safe_load(teacher)}
        except yaml.YAMLError as error:
            expected = "a name, or settings as a file has them"
            raise ConfigError.mismatch("teacher", expected=expected, got=error) from error
    import_trusted(arguments)
    return OnlineRunConfig(run=from_json(OnlineConfig, settings), preset=preset)


def online_run(config: OnlineRunConfig) -> None:
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
    feedback: Feedback | None = None,
    true_reward: Any = None,
    resume: bool | None = None,
) -> None:
    """Run, with a live line, a table at the end and the path of the report.

    With `ask` the person at the terminal answers, and `show` presents each pair, by default as
    sparklines. `resume` is None where a command cannot continue the run in the folder.
    The other arguments are those of `preferl.online.run_online`.
    """
    online.use_threads(1)
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
        result = online.run_online(
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
    if result["interrupted"]:
        hint = " The same command with --resume continues from there." if resumable else ""
        interrupt(
            f"Stopped after {result['env_steps']:,} steps and {result['comparisons']} answers. "
            f"The results so far are in {out}.{hint}"
        )
    taught = f"taught by {result['comparisons']} comparisons"
    names = {"random": "random policy", "taught": taught, "oracle": "trained on the true reward"}
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


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file of settings, such as a run's config.json."""
    import yaml

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
