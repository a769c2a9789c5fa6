"""Every setting of every config names itself where it is out of its range."""

import math
from dataclasses import fields, is_dataclass
from typing import Literal, get_origin, get_type_hints

import pytest

from preferl.annotate import AnnotateSettings
from preferl.errors import ConfigError
from preferl.feedback import (
    AnswerFilter,
    CoveringPairs,
    InformativePairs,
    Likelihood,
    PseudoLabels,
    ScriptedTeacher,
)
from preferl.models import configs as models
from preferl.offline import learner_configs
from preferl.online import configs as online
from preferl.online.service import supervisor
from preferl.online.wrappers import feedback_config
from preferl.store import ProjectSettings
from preferl.store.quality import aggregation
from preferl.testing import crowds
from preferl.training import configs as training

MODULES = (
    models, learner_configs, online, supervisor, feedback_config, aggregation, crowds, training
)  # fmt: skip
OTHERS = (
    AnnotateSettings, AnswerFilter, CoveringPairs, InformativePairs, Likelihood, ProjectSettings,
    PseudoLabels, ScriptedTeacher,
)  # fmt: skip
NEEDED = {
    learner_configs.TokenShape: {"layers": 1, "heads": 1, "squashed": True},
    online.DatasetConfig: {"env": "CartPole-v1"},
}
UNBOUNDED = {"pessimism", "worst"}


def settings():
    """Each config with the name of a setting and values that it cannot have."""
    cases = []
    found = {c for module in MODULES for c in vars(module).values() if isinstance(c, type)}
    for config in sorted(filter(is_dataclass, found | set(OTHERS)), key=lambda c: c.__name__):
        words = {name for name, of in get_type_hints(config).items() if get_origin(of) is Literal}
        for setting in fields(config):
            name = setting.name
            if name in words:
                cases.append((config, name, ["nonsense"]))
            elif type(setting.default) in (int, float):
                low = [] if name in UNBOUNDED else [-1e12]
                cases.append((config, name, [math.nan, *low]))
    return cases


@pytest.mark.parametrize(("config", "name", "values"), settings())
def test_a_setting_out_of_its_range_is_named(config, name, values):
    for value in values:
        with pytest.raises(ConfigError, match=name):
            config(**NEEDED.get(config, {}) | {name: value})
