"""Registries of what settings, commands and files choose by name, one per kind of thing.

An entry names a class as `module:Name`, and the dataclass of its settings. Nothing is imported
before it is needed, so neither settings nor help load torch. A new thing is its class, its config
and one line here; a module of your own calls `register`.
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

Thing = str | Callable[..., Any]
"""A class or function: itself, or as `module:Name` where it is defined."""

_TRUSTED: Final[set[str]] = set()
"""Modules of somebody's own that `imported` let in, with all that is below them."""


class Entry(NamedTuple):
    """The class or function of a thing, and its settings' dataclass; None if it is its own."""

    target: Thing
    config: Thing | None = None


@final
class Registry:
    """A table from names to classes and functions.

    Args:
        what: what one of the things is called in messages.
        entries: the entries by name.

    >>> SAMPLERS.names()[:3]
    ('uniform', 'informative', 'covering')
    >>> SAMPLERS.load("uniform").__name__
    'UniformPairs'
    """

    def __init__(self, what: str, entries: Mapping[str, Entry]) -> None:
        self._what = what
        self._entries = dict(entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> tuple[str, ...]:
        """Return all names, in the order in which they were added."""
        return tuple(self._entries)

    def register(self, name: str, target: Thing, config: Thing | None = None) -> None:
        """Add a thing of your own, at the end of the module that defines it.

        Settings, commands and files then call it by the name, and files also name its module.
        Whoever reads them imports the module first, or trusts it by name (see `preferl.trust`). A
        config that loads no torch lets commands read settings without waiting for it.

        Raises:
            ConfigError: the name is that of another thing.
        """
        present = self._entries.get(name)
        if present is not None and _text(present.target) != _text(target):
            raise ConfigError(
                f"name of a {self._what}: expected one that is free, got {name!r}, which is "
                f"{_text(present.target)}."
            )
        self._entries[name] = Entry(target, config)

    def remove(self, name: str) -> None:
        """Remove a name, if it is registered."""
        self._entries.pop(name, None)

    def load(self, name: str) -> Any:
        """Return the class or function of a name; raise `ConfigError` for an unknown one."""
        return _loaded(self._entry(name).target)

    def build(self, name: str, **parts: Any) -> Any:
        """Call the class or function of a name with the parts that it takes; raises as `load`."""
        return self.bound(name, **parts)()

    def bound(self, name: str, **parts: Any) -> Callable[..., Any]:
        """Bind to the class or function of a name the parts that it takes, for each call."""
        target = self.load(name)
        taken = inspect.signature(target).parameters
        return partial(target, **{key: part for key, part in parts.items() if key in taken})

    def known(self, thing: Thing) -> str:
        """Return the name by which settings call a thing.

        This is the name under which the thing is registered. An unregistered function or class is
        added under the place where it is defined, `module:Name`.

        Raises:
            ConfigError: the name is unknown, or a module does not have the function by its name.
        """
        if isinstance(thing, str):
            self._entry(thing)
            return thing
        name = getattr(thing, "__qualname__", "<no name>")
        if "<" in name:
            raise ConfigError(
                f"{self._what}: expected one that its module has by name, got {thing!r}. Define "
                "it with `def` in a module."
            )
        place = f"{_module(thing)}:{name}"
        for known, entry in self._entries.items():
            if known != place and _text(entry.target) == _text(thing):
                return known
        self._entries[place] = Entry(thing)
        return place

    def config(self, name: str) -> type[Any]:
        """The dataclass of a name's settings, or of that dataclass's own name; or `ConfigError`."""
        config = self._entry(name).config
        if not config:
            raise ConfigError(
                f"{self._what} {name!r}: expected one with settings, got one without."
            )
        return cast("type[Any]", _loaded(config))

    def has_config(self, config: type[Any]) -> bool:
        """Whether a dataclass is the settings of a registered thing."""
        return _text(config) in self._known

    def name_of(self, config: object) -> str:
        """The name of the thing with these settings, a dataclass or its instance; `ConfigError`."""
        kind = config if isinstance(config, type) else type(config)
        if not self.has_config(kind):
            raise self._unknown(f"{self._what} config", kind.__name__)
        return self._known[_text(kind)]

    def tag(self, config: object) -> dict[str, str]:
        """Return how a file names a config's thing: by name, and by module unless it is ours."""
        name = self.name_of(config)
        module = _module(type(config))
        ours = module.split(".")[0] == "preferl"
        return {"kind": name} if ours else {"kind": name, "module": module}

    def named(
        self, about: Mapping[str, Any], *, source: str, trust: Collection[str] = ()
    ) -> type[Any]:
        """Return the settings dataclass of the thing that a file names, as `tag` wrote it.

        A user's module is imported if it is trusted; else this raises `ConfigError`.
        """
        kind = about["kind"]
        module = about.get("module")
        if kind not in self._known and module is not None:
            admitted(f"{module}:{kind}", source=source, trust={*trust, *_TRUSTED})
            imported(module, source=source)
        return self.config(kind)

    @property
    def _known(self) -> dict[str, str]:
        """Names of things by these, by the names of their dataclasses, and by where those are."""
        places = {_text(e.config): name for name, e in self._entries.items() if e.config}
        classes = {place.partition(":")[2]: name for place, name in places.items()}
        return places | classes | {name: name for name in self._entries}

    def _entry(self, name: str) -> Entry:
        names = self._known
        if name in names:
            return self._entries[names[name]]
        module = name.partition(":")[0]
        if ":" in name and any(f"{module}.".startswith(f"{trusted}.") for trusted in _TRUSTED):
            return Entry(name)
        fix = f"If you know the code of {module} and trust it, pass --trust {module}."
        if module == "__main__":
            fix = "Nothing can import what a script defines: move it to a module of its own."
        raise self._unknown(self._what, repr(name), fix if ":" in name else "")

    def _unknown(self, what: str, got: str, fix: str = "") -> ConfigError:
        own = "One of your own is known once the module that registers it is imported."
        fix = fix or nearest(got.strip("'"), self._entries) or own
        return ConfigError(f"{what}: expected one of {', '.join(self._entries)}, got {got}. {fix}")


def imported(module: str, *, source: str) -> ModuleType:
    """Import a module that `preferl.trust` lets pass, for what it registers; or `ConfigError`."""
    try:
        loaded = import_module(module)
        if module.partition(".")[0] not in ALLOWED:  # their classes have names of their own here
            _TRUSTED.add(module)
        return loaded
    except Exception as error:  # a user's code may raise anything
        got = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{module!r}, which {source} names: expected a module, got {got}."
        ) from error


