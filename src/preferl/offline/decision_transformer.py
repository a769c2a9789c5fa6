"""The Decision Transformer: actions that would lead to a return (Chen et al. 2021).

The model is Hugging Face's, trained by its `Trainer`, so that checkpoints, several processes and
whatever else that does come with it.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import torch
from gymnasium import spaces

from preferl._optional import require
from preferl.data.episodes import Episodes
from preferl.errors import ConfigError, SpaceError, StorageError, require_in
from preferl.offline.context import Conditions
from preferl.offline.decision_policy import DecisionTransformerPolicy
from preferl.offline.dt_config import DTConfig, Spending
from preferl.offline.sequences import SequenceCollator, Sequences
from preferl.offline.trained_transformer import TrainedTransformer
from preferl.offline.trainer_options import Pushing, planned_updates, require_options
from preferl.shapes import FloatArray

LOGGER: Final = logging.getLogger(__name__)

OnProgress = Callable[[int, dict[str, float]], None]
"""Told the updates made and, by name, the means since it was last told."""


@final
class DecisionTransformer:
    """One agent that learns which actions led to which returns.

    Attributes:
        observation_space: what observations look like.
        action_space: what actions look like.
        config: settings.
        seed: of its parameters, minibatches and dropout.
        steps: updates planned; None until `fit` counts those of its epochs.
        device: where it learns.

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
        """Build the agent.

        Args:
            observation_space: a Box of floats, a Dict of these, or pictures.
            action_space: a Box of floats, or Discrete.
            config: settings; the defaults if None.
            seed: of all that is drawn.
            steps: updates planned, over which the learning rate rises and falls; None leaves
                them to `num_train_epochs` of `fit`.
            device: where it learns.

        Raises:
            SpaceError: other spaces.
            ConfigError: less than one update.
            MissingExtraError: transformers or accelerate is not installed.
        """
        for module in ("transformers", "accelerate"):
            require(module, extra="hub")
        require_in("steps", 1 if steps is None else steps, 1, math.inf)
        require_in("seed", seed, 0, math.inf)
        self.observation_space, self.action_space = observation_space, action_space
        self.config = config = config or DTConfig()
        self.seed, self.steps, self.device = seed, steps, torch.device(device)
        self._module = TrainedTransformer(observation_space, action_space, config, seed)
        self._data: Sequences | None = None

    def sequences(self, episodes: Episodes, *, rewards: FloatArray | None = None) -> Sequences:
        """Episodes as this agent learns from them.

        Args:
            episodes: what was recorded.
            rewards: `[T]`, such as learned ones; those of the episodes if None.
        """
        config = self.config
        return Sequences.of(
            episodes,
            self.action_space,
            rewards=rewards,
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

        Under torchrun each of the processes takes its part of every minibatch, and all end up
        with the same parameters.

        Args:
            data: what it learns from.
            folder: gets checkpoints, from which it can go on; None keeps none.
            resume: go on from the last checkpoint in `folder`, if there is one.
            checkpoint_every: updates between two of them.
            on_progress: told every `every` updates.
            every: updates.
            options: more of Hugging Face's `TrainingArguments`, such as `report_to` or
                `gradient_accumulation_steps`; those that are set here are refused by name.
                `num_train_epochs` takes the place of `steps`: an epoch draws as many windows as
                there are episodes. `push_to_hub` pushes the policy with all that belongs to it, at
                each checkpoint (if `hub_strategy` is not `"end"`) and at the end.
            callbacks: more of its `TrainerCallback`.

        Returns:
            The means over the last updates that were told.

        Raises:
            ConfigError: a setting out of range, a batch that processes cannot share, or an option
                that is set here or does not exist.
            SpaceError: data of other spaces.
            StorageError: the hub does not take the policy at the end; `policy()` has it.
        """
        from preferl.offline import hugging_face

        require_in("checkpoint_every", checkpoint_every, 1, math.inf)
        require_in("every", every, 1, math.inf)
        self._check(data)
        options = dict(options or {})
        require_options(options, hugging_face.known_options())
        pushing = Pushing.of(options, None if folder is None else Path(folder))
        config, module = self.config, self._module
        self.steps, epoch = planned_updates(
            options, self.steps, episodes=len(data.returns), batch_size=config.batch_size
        )
        module.begin(data)
        steps, latest = self.steps, dict[str, float]()

        def on_log(step: int, logs: dict[str, float]) -> None:
            latest.clear()
            latest.update({name: logs[name] for name in ("loss", "grad_norm") if name in logs})
            latest.update({name: float(value) for name, value in module.measured.items()})
            if on_progress is not None:
                on_progress(step, dict(latest))

        def on_save() -> None:
            if pushing is None or not pushing.often:
                return
            try:
                self._push(data, pushing, "Training under way")
            except StorageError as error:  # a hub that is away does not end the training
                LOGGER.warning("Not pushed this time: %s", error)

        with ExitStack() as stack:
            if folder is None:
                folder, resume = stack.enter_context(TemporaryDirectory()), False
                options = {"save_strategy": "no"} | options
            first = hugging_face.train(
                module.to(self.device).train(),
                SequenceCollator(
                    data, config.context, seed=self.seed, ends=config.regulariser is not None
                ),
                Path(folder),
                config,
                steps=steps,
                epoch=epoch,
                device=self.device,
                seed=self.seed,
                save_every=checkpoint_every,
                report_every=min(every, steps),
                resume=resume,
                on_log=on_log,
                after_update=lambda step: module.follow(step / steps),
                on_save=on_save,
                options=options,
                callbacks=callbacks,
            )
        self._data = data
        if first and pushing is not None:
            self._push(data, pushing, "Training done")
        return latest

    def policy(
        self, target: float | str | None = None, *, spending: Spending | None = None
    ) -> DecisionTransformerPolicy:
        """A copy of what was learned, that acts.

        Args:
            target: return to ask for, or `"q0.95"` for a quantile of those it learned from;
                the config's if None.
            spending: how that is lowered as it acts; the config's if None.

        Raises:
            ConfigError: nothing was learned from yet, or a target that is no such thing.
        """
        if self._data is None:
            raise ConfigError("The agent has seen no data. Call fit first.")
        policy = self._policy(self._data)
        policy.spending = spending or policy.spending
        return policy if target is None else policy.asking(target)

    def _policy(self, data: Sequences) -> DecisionTransformerPolicy:
        """What the present parameters do, asking for the config's target."""
        from preferl.offline import hugging_face

        module, config = self._module, self.config
        policy = DecisionTransformerPolicy(
            self.observation_space,
            self.action_space,
            module.copies(),
            module.shape,
            Conditions.of(data, context=config.context, discount=config.discount),
            sight=config.sight,
            regulariser=config.regulariser,
            hub=hugging_face.config_json(module.transformer),
            spending=config.spending,
        )
        return policy.asking(config.target)

    def _push(self, data: Sequences, where: Pushing, message: str) -> None:
        """Push what was learned, with a card of what the policy itself knows."""
        to = {name: value for name, value in asdict(where).items() if name != "often"}
        self._policy(data).push_to_hub(**to, message=message)

    def _check(self, data: Sequences) -> None:
        expected = (self._module.inputs, self._module.outputs)
        got = (data.states.shape[1:], data.actions.shape[-1])
        if expected != got:
            raise SpaceError.mismatch(
                "sequences",
                expected="states of shape {} and actions of {} numbers".format(*expected),
                got="{} and {}".format(*got),
                fix="Use the spaces of the environment that was recorded.",
            )
