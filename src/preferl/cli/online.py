"""`preferl online`: learn from comparisons while acting."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, final

from preferl import online
from preferl.cli.console import ProgressLine, echo, interrupt, note, print_table
from preferl.cli.options import ReportTo, Trust, import_trusted, true_reward_of
from preferl.cli.parsing import FLAT, options_of, require_name
from preferl.configs import Config, from_json
from preferl.envs.config import EnvConfig
from preferl.errors import ConfigError
from preferl.feedback import Feedback, PromptTeacher
from preferl.feedback.instant import teacher_in_words
from preferl.online import OnlineConfig
from preferl.online.configs import EvaluationConfig
from preferl.presets import load_preset, measured_shares, preset_names
from preferl.reading import MOST_SETTINGS, parse_yaml, read_bytes, reading
from preferl.reporting import PLACES_BY_DEFAULT
from preferl.runs import require_openable
from preferl.statistics import share_in_words
from preferl.trust import admitted, typed

if TYPE_CHECKING:
    from preferl.evaluation.curve import Evaluation
    from preferl.online.reports import IterationReport

PEOPLE: Final = {
    "comparisons": 40,
    "initial_fraction": 0.5,
    "iterations": 5,
    "steps": 8_000,
    "initial_steps": 1_000,
    "segment_length": 25,
}
"""Settings of a run that asks people, unless the user chooses others.

They mean three minutes of answers, a first query within seconds, and iterations that take about as
long as the answers between them.
"""

PEOPLE_EVALUATION: Final = EvaluationConfig(oracle=False)
"""Further settings of such a run.

Its environment may have no reward, and nobody waits for a second agent.
"""


@dataclass(frozen=True)
class OnlineRunConfig:
    """Learn from comparisons while acting, answered by a script or by you.

    For example
      preferl online run --preset pendulum
      preferl online run --env my_module:MyEnv --people --question "Which robot gets closer?"

    Attributes:
        run: the environment, its agent, the queries and the reward.
        evaluation: how the result is evaluated.
        preset: settings to start from; other options change them.
        config: a YAML or JSON file of settings to start from, such as a run's config.json.
        out: folder of the run; an older run there is moved away, unless it is resumed.
        resume: continue the interrupted run in `out`, with its settings unless --preset or --config
            is given.
        report_to: where metrics go: jsonl, tensorboard, wandb.
        ask: ask you at the terminal.
        people: ask you in your browser about clips that the environment draws: 40 pairs from 8,000
            steps, unless you set other numbers. The answers stay in a folder beside the run.
        question: the question for people; by default which clip is better.
        browser: open the page for people; if off, only print its link.
        draw: module:function that draws clips for people, if the environment draws no pictures.
        true_reward: the environment's reward, with which the report compares the learned one (EPIC
            distance), as module:function of observations, actions and perhaps the next
            observations, with a row for each step.
        keep_experience: also write the latest `buffer_steps` steps, as episodes that other commands
            read.
        trust: module of yours that registers a reward model, algorithm, sampler or teacher, or that
            the file of `config` may import, such as the module of an environment; may be given
            several times.
    """

    run: Annotated[OnlineConfig, FLAT] = field(default_factory=OnlineConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    preset: str | None = None
    config: Path | None = None
    out: Path = Path("runs/online")
    resume: bool = False
    report_to: ReportTo = PLACES_BY_DEFAULT
    ask: bool = False
    people: bool = False
    question: str | None = None
    browser: bool = True
    draw: str | None = None
    true_reward: str | None = None
    keep_experience: bool = False
    trust: Trust = ()


def starting_point(arguments: Sequence[str]) -> OnlineRunConfig:
    """Return the config of `--preset`, `--config` or the resumed run; other options change it."""
    preset, file = (
        next(reversed(options_of(arguments, name)), None) for name in ("--preset", "--config")
    )
    if preset and file:
        raise ConfigError("settings: expected --preset or --config, got both. Drop one.")
    if preset is not None:
        require_name(preset, preset_names(), "preset")
    if "--resume" in arguments and not (preset or file):
        folder = next(reversed(options_of(arguments, "--out")), str(OnlineRunConfig.out))
        config_file = Path(folder, "config.json")
        file = str(config_file) if config_file.is_file() else None
    settings: dict[str, Any] = {}
    if preset:
        settings = load_preset(preset)
    elif file:
        settings = read_settings(Path(file))
    if file:
        untyped = (n for n in ("env", "wrappers") if not options_of(arguments, f"--{n}"))
        untyped_settings = {name: settings[name] for name in untyped if name in settings}
        for name in _of_file(file, EnvConfig, untyped_settings).modules:
            admitted(name, source=file, trust=options_of(arguments, "--trust"))
    import_trusted(arguments)
    if "--ask" in arguments or options_of(arguments, "--teacher"):  # as settings, not as a function
        settings = {k: v for k, v in settings.items() if k != "teacher" or isinstance(v, Mapping)}
    if "--people" in arguments and preset is None:
        settings = {**PEOPLE, **settings}
    elif "--people" in arguments:  # the numbers of a preset are for scripts
        settings |= {name: PEOPLE[name] for name in ("comparisons", "iterations")}
    run = _of_file(file, OnlineConfig, settings) if file else from_json(OnlineConfig, settings)
    evaluation = PEOPLE_EVALUATION if "--people" in arguments else EvaluationConfig()
    return OnlineRunConfig(run=run, evaluation=evaluation, preset=preset)


def _of_file(file: str, cls: type[Config], settings: Mapping[str, Any]) -> Config:
    """Return the dataclass that a file's settings describe; messages name the file."""
    try:
        return from_json(cls, settings)
    except ConfigError as error:
        raise type(error)(f"{file}: {error}") from error


def online_run(config: OnlineRunConfig) -> None:
    """Make an online run: learn, evaluate, write the report, and print where it is."""
    for_people = {"--question": config.question, "--draw": config.draw}
    for option, value in for_people.items():
        if value is not None and not config.people:
            raise ConfigError(
                f"{option}: expected it only with --people, got no --people. Add --people."
            )
    true_reward = None if config.true_reward is None else true_reward_of(config.true_reward)
    learn(config, true_reward=true_reward)


def learn(
    config: OnlineRunConfig,
    *,
    title: str | None = None,
    instructions: str | None = None,
    show: Callable[[Any, int], None] | None = None,
    true_reward: Any = None,
) -> None:
    """Make the run of a config. Its teacher, the terminal or a page in a browser answers.

    Args:
        config: config of the command.
        title: title of the page for people; by default the environment.
        instructions: text on that page that says what counts as better.
        show: shows each pair at the terminal; None draws sparklines.
        true_reward: function with which the report compares the learned reward.
    """
    modules = typed(*config.run.modules, config.draw, trust=config.trust)
    if config.people and config.ask:
        raise ConfigError("Choose one of --ask, at the terminal, and --people, in a browser.")
    people: AbstractContextManager[Any] = nullcontext((config.run, None, None))
    if config.people:
        note("Starting the page ...")  # the next steps take seconds
        from preferl.cli.people import people_in_a_browser

        people = people_in_a_browser(
            config.run,
            config.out,
            title=title,
            question=config.question,
            instructions=instructions,
            browser=config.browser,
            resume=config.resume,
            draw=config.draw,
            trust=modules,
        )
    with people as (run, feedback, on_iteration):
        run_with_progress(
            replace(config, run=run),
            feedback=feedback,
            on_iteration=on_iteration,
            show=show,
            true_reward=true_reward,
        )


