"""A Decision Transformer that acts to earn its target return."""

import json
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
from preferl.errors import ConfigError, SpaceError, StorageError, require_one_of
from preferl.evaluation.policy import PolicyReport
from preferl.feedback.step_rewards import AnyReward, Reward, as_reward
from preferl.files import write_text
from preferl.models.folder import POLICY, require_finite
from preferl.offline.decision_transformer.hub import any_error, local_folder, model_card
from preferl.offline.decision_transformer.parameters import ACTIONS, ARRAYS, LearnedTransformer
from preferl.offline.decision_transformer.sequences import (
    PADDED_ACTION,
    InputStatistics,
    action_features,
    action_size,
)
from preferl.offline.learner_configs import Decrement, DTRConfig, PixelEncoderConfig, TokenShape
from preferl.offline.policy import OfflinePolicy, batched, within
from preferl.offline.transitions import ActionScale, flat_observations
from preferl.reading import read_object
from preferl.registry import ENGINES
from preferl.shapes import Array, BoolArray, FloatArray, IntArray

KIND: Final = "decision-transformer"
HUB_WEIGHTS = "model.safetensors"  # the name that `from_pretrained` looks for
HUB_CONFIG = "config.json"


@final
class Context:
    """The last `H` steps of `V` environments, as a Decision Transformer sees them.

    `predict` returns it as its state: pass it on unchanged. Each of `C` candidate targets has its
    own returns-to-go, divided by the scale. A step is real if its episode has begun.
    """

    def __init__(
        self, statistics: InputStatistics, states: Array, actions: int, targets: FloatArray
    ) -> None:
        count = len(states)
        steps = statistics.context
        shape = (count, steps)  # [V, H]
        self._statistics = statistics
        self._targets = targets / statistics.scale  # [C]
        self._time = np.zeros(count, np.int64)
        self.states = np.zeros((*shape, *states.shape[1:]), states.dtype)
        self.actions = np.full((*shape, actions), PADDED_ACTION, np.float32)
        self.returns_to_go = np.zeros((count, len(targets), steps), np.float32)
        self.timesteps: IntArray = np.zeros(shape, np.int64)
        self.real: BoolArray = np.zeros(shape, bool)
        # `[V]` of the last actions; None until they are known
        self.rewards: FloatArray | None = None
        self.history: History | None = None  # for a learned reward that looks back

    def append(self, states: Array, starts: BoolArray | None, decrement: Decrement) -> None:
        """Append a step with normalised states `[V, *state]`. Its action is not known yet.

        Episodes begin where `starts` `[V]` is true. At the first step, they begin in all
        environments.
        """
        if len(states) != len(self.states) or (starts is not None and len(starts) != len(states)):
            raise SpaceError(f"observations: expected {len(self.states)} rows, got {len(states)}.")
        begin = ~self.real[:, -1]
        if starts is not None:
            begin = begin | np.asarray(starts, bool)
        self._time = np.where(begin, 0, self._time + 1)
        returns_to_go = self._next_returns_to_go(begin, decrement)
        if self.history is not None:
            self.history.forget(begin)
        for steps, empty, step in (
            (self.states, 0, states),
            (self.actions, PADDED_ACTION, PADDED_ACTION),
            (self.returns_to_go.swapaxes(1, 2), 0, returns_to_go),  # [V, H, C]
            (self.timesteps, 0, np.minimum(self._time, self._statistics.horizon - 1)),
            (self.real, False, True),
        ):
            steps[begin] = empty
            steps[:, :-1] = steps[:, 1:]
            steps[:, -1] = step
        self.rewards = None

    def _next_returns_to_go(self, begin: BoolArray, decrement: Decrement) -> FloatArray:
        """Return the returns-to-go `[V, C]` of the new step."""
        if decrement == "even":
            left = np.maximum(1 - self._time / self._statistics.longest, 0)
            return np.asarray(self._targets * left[:, None])
        if begin.all():
            return np.broadcast_to(self._targets, self.returns_to_go.shape[:2])
        if self.rewards is None:
            raise ConfigError(
                "reward of the last actions: expected policy.earned(state, rewards) before the "
                "next predict, but it was not called. Call it, or lower the target return evenly: "
                'decrement="even".'
            )
        received = self.rewards[:, None] / self._statistics.scale
        left = (self.returns_to_go[:, :, -1] - received) / self._statistics.discount
        return np.where(begin[:, None], self._targets, left)


