"""Sweeps: one command with many settings, listed in a file.

    command: online run
    options: {preset: pendulum, steps: 6000}
    grid: {seed: [0, 1], teacher.temperature: [0, 1]}
    runs: [{comparisons: 50}, {comparisons: 200, sampler: disagreement}]

Each entry of `runs` is combined with each combination of `grid`: eight runs here.
"""

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Any, Final, final

from preferl.configs import without_password
from preferl.errors import ConfigError, nearest
from preferl.files import writing
from preferl.reading import reading
from preferl.runs.records import RunRecord

COMMANDS: Final = ("online run", "offline run", "reward fit", "data record")
"""Commands that make a run in a folder and can resume it."""

KEYS: Final = ("command", "options", "grid", "runs")
OF_THE_SWEEP: Final = ("out", "resume", "trust", "ask", "help")
"""Options that a file cannot set: the sweep chooses each run's folder and resumes it, nobody is at
a terminal, and trust comes from the command line alone."""

OPTION: Final = re.compile(r"[A-Za-z][\w.-]*")

LONGEST: Final = 100  # letters of a run's name; a folder's name may have 255
MOST_RUNS: Final = 10_000
MOST_LETTERS: Final = 2**22  # letters of all options of all runs; a usual file has about 10,000

RESULTS: Final = (
    "state", "steps", "answers", "score", "low", "high", "accuracy", "seconds",
)  # fmt: skip
"""Columns of `results.csv` after the run and what it varies; `low` to `high` is the score's 95 %
interval."""


@final
@dataclass(frozen=True)
class Sweep:
    """A command and its settings, one set for each run.

    Attributes:
        command: the command, such as `online run`.
        options: options of all runs, by name.
        runs: options that each run adds or changes.
    """

    command: str
    options: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]

    @classmethod
    def from_json(cls, settings: Mapping[str, Any], source: str) -> "Sweep":
        """Make a sweep from the content of its file; messages name the `source`.

        Raises:
            ConfigError: a key or command is unknown, a value has the wrong kind, a file cannot set
                an option, or there are no runs or too many.

        >>> found = {"command": "online run", "grid": {"seed": [0, 1], "env": ["CartPole-v1"]}}
        >>> list(Sweep.from_json(found, "sweep.yaml").by_name())
        ['seed=0,env=CartPole-v1', 'seed=1,env=CartPole-v1']
        """
        with reading(source, expected="settings that JSON can hold", error=ConfigError):
            settings = json.loads(json.dumps(settings))
        for key in settings:
            if key not in KEYS:
                near = nearest(f"{key}", KEYS) or "Options of the command go below `options`."
                raise ConfigError(
                    f"keys of {source}: expected one of {', '.join(KEYS)}, got {key!r}. {near}"
                )
        command = settings.get("command")
        if command not in COMMANDS:
            raise ConfigError(
                f"command of {source}: expected one of {', '.join(COMMANDS)}, got {command}. "
                f"{nearest(f'{command}', COMMANDS)}".rstrip()
            )
        options = _mapping(settings, "options", source)
        grid = _mapping(settings, "grid", source)
        listed = _listed_runs(settings, source)
        for name, values in grid.items():
            if not values or not isinstance(values, list):
                raise ConfigError(
                    f"grid: {name} of {source}: expected a list of values to try, got {values!r}."
                )
        _require_options((*options, *grid, *chain.from_iterable(listed)), source)
        _require_few(options, grid, listed, source)
        combined = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
        return cls(command, options, tuple({**run, **more} for run in listed for more in combined))

    def by_name(self) -> dict[str, dict[str, Any]]:
        """Return all options of each run, by a folder name that says what the run varies.

        Raises:
            ConfigError: two runs have the same options.
        """
        named: dict[str, dict[str, Any]] = {}
        for run in self.runs:
            name = _name(run)
            name = f"{name}-{_digest(run)}" if name in named else name
            if name in named:
                raise ConfigError(f"runs: expected different ones, got {name} twice.")
            named[name] = {**self.options, **run}
        return named


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command line; raise `ConfigError` if a value is an option.

    >>> words_of({"seed": 1, "model.use_actions": False, "teacher": {"kind": "mistake"}})
    ['--seed', '1', '--model.no-use-actions', '--teacher', '{"kind": "mistake"}']
    >>> words_of({"report_to": ["jsonl", "tensorboard"]})
    ['--report-to', 'jsonl', 'tensorboard']
    """
    words: list[str] = []
    for name, value in options.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            *parents, last = option.split(".")
            words.append("--" + ".".join([*parents, last if value else f"no-{last}"]))
        else:
            values = [*map(_word, value if isinstance(value, list) else [value])]
            for word in values:  # a value such as --trust would be read as an option
                if word[:2] == "--":
                    raise ConfigError(f"{name}: expected values, got {word!r}, an option.")
            words += [f"--{option}", *values]
    return words


def write_results(path: Path, sweep: Sweep, records: Mapping[str, RunRecord | None]) -> None:
    """Write a CSV row for each run that was begun: what it varies, and its results."""
    varied = list(dict.fromkeys(name for run in sweep.runs for name in run))
    with writing(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["run", *varied, *RESULTS])
        for (name, options), run in zip(sweep.by_name().items(), sweep.runs, strict=True):
            record = records.get(name)
            if record is not None:
                values = (_word(options[one]) if one in run else "" for one in varied)
                table.writerow([name, *map(without_password, values), *_results(record)])


def over_seeds(sweep: Sweep, records: Mapping[str, RunRecord | None]) -> dict[str, list[float]]:
    """Return scores of runs that differ in the seed alone, by their other settings."""
    alike: dict[str, tuple[dict[str, Any], list[float]]] = {}
    for name, run in zip(sweep.by_name(), sweep.runs, strict=True):
        record = records.get(name)
        if record is not None and record.summary.score is not None:
            others = {option: value for option, value in run.items() if option != "seed"}
            alike.setdefault(_digest(others), (others, []))[1].append(record.summary.score.mean)
    groups: dict[str, list[float]] = {}
    for others, scores in alike.values():
        if len(scores) > 1:
            name = _name(others)
            groups[f"{name}-{_digest(others)}" if name in groups else name] = scores
    return groups


def _listed_runs(settings: Mapping[str, Any], source: str) -> list[dict[str, Any]]:
    listed = settings.get("runs", [{}])
    is_list = isinstance(listed, list) and all(isinstance(run, dict) for run in listed)
    if not listed or not is_list:
        raise ConfigError(f"runs of {source}: expected a list of options by name, got {listed!r}.")
    return list(listed)


def _require_options(names: Iterable[str], source: str) -> None:
    """Raise `ConfigError` for a name that no option has, or an option that a file cannot set."""
    for name in names:
        if not OPTION.fullmatch(name) or name.replace("_", "-") in OF_THE_SWEEP:
            fix = "Set it on the command line of the sweep." if name == "trust" else "Drop it."
            raise ConfigError(
                f"options of {source}: expected names of options but for "
                f"{', '.join(OF_THE_SWEEP)}, got {name!r}. {fix}"
            )


def _require_few(
    options: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    listed: Sequence[Mapping[str, Any]],
    source: str,
) -> None:
    """Raise `ConfigError` if a sweep's runs are too many or their options too long; make no run."""
    combinations = prod(len(values) for values in grid.values())
    runs = len(listed) * combinations
    if runs > MOST_RUNS:
        raise ConfigError(
            f"runs of {source}: expected at most {MOST_RUNS:,}, got {runs}. "
            "Vary less, or write several files."
        )
    shared = _letters(options) + sum(
        len(name) + max(map(_letters, values)) for name, values in grid.items()
    )
    letters = runs * shared + combinations * _letters(listed)
    if letters > MOST_LETTERS:
        raise ConfigError(
            f"options of {source}: expected at most {MOST_LETTERS:,} letters in the options of "
            f"all {runs:,} runs together, got {letters:,}. Vary less, or write several files."
        )