def _module(thing: Callable[..., Any]) -> str:
    """Where a class or function is defined; for one of a script that runs, as others import it."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if thing.__module__ != "__main__" or file is None:
        return thing.__module__
    spec = getattr(main, "__spec__", None)
    return Path(file).stem if spec is None else str(spec.name)


def _text(thing: Thing) -> str:
    return thing if isinstance(thing, str) else f"{thing.__module__}:{thing.__qualname__}"


def _loaded(thing: Thing) -> Any:
    if not isinstance(thing, str):
        return thing
    module = thing.partition(":")[0]
    loaded = named_object(thing, f"{thing!r}")
    # Trust in a module does not extend to its imports, such as `mine:os.system`.
    home = str(getattr(loaded, "__module__", None))
    if home.partition(".")[0] != module.partition(".")[0]:
        raise ConfigError(f"{thing!r}: expected what that package defines, got a part of {home}.")
    return loaded


SAMPLERS = Registry(
    "sampler",
    {
        "uniform": Entry("preferl.feedback.sampling:UniformPairs"),
        "informative": Entry("preferl.feedback.sampling:InformativePairs"),
        "covering": Entry("preferl.feedback.sampling:CoveringPairs"),
        "disagreement": Entry("preferl.feedback.named_samplers:disagreement"),
        "entropy": Entry("preferl.feedback.named_samplers:entropy"),
        "k_center": Entry("preferl.feedback.sampling:CoveringPairs"),
        "k_center_disagreement": Entry("preferl.feedback.named_samplers:k_center_disagreement"),
        "k_center_entropy": Entry("preferl.feedback.named_samplers:k_center_entropy"),
    },
)
"""Called with segments, a count and a generator; built from `scorer`, `likelihood`, `acquisition`,
`oversampling` and `asked`, as far as they take these."""

ACQUISITIONS = Registry(
    "acquisition",
    {
        "logit": Entry("preferl.feedback.sampling:logit_variance"),
        "probability": Entry("preferl.feedback.sampling:probability_variance"),
        "label": Entry("preferl.feedback.sampling:label_variance"),
        "entropy": Entry("preferl.feedback.sampling:entropy"),
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
"""Frozen dataclasses that are called and whose fields are their settings, so that one of your own
is its own config, and functions that make one, as for the teachers of B-Pref and a person-like
one."""

_LABELS = "preferl.feedback.pseudo_labels:PseudoLabels"
_FILTER = "preferl.feedback.answer_filter:AnswerFilter"

PREPARATIONS = Registry(
    "preparation", {"surf": Entry(_LABELS, _LABELS), "rime": Entry(_FILTER, _FILTER)}
)
"""What becomes of answers before each fit: called with comparisons and a `FitContext`; frozen
dataclasses whose fields are their settings."""

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
"""Functions of preference logits `[E, P]` and preferences `[P]` to the loss of each answer,
`[E, P]`; they get the configured `noise` if they take it."""

PENALTIES = Registry("penalty", {"power": Entry("preferl.functional.penalty:power_sum")})
"""Functions of a reward model's parameters to their size; they get the configured `norm` if they
take it."""

_CONFIGS = "preferl.online.configs"

ALGORITHMS = Registry(
    "algorithm",
    {
        "ppo": Entry("stable_baselines3:PPO", f"{_CONFIGS}:PPOConfig"),
        "sac": Entry("preferl.online.methods.sac:SAC", f"{_CONFIGS}:SACConfig"),
        "sb3": Entry("preferl.online.algorithms:any_algorithm", f"{_CONFIGS}:SB3Config"),
    },
)
"""Algorithms of stable-baselines3; called as these are, with the settings by name. "sb3" is any
class of it or of the packages around it."""

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
"""Agents that learn from recorded experience; called with `observation_space`, `action_space`,
`config`, `seed` or `seeds`, `steps` and `device`. Their config, a `LearnerConfig`, describes how
they take part in an offline run, which calls `learn`, `policies` and `load_policy`, as
`preferl.offline.OfflineLearner` has them."""

ENGINES = Registry(
    "engine",
    {
        "one-block transformer": Entry("preferl.models.fast_transformer:OneBlock"),
        "actions": Entry("preferl.offline.decision_transformer.tokens:predict_actions"),
    },
)
"""Hand-written faster ways to numbers that a plain version gives as well. Without its line here,
the library works by the plain version."""


_PROTOCOLS: Final = {
    "preferl.feedback.protocols:Teacher": TEACHERS,
    "preferl.feedback.preparations:Preparation": PREPARATIONS,
}


def things_of(hint: Any) -> Registry | None:
    """Return the registry for a field of this type, if that is a protocol such as `Teacher`."""
    return _PROTOCOLS.get(_text(hint)) if isinstance(hint, type) else None


def registry_of(kinds: Iterable[type[Any]]) -> Registry | None:
    """Return the registry that has one of these dataclasses of settings."""
    configs = list(kinds)
    registries = (REWARD_MODELS, ALGORITHMS, OFFLINE_LEARNERS)
    return next(
        (registry for registry in registries if any(map(registry.has_config, configs))), None
    )


def config_beside(kind: str, known: Iterable[type[Any]]) -> type[Any] | None:
    """The registered dataclass of a kind, by either name, from the registry of the known ones."""
    registry = registry_of(known)
    return None if registry is None else registry.config(kind)
