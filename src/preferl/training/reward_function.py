"""A frozen snapshot of a reward model: arrays in, arrays out; saved as a folder.

The folder holds the model, and a JSON file about how its members become one reward.
"""

import hashlib
import json
from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
import safetensors.numpy
import torch
from torch import Tensor

from preferl.configs import to_json
from preferl.data.episodes import Episodes
from preferl.data.segments import Segments
from preferl.errors import ConfigError, ModelError
from preferl.feedback.likelihood import Likelihood
from preferl.feedback.step_rewards import AnyReward, step_rewards
from preferl.functional.preference import Combine, lower_bound, mean
from preferl.models.base import RewardModel
from preferl.models.build import load_reward_model, save_reward_model
from preferl.models.spaces import check_spaces
from preferl.reading import read_object, reading
from preferl.runs.versioned import digests
from preferl.shapes import Array, BoolArray, FloatArray, IntArray, Observations, leaves, take
from preferl.threads import is_small, threads_for
from preferl.training.batches import steps_for, to_tensor
from preferl.training.distributed import ALONE, World
from preferl.training.scaling import RewardScaler

CHUNK = 4096
"""Rows per forward pass: enough to keep the processor busy, and few enough for its cache."""

CHUNK_BYTES = 2**24
"""Bytes of pictures per forward pass; as floats, with a layer's outputs, they are tenfold."""

TRACED = 16_384
"""Steps of whole episodes that are encoded at once, to bound memory."""

REWARD: Final = "reward.json"
FITTED: Final = "fitted_pairs.safetensors"
PAIRS: Final = "pairs"
HEADER_BYTES: Final = 1024
"""Largest size in bytes of the file `FITTED`, apart from its numbers."""


