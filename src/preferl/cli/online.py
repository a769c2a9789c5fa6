"""`preferl online`: learn from comparisons while acting."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from preferl.cli.optional import Trust, options_of
from preferl.errors import ConfigError
from preferl.online import EvaluationConfig, OnlineConfig
from preferl.trust import admitted, typed

MOST_SETTINGS = 2**16
"""Bytes of a file of settings, which takes some 40 of them for each."""

OLD_NAMES_OF = "OnlineConfig"
"""Config whose former names this command takes as options."""


@dataclass(frozen=True)
class OnlineRunConfig:
    """Learn from comparisons while acting, answered by a script or by you.

    Attributes:
        run: what is learned, where and how.
        judge: how the outcome is evaluated.
        preset: settings to start from; the options given change them.
        config: a YAML or JSON file of settings to start from, such as a run's config.json.
        out: folder of the run; an older run there moves aside, unless it is resumed.
        resume: go on with the run in `out` that was interrupted.
        ask: put the questions to you at the terminal.
        trust: module that the file of `config` may import, such as that of an environment of
            yours; may be given several times.
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
    """The config that `--preset` or `--config` names, for the other options to change.

    Raises:
        ConfigError: both, an unknown preset, a file that cannot be read as settings, or one whose
            environment is of a module that nobody trusts.
    """
    from preferl.configs import from_json
    from preferl.presets import load_preset

    preset, file = _option(arguments, "--preset"), _option(arguments, "--config")
    if preset and file:
        raise ConfigError.mismatch(
            "settings", expected="--preset or --config", got="both", fix="Drop one."
        )
    settings = load_preset(preset) if preset else _read(Path(file)) if file else {}
    if file and "env" in settings and _option(arguments, "--env") is None:
        admitted(settings["env"], source=file, trust=options_of(arguments, "--trust"))
    return OnlineRunConfig(run=from_json(OnlineConfig, settings), preset=preset)


def run_online(config: OnlineRunConfig) -> None:
    """Learn, judge, write the report, and print where it is."""
    from preferl.cli.runs import run_with_progress

    typed(config.run.env, trust=config.trust)
    run_with_progress(config.run, config.judge, config.out, ask=config.ask, resume=config.resume)


def _option(arguments: Sequence[str], name: str) -> str | None:
    return next(iter(options_of(arguments, name)), None)


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

    from preferl.reading import reading

    with reading(path, expected="a YAML or JSON file of settings", error=ConfigError):
        with path.open("rb") as file:
            content = file.read(MOST_SETTINGS + 1)
        if len(content) > MOST_SETTINGS:
            raise ValueError(f"more than {MOST_SETTINGS:,} bytes")
        try:
            data = yaml.safe_load(content.decode("utf-8"))  # JSON is YAML
        except yaml.YAMLError as error:
            raise ValueError(error) from error
        if _entries(data, {}) > MOST_SETTINGS:
            raise ValueError("aliases that stand for more than all other settings")
    if not isinstance(data, dict):
        raise ConfigError.mismatch(f"{path}", expected="settings by name", got=type(data).__name__)
    settings: dict[str, Any] = data.get("config", data)
    return settings
