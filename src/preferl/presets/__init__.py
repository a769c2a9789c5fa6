"""Settings that are known to work, per environment, as data."""

from importlib.resources import files
from typing import Any

import yaml

from preferl.errors import require_one_of


def load_preset(name: str) -> dict[str, Any]:
    """A preset as the fields of a config, for `preferl.configs.from_json`.

    Raises:
        ConfigError: no preset of that name.

    >>> load_preset("pendulum")["env"]
    'Pendulum-v1'
    """
    found = (file for file in files(__name__).iterdir() if file.name.endswith(".yaml"))
    presets = {file.name.removesuffix(".yaml"): file for file in found}
    require_one_of("preset", name, sorted(presets))
    settings: dict[str, Any] = yaml.safe_load(presets[name].read_text(encoding="utf-8"))
    return settings
