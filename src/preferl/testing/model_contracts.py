"""Checks of the contract that a reward model of yours must keep (torch)."""

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from preferl.errors import ConfigError, ModelError, in_words
from preferl.models.base import RewardModel, RewardOutput
from preferl.models.build import config_of, load_reward_model, save_reward_model
from preferl.shapes import map_observations, take
from preferl.testing.worlds import sample_steps
from preferl.training.batches import to_tensor, to_tensors

WINDOWS = 5
LONGEST = 6


def check_reward_model(model: RewardModel, *, seed: int = 0) -> None:
    """Raise `ModelError` unless a reward model has the properties that trainers and policies need.

    A batch has the same result as its windows one by one. Rewards depend on neither later steps,
    nor steps before the context, nor padding. The first axis is that of members. Gradients are
    finite and reach every parameter. `observe` replaces statistics and does not add to them. Copies
    are exact. If the model has a config, files are exact, too.

    The model must be on the processor. It is copied and stays as it is.

    >>> from gymnasium.spaces import Box, Discrete
    >>> from preferl.models import MLPReward
    >>> check_reward_model(MLPReward(Box(-1, 1, (3,)), Discrete(2), seed=0))
    """
    try:
        copy = deepcopy(model)
    except Exception as error:  # a user's class may raise anything
        raise ModelError(
            f"{type(model).__name__}: copying it with deepcopy: expected a copy, got "
            f"{in_words(error)}."
        ) from error
    windows = _some_windows(copy, np.random.default_rng(seed))
    copy.eval()
    _check_statistics(copy, windows)
    _check_output(copy, windows)
    _check_context(copy, windows)
    _check_padding(copy, windows)
    _check_gradients(copy, windows)
    _check_copies(copy, windows)


class _Windows(NamedTuple):
    """Observations and actions `[B, L, ...]`, a mask `[B, L]` of real steps, and other values."""

    observations: Any
    actions: Any
    mask: Tensor
    others: tuple[Any, Any]


def _some_windows(model: RewardModel, rng: np.random.Generator) -> _Windows:
    for name in ("context", "members"):
        value = getattr(model, name)
        if not isinstance(value, int) or value < 1:
            raise ModelError(
                f"{type(model).__name__}: {name}: expected a whole number of at least 1, got "
                f"{value}."
            )
    length = LONGEST if model.context == 1 else min(LONGEST, model.context)

    def steps(space: Any) -> Any:
        sampled = to_tensors(sample_steps(space, WINDOWS * length, rng), "cpu")
        return map_observations(lambda a: a.reshape(WINDOWS, length, *a.shape[1:]), sampled)

    spaces = model.observation_space, model.action_space
    observations, actions, *replacements = (steps(space) for space in spaces * 2)
    mask = to_tensor(np.ones((WINDOWS, length), bool), "cpu")
    return _Windows(observations, actions, mask, (replacements[0], replacements[1]))


def _check_statistics(model: RewardModel, windows: _Windows) -> None:
    parameters = [name for name, _ in model.encoder.named_parameters()]
    if parameters:
        raise ModelError(
            f"{type(model).__name__}: parameters of its encoder: expected none, got {parameters}. "
            "Features are made once per fit, so these would never learn: move them to `judge`."
        )
    for observations, actions in (windows.others, windows[:2], windows[:2]):
        features_before = model.encoder(windows.observations, windows.actions)
        steps = [map_observations(lambda a: a.flatten(0, 1), w) for w in (observations, actions)]
        model.encoder.observe(*steps)  # [B, L, ...] as [B * L, ...]
    features_after = model.encoder(windows.observations, windows.actions)
    fix = "Let `observe` replace earlier statistics, not add to them."
    subject = "features after observing the same again"
    map_observations(
        lambda a, b: _compare(model, subject, a, b, fix), features_before, features_after
    )


def _check_output(model: RewardModel, windows: _Windows) -> None:
    """Check shapes and numbers. They must be the same each time, and for each window by itself."""
    output = _ask(model, *windows[:3])
    shape = (model.members, *windows.mask.shape)
    for name, tensor, size in zip(output._fields, output, (shape, shape[:2]), strict=True):
        if tensor.shape != size:
            raise ModelError(
                f"{type(model).__name__}: shape of {name} for {shape[1]} windows of {shape[2]} "
                f"steps: expected {size}, members first, got {tuple(tensor.shape)}."
            )
        if tensor.dtype != torch.float32 or not tensor.isfinite().all():
            raise ModelError(
                f"{type(model).__name__}: {name}: expected finite float32 numbers, got "
                f"{tensor.dtype}: {tensor}."
            )
    repeated = _ask(model, *windows[:3])
    _same(model, "output of the same windows in eval mode", output, repeated)
    singles = (slice(row, row + 1) for row in range(len(windows.mask)))
    rows = [_ask(model, *(take(part, row_slice) for part in windows[:3])) for row_slice in singles]
    one_by_one = RewardOutput(*(torch.cat(parts, dim=1) for parts in zip(*rows, strict=True)))
    fix = "Nothing may be shared between the windows of a batch in eval mode."
    _same(model, "a batch of windows, compared with one window at a time", one_by_one, output, fix)


