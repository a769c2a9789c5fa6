"""Registries: tables of what settings, commands and files choose by name, one for each kind.

An entry consists of a class, written as `module:Name`, and the dataclass of its settings. Modules
are imported only when they are needed, so that settings and help do not load torch. To add a class
to the library, write the class, its config and one line in this module. In your own module, call
`register`.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast, final

from preferl.errors import ConfigError, nearest
from preferl.trust import ALLOWED, admitted, named_object

Target = str | Callable[..., Any]
"""A class or function, or `module:Name`, where `Name` is what its module calls it."""

_TRUSTED: Final[set[str]] = set()
"""Users' modules that `imported` has imported. The modules inside them are trusted, too."""


class Entry(NamedTuple):
    """A registered class or function, and the dataclass of its settings, if it has one."""

    target: Target
    config: Target | None = None


@final
class Registry:
    """A table from names to classes and functions.

    Args:
        what: what messages call an entry, such as "sampler".
        entries: the entries by name.

    >>> SAMPLERS.names()[:3]
    ('uniform', 'informative', 'covering')
    >>> SAMPLERS.load("uniform").__name__
    'UniformPairs'
    """

    def __init__(self, what: str, entries: Mapping[str, Entry]) -> None:
        self._noun = what
        self._entries = dict(entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> tuple[str, ...]:
        """Return all names, in the order in which they were added."""
        return tuple(self._entries)

    def register(self, name: str, target: Target, config: Target | None = None) -> None:
        """Add a class or function of your own. Call this at the end of the module that defines it.

        Settings, commands and files then use the name. Files also name the module. To read such a
        file, import the module first, or trust it by name (see `preferl.trust`). If the module of
        the config does not import torch, commands read settings without waiting for torch.

        Raises:
            ConfigError: the name is taken.
        """
        earlier = self._entries.get(name)
        if earlier is not None and _text(earlier.target) != _text(target):
            raise ConfigError(
                f"name of a {self._noun}: expected a free name, got {name!r}, which is "
                f"{_text(earlier.target)}."
            )
        self._entries[name] = Entry(target, config)

    def remove(self, name: str) -> None:
        """Remove a name, if it is registered."""
        self._entries.pop(name, None)

    def load(self, name: str) -> Any:
        """Return the class or function of a name; raise `ConfigError` for an unknown one."""
        return _loaded(self._entry(name).target)

    def build(self, name: str, **parts: Any) -> Any:
        """Call the class or function of a name with those `parts` that it has parameters for."""
        return self.bound(name, **parts)()

    def bound(self, name: str, **parts: Any) -> Callable[..., Any]:
        """Return a function that does the same as `build`, with these `parts`."""
        target = self.load(name)
        parameters = inspect.signature(target).parameters
        return partial(target, **{key: part for key, part in parts.items() if key in parameters})

    def registered_name(self, target: Target) -> str:
        """Return the name by which settings refer to a class or function.

        It is the registered name, if there is one. Otherwise the class or function is added as
        `module:Name`, where `Name` is what its module calls it.

        Raises:
            ConfigError: the name is unknown, or the function has no name in its module.
        """
        if isinstance(target, str):
            self._entry(target)
            return target
        name = getattr(target, "__qualname__", "<no name>")
        if "<" in name:
            raise ConfigError(
                f"{self._noun}: expected a function or class with a name in its module, got "
                f"{target!r}. Define it with `def` in a module."
            )
        defined_name = f"{_module(target)}:{name}"
        for registered_name, entry in self._entries.items():
            if registered_name != defined_name and _text(entry.target) == _text(target):
                return registered_name
        self._entries[defined_name] = Entry(target)
        return defined_name

    def config(self, name: str) -> type[Any]:
        """Return the dataclass of the settings of a name; raise `ConfigError` if there is none."""
        config = self._entry(name).config
        if not config:
            raise ConfigError(
                f"{self._noun} {name!r}: expected one with settings, got one without."
            )
        return cast("type[Any]", _loaded(config))

    def has_config(self, config: type[Any]) -> bool:
        """Whether a dataclass contains the settings of some entry."""
        return _text(config) in self._name_of_key

    def name_of(self, config: object) -> str:
        """Return the name of the entry with these settings: a dataclass or one of its instances."""
        kind = config if isinstance(config, type) else type(config)
        if not self.has_config(kind):
            raise self._unknown(f"{self._noun} config", kind.__name__)
        return self._name_of_key[_text(kind)]

    def tag(self, config: object) -> dict[str, str]:
        """Return how files name the entry of a config; they add its module if that is a user's."""
        name = self.name_of(config)
        module = _module(type(config))
        is_own = module.split(".")[0] == "preferl"
        return {"kind": name} if is_own else {"kind": name, "module": module}

    def named(
        self, description: Mapping[str, Any], *, source: str, trust: Collection[str] = ()
    ) -> type[Any]:
        """Return the dataclass of settings for the entry that a file names, in the form of `tag`.

        If a user's module is trusted, it is imported. Otherwise this raises `ConfigError`.
        """
        kind = description["kind"]
        module = description.get("module")
        if kind not in self._name_of_key and module is not None:
            admitted(f"{module}:{kind}", source=source, trust={*trust, *_TRUSTED})
            imported(module, source=source)
        return self.config(kind)

    @property
    def _name_of_key(self) -> dict[str, str]:
        """Map each name, the name of its settings class, and that class's `module:Name`, to it."""
        by_place = {_text(e.config): name for name, e in self._entries.items() if e.config}
        by_class = {place.partition(":")[2]: name for place, name in by_place.items()}
        return by_place | by_class | {name: name for name in self._entries}

    def _entry(self, name: str) -> Entry:
        names = self._name_of_key
        if name in names:
            return self._entries[names[name]]
        module = name.partition(":")[0]
        if ":" in name and any(f"{module}.".startswith(f"{trusted}.") for trusted in _TRUSTED):
            return Entry(name)
        fix = f"If you know the code of {module} and trust it, pass --trust {module}."
        if module == "__main__":
            fix = "Nothing can import what a script defines: move it to a module of its own."
        raise self._unknown(self._noun, repr(name), fix if ":" in name else "")

    def _unknown(self, subject: str, actual: str, fix: str = "") -> ConfigError:
        hint = "One of your own is known once the module that registers it is imported."
        fix = fix or nearest(actual.strip("'"), self._entries) or hint
        return ConfigError(
            f"{subject}: expected one of {', '.join(self._entries)}, got {actual}. {fix}"
        )


def imported(module: str, *, source: str) -> ModuleType:
    """Import a module if `preferl.trust` allows it, so that it registers its entries."""
    try:
        loaded = import_module(module)
        # classes of these packages are registered already
        if module.partition(".")[0] not in ALLOWED:
            _TRUSTED.add(module)
        return loaded
    except Exception as error:  # a user's code may raise anything
        reason = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{module!r}, which {source} names: expected a module, got {reason}."
        ) from error


def _module(target: Callable[..., Any]) -> str:
    """Return the module of a class or function; for the running script, its real name."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if target.__module__ != "__main__" or file is None:
        return target.__module__
    spec = getattr(main, "__spec__", None)
    return Path(file).stem if spec is None else str(spec.name)


def _text(target: Target) -> str:
    return target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"


def _loaded(target: Target) -> Any:
    if not isinstance(target, str):
        return target
    module = target.partition(":")[0]
    loaded = named_object(target, f"{target!r}")
    # `mine:os.system` is refused: that a module is trusted says nothing about what it imports
    defining_module = str(getattr(loaded, "__module__", None))
    if defining_module.partition(".")[0] != module.partition(".")[0]:
        raise ConfigError(
            f"{target!r}: expected what that package defines, got a part of {defining_module}."
        )
    return loaded


SAMPLERS = Registry(
    "sampler",
    {
        "uniform": Entry("preferl.feedback.pair_sampling:UniformPairs"),
        "informative": Entry("preferl.feedback.pair_sampling:InformativePairs"),
        "covering": Entry("preferl.feedback.pair_sampling:CoveringPairs"),
        "disagreement": Entry("preferl.feedback.named_samplers:disagreement"),
        "entropy": Entry("preferl.feedback.named_samplers:entropy"),
        "k_center": Entry("preferl.feedback.pair_sampling:CoveringPairs"),
        "k_center_disagreement": Entry("preferl.feedback.named_samplers:k_center_disagreement"),
        "k_center_entropy": Entry("preferl.feedback.named_samplers:k_center_entropy"),
    },
)
"""Functions of segments, a count and a generator.

They are made with those of the arguments `scorer`, `likelihood`, `acquisition`, `oversampling` and
`asked` that they take.
"""

ACQUISITIONS = Registry(
    "acquisition",
    {
        "logit": Entry("preferl.feedback.pair_sampling:logit_variance"),
        "probability": Entry("preferl.feedback.pair_sampling:probability_variance"),
        "label": Entry("preferl.feedback.pair_sampling:label_variance"),
        "entropy": Entry("preferl.feedback.pair_sampling:entropy"),
    },
)
"""Functions of the log-odds of candidate pairs."""

_SCRIPTED = "preferl.feedback.scripted:ScriptedTeacher"
_SCRIPTS = ("oracle", "mistake", "noisy", "skip", "equal", "myopic", "person")

TEACHERS = Registry(
    "teacher",
    {"scripted": Entry(_SCRIPTED, _SCRIPTED)}
    | {name: Entry(f"{_SCRIPTED}.{name}") for name in _SCRIPTS},
)
"""Teachers: callable frozen dataclasses, whose fields are their settings.