def run_with_progress(
    config: OnlineRunConfig,
    *,
    feedback: Feedback | None = None,
    on_iteration: "Callable[[IterationReport], None] | None" = None,
    show: Callable[[Any, int], None] | None = None,
    true_reward: Any = None,
) -> None:
    """Make an online run with a live line, and print a table at its end; see `learn`."""
    from preferl.cli.people import answers_there, awaited_answers
    from preferl.store import StoredFeedback

    run = config.run
    _require_runnable(config)
    _announce(config, who="" if feedback is None else "people in a browser")
    line = ProgressLine("learning", live=not config.ask)
    progress = LearningProgress(line, run.steps)

    def show_iteration(report: "IterationReport") -> None:
        if on_iteration is not None:
            on_iteration(report)
        progress.show_iteration(report)

    if isinstance(feedback, StoredFeedback):
        stored = feedback
        stored.on_wait = lambda _: line.wait(awaited_answers(stored, run.comparisons))
        stored.on_wait_end = lambda _: line.end_wait(answers_there(stored, run.comparisons))

    with line.running():
        line("learning", 0, run.steps, "first steps")
        result = online.run_online(
            run,
            config.out,
            evaluation=config.evaluation,
            teacher=PromptTeacher(show=show) if config.ask else None,
            feedback=feedback,
            true_reward=true_reward,
            on_iteration=show_iteration,
            on_evaluation=progress.show_evaluation,
            report_to=config.report_to,
            on_stage=lambda doing: line(doing, 0, 0),
            resume=config.resume,
            keep_experience=config.keep_experience,
        )
    _summarise(result, config.out)


def _announce(config: OnlineRunConfig, *, who: str) -> None:
    """Print what the agent will learn, and from whom: by default the teacher, or you."""
    run = config.run
    who = who or ("you" if config.ask else teacher_in_words(run.teacher))
    warm = " and those of the warm start" if run.warm_start.given else ""
    note(
        f"Teaching {run.env_name} from {run.comparisons} comparisons answered by {who}{warm}: "
        f"{run.steps:,} steps, seed {run.seed}."
    )
    shares = measured_shares(run.env_name) if run.comparisons else []
    if shares:
        note(
            "What stored agents reached of the way from random actions to the true reward (95 % "
            "interval), taught by a script that never errs:"
        )
    for share in shares:
        note(f"  {share.in_words}")


def _require_runnable(config: OnlineRunConfig) -> None:
    """Raise an error that would stop a run at once, before anything is announced."""
    from preferl.envs.checks import require_usable
    from preferl.envs.factory import env_factory
    from preferl.training.configs import usable_device

    require_openable(config.out, resume=config.resume)
    usable_device(config.run.device)
    require_usable(env_factory(config.run), f"environment {config.run.env_name}")


@final
class LearningProgress:
    """Shows people how an online run goes: news on a live line, and a line for each iteration."""

    def __init__(self, line: ProgressLine, steps: int) -> None:
        self._line = line
        self._steps = steps
        self._began = time.perf_counter()
        self._news = "first steps"
        self._accuracy = ""  # accuracy of the latest fit
        self._has_true_reward = False

    def show_evaluation(self, evaluation: "Evaluation") -> None:
        """Show the return of the agent, or else the news of the latest iteration."""
        news = evaluation.in_words if self._has_true_reward else self._news
        self._line("learning", evaluation.step, self._steps, news)

    def show_iteration(self, report: "IterationReport") -> None:
        """Show what the agent and the reward have learned by now."""
        if report.fit is not None:
            self._accuracy = f"reward accuracy {report.accuracy_in_words}"
        answers = f"{report.comparisons} answers"
        behaviour = _behaviour_in_words(report)
        if report.has_true_reward:
            accuracy = "" if report.fit is None else self._accuracy
            words = (answers, behaviour, accuracy)
            self._news = behaviour
        else:
            words = (answers, self._accuracy, behaviour)
            self._news = " · ".join(filter(None, words))
        self._has_true_reward = report.has_true_reward
        self._line("learning", report.env_steps, self._steps, self._news)
        seconds = time.perf_counter() - self._began
        progress = f"{report.env_steps:>9,} of {self._steps:,} steps · {seconds:4.0f} s"
        self._line.note(" · ".join(filter(None, (progress, *words))))