def _check_context(model: RewardModel, windows: _Windows) -> None:
    """Check that rewards do not depend on later steps, or at context 1 on earlier ones."""
    rewards = _ask(model, *windows[:3]).rewards
    if rewards.shape[2] > 1:
        changed = _ask(model, *_replaced(windows, np.s_[:, -1:]), windows.mask).rewards
        fix = "A reward is computed before the future is known: look back only."
        subject = "rewards of earlier steps after the last step was changed"
        _compare(model, subject, rewards[..., :-1], changed[..., :-1], fix)
    if model.context == 1:
        changed = _ask(model, *_replaced(windows, np.s_[:, :1]), windows.mask).rewards
        fix = "Give it a larger `context`, so that rewards are computed with the history it needs."
        subject = "rewards of a model with context 1 after an earlier step was changed"
        _compare(model, subject, rewards[..., 1:], changed[..., 1:], fix)


def _check_padding(model: RewardModel, windows: _Windows) -> None:
    length = windows.mask.shape[1]
    fix = "Masked places must not matter, and the last real step must come last."
    for real in range(1, length):
        mask = windows.mask.clone()
        mask[:, :-real] = False
        padded = _ask(model, windows.observations, windows.actions, mask)
        changed = _ask(model, *_replaced(windows, np.s_[:, :-real]), mask)
        bare = _ask(model, *(take(part, np.s_[:, -real:]) for part in windows[:3]))
        for what, *outputs in (
            ("what stands where the mask is false was changed", padded, changed),
            ("windows were padded on the left", bare, padded),
        ):
            expected, actual = (RewardOutput(o.rewards[..., -real:], o.scores) for o in outputs)
            _same(
                model, f"output after {what}, {real} of {length} steps real", expected, actual, fix
            )


def _check_gradients(model: RewardModel, windows: _Windows) -> None:
    """Check scores of windows of each length: they pool rewards and reach all parameters."""
    rows, length = windows.mask.shape
    mask = torch.arange(length) >= length - 1 - torch.arange(rows)[:, None]
    with torch.no_grad():
        features = model.encoder(windows.observations, windows.actions)
    rewards, scores = model.judge(features, mask)
    if model.context == 1:
        subject = "scores by `pool`, compared with `judge`"
        fix = "`judge` should call `pool`."
        pooled = model.pool(rewards, mask).detach()
        _compare(model, subject, scores.detach(), pooled, fix)
    model.zero_grad()
    weight = torch.linspace(-1, 2, scores.numel()).view_as(scores)
    (scores * weight).sum().backward()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        gradient = parameter.grad
        if gradient is None or not gradient.any():
            raise ModelError(
                f"{type(model).__name__}: gradient of {name}: expected numbers, got nothing or "
                "zeros. Remove it, freeze it, or let scores depend on it."
            )
        if not gradient.isfinite().all():
            raise ModelError(
                f"{type(model).__name__}: gradient of {name}: expected finite numbers, got NaN or "
                "inf. Look for a division or softmax over nothing where the mask is false."
            )


def _check_copies(model: RewardModel, windows: _Windows) -> None:
    output = _ask(model, *windows[:3])
    fix = "Keep all that it learned in parameters and buffers."

    def exact(what: str, other: RewardModel) -> None:
        for expected, actual in zip(output, _ask(other, *windows[:3]), strict=True):
            _compare(model, what, expected, actual, fix, exact=True)

    exact("output of a copy", deepcopy(model))
    try:
        config_of(model)
    except ConfigError:
        return  # a user's class without a config; the user saves it
    with TemporaryDirectory() as folder:
        save_reward_model(Path(folder) / "model", model)
        exact("output after saving and loading", load_reward_model(Path(folder) / "model"))


def _ask(model: RewardModel, observations: Any, actions: Any, mask: Tensor) -> RewardOutput:
    with torch.no_grad():
        return RewardOutput(*model(observations, actions, mask))


def _replaced(windows: _Windows, where: Any) -> tuple[Any, Any]:
    """Replace observations and actions at some places by other values."""

    def replace(array: Tensor, other: Tensor) -> Tensor:
        changed = array.clone()
        changed[where] = other[where]
        return changed

    pairs = zip(windows[:2], windows.others, strict=True)
    observations, actions = (map_observations(replace, one, other) for one, other in pairs)
    return observations, actions


def _same(
    model: RewardModel, what: str, expected: RewardOutput, got: RewardOutput, fix: str = ""
) -> None:
    for name, one, other in zip(expected._fields, expected, got, strict=True):
        _compare(model, f"{name}: {what}", one, other, fix)


def _compare(
    model: RewardModel, what: str, one: Tensor, other: Tensor, fix: str, *, exact: bool = False
) -> None:
    same = one.shape == other.shape
    off = f" (up to {float((one - other).abs().max()):.2g} off)" if same and one.numel() else ""
    if same and exact:
        same = torch.equal(one, other)
    elif same and one.numel():
        same = torch.allclose(one, other, rtol=1e-4, atol=1e-5 * (1 + float(one.abs().max())))
    if not same:
        raise ModelError(
            f"{type(model).__name__}: {what}: expected the same numbers, got others{off}. {fix}"
        )
