"""Evaluations of a loop's agent while it learns, in its sinks and its checkpoints."""

from collections.abc import Callable
from typing import Any, Final, final

from preferl.envs.config import EnvSource
from preferl.errors import ConfigError
from preferl.evaluation.curve import Evaluation, Evaluator, often
from preferl.evaluation.policies import Policy
from preferl.online.configs import OnlineConfig
from preferl.online.learner import SB3Learner
from preferl.reporting import MetricSink, Sinks

FIRST_EPISODE: Final = 30_000
"""Seed of these evaluations, beyond the run's: training and the report have others."""

OnEvaluation = Callable[[Evaluation], None]
"""Called after each evaluation of the policy while it learns."""


@final
class AgentEvaluations:
    """Evaluates a loop's agent without exploring, whenever it is time to.

    A learner of stable-baselines3 is evaluated between two rollouts, another one, which then needs
    `predict`, between two iterations.

    Args:
        config: of the run.
        learner: the agent.
        env: where it is evaluated; None evaluates nothing.

    Attributes:
        made: all evaluations so far.
        sink: takes their metrics.
        on_evaluation: called after each of them.

    Raises:
        ConfigError: a learner that cannot be evaluated.
    """

    def __init__(self, config: OnlineConfig, learner: Any, env: EnvSource | None) -> None:
        self._learner = learner
        self._evaluator = None
        self._policy = learner.algorithm if isinstance(learner, SB3Learner) else learner
        self.made: list[Evaluation] = []
        self.sink: MetricSink = Sinks()
        self.on_evaluation: OnEvaluation | None = None
        if env is None:
            return
        if not isinstance(self._policy, Policy):
            raise ConfigError(
                "learner: expected one with `predict`, since it is to be evaluated, got "
                f"{type(learner).__name__}."
            )
        every = often(config.eval_every, config.steps)
        seed = config.seed + FIRST_EPISODE
        episodes = config.eval_episodes
        self._evaluator = Evaluator(env, every=every, episodes=episodes, seed=seed)
        if isinstance(learner, SB3Learner):
            learner.before_rollout(self.offer)

    @property
    def latest(self) -> Evaluation | None:
        """The last one; None before the first."""
        return self.made[-1] if self.made else None

    def offer(self, *, over: bool = False) -> None:
        """Evaluate the agent as it is now if it is time to; `over` at the end of the run."""
        step = self._learner.steps
        before = None if self.latest is None else self.latest.step
        if self._evaluator is None or not self._evaluator.due(step, before, over=over):
            return
        self.made.append(evaluation := Evaluation(step, self._evaluator(self._policy)))
        self.sink.log(evaluation.metrics(), step)
        if self.on_evaluation is not None:
            self.on_evaluation(evaluation)
