"""Settings that are known to work, per environment, as data."""

from importlib.resources import files
from typing import Any

import yaml

from preferl.errors import require_one_of


def preset_names() -> tuple[str, ...]:
    """Names of all presets.

    >>> preset_names()
    ('moving_dot', 'pendulum')
    """
    names = (file.name for file in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load_preset(name: str) -> dict[str, Any]:
    """A preset as the fields of a config, for `preferl.configs.from_json`.

    Raises:
        ConfigError: no preset of that name.

    >>> load_preset("pendulum")["env"]
    'Pendulum-v1'
    """
    require_one_of("preset", name, preset_names())
    text = (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings
