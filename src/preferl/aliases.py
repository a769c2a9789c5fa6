"""Former names of public things: they work for one release, and warn.

Settings of configurations have a table of their own, `preferl.configs.RENAMED`, because files and
command lines hold them.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

Thing = TypeVar("Thing", bound=Callable[..., Any])


def _moved(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}.{name}" for name in names.split()}


NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "preferl.data.sources": {
        f"{verb}_{kind}_labels": f"{verb}_labels"
        for verb in ("load", "read")
        for kind in ("pt", "unirlhf")
    },
    "preferl.evaluation": {
        "PaidPolicy": "ReturnConditionedPolicy",
        **_moved("preferl.data", "normalised_score"),
        **_moved("preferl.evaluation.filming", "frame_rate"),
        **_moved("preferl.evaluation.reward_report", "markovian"),
        **_moved("preferl.evaluation.rollout", "CORRECTIONS"),
        **_moved("preferl.statistics", "bootstrap_interval spearman wilson_interval"),
    },
    "preferl.feedback": {
        "Turn": "PlannedIteration",
        **_moved("preferl.feedback.protocols", "LastingFeedback SingleAnswers WantsSegments"),
        **_moved("preferl.feedback.sampling", "Scorer mean_observation segments_wanted"),
        **_moved("preferl.feedback.schedule", "Schedule apportion constant hyperbolic"),
        **_moved("preferl.feedback.schedule", "inverse_quadratic"),
        **_moved("preferl.feedback.prompt", "sparklines"),
    },
    "preferl.offline": {"SightConfig": "PixelEncoderConfig"},
    "preferl.online": {
        "Handover": "preferl.online.wrappers.query_worker.QueryWorker",
        "HandoverCounts": "preferl.online.wrappers.query_worker.QueryCounts",
        "JudgeConfig": "preferl.online.configs.EvaluationConfig",
        "LearnedRewardVecEnv": "FeedbackVecEnv",
        "Reward": "preferl.online.wrappers.reward_computer.WindowReward",
        "TurnReport": "preferl.online.reports.IterationReport",
        **_moved("preferl.envs.atari", "make_atari"),
        **_moved("preferl.online.algorithms", "build_algorithm"),
        **_moved("preferl.online.checkpoints.run_checkpoint", "Resumed"),
        **_moved("preferl.online.configs", "EvaluationConfig"),
        **_moved("preferl.online.learner", "PolicyLearner"),
        **_moved("preferl.online.reports", "IterationReport OnlineReport"),
        **_moved("preferl.online.service.reward_service", "serve_reward"),
        **_moved("preferl.online.service.service_config", "ServiceConfig"),
        **_moved("preferl.online.service.supervisor", "SuperviseConfig Supervisor"),
        **_moved(
            "preferl.online.wrappers.exploration", "ExplorationPolicy Predictor random_actions"
        ),
        **_moved("preferl.online.wrappers.feedback_config", "BeforeFirstReward"),
        **_moved("preferl.online.wrappers.feedback_config", "VariableLengthWarning"),
        **_moved("preferl.online.wrappers.feedback_core", "FeedbackCore"),
        **_moved("preferl.online.wrappers.feedback_env", "EpisodeRecorder"),
        **_moved("preferl.online.wrappers.query_worker", "QueryCounts QueryWorker"),
        **_moved("preferl.online.wrappers.replay", "relabel_replay"),
        **_moved("preferl.online.wrappers.reward_computer", "WindowReward"),
        **_moved("preferl.online.wrappers.state_entropy", "StateEntropyBonus"),
        **_moved("preferl.training", "has_run"),
    },
    "preferl.store": {"Recorded": "RecordedAnswer"},
}
"""By package: a former name to the present one, which has its module where that is another."""

MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    "DecisionTransformerPolicy": {"asking": "with_target", "paid_by": "with_reward"},
    "FeedbackVecEnv": {"pay": "set_reward", "paying": "reward_source"},
    "FeedbackVectorEnv": {"paying": "reward_source"},
    "HumanPreferencesEnvWrapper": {"paying": "reward_source"},
    "SB3Learner": {"pay": "set_reward"},
    "Store": {"live": "reports"},
}
"""By class: former methods and attributes to the present ones."""

KEYWORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "FeedbackCallback": {"pay": "compute_rewards"},
    "launch": {"say": "on_message"},
    "learn_from_preferences": {"on_turn": "on_iteration"},
    "run_online": {"on_turn": "on_iteration"},
    "plan": {"questions": "queries", "turns": "iterations"},
    "serve": {"say": "on_message"},
}
"""By function or class: former keywords to the present ones."""


def warn(former: str, present: str, level: int = 3) -> None:
    """Warn the caller's caller of a former name."""
    message = f"{former} is {present} now; the former name goes with the next release."
    warnings.warn(message, DeprecationWarning, stacklevel=level)


def present(package: str, name: str) -> tuple[str, str] | None:
    """Module and present name of what a package had by a former name, or listed itself."""
    now = NAMES.get(package, {}).get(name)
    if now is None:
        return None
    module, _, known = now.rpartition(".")
    warn(f"{package}.{name}", f"{module or package}.{known}", level=4)
    return module or package, known


def present_method(thing: object, name: str) -> Callable[..., Any]:
    """A method of somebody's own class, which may still have a former name of the tables."""
    formers = [old for members in MEMBERS.values() for old, new in members.items() if new == name]
    for former in formers:
        if not hasattr(thing, name) and hasattr(thing, former):
            warn(f"{type(thing).__name__}.{former}", name, level=4)
            return cast("Callable[..., Any]", getattr(thing, former))
    return cast("Callable[..., Any]", getattr(thing, name))


def accepts_former_names(thing: Thing) -> Thing:
    """Let a class or function of the tables be used by its former members and keywords."""
    name = thing.__name__
    for former, present in MEMBERS.get(name, {}).items():
        setattr(thing, former, _forwards(name, former, present))
    keywords = KEYWORDS.get(name)
    if keywords is None:
        return thing
    called: Any = thing.__init__ if inspect.isclass(thing) else thing

    @functools.wraps(called)
    def call(*given: Any, **named: Any) -> Any:
        for former in keywords.keys() & named.keys():
            warn(f"{name}({former}=)", f"{name}({keywords[former]}=)")
            named[keywords[former]] = named.pop(former)
        return called(*given, **named)

    if not inspect.isclass(thing):
        return call  # type: ignore[return-value]  # of the same signature
    setattr(thing, "__init__", call)  # noqa: B010  # mypy takes a class for an instance here
    return thing


def _forwards(owner: str, former: str, present: str) -> property:
    def find(self: Any) -> Any:
        warn(f"{owner}.{former}", f"{owner}.{present}")
        return getattr(self, present)

    return property(find, doc=f"Former name of `{present}`.")
