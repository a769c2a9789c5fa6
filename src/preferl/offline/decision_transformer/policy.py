"""A Decision Transformer that acts to earn its target return."""

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, final

import numpy as np
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file
from torch import Tensor

from preferl._optional import require
from preferl.configs import from_json
from preferl.data.windows import History
from preferl.errors import SpaceError, StorageError, require_one_of
from preferl.evaluation.policy import PolicyReport
from preferl.feedback.step_rewards import AnyReward, Reward, as_reward
from preferl.files import write_text
from preferl.models.folder import OFFLINE_POLICY, require_finite
from preferl.offline.decision_transformer.context import ARRAYS, Context, require_fitting
from preferl.offline.decision_transformer.hub import any_error, local_folder, model_card
from preferl.offline.decision_transformer.sequences import (
    InputStatistics,
    action_features,
    action_size,
    are_pictures,
)
from preferl.offline.decision_transformer.trained import ACTIONS, Critics, PixelEncoder
from preferl.offline.learner_configs import DTRConfig, PixelEncoderConfig, Spending, TokenShape
from preferl.offline.policy import OfflinePolicy, batched, within
from preferl.offline.transitions import ActionScale, flat_observations
from preferl.reading import read_object
from preferl.registry import ENGINES
from preferl.shapes import Array, FloatArray

KIND: Final = "decision-transformer"
HUB_WEIGHTS = "model.safetensors"  # as `from_pretrained` finds them
HUB_CONFIG = "config.json"