@final
class RewardFunction:
    """The reward that a policy gets: a copy of a model that no later training can change.

    Args:
        model: model to copy; the copy is set to evaluation, without gradients.
        combine: makes one reward of the members' rewards: `mean` (the default) or `lower_bound(k)`.
        scaler: applied to each member before members are combined; None leaves the model's rewards
            unscaled.
        likelihood: `FitReport.likelihood` of the fit that made the model; None means no noise and a
            scale of 1. It turns `scores` into probabilities, and changes no reward.

    Raises:
        ConfigError: the scaler has another number of members than the model.

    Attributes:
        how: the argument `combine`.
        context: `H`, how many steps the reward sees.
        members: `E`, the number of members.
        observation_space: observation space of the model.
        action_space: action space of the model.

    >>> from gymnasium.spaces import Box
    >>> from preferl.models import MLPReward
    >>> model = MLPReward(Box(-1, 1, (3,)), Box(-1, 1, (1,)), seed=0)
    >>> reward = RewardFunction(model)
    >>> reward(np.zeros((5, 1, 3)), np.zeros((5, 1, 1)), np.ones((5, 1), bool)).shape
    (5,)
    """

    def __init__(
        self,
        model: RewardModel,
        *,
        combine: Combine = mean,
        scaler: RewardScaler | None = None,
        likelihood: Likelihood | None = None,
    ) -> None:
        shape = (model.members,) if scaler is None else scaler.mean.shape
        if shape != (model.members,):
            raise ConfigError(
                f"scaler: expected statistics of the model's {model.members} members, got shape "
                f"{shape}."
            )
        self._model = deepcopy(model).eval().requires_grad_(False)
        self._last = self._model.last_rewards()
        self._device = model.device  # looking it up costs a tenth of one step's reward
        self._small = is_small(model, context=model.context)
        self.how = combine
        self.scaler = scaler
        self.likelihood = likelihood or Likelihood()
        self.context = model.context
        self.members = model.members
        self._affine = None if scaler is None else self._affine_of(scaler)
        self.observation_space = model.observation_space
        self.action_space = model.action_space

    @property
    def fitted_pairs(self) -> IntArray:
        """`[P]` numbers of the pairs that the model was fitted to; see `RewardModel`."""
        return self._model.fitted_pairs

    @property
    def frozen_encoder(self) -> str:
        """Content id of the encoder whose features the reward observes; see `RewardModel`."""
        return self._model.frozen_encoder

    @property
    def device(self) -> torch.device:
        """The device on which rewards are computed."""
        return self._device

    @property
    def model(self) -> RewardModel:
        """A copy of the model, to save or to train on."""
        return deepcopy(self._model).requires_grad_(True)

    def scaled(
        self,
        episodes: Episodes,
        *,
        target: float = 1.0,
        centre: bool = True,
        world: World = ALONE,
    ) -> Self:
        """Return this reward with a `RewardScaler` fitted to episodes, for example the latest.

        For `world`, see `member_rewards`.
        """
        rewards = self.member_rewards(episodes, world=world)
        scaler = RewardScaler.fit(rewards, target=target, centre=centre)
        return type(self)(self._model, combine=self.how, scaler=scaler, likelihood=self.likelihood)

    def __call__(self, observations: Observations, actions: Array, mask: BoolArray) -> FloatArray:
        """Compute the reward of the last step of each window.

        Args:
            observations: `[B, H, *obs]`; `H` may exceed the model's context.
            actions: `[B, H, *act]`
            mask: `[B, H]` true where a step is real; real steps come last.

        Returns:
            `[B]` as float32.
        """
        if mask.shape[1] > self.context:
            last = np.s_[:, -self.context :]
            observations = take(observations, last)
            actions = actions[last]
            mask = mask[last]
        # No parameter needs gradients, and switching them off costs a tenth of a step's reward.
        with threads_for(small=self._small):
            return self._combined(self._last(self._encoded(observations, actions), mask).cpu())

    @torch.inference_mode()
    def of_tensors(self, observations: Any, actions: Tensor, mask: Tensor) -> Tensor:
        """Compute rewards as `__call__` does, from tensors on the model's device, without copies.

        Args:
            observations: `[B, H, *obs]`, or a dictionary of such tensors; floats as float32.
            actions: `[B, H, *act]`
            mask: `[B, H]` true where a step is real; real steps come last.

        Returns:
            `[B]` float32 on the device.
        """
        features = self._model.encoder(observations, actions)
        if self.context == 1:
            rewards = self._last(features, mask)
        else:
            rewards = self._model.judge(features, mask).rewards[..., -1]
        if self._affine is not None:  # in fast environments, looping over members costs time
            mean, scale = self._affine
            rewards = (rewards - mean) * scale
        return self.how(rewards)

    def combine(self, rewards: FloatArray) -> FloatArray:
        """Combine members' rewards `[E, ...]` to `[...]`, scaled first if there is a scaler."""
        return self._combined(torch.from_numpy(rewards))

    def member_rewards(self, episodes: Episodes, *, world: World = ALONE) -> FloatArray:
        """Compute each member's reward of each step, `[E, T]`, unscaled.

        Processes of a `world` share the work. All of them get the same rewards to the last bit, and
        the same as one process alone.

        Raises:
            SpaceError: the episodes' shapes differ from those that the model was built for.
        """
        steps = episodes.observations, episodes.actions
        check_spaces(self.observation_space, self.action_space, *steps)
        with threads_for(small=self._small):
            if self.context == 1:
                return self._step_rewards(*steps, world)
            return self._history_rewards(episodes, world)

    def scores(self, segments: Segments) -> FloatArray:
        """Compute scores `[E, N]` of segments by each member; differences are preference logits.

        A Markovian model computes each distinct step once, even if several segments hold it.

        Raises:
            SpaceError: the segments' shapes differ from those that the model was built for.
        """
        steps = segments.observations, segments.actions
        check_spaces(self.observation_space, self.action_space, *steps)
        with threads_for(small=self._small):
            if self.context == 1:
                return self._pooled_scores(segments)
            clips = (segments[rows] for rows in _chunks(len(segments), CHUNK // segments.length))
            parts = [self._forward(c.observations, c.actions, c.mask)[1] for c in clips]
            return np.concatenate(parts, axis=1)

    def _pooled_scores(self, segments: Segments) -> FloatArray:
        # If windows cover only a part of the block, the other steps are not computed.
        sparse = len(segments) * segments.length < segments.steps
        compact = segments.select(slice(None)) if sparse else segments
        rewards = torch.from_numpy(self._step_rewards(compact.observations, compact.actions))
        parts = []
        for chunk in _chunks(len(compact), CHUNK):
            rows, mask = (
                torch.from_numpy(column(chunk)) for column in (compact.rows, compact.mask)
            )
            parts.append(self._model.pool(rewards[:, rows], mask))
        return np.asarray(torch.cat(parts, dim=1).numpy())

    def _step_rewards(
        self, observations: Observations, actions: Array, world: World = ALONE
    ) -> FloatArray:
        """Compute rewards `[E, T]` of a Markovian model, with every step as a window of its own."""
        pixels = (o for o in leaves(observations) if o.dtype == np.uint8)
        size = sum(int(np.prod(o.shape[1:])) for o in pixels)
        rewards = np.zeros((self.members, len(actions)), np.float32)
        for rows in world.own(_chunks(len(actions), min(CHUNK, CHUNK_BYTES // max(1, size)))):
            steps = take(take(observations, rows), np.s_[:, None]), actions[rows, None]
            outputs, _ = self._forward(*steps, np.ones((len(steps[1]), 1), bool))
            rewards[:, rows] = outputs[:, :, 0]
        return _merged(rewards, world)

    @torch.inference_mode()
    def _history_rewards(self, episodes: Episodes, world: World) -> FloatArray:
        rewards = np.zeros((self.members, episodes.steps), np.float32)
        # Groups of neighbouring episodes have about `TRACED` steps; no episode is cut.
        group = (np.cumsum(episodes.lengths) - episodes.lengths) // TRACED
        for number in world.own(np.unique(group).tolist()):
            members = np.flatnonzero(group == number)
            first = int(episodes.starts[members[0]])
            lengths = episodes.lengths[members]
            steps = slice(first, first + int(lengths.sum()))
            features = self._encoded(take(episodes.observations, steps), episodes.actions[steps])
            traced = self._model.trace(features, torch.from_numpy(lengths))
            rewards[:, steps] = traced.cpu().numpy()
        return _merged(rewards, world)

    def _combined(self, rewards: Tensor) -> FloatArray:
        if self.scaler is not None:
            rewards = torch.from_numpy(self.scaler(rewards.numpy()))
        return np.asarray(self.how(rewards).numpy())

    @torch.inference_mode()
    def _forward(
        self, observations: Observations, actions: Array, mask: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Compute rewards `[E, B, L]` and scores `[E, B]` of windows."""
        real = to_tensor(mask, self._device)
        rewards, scores = self._model.judge(self._encoded(observations, actions), real)
        return rewards.cpu().numpy(), scores.cpu().numpy()

    def _affine_of(self, scaler: RewardScaler) -> tuple[Tensor, Tensor]:
        """Return the shift and the factor `[E, 1]` by which a scaler maps rewards `[E, B]`."""
        mean = torch.tensor(scaler.mean, dtype=torch.float32, device=self._device)
        scale = scaler.target / scaler.deviation
        factor = torch.tensor(scale, dtype=torch.float32, device=self._device)
        return mean[:, None], factor[:, None]

    def _encoded(self, observations: Observations, actions: Array) -> Any:
        encoder = self._model.encoder
        return encoder(*steps_for(encoder, observations, actions, self._device))


def agent_reward(
    model: RewardModel,
    likelihood: Likelihood,
    reference: Episodes | RewardScaler,
    *,
    pessimism: float = 0.0,
    deviation: float = 1.0,
    centre: bool = True,
    world: World = ALONE,
) -> RewardFunction:
    """Make the reward that an agent gets from a fitted model.

    Each member's rewards are scaled over the reference. The reward is the members' mean minus
    `pessimism` times their standard deviation (Christiano et al. 2017, section 2.2).

    Args:
        model: reward model; it is copied.
        likelihood: `FitReport.likelihood` of the fit.
        reference: episodes over which each member's mean and standard deviation are computed, or a
            scaler that was fitted before.
        pessimism: how many standard deviations over the members are subtracted from their mean.
            Below 0, they are added as an exploration bonus (RUNE).
        deviation: standard deviation of each member's scaled rewards over the reference.
        centre: whether the mean of each member's rewards over the reference becomes zero.
        world: see `RewardFunction.member_rewards`.
    """
    combine = lower_bound(pessimism) if pessimism else mean
    scaler = reference if isinstance(reference, RewardScaler) else None
    reward = RewardFunction(model, combine=combine, scaler=scaler, likelihood=likelihood)
    if isinstance(reference, RewardScaler):
        return reward
    return reward.scaled(reference, target=deviation, centre=centre, world=world)


def relabel(episodes: Episodes, reward: AnyReward, *, world: World = ALONE) -> Episodes:
    """Return the episodes with the reward of `reward` for each step, given the step's history.

    The reward of a step is the model's output for the window that ends there, exactly as an agent
    gets it while acting. Rewards are `[T]` float32; all other arrays are shared. `reward` may also
    be a control, or a plain function of observations and actions.

    Processes of a `world` share the work of a `RewardFunction`. All of them get all rewards, and to
    the last bit the same as one process alone.

    Raises:
        SpaceError: the episodes' shapes differ from those that the reward was built for.
    """
    if isinstance(reward, RewardFunction):
        rewards = reward.combine(reward.member_rewards(episodes, world=world))
    else:
        rewards = step_rewards(reward, episodes)
    return replace(episodes, rewards=np.asarray(rewards, np.float32))


def save_reward(path: Path | str, reward: RewardFunction) -> None:
    """Write a reward with its scale as a folder, all or nothing; replace an earlier reward there.

    Raises:
        ConfigError: members are not combined by `mean` or `lower_bound`, or the model's class is
            not registered.
        ModelError: `reward` is not a `RewardFunction`.
        StorageError: the folder cannot be written to, or holds files other than a model's, which
            writing would delete.
    """
    if not isinstance(reward, RewardFunction):
        raise ModelError(
            f"reward: expected a RewardFunction, got {type(reward).__name__}. Save a reward model "
            "with save_reward_model, or as `RewardFunction(model)`."
        )
    description = reward_to_json(reward)
    extra_files = {REWARD: json.dumps(description, indent=2).encode()}
    if len(reward.fitted_pairs):
        extra_files[FITTED] = safetensors.numpy.save({PAIRS: reward.fitted_pairs})
    save_reward_model(path, reward.model, extra_files=extra_files)


def load_reward(
    path: Path | str, *, device: str = "cpu", trust: Collection[str] = ()
) -> RewardFunction:
    """Read a reward that `save_reward` wrote, with exactly the same numbers.

    For `device` and `trust`, see `load_reward_model`.

    Raises:
        CheckpointError: the folder is missing or damaged, or holds a model of an unknown class.
    """
    path = Path(path)
    model = load_reward_model(path, device=device, trust=trust)
    expected = "how a reward's members are scaled and combined"
    fix = "Restore the folder as a whole; a model alone loads with load_reward_model."
    with reading(path / REWARD, expected=expected, fix=fix):
        description = read_object(path / REWARD)
        count = int(description["fitted_pairs"])
    if count:
        with reading(path / FITTED, expected=f"{count} pairs that the reward was fitted to"):
            model.fitted_pairs = _read_fitted_pairs(path / FITTED, count)
    with reading(path / REWARD, expected=expected, fix=fix):
        return reward_from_json(model, description)


def reward_to_json(reward: RewardFunction) -> dict[str, Any]:
    """Return how a reward scales and combines its members, for `reward_from_json`.

    Raises:
        ConfigError: members are not combined by `mean` or `lower_bound`.
    """
    combine = reward.how
    combined = {"kind": "mean"}
    bounded = isinstance(combine, partial) and combine.func is lower_bound().func
    if not bounded and combine is not mean:
        raise ConfigError(
            f"combine: expected mean or lower_bound(k), got {combine}. Save the model with "
            "save_reward_model and combine its members in code."
        )
    if isinstance(combine, partial):
        combined = {"kind": "lower_bound", **combine.keywords}
    return {
        "combine": combined,
        "scaler": None if reward.scaler is None else to_json(reward.scaler),
        "likelihood": reward.likelihood.to_json(),
        "fitted_pairs": len(reward.fitted_pairs),
        "frozen_encoder": reward.frozen_encoder,
    }


def reward_from_json(model: RewardModel, about: dict[str, Any]) -> RewardFunction:
    """Return the reward of a model that `reward_to_json` described.

    Raise what `reading` expects.
    """
    scale = about["scaler"]
    scaler = None
    if scale is not None:
        average, deviation = (np.array(scale[name]) for name in ("mean", "deviation"))
        scaler = RewardScaler(average, deviation, scale["target"])
    likelihood = Likelihood(**about["likelihood"])
    combine = _combine_from_json(about["combine"])
    model.frozen_encoder = str(about["frozen_encoder"])
    return RewardFunction(model, combine=combine, scaler=scaler, likelihood=likelihood)


def reward_version(path: Path | str) -> str:
    """Return the version of a saved reward: a digest of its files."""
    text = json.dumps(digests(Path(path)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _read_fitted_pairs(file: Path, count: int) -> IntArray:
    """Read the numbers of `count` pairs from a file; refuse a file that is larger than needed."""
    if file.stat().st_size > 8 * count + HEADER_BYTES:
        raise ValueError(f"{file.stat().st_size} bytes")
    pairs = safetensors.numpy.load_file(file)[PAIRS]
    if pairs.shape != (count,) or pairs.dtype != np.int64:
        raise ValueError(f"{pairs.dtype} of shape {pairs.shape}")
    return pairs


def _combine_from_json(data: dict[str, Any]) -> Combine:
    if data["kind"] == "mean":
        return mean
    bounded = data["kind"] == "lower_bound" and np.isfinite(float(data["deviations"]))
    if not bounded:
        raise ConfigError(
            f"combine: expected mean, or lower_bound with a finite number, got {data}."
        )
    return lower_bound(float(data["deviations"]))


def _merged(rewards: FloatArray, world: World) -> FloatArray:
    return np.asarray(world.merge(torch.from_numpy(rewards)).numpy())


def _chunks(count: int, size: int) -> list[slice]:
    """Split 0 to `count` into parts; 0 gives one empty part, so that results keep their axes."""
    size = max(1, size)
    return [slice(i, min(i + size, count)) for i in range(0, max(1, count), size)]
