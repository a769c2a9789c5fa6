"""Settings of online runs and of recordings of data sets, per environment, as data.

A preset that names another one under `from` has its settings, but for those that it names itself.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

from preferl.errors import require_one_of
from preferl.reading import parse_yaml

Kind = Literal["online", "data"]
"""Of a preset: for an online run, or for recording a data set."""


def preset_names(kind: Kind = "online") -> tuple[str, ...]:
    """Names of all presets of a kind.

    >>> {"moving_dot", "pendulum"} <= set(preset_names())
    True
    """
    names = (file.name for file in _folder(kind).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load_preset(name: str, kind: Kind = "online") -> dict[str, Any]:
    """A preset as the fields of a config, for `preferl.configs.from_json`.

    Raises:
        ConfigError: no preset of that name.

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
    """Settings with some changed; of a section, such as `model`, only what the changes name.

    A section of another `kind` takes the place of the whole section.

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
