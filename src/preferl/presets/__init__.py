"""Settings that are known to work, per environment, as data."""

from importlib.resources import files
from typing import Any

import yaml

from preferl.errors import ConfigError


def preset_names() -> list[str]:
    """The presets there are.

    >>> "pendulum" in preset_names()
    True
    """
    found = files(__name__).iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in found if f.name.endswith(".yaml"))


def load_preset(name: str) -> dict[str, Any]:
    """A preset as the fields of a config, for `preferl.configs.from_json`.

    Raises:
        ConfigError: no preset of that name.
    """
    if name not in preset_names():
        raise ConfigError.mismatch("preset", expected=f"one of {preset_names()}", got=repr(name))
    text = (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings
