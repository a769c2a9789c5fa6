"""A Decision Transformer at work: it is asked for a return, and acts to earn it."""

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file
from torch import Tensor

from preferl.configs import from_json
from preferl.data.windows import History
from preferl.errors import SpaceError, require_one_of
from preferl.evaluation.policy import PolicyReport
from preferl.feedback.step_rewards import AnyReward, Reward, as_reward
from preferl.models.folder import OFFLINE_POLICY, require_finite
from preferl.offline.context import Conditions, Context
from preferl.offline.decision_sizes import require_fitting
from preferl.offline.dt_config import DTRConfig, SightConfig, Spending, TokenShape
from preferl.offline.dtr import Critics
from preferl.offline.hub import local_folder, model_card, push_policy
from preferl.offline.pixel_encoder import PixelEncoder
from preferl.offline.policy import batched, within
from preferl.offline.sequences import action_features, are_pictures
from preferl.offline.trainer_options import Pushing
from preferl.offline.transitions import ActionScale, flat_observations
from preferl.reading import read_object
from preferl.registry import ENGINES
from preferl.shapes import Array, FloatArray

KIND: Final = "decision-transformer"
NEXT_ACTION: Final = "next action"
"""The engine that does the last of what `hugging_face.plain_actions` does."""

HUB_WEIGHTS, HUB_CONFIG = "model.safetensors", "config.json"
"""The names under which Hugging Face's `DecisionTransformerModel.from_pretrained` finds them."""


