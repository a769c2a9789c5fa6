"""Settings of online runs and of recordings of data sets, one file per environment.

A preset that names another one under `from` inherits all settings that it does not name itself.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

from preferl.errors import require_one_of
from preferl.reading import parse_yaml

Kind = Literal["online", "data"]
"""What a preset is for: an online run, or recording a data set."""

SHARES: Final = "shares.json"
"""File with `measured_shares` beside the presets; `recipes/how_many_answers.py` writes it."""


@dataclass(frozen=True)
class MeasuredShare:
    """How well agents of a preset learned from a number of answers of a script that never errs.

    Attributes:
        env: id of the environment.
        preset: name of the preset.
        steps: environment steps of each agent.
        answers: number of comparisons that each agent asked for.
        share: mean over seeds of (learned - random) / (true - random). These are returns: "learned"
            is the agent's, "true" that of the same algorithm with the true reward, and "random"
            that of random actions.
        low: lower end of the 95 % t interval of the mean; None for a single seed.
        high: upper end of this interval.
        seeds: number of agents.
    """

    env: str
    preset: str
    steps: int
    answers: int
    share: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def in_words(self) -> str:
        """The share in a sentence, with the number of agents and the interval.

        >>> MeasuredShare("Pendulum-v1", "pendulum", 12_000, 40, 0.98, 0.95, 1.0, 20).in_words
        '40 answers: 98 % (95 to 100), 20 agents of preset pendulum, 12,000 steps.'
        """
        ends = (self.low, self.high)
        percent = " to ".join(f"{100 * end:.0f}" for end in ends if end is not None)
        interval = f" ({percent})" if percent else ""
        agents = "1 agent" if self.seeds == 1 else f"{self.seeds} agents"
        return (
            f"{self.answers:,} answers: {100 * self.share:.0f} %{interval}, {agents} of preset "
            f"{self.preset}, {self.steps:,} steps."
        )


def measured_shares(env: str) -> list[MeasuredShare]:
    """Return the measured shares of an environment, by the number of answers; often none.

    >>> {share.answers for share in measured_shares("Pendulum-v1")} >= {40, 200}
    True
    """
    text = files(__name__).joinpath(SHARES).read_text(encoding="utf-8")
    shares = [MeasuredShare(**row) for row in json.loads(text)["shares"]]
    return sorted((share for share in shares if share.env == env), key=lambda share: share.answers)


def preset_names(kind: Kind = "online") -> tuple[str, ...]:
    """Return the names of all presets of a kind.

    >>> {"moving_dot", "pendulum"} <= set(preset_names())
    True
    """
    names = (file.name for file in _folder(kind).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load_preset(name: str, kind: Kind = "online") -> dict[str, Any]:
    """Return a preset as the fields of a config, for `preferl.configs.from_json`.

    Raises:
        ConfigError: there is no preset of this name.

    >>> load_preset("pendulum")["env"]
    'Pendulum-v1'
    """
    require_one_of("preset", name, preset_names(kind))
    text = (_folder(kind) / f"{name}.yaml").read_text(encoding="utf-8")
    settings: dict[str, Any] = parse_yaml(text)
    base = settings.pop("from", None)
    return settings if base is None else with_changes(load_preset(base, kind), settings)


def _folder(kind: Kind) -> Any:
    return files(__name__) if kind == "online" else files(__name__) / kind


def with_changes(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with some changed. In a section such as `model`, unnamed settings stay.

    A section of another `kind` replaces the whole section.

    >>> with_changes({"steps": 9, "model": {"members": 3}}, {"model": {"hidden": [8]}})
    {'steps': 9, 'model': {'members': 3, 'hidden': [8]}}
    """
    changed = dict(settings)
    for name, value in changes.items():
        old = settings.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            same = value.get("kind", old.get("kind")) == old.get("kind")
            changed[name] = with_changes(old, value) if same else dict(value)
        else:
            changed[name] = value
    return changed