def _letters(value: Any) -> int:
    """Count the letters of settings, at least one for each."""
    if isinstance(value, Mapping):
        return 1 + sum(_letters(name) + _letters(inner) for name, inner in value.items())
    if isinstance(value, list):
        return 1 + sum(map(_letters, value))
    return 1 + len(value) if isinstance(value, str) else 8


def _results(record: RunRecord) -> tuple[object, ...]:
    """Return the cells of a run for the columns `RESULTS`."""
    summary = record.summary
    score = summary.score
    low, high = (None, None) if score is None or score.interval is None else score.interval
    return (
        record.state,
        summary.steps,
        summary.answers,
        None if score is None else score.mean,
        low,
        high,
        None if summary.accuracy is None else summary.accuracy.mean,
        summary.seconds,
    )


def _mapping(settings: Mapping[str, Any], name: str, source: str) -> dict[str, Any]:
    options = settings.get(name) or {}
    if not isinstance(options, dict):
        raise ConfigError(f"{name} of {source}: expected options by name, got {options!r}.")
    return dict(options)


def _word(value: Any) -> str:
    """Return a value as a word of a command line; settings by name become JSON, which is YAML."""
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _name(run: Mapping[str, Any]) -> str:
    """Return a folder name of what a run varies; a name that is too long ends with a digest."""
    parts = (f"{name}={_in_a_name(value)}" for name, value in run.items())
    plain = re.sub(r"[^\w.,=+-]+", "_", ",".join(parts)) or "run"
    return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}-{_digest(run)}"


def _in_a_name(value: Any) -> str:
    """Return a value as part of a folder's name: without brackets and keys of settings."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return "-".join(map(_in_a_name, value))
    return without_password(str(value))


def _digest(run: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:8]