A teacher of your own is therefore its own config. Some entries are functions that make a teacher,
such as those of B-Pref, and one that resembles a person.
"""

_LABELS = "preferl.feedback.pseudo_labels:PseudoLabels"
_FILTER = "preferl.feedback.answer_filter:AnswerFilter"

PREPARATIONS = Registry(
    "preparation", {"surf": Entry(_LABELS, _LABELS), "rime": Entry(_FILTER, _FILTER)}
)
"""What prepares the answers before each fit: frozen dataclasses, whose fields are their settings.

They are called with comparisons and a `FitContext`.
"""

REWARD_MODELS = Registry(
    "reward model",
    {
        "mlp": Entry("preferl.models.mlp:MLPReward", "preferl.models.configs:MLPRewardConfig"),
        "cnn": Entry("preferl.models.cnn:CNNReward", "preferl.models.configs:CNNRewardConfig"),
        "lstm": Entry("preferl.models.lstm:LSTMReward", "preferl.models.configs:LSTMRewardConfig"),
        "transformer": Entry(
            "preferl.models.transformer:PreferenceTransformer",
            "preferl.models.configs:PreferenceTransformerConfig",
        ),
        "ensemble": Entry(
            "preferl.models.build:build_ensemble", "preferl.models.configs:EnsembleConfig"
        ),
    },
)
"""Called with two spaces, the config and `seed=`."""

LOSSES = Registry(
    "loss",
    {
        "cross_entropy": Entry("preferl.functional.preference:cross_entropy"),
        "squared_error": Entry("preferl.functional.preference:squared_error"),
    },
)
"""Functions of preference logits `[E, P]` and preferences `[P]`, which return the loss `[E, P]` of
each answer. They get the configured `noise` if they take it.
"""

PENALTIES = Registry("penalty", {"power": Entry("preferl.functional.penalty:power_sum")})
"""Functions of a reward model's parameters that return a size.

They get the configured `norm` if they take it.
"""

_CONFIGS = "preferl.online.configs"

ALGORITHMS = Registry(
    "algorithm",
    {
        "ppo": Entry("stable_baselines3:PPO", f"{_CONFIGS}:PPOConfig"),
        "sac": Entry("preferl.online.methods.sac:SAC", f"{_CONFIGS}:SACConfig"),
        "sb3": Entry("preferl.online.algorithms:any_algorithm", f"{_CONFIGS}:SB3Config"),
    },
)
"""Algorithms of stable-baselines3, which get its usual arguments.

"sb3" is any class of stable-baselines3 or of related packages.
"""

OFFLINE_LEARNERS = Registry(
    "offline learner",
    {
        "iql": Entry("preferl.offline.iql:IQL", "preferl.offline.learner_configs:IQLConfig"),
        "cpl": Entry("preferl.offline.cpl:CPL", "preferl.offline.learner_configs:CPLConfig"),
        "ipl": Entry("preferl.offline.ipl:IPL", "preferl.offline.learner_configs:IPLConfig"),
        "bc": Entry(
            "preferl.offline.learner:BehaviourCloning",
            "preferl.offline.learner_configs:CloningConfig",
        ),
        "dt": Entry(
            "preferl.offline.decision_transformer.agent:DecisionTransformer",
            "preferl.offline.learner_configs:DTConfig",
        ),
        "dtr": Entry(
            "preferl.offline.decision_transformer.agent:DecisionTransformer",
            "preferl.offline.learner_configs:CriticDTConfig",
        ),
    },
)
"""Agents that learn from recorded experience.

They are called with `observation_space`, `action_space`, `config`, `seed` or `seeds`, `steps` and
`device`. Their config is a `LearnerConfig`. An offline run calls the methods of
`preferl.offline.OfflineLearner`.
"""

ENGINES = Registry(
    "engine",
    {
        "one-block transformer": Entry("preferl.models.fast_transformer:OneBlock"),
        "actions": Entry("preferl.offline.decision_transformer.tokens:predict_actions"),
    },
)
"""Hand-written functions that are faster than a plain version with the same result.

If a line here is removed, the library uses the plain version.
"""


_PROTOCOLS: Final = {
    "preferl.feedback.protocols:Teacher": TEACHERS,
    "preferl.feedback.preparations:Preparation": PREPARATIONS,
}


def registry_of_protocol(hint: Any) -> Registry | None:
    """Return the registry for a field whose type is a protocol such as `Teacher`; else None."""
    return _PROTOCOLS.get(_text(hint)) if isinstance(hint, type) else None


def registry_of(kinds: Iterable[type[Any]]) -> Registry | None:
    """Return the registry that has one of these dataclasses of settings."""
    configs = list(kinds)
    registries = (REWARD_MODELS, ALGORITHMS, OFFLINE_LEARNERS)
    return next(
        (registry for registry in registries if any(map(registry.has_config, configs))), None
    )


def config_beside(kind: str, known: Iterable[type[Any]]) -> type[Any] | None:
    """Return the dataclass of a name, or of this class name, from the registry with the `known`."""
    registry = registry_of(known)
    return None if registry is None else registry.config(kind)