@final
class DecisionTransformerPolicy:
    """A policy with stable-baselines3's `predict` whose state is the context of its last steps.

    It lowers its target return by the rewards it receives: those of a learned reward, if its
    returns were made of one (`with_reward`), otherwise those that `earned` passes on, as
    `evaluate_policy` does. Where it lowers the target evenly, it needs no rewards.

    Args:
        observation_space: a Box of floats, a Dict of these, or pictures.
        action_space: a Box of floats, or Discrete.
        parameters: by Hugging Face's names; those beside its model begin with `pixel_encoder.`
            and `critics.`.
        shape: of the transformer.
        statistics: how inputs are made.
        pixel_encoder: its shape; ignored where states are numbers.
        regulariser: settings of the critics, or None where there are none.
        hub: config of Hugging Face's model.
        spending: how the target goes down.
        target: target return.
        seed: of actions that are drawn.

    Raises:
        ConfigError: settings that do not belong to these parameters.
        SpaceError: other spaces.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        parameters: Mapping[str, Tensor],
        shape: TokenShape,
        statistics: InputStatistics,
        *,
        pixel_encoder: PixelEncoderConfig,
        regulariser: DTRConfig | None,
        hub: Mapping[str, Any],
        spending: Spending = "paid",
        target: float = 0.0,
        seed: int = 0,
    ) -> None:
        parts = (parameters, shape, statistics, observation_space, action_space)
        states = require_fitting(*parts, pixel_encoder, regulariser)
        self.observation_space = observation_space
        self.action_space = action_space
        self.statistics = statistics
        self.target = target
        self.spending = spending
        self.learner = "DecisionTransformer" if regulariser is None else "DTR"
        self.parameters = dict(parameters)
        self._shape = shape
        self._hub = dict(hub)
        self._encoder_config = pixel_encoder
        self._regulariser = regulariser
        self._actions = action_size(action_space)
        generator = torch.Generator().manual_seed(0)
        self._pixels = None
        self._critics = None
        if are_pictures(observation_space):
            encoder = PixelEncoder(observation_space, pixel_encoder, generator)
            self._pixels = _with(encoder, "pixel_encoder", parameters)
        if regulariser is not None:
            critics = Critics(states + self._actions, regulariser, generator=generator)
            self._critics = _with(critics, "critics", parameters)
        self._reward: Reward | None = None
        self._model: torch.nn.Module | None = None  # without an engine
        self._rng = np.random.default_rng(seed)

    def with_target(self, target: float | str) -> Self:
        """The same policy with another target return: a number, or a quantile such as `"q0.9"`."""
        other = copy(self)
        other.target = self.statistics.target_return(target)
        return other

    def with_reward(self, reward: AnyReward | None) -> Self:
        """The same policy going by a learned reward in place of the environment's; None undoes it.

        It is the one that its returns were made of: a `RewardFunction`, or a plain function of
        observations and actions.
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
            state: from the call before, changed in place; None begins.
            episode_start: `[V]` which environments have begun a new episode.
            deterministic: the likeliest of discrete actions, rather than one drawn; continuous
                ones are the same either way.

        Raises:
            SpaceError: observations of another shape or number.
            ConfigError: the rewards of the last actions are needed and unknown.
        """
        single, batch = batched(observation, self.observation_space)
        states = self._states(batch)
        context = state
        if context is None:
            candidates = self._regulariser.candidates if self._regulariser else (1.0,)
            # Of a negative return, twice is less; more has to be more.
            targets = self.target + (np.array(candidates) - 1) * abs(self.target)  # [C]
            context = Context(self.statistics, states, self._actions, targets)
        context.append(states, episode_start, self.spending)
        actions = self._to_space(self._features(context, deterministic))
        # The context keeps the actions as a bounded space cut them off.
        context.actions[:, -1] = action_features(actions, self.action_space)
        if self._reward is not None:
            if context.history is None:
                context.history = History(self._reward.context, len(actions))
            context.rewards = self._reward(*context.history.append(batch, actions))
        return (actions[0] if single else actions), context

    def earned(self, state: Any, rewards: FloatArray) -> None:
        """Pass on the rewards `[V]` of the last actions; a learned reward goes before them."""
        if self._reward is None:
            state.rewards = np.asarray(rewards, np.float64).reshape(-1)

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
        """Push all that `save` writes, and a model card, to Hugging Face's hub in one commit.

        `load("hub:OWNER/NAME")` and `DecisionTransformerModel.from_pretrained` read it there. The
        address of the hub is that of huggingface_hub, which `HF_ENDPOINT` sets.

        Args:
            name: of the repository, `OWNER/NAME`; it is made if absent.
            env: id of the environment, for the card.
            report: episodes of this policy in it, for the card's scores.
            data: description of the training data, for the card.
            licence: identifier such as `"mit"`, for the card.
            private: whether a new repository is; None is the owner's default.
            token: of who may write there; None takes that of `hf auth login`.
            revision: branch to write to.
            message: of the commit.

        Returns:
            The address of the repository.

        Raises:
            MissingExtraError: huggingface_hub is not installed.
            StorageError: the hub cannot be reached, or refuses.
        """
        hub = require("huggingface_hub", extra="hub")
        api: Any = hub.HfApi(token=token, library_name="preferl")
        expected = "a repository that can be written to"
        fix = "Sign in with `hf auth login`, or pass a token that may write there."
        with any_error(StorageError, f"{name} on the hub", expected, fix):
            made = api.create_repo(name, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(made.repo_id, branch=revision, exist_ok=True)
            with TemporaryDirectory() as holder:
                folder = Path(holder) / "policy"
                about = (env, report, data, licence)
                self.save(folder)
                write_text(folder / "README.md", model_card(self, made.repo_id, *about))
                files = [hub.CommitOperationAdd(f.name, str(f)) for f in sorted(folder.iterdir())]
                api.create_commit(made.repo_id, files, commit_message=message, revision=revision)
        return str(made)

    def save(self, path: Path | str) -> None:
        """Write the policy as a folder, all or nothing, without the reward that it goes by.

        A policy that was there is replaced. `DecisionTransformerModel.from_pretrained` reads the
        parameters from there, too.

        Raises:
            StorageError: the folder cannot be written to, or holds something else.
        """
        beside = {
            k: v for k, v in self.parameters.items() if k.startswith(("pixel_encoder.", "critics."))
        }
        model = {k: v for k, v in self.parameters.items() if k not in beside}
        for name in ARRAYS:
            beside[name] = torch.from_numpy(getattr(self.statistics, name))
        about = {
            "kind": KIND,
            "learner": self.learner,
            "target": self.target,
            "spending": self.spending,
            "shape": asdict(self._shape),
            "conditions": {k: v for k, v in asdict(self.statistics).items() if k not in ARRAYS},
            "pixel_encoder": asdict(self._encoder_config),
            "regulariser": None if self._regulariser is None else asdict(self._regulariser),
        }
        spaces_of = (self.observation_space, self.action_space)
        with OFFLINE_POLICY.saving(path, about, beside, *spaces_of) as draft:
            save_file(model, draft / HUB_WEIGHTS, metadata={"format": "pt"})
            (draft / HUB_CONFIG).write_text(json.dumps(self._hub, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str, *, seed: int = 0) -> Self:
        """Read what `save` wrote, or what was pushed as `hub:OWNER/NAME`, to the same numbers.

        `hub:OWNER/NAME@REVISION` is a branch, tag or commit of Hugging Face's hub; `seed` is that
        of actions that are drawn.

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
            arrays: dict[str, Any] = {name: beside.pop(name).numpy() for name in ARRAYS}
            known = about["conditions"] | {"quantiles": tuple(about["conditions"]["quantiles"])}
            statistics = InputStatistics(**known, **arrays)
            require_one_of("spending", about["spending"], Spending)
            return cls(
                *spaces_of,
                model | beside,
                from_json(TokenShape, about["shape"]),
                statistics,
                pixel_encoder=from_json(PixelEncoderConfig, about["pixel_encoder"]),
                regulariser=about["regulariser"] and from_json(DTRConfig, about["regulariser"]),
                hub=read_object(path / HUB_CONFIG),
                spending=about["spending"],
                target=statistics.target_return(about["target"]),
                seed=seed,
            )

    @torch.inference_mode()
    def _features(self, context: Context, deterministic: bool) -> FloatArray:
        """`[V, A]` features of the actions at the last step."""
        candidates = context.returns_to_go.shape[1]

        def for_each(array: Array) -> Tensor:
            return torch.from_numpy(np.repeat(array, candidates, axis=0))  # [V * C, ...]

        states = for_each(context.states)
        batch = {
            "states": states if self._pixels is None else self._pixels(states),
            "actions": for_each(context.actions),
            "returns_to_go": torch.from_numpy(context.returns_to_go.reshape(len(states), -1, 1)),
            "timesteps": for_each(context.timesteps),
            "attention_mask": for_each(context.real),
        }
        if ACTIONS in ENGINES:  # faster, and needs no `transformers`
            engine = ENGINES.load(ACTIONS)
            predicted: Tensor = engine(self.parameters, self._shape, batch, last=True)[:, -1]
        else:
            from preferl.offline.decision_transformer import hugging_face

            self._model = self._model or hugging_face.rebuild_model(self._hub, self.parameters)
            predicted = hugging_face.plain_actions(self._model, batch)[:, -1]
        if self._critics is not None:
            values = self._critics(states[:, -1], predicted).view(-1, candidates)
            predicted = predicted[values.argmax(1) + torch.arange(len(values)) * candidates]
        if isinstance(self.action_space, spaces.Discrete) and not deterministic:
            noise = self._rng.gumbel(size=tuple(predicted.shape)).astype(np.float32)
            predicted = predicted + torch.from_numpy(noise)
        return np.asarray(predicted.numpy())

    def _to_space(self, features: FloatArray) -> Array:
        """`[V, A]` to `[V, *act]` actions of the space."""
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            return np.asarray(features.argmax(-1) + int(space.start), space.dtype)
        return within(ActionScale.of(space).outward(torch.from_numpy(features)).numpy(), space)

    def _states(self, batch: Any) -> Array:
        """`[V, *state]`: pictures as they are, numbers flat and normalised."""
        statistics = self.statistics
        pictures = self._pixels is not None
        states = np.asarray(batch) if pictures else flat_observations(batch, np.float64)
        expected = self.observation_space.shape if pictures else statistics.mean.shape
        got = states.shape[1:]
        if got != expected:
            raise SpaceError(f"observation: expected shape {expected}, got {got}.")
        if pictures:
            return states
        return np.asarray((states - statistics.mean) / statistics.deviation, np.float32)


def load_offline_policy(path: Path, *, seed: int = 0) -> OfflinePolicy | DecisionTransformerPolicy:
    """Read a policy of an offline run by the kind that its folder names."""
    with OFFLINE_POLICY.reading(path):
        kind = read_object(path / OFFLINE_POLICY.config).get("kind")
    policy = DecisionTransformerPolicy if kind == KIND else OfflinePolicy
    return policy.load(path, seed=seed)


def _with(module: Any, name: str, parameters: Mapping[str, Tensor]) -> Any:
    """A module with its part of the parameters, frozen."""
    own = {k.removeprefix(f"{name}."): v for k, v in parameters.items() if k.startswith(f"{name}.")}
    module.load_state_dict(own)
    return module.eval().requires_grad_(False)