@final
class DecisionTransformerPolicy:
    """A policy with the `predict` of stable-baselines3; its state is a `Context` of its last steps.

    It lowers its target return by the rewards it receives. If its returns were made with a learned
    reward (`with_reward`), these are the learned rewards. Otherwise they are the rewards passed to
    `earned`, as `evaluate_policy` does. If it lowers the target evenly, it needs no rewards.

    Args:
        learned: the parameters, and what belongs to them.
        decrement: how the target return is lowered.
        target: target return.
        seed: seed of drawn actions.
    """

    def __init__(
        self,
        learned: LearnedTransformer,
        *,
        decrement: Decrement = "received",
        target: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.learned = learned
        self.observation_space = learned.observation_space
        self.action_space = learned.action_space
        self.statistics = learned.statistics
        self.learner = learned.algorithm
        self.target = target
        self.decrement = decrement
        self._pixels = learned.build_pixel_encoder()
        self._critics = learned.build_critics()
        self.reward: Reward | None = None
        self._model: torch.nn.Module | None = None  # built on first use if no engine is registered
        self._rng = np.random.default_rng(seed)

    def with_target(self, target: float | str) -> Self:
        """Return this policy with another target return: a number, or a quantile like `"q0.9"`."""
        other = copy(self)
        other.target = self.statistics.target_return(target)
        return other

    def with_reward(self, reward: AnyReward | None) -> Self:
        """Return this policy with a learned reward instead of the environment's; None removes it.

        Pass the reward with which the returns of its training data were computed: a
        `RewardFunction`, or a plain function of observations and actions.
        """
        other = copy(self)
        other.reward = None if reward is None else as_reward(reward)
        return other

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Array, Any]:
        """Map observations `[V, *obs]`, or a single one, to actions within the action space.

        Args:
            observation: the environment's own observation.
            state: what the last call returned; it is changed in place. None at the first call.
            episode_start: `[V]` true for environments that have begun a new episode.
            deterministic: whether discrete actions are the likeliest instead of drawn; continuous
                actions are the same in both cases.

        Raises:
            SpaceError: observations have another shape or number.
            ConfigError: the rewards of the last actions are needed, but are not known.
        """
        single, batch = batched(observation, self.observation_space)
        states = self._states(batch)
        context = state
        if context is None:
            regulariser = self.learned.regulariser
            candidates = (1.0,) if regulariser is None else regulariser.candidates
            # Twice a negative return is a lower return, so candidates add a share of its size.
            targets = self.target + (np.array(candidates) - 1) * abs(self.target)  # [C]
            context = Context(self.statistics, states, action_size(self.action_space), targets)
        context.append(states, episode_start, self.decrement)
        actions = self._to_space(self._features(context, deterministic))
        # The context keeps actions after they were clipped to a bounded space.
        context.actions[:, -1] = action_features(actions, self.action_space)
        if self.reward is not None:
            if context.history is None:
                context.history = History(self.reward.context, len(actions))
            context.rewards = self.reward(*context.history.append(batch, actions))
        return (actions[0] if single else actions), context

    def earned(self, state: Any, rewards: FloatArray) -> None:
        """Pass on the rewards `[V]` of the last actions.

        If there is a learned reward, it replaces them.
        """
        if self.reward is None:
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
        address of the hub is that of huggingface_hub; `HF_ENDPOINT` sets it.

        Args:
            name: name of the repository, `OWNER/NAME`; it is made if absent.
            env: id of the environment, for the card.
            report: report on episodes of this policy in that environment, for the card's scores.
            data: description of the training data, for the card.
            licence: identifier such as `"mit"`, for the card.
            private: whether a new repository is private; None takes the owner's default.
            token: access token with write permission; None takes the one of `hf auth login`.
            revision: branch to write to.
            message: message of the commit.

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
            repository = api.create_repo(name, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(repository.repo_id, branch=revision, exist_ok=True)
            card = model_card(
                self.learned,
                repository.repo_id,
                target=self.target,
                decrement=self.decrement,
                env=env,
                report=report,
                data=data,
                licence=licence,
            )
            with TemporaryDirectory() as holder:
                folder = Path(holder) / "policy"
                self.save(folder)
                write_text(folder / "README.md", card)
                api.upload_folder(
                    repo_id=repository.repo_id,
                    folder_path=folder,
                    commit_message=message,
                    revision=revision,
                )
        return str(repository)

    def save(self, path: Path | str) -> None:
        """Write the policy as a folder, all or nothing; a learned reward is not written.

        An older policy there is replaced. `DecisionTransformerModel.from_pretrained` can also read
        the parameters from this folder.

        Raises:
            StorageError: the folder cannot be written to, or holds something else.
        """
        learned = self.learned
        model: dict[str, Tensor] = {}
        beside = {name: torch.from_numpy(getattr(self.statistics, name)) for name in ARRAYS}
        for name, tensor in learned.parameters.items():
            ours = name.startswith(("pixel_encoder.", "critics."))
            (beside if ours else model)[name] = tensor
        statistics = asdict(self.statistics)
        settings = {
            "kind": KIND,
            "learner": self.learner,
            "target": self.target,
            "decrement": self.decrement,
            "shape": asdict(learned.shape),
            "conditions": {k: value for k, value in statistics.items() if k not in ARRAYS},
            "pixel_encoder": asdict(learned.pixel_encoder),
            "regulariser": None if learned.regulariser is None else asdict(learned.regulariser),
        }
        spaces_of = (self.observation_space, self.action_space)
        with POLICY.saving(path, settings, beside, *spaces_of) as draft:
            save_file(model, draft / HUB_WEIGHTS, metadata={"format": "pt"})
            config = json.dumps(dict(learned.hub), indent=2)
            (draft / HUB_CONFIG).write_text(config, encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str, *, seed: int = 0) -> Self:
        """Read exactly the policy that `save` wrote, or that was pushed as `hub:OWNER/NAME`.

        `hub:OWNER/NAME@REVISION` is a branch, tag or commit of Hugging Face's hub. Actions that are
        drawn depend on `seed`.

        Raises:
            CheckpointError: the folder is missing, damaged, or of another format.
            MissingExtraError: the policy is on the hub, and huggingface_hub is not installed.
        """
        path = local_folder(path)
        settings, spaces_of, beside = POLICY.load(path)
        with POLICY.reading(path):
            if settings.get("kind") != KIND:
                raise ValueError(f"a policy of kind {settings.get('kind')}")
            model = load_file(path / HUB_WEIGHTS)
            require_finite(path, beside | model, dtype=torch.float32)
            arrays: dict[str, Any] = {name: beside.pop(name).numpy() for name in ARRAYS}
            quantiles = tuple(settings["conditions"].pop("quantiles"))
            statistics = InputStatistics(quantiles=quantiles, **settings["conditions"], **arrays)
            require_one_of("decrement", settings["decrement"], Decrement)
            regulariser = settings["regulariser"]
            learned = LearnedTransformer(
                *spaces_of,
                parameters=model | beside,
                shape=from_json(TokenShape, settings["shape"]),
                statistics=statistics,
                hub=read_object(path / HUB_CONFIG),
                pixel_encoder=from_json(PixelEncoderConfig, settings["pixel_encoder"]),
                regulariser=None if regulariser is None else from_json(DTRConfig, regulariser),
            )
            return cls(
                learned,
                decrement=settings["decrement"],
                target=statistics.target_return(settings["target"]),
                seed=seed,
            )

    @torch.inference_mode()
    def _features(self, context: Context, deterministic: bool) -> FloatArray:
        """Return the features `[V, A]` of the actions at the last step."""
        learned = self.learned
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
            predicted: Tensor = engine(learned.parameters, learned.shape, batch, last=True)[:, -1]
        else:
            from preferl.offline.decision_transformer import hugging_face

            self._model = self._model or hugging_face.rebuild_model(learned.hub, learned.parameters)
            predicted = hugging_face.plain_actions(self._model, batch)[:, -1]
        if self._critics is not None:
            values = self._critics(states[:, -1], predicted).view(-1, candidates)
            predicted = predicted[values.argmax(1) + torch.arange(len(values)) * candidates]
        if isinstance(self.action_space, spaces.Discrete) and not deterministic:
            noise = self._rng.gumbel(size=tuple(predicted.shape)).astype(np.float32)
            predicted = predicted + torch.from_numpy(noise)
        return np.asarray(predicted.numpy())

    def _to_space(self, features: FloatArray) -> Array:
        """Map features `[V, A]` to actions `[V, *act]` of the space."""
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            return np.asarray(features.argmax(-1) + int(space.start), space.dtype)
        return within(ActionScale.of(space).outward(torch.from_numpy(features)).numpy(), space)

    def _states(self, batch: Any) -> Array:
        """Return states `[V, *state]`: pictures unchanged, numbers flat and normalised."""
        statistics = self.statistics
        pictures = self._pixels is not None
        states = np.asarray(batch) if pictures else flat_observations(batch, np.float64)
        expected = self.observation_space.shape if pictures else statistics.mean.shape
        if states.shape[1:] != expected:
            raise SpaceError(f"observation: expected shape {expected}, got {states.shape[1:]}.")
        if pictures:
            return states
        return np.asarray((states - statistics.mean) / statistics.deviation, np.float32)


def load_offline_policy(path: Path, *, seed: int = 0) -> OfflinePolicy | DecisionTransformerPolicy:
    """Read a policy of an offline run; its folder names its kind."""
    with POLICY.reading(path):
        kind = read_object(path / POLICY.config).get("kind")
    policy = DecisionTransformerPolicy if kind == KIND else OfflinePolicy
    return policy.load(path, seed=seed)