@final
class DecisionTransformerPolicy:
    """A policy with stable-baselines3's `predict` whose state is what it has lived through lately.

    It asks itself for a target return, lowered by what it is paid as it goes. Who pays is a
    learned reward, if that is what its returns were made of (`paid_by`); otherwise whoever steps
    the environment tells it by `earned`, as `evaluate_policy` does. Spent evenly, nobody need say.

    Attributes:
        observation_space: what it sees.
        action_space: what it does.
        conditions: how its inputs are made.
        target: the return it asks for.
        spending: how that goes down.
        learner: what it was learned by.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        parameters: Mapping[str, Tensor],
        shape: TokenShape,
        conditions: Conditions,
        *,
        sight: SightConfig,
        regulariser: DTRConfig | None,
        hub: Mapping[str, Any],
        spending: Spending = "paid",
        target: float = 0.0,
        seed: int = 0,
    ) -> None:
        """A policy with these parameters.

        Args:
            observation_space: a Box of floats, a Dict of these, or pictures.
            action_space: a Box of floats, or Discrete.
            parameters: by Hugging Face's names, and those of `sight.` and `critics.`.
            shape: of the transformer.
            conditions: how inputs are made.
            sight: shape of what looks at pictures.
            regulariser: settings of critics, or None where there are none.
            hub: config of Hugging Face's model.
            spending: how the target goes down.
            target: return to ask for.
            seed: of actions that are drawn.

        Raises:
            ConfigError: settings to which these parameters do not belong.
            SpaceError: other spaces.
        """
        require_fitting(
            parameters,
            shape,
            conditions,
            observation_space,
            action_space,
            sight=sight,
            regulariser=regulariser,
        )
        self.observation_space, self.action_space = observation_space, action_space
        self.conditions, self.target, self.spending = conditions, target, spending
        self.learner = "DecisionTransformer" if regulariser is None else "DTR"
        self._parameters, self._shape, self._hub = dict(parameters), shape, dict(hub)
        self._sight_config, self._regulariser = sight, regulariser
        self._discrete = isinstance(action_space, spaces.Discrete)
        self._size = parameters["predict_action.0.weight"].shape[0]
        generator = torch.Generator().manual_seed(0)
        self._pixels = None
        if are_pictures(observation_space):
            pixels = PixelEncoder(observation_space, sight, generator)
            self._pixels = _with(pixels, "sight", parameters)
        self._critics = None
        if regulariser is not None:
            inputs = parameters["embed_state.weight"].shape[1] + self._size
            critics = Critics(inputs, regulariser, generator=generator)
            self._critics = _with(critics, "critics", parameters)
        self._reward: Reward | None = None
        self._model: torch.nn.Module | None = None  # where no engine computes what it does
        self._rng = np.random.default_rng(seed)

    def asking(self, target: float | str) -> Self:
        """The same policy asking for another return: a number, or a quantile such as `"q0.9"`.

        Raises:
            ConfigError: no such target.
        """
        other = copy(self)
        other.target = self.conditions.target(target)
        return other

    def paid_by(self, reward: AnyReward | None) -> Self:
        """The same policy paid by a learned reward, whatever the environment says; None undoes it.

        Args:
            reward: what its returns were made of, such as a `RewardFunction`, or a plain function
                of observations and actions.
        """
        other = copy(self)
        other._reward = None if reward is None else as_reward(reward)
        return other

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Array, Any]:
        """`[V, *obs]` observations, or a single one, to actions within the action space.

        Args:
            observation: as the environment gives it.
            state: what the call before handed back; None begins.
            episode_start: `[V]` which environments have begun a new episode.
            deterministic: the likeliest of discrete actions, rather than one drawn; continuous
                ones are the same either way.

        Returns:
            The actions, and the state to pass next, which is changed in place.

        Raises:
            SpaceError: observations of another shape or number.
            ConfigError: the reward of the last actions is needed and was not told.
        """
        single, batch = batched(observation, self.observation_space)
        states = self._states(batch)
        context = state
        if context is None:
            context = Context(self.conditions, states, self._size, self._candidates())
        context.see(states, episode_start, self.spending)
        features = self._choose(context, deterministic)
        actions = self._outward(features)
        # What is remembered is what was done, which a bounded space may have cut off.
        context.act(action_features(actions, self.action_space))
        if self._reward is not None:
            if context.history is None:
                context.history = History(self._reward.context, len(actions))
            context.paid = self._reward(*context.history.append(batch, actions))
        return (actions[0] if single else actions), context

    def earned(self, state: Any, rewards: FloatArray) -> None:
        """Say what the last actions earned.

        Args:
            state: what `predict` handed back.
            rewards: `[V]`; not looked at where a learned reward pays.
        """
        if self._reward is None:
            state.paid = np.asarray(rewards, np.float64).reshape(-1)

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return sum(tensor.numel() for tensor in self._parameters.values())

    @property
    def beside(self) -> str:
        """What acts beside Hugging Face's model, in words; empty where nothing does."""
        parts = {"sight": "what looks at pictures", "critics": "its critics"}
        firsts = {name.partition(".")[0] for name in self._parameters}
        return " and ".join(word for part, word in parts.items() if part in firsts)

    def push_to_hub(
        self,
        name: str,
        *,
        env: str | None = None,
        report: PolicyReport | None = None,
        data: str | None = None,
        licence: str | None = None,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        message: str = "Upload policy",
    ) -> str:
        """Push the policy to Hugging Face's hub: all that `save` writes, with a model card.

        `load("hub:OWNER/NAME")` and `DecisionTransformerModel.from_pretrained` read it there. The
        address of the hub is that of huggingface_hub, which `HF_ENDPOINT` sets.

        Args:
            name: of the repository, `OWNER/NAME`; it is made if it is not there.
            env: id of the environment, for the card.
            report: episodes of this policy in it, for the card's scores.
            data: what it learned from, for the card.
            licence: identifier such as `"mit"`; without one the card says that none was chosen.
            private: whether a new repository is; None is the owner's default.
            token: of who may write there; None takes that of `hf auth login`.
            revision: branch that is written to.
            message: of the commit.

        Returns:
            The address of the repository.

        Raises:
            MissingExtraError: huggingface_hub is not installed.
            StorageError: the hub cannot be reached, or refuses.
        """
        card = partial(model_card, self, env=env, report=report, data=data, licence=licence)
        return push_policy(self, Pushing(name, token, private, revision), card, message)

    def save(self, path: Path | str) -> None:
        """Write the policy as a folder, all or nothing.

        `DecisionTransformerModel.from_pretrained` reads its parameters from there, too. The
        reward that pays it is not among them.

        Args:
            path: the folder; a policy that was there is replaced.

        Raises:
            StorageError: the folder cannot be written to, or holds something else.
        """
        beside = {k: v for k, v in self._parameters.items() if k.startswith(("sight.", "critics."))}
        model = {k: v for k, v in self._parameters.items() if k not in beside}
        conditions = self.conditions
        arrays = {"mean": conditions.mean, "deviation": conditions.deviation}
        tensors = beside | {name: torch.from_numpy(array) for name, array in arrays.items()}
        spaces_of = (self.observation_space, self.action_space)
        with OFFLINE_POLICY.saving(path, self._about(), tensors, *spaces_of) as draft:
            save_file(model, draft / HUB_WEIGHTS, metadata={"format": "pt"})
            (draft / HUB_CONFIG).write_text(json.dumps(self._hub, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str, *, seed: int = 0) -> Self:
        """Read a policy; every number is the one that was saved.

        Args:
            path: the folder that `save` wrote, or `hub:OWNER/NAME` (`hub:OWNER/NAME@REVISION`) for
                one that was pushed to Hugging Face's hub.
            seed: of actions that are drawn.

        Raises:
            CheckpointError: no such folder, a damaged one, or one of another format.
            MissingExtraError: it is on the hub, and huggingface_hub is not installed.
        """
        path = local_folder(path)
        about, spaces_of, beside = OFFLINE_POLICY.load(path)
        with OFFLINE_POLICY.reading(path):
            if about.get("kind") != KIND:
                raise ValueError(f"a policy of kind {about.get('kind')}")
            model = load_file(path / HUB_WEIGHTS)
            require_finite(path, beside | model, dtype=torch.float32)
            mean, deviation = (beside.pop(name).numpy() for name in ("mean", "deviation"))
            conditions = Conditions.from_json(about["conditions"], mean, deviation)
            require_one_of("spending", about["spending"], Spending)
            return cls(
                *spaces_of,
                model | beside,
                from_json(TokenShape, about["shape"]),
                conditions,
                sight=from_json(SightConfig, about["sight"]),
                regulariser=about["regulariser"] and from_json(DTRConfig, about["regulariser"]),
                hub=read_object(path / HUB_CONFIG),
                spending=about["spending"],
                target=conditions.target(about["target"]),
                seed=seed,
            )

    def _about(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "learner": self.learner,
            "target": self.target,
            "spending": self.spending,
            "shape": asdict(self._shape),
            "conditions": self.conditions.to_json(),
            "sight": asdict(self._sight_config),
            "regulariser": None if self._regulariser is None else asdict(self._regulariser),
        }

    def _candidates(self) -> FloatArray:
        """`[C]` target returns; one, where there are no critics to choose."""
        if self._regulariser is None:
            return np.array([self.target])
        # Of a negative return, twice is less; more has to be more.
        more = np.array(self._regulariser.candidates) - 1
        return np.asarray(self.target + more * abs(self.target))

    @torch.inference_mode()
    def _choose(self, context: Context, deterministic: bool) -> FloatArray:
        """`[V, A]` features of actions at the step that was seen last."""
        candidates = context.asked.shape[1]

        def for_each(array: Array) -> Tensor:
            return torch.from_numpy(np.repeat(array, candidates, axis=0))  # [V * C, ...]

        seen = for_each(context.states)
        batch = {
            "states": seen if self._pixels is None else self._pixels(seen),
            "actions": for_each(context.actions),
            "returns_to_go": torch.from_numpy(context.asked.reshape(len(seen), -1, 1)),
            "timesteps": for_each(context.timesteps),
            "attention_mask": for_each(context.real),
        }
        predicted = self._next_actions(batch)
        if self._critics is not None:
            judged = self._critics(seen[:, -1], predicted).view(-1, candidates)
            best = judged.argmax(1) + torch.arange(len(judged)) * candidates
            predicted = predicted[best]
        if self._discrete and not deterministic:
            noise = self._rng.gumbel(size=tuple(predicted.shape)).astype(np.float32)
            predicted = predicted + torch.from_numpy(noise)
        return np.asarray(predicted.numpy())

    def _next_actions(self, batch: Mapping[str, Tensor]) -> Tensor:
        """`[V * C, A]`, by the fast forward if there is one; it does without `transformers`."""
        if NEXT_ACTION in ENGINES:
            predicted: Tensor = ENGINES.load(NEXT_ACTION)(self._parameters, self._shape, batch)
            return predicted
        from preferl.offline import hugging_face

        if self._model is None:
            self._model = hugging_face.rebuild_model(self._hub, self._parameters)
        return hugging_face.plain_actions(self._model, batch)[:, -1]

    def _outward(self, features: FloatArray) -> Array:
        """`[V, A]` to `[V, *act]` actions of the space."""
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            return np.asarray(features.argmax(-1) + int(space.start), space.dtype)
        return within(ActionScale.of(space).outward(torch.from_numpy(features)).numpy(), space)

    def _states(self, batch: Any) -> Array:
        conditions, pictures = self.conditions, self._pixels is not None
        states = np.asarray(batch) if pictures else flat_observations(batch)
        expected = self.observation_space.shape if pictures else conditions.mean.shape
        if states.shape[1:] != expected:
            raise SpaceError.mismatch(
                "observation", expected=f"shape {expected}", got=states.shape[1:]
            )
        return states if pictures else (states - conditions.mean) / conditions.deviation


def _with(module: Any, name: str, parameters: Mapping[str, Tensor]) -> Any:
    """A module with its part of the parameters, at rest."""
    own = {k.removeprefix(f"{name}."): v for k, v in parameters.items() if k.startswith(f"{name}.")}
    module.load_state_dict(own)
    return module.eval().requires_grad_(False)
