"""The Decision Transformer: actions that would lead to a return (Chen et al. 2021).

The model is Hugging Face's, and Hugging Face's `Trainer` trains it. Checkpoints, distributed
training and other features are the trainer's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import torch
from gymnasium import spaces

from preferl._optional import require
from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, SpaceError, StorageError, require_in
from preferl.feedback.step_rewards import Reward
from preferl.offline.decision_transformer.parameters import LearnedTransformer
from preferl.offline.decision_transformer.policy import DecisionTransformerPolicy
from preferl.offline.decision_transformer.sequences import SequenceCollator, Sequences
from preferl.offline.learner_configs import Decrement, DTConfig
from preferl.printing import get_logger
from preferl.shapes import FloatArray

LOGGER: Final = get_logger(__name__)
# updates so far, and mean metrics since the last call
OnProgress = Callable[[int, dict[str, float]], None]


@final
class DecisionTransformer:
    """One agent that learns which actions led to which returns.

    Args:
        observation_space: a Box of floats, a Dict of these, or pictures.
        action_space: a Box of floats, or Discrete.
        config: settings; the defaults if None.
        seed: seed of its parameters, minibatches and dropout.
        steps: planned number of updates, over which the learning rate rises and falls. If None, the
            option `num_train_epochs` of `fit` decides.
        device: device on which it learns.

    Raises:
        SpaceError: a space is of another kind.
        ConfigError: there is less than one update.
        MissingExtraError: transformers or accelerate is not installed.

    >>> import numpy as np
    >>> from preferl.testing import make_episodes
    >>> episodes = make_episodes(np.random.default_rng(0), [30, 20])
    >>> agent = DecisionTransformer(
    ...     spaces.Box(-2, 2, (2,)), spaces.Box(-1, 1, (2,)), DTConfig(width=8, layers=1),
    ...     seed=0, steps=2,
    ... )
    >>> sorted(agent.fit(agent.sequences(episodes)))
    ['grad_norm', 'loss']
    >>> agent.policy().predict(np.zeros((5, 2)))[0].shape
    (5, 2)
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: DTConfig | None = None,
        *,
        seed: int,
        steps: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        for module in ("transformers", "accelerate"):
            require(module, extra="hub")
        require_in("steps", 1 if steps is None else steps, 1, math.inf)
        require_in("seed", seed, 0, math.inf)
        self.observation_space = observation_space
        self.action_space = action_space
        self.config = config or DTConfig()
        self.seed = seed
        self.steps = steps
        self.device = torch.device(device)
        # Imported here, since it takes seconds to load, and policies act without it.
        from preferl.offline.decision_transformer.hugging_face import TrainedTransformer

        self._module = TrainedTransformer(observation_space, action_space, self.config, seed)
        self._data: Sequences | None = None

    def sequences(self, episodes: Episodes, *, rewards: FloatArray | None = None) -> Sequences:
        """Return the sequences that this agent learns from. Rewards `[T]` replace recorded ones."""
        config = self.config
        return Sequences.of(
            episodes,
            self.action_space,
            rewards=rewards,
            context=config.context,
            discount=config.discount,
            scale=config.scale,
            horizon=config.horizon,
        )

    def fit(
        self,
        data: Sequences,
        *,
        folder: Path | str | None = None,
        resume: bool = False,
        checkpoint_every: int = 5_000,
        on_progress: OnProgress | None = None,
        every: int = 100,
        options: Mapping[str, Any] | None = None,
        callbacks: Sequence[Any] = (),
    ) -> dict[str, float]:
        """Learn for the planned number of updates.

        Under torchrun, each process computes its share of every minibatch, and all processes end
        with the same parameters.

        Args:
            data: what `sequences` returned.
            folder: folder of checkpoints; None keeps none.
            resume: whether to continue from the last checkpoint in `folder`, if there is one.
            checkpoint_every: updates between two checkpoints.
            on_progress: called every `every` updates, and at the end.
            every: updates between two calls of `on_progress`.
            options: further options of Hugging Face's `TrainingArguments`, such as `report_to` or
                `gradient_accumulation_steps`. Options that this method sets itself are refused.
                `num_train_epochs` replaces `steps`: an epoch draws as many windows as there are
                episodes. `push_to_hub` pushes the complete policy at each checkpoint (unless
                `hub_strategy` is `"end"`) and at the end.
            callbacks: further callbacks of Hugging Face's `Trainer`.

        Returns:
            The metrics of the last report.

        Raises:
            ConfigError: a setting is out of range, processes cannot share the batch, or an option
                is set here or does not exist.
            SpaceError: the data have other spaces.
            StorageError: the hub refuses the policy at the end. `policy()` still returns it.
        """
        from preferl.offline.decision_transformer import hugging_face

        require_in("checkpoint_every", checkpoint_every, 1, math.inf)
        require_in("every", every, 1, math.inf)
        config = self.config
        module = self._module
        options = dict(options or {})
        if (module.inputs, module.outputs) != (data.states.shape[1:], data.actions.shape[-1]):
            raise SpaceError(
                f"sequences: expected states of shape {module.inputs} and actions of "
                f"{module.outputs} numbers, got states of shape {data.states.shape[1:]} and "
                f"actions of {data.actions.shape[-1]} numbers. Use the spaces of the environment "
                "that was recorded."
            )
        hugging_face.require_options(options)
        target, pushes_checkpoints = hugging_face.hub_target(
            options, None if folder is None else Path(folder)
        )
        self.steps, epoch = hugging_face.planned_updates(
            options, self.steps, episodes=len(data.returns), batch_size=config.batch_size
        )
        if module.critics is not None:
            module.critics.unit.fill_(float(data.rewards[:-1].std()) or 1.0)

        def on_save() -> None:
            try:
                if pushes_checkpoints:
                    self.policy().push_to_hub(**target, message="Training under way")
            except StorageError as error:  # training continues while the hub is away
                LOGGER.warning("Not pushed this time: %s", error)

        hooks = hugging_face.Hooks(module, config, on_progress, on_save)
        module.to(self.device).train()
        self._data = data  # before training, since a callback may call `policy`
        with ExitStack() as stack:
            if folder is None:
                folder = stack.enter_context(TemporaryDirectory())
                resume = False
                options = {"save_strategy": "no"} | options
            is_first = hugging_face.train(
                module,
                SequenceCollator(data, config.context, seed=self.seed),
                config,
                {
                    "output_dir": str(folder),
                    "max_steps": self.steps,
                    "seed": self.seed % 2**32,
                    "report_to": "none",
                    "logging_steps": min(every, self.steps),
                    "save_steps": checkpoint_every,
                    **hugging_face.by_steps(options, epoch),
                },
                device=self.device,
                resume=resume,
                callbacks=[hooks, *callbacks],
            )
        if is_first and target:
            self.policy().push_to_hub(**target, message="Training done")
        return hooks.metrics

    def learn(self, episodes: Episodes, rewards: FloatArray, folder: Path, **how: Any) -> None:
        """Learn from rewards `[1, T]`, from a folder's last checkpoint on; for `how`, see `fit`."""
        data = self.sequences(episodes, rewards=rewards[0])
        self.fit(data, folder=folder, resume=True, **how)

    def policies(self) -> list[DecisionTransformerPolicy]:
        """Return the agent's policy in a list."""
        return [self.policy()]

    @staticmethod
    def load_policy(path: Path, reward: Reward | None) -> DecisionTransformerPolicy:
        """Read a policy that a run saved.

        `reward`, or else the true one, lowers its target return.
        """
        return DecisionTransformerPolicy.load(path).with_reward(reward)

    def policy(
        self, target: float | str | None = None, *, decrement: Decrement | None = None
    ) -> DecisionTransformerPolicy:
        """Return a policy with a copy of the learned parameters.

        Args:
            target: target return, or a quantile of the returns that the agent learned from, such as
                `"q0.95"`; by default the config's.
            decrement: how the target return is lowered at each step; by default the config's.

        Raises:
            ConfigError: the agent has not learned yet, or the target is neither a number nor a
                quantile.
        """
        if self._data is None:
            raise ConfigError("The agent has not learned from any data. Call fit first.")
        config = self.config
        module = self._module
        model: Any = module.transformer
        statistics = replace(
            self._data.statistics, context=config.context, discount=config.discount
        )
        learned = LearnedTransformer(
            self.observation_space,
            self.action_space,
            module.copies(),
            module.shape,
            statistics,
            hub=model.config.to_dict() | {"architectures": ["DecisionTransformerModel"]},
            pixel_encoder=config.pixel_encoder,
            regulariser=config.regulariser,
        )
        policy = DecisionTransformerPolicy(learned, decrement=decrement or config.decrement)
        return policy.with_target(config.target if target is None else target)
