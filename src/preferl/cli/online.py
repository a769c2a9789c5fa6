"""`preferl online`: learn from comparisons while acting."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from preferl.errors import ConfigError, mismatch
from preferl.online import JudgeConfig, OnlineConfig


@dataclass(frozen=True)
class OnlineRunConfig:
    """Learn from comparisons while acting, answered by a script or by you.

    Attributes:
        run: what is learned, where and how.
        judge: how the outcome is judged.
        preset: settings to start from; the options given change them.
        config: a YAML or JSON file of settings to start from, such as a run's config.json.
        out: folder of the run; an older run there moves aside, unless it is resumed.
        resume: go on with the run in `out` that was interrupted.
        ask: put the questions to you at the terminal.
    """

    run: Annotated[OnlineConfig, tyro.conf.arg(name="")] = field(default_factory=OnlineConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    preset: str | None = None
    config: Path | None = None
    out: Path = Path("runs/online")
    resume: bool = False
    ask: bool = False


def starting_point(arguments: Sequence[str]) -> OnlineRunConfig:
    """The config that `--preset` or `--config` names, for the other options to change.

    Raises:
        ConfigError: both, an unknown preset, or a file that cannot be read as settings.
    """
    from preferl.configs import from_json
    from preferl.presets import load_preset

    preset, file = _option(arguments, "--preset"), _option(arguments, "--config")
    if preset and file:
        raise ConfigError(
            mismatch("settings", expected="--preset or --config", got="both", fix="Drop one.")
        )
    settings = load_preset(preset) if preset else _read(Path(file)) if file else {}
    return OnlineRunConfig(run=from_json(OnlineConfig, settings), preset=preset)


def run_online(config: OnlineRunConfig) -> None:
    """Learn, judge, write the report, and print where it is."""
    from preferl.cli.runs import run_with_progress

    run_with_progress(config.run, config.judge, config.out, ask=config.ask, resume=config.resume)


def _option(arguments: Sequence[str], name: str) -> str | None:
    for index, word in enumerate(arguments):
        if word == name and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            mismatch(f"{path}", expected="a YAML or JSON file of settings", got=error)
        ) from error
    if not isinstance(data, dict):
        raise ConfigError(mismatch(f"{path}", expected="settings by name", got=type(data).__name__))
    settings: dict[str, Any] = data.get("config", data)
    return settings