def _behaviour_in_words(report: "IterationReport") -> str:
    """The latest evaluation of the agent in words, or its return while exploring.

    Return "" if there is no true reward and nothing counts as a success.
    """
    evaluation = report.evaluation
    if not report.has_true_reward:
        rate = None if evaluation is None else evaluation.report.success_rate
        return "" if rate is None else f"success {_share(rate)}"
    if evaluation is not None:
        return evaluation.in_words
    if report.episodes:
        return f"return while exploring {report.mean_return:,.1f}"
    return "no whole episode yet"


def _summarise(result: dict[str, Any], out: Path) -> None:
    if result["interrupted"]:
        interrupt(
            f"Stopped after {result['env_steps']:,} steps and {result['comparisons']} answers. "
            f"The results so far are in {out}. The same command with --resume continues from there."
        )
    has_true_reward = result["has_true_reward"]
    _print_policies(result)
    taught = result["evaluations"]["taught"]
    if taught and has_true_reward:
        echo(
            f"While it learned, the same {taught[-1]['episodes']} episodes showed its progress; "
            f"these {result['policies']['taught']['episodes']} are others."
        )
    reward = result["reward"] or {}
    if not has_true_reward:
        echo(_about_answers(result))
    elif reward.get("accuracy") is None:
        echo("The reward was not evaluated: the held-out clips do not differ in true return.")
    else:
        words = (reward["interval"], reward["decided"], "held-out answers about new experience")
        echo(f"The reward model predicts {share_in_words(reward['accuracy'], *words)}.")
    if reward.get("epic") is not None:
        distance = f"{reward['epic']:.3f}, from 0 (the same, up to shaping) to 1 (its opposite)"
        echo(f"EPIC distance of the learned reward from the true one: {distance}.")
    echo(f"Report: {out / 'report.html'}")


def _print_policies(result: dict[str, Any]) -> None:
    """Print the returns and successes of the policies, as far as they are known, side by side."""
    taught = f"taught by {result['comparisons']} comparisons"
    names = {"random": "random policy", "taught": taught, "oracle": "trained on the true reward"}
    policies = result["policies"]
    has_true_reward = result["has_true_reward"]
    cells: dict[str, Callable[[Any], str]] = {}
    if has_true_reward:
        cells = {
            "mean": lambda policy: f"{policy['mean']:,.0f}",
            "95 % interval": lambda policy: "{:,.0f} to {:,.0f}".format(*policy["interval"]),
            "worst": lambda policy: f"{min(policy['returns']):,.0f}",
        }
    if any(policy["success_rate"] is not None for policy in policies.values()):
        cells["success"] = lambda policy: _share(policy["success_rate"])
    if cells:
        measured = "True return" if has_true_reward else "Success"
        print_table(
            f"{measured} of {result['env']}, {policies['taught']['episodes']} episodes each",
            [
                (names[n], *(cell(evaluation) for cell in cells.values()))
                for n, evaluation in policies.items()
            ],
            ("agent", *cells),
            bold=list(policies).index("taught"),
        )


def _about_answers(result: dict[str, Any]) -> str:
    """Return the results of a run without an environment reward, in words."""
    accuracy = result["accuracy_in_words"]
    words = f"{result['comparisons']} answers"
    if " of " in accuracy:
        words = f"From {words}, the reward model predicts {accuracy}."
    else:
        words = f"From {words}, the accuracy of the reward model is {accuracy or 'unknown'}."
    return f"{words} The environment gave no reward: returns are left out."


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file of settings, such as a run's config.json.

    Raises:
        ConfigError: the file cannot be read, or has no settings by name.
    """
    with reading(path, expected="a YAML or JSON file of settings", error=ConfigError):
        settings = parse_yaml(read_bytes(path, MOST_SETTINGS).decode("utf-8"))  # JSON is YAML
    if settings is None:
        raise ConfigError(
            f"{path}: expected settings by name, got a file without any. "
            "Write one a line, such as `env: Pendulum-v1`."
        )
    if isinstance(settings, dict):
        settings = settings.get("config", settings)
    if not isinstance(settings, dict):
        actual = "nothing" if settings is None else type(settings).__name__
        raise ConfigError(
            f"{path}: expected settings by name, got {actual}. "
            "Write one a line, such as `env: Pendulum-v1`."
        )
    return settings
