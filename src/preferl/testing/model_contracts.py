"""What a reward model of yours must keep, checked and said in words (torch)."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from preferl.errors import ConfigError, ModelError, mismatch
from preferl.models.base import RewardModel, RewardOutput
from preferl.models.build import config_of, load_reward_model, save_reward_model
from preferl.shapes import map_observations, take
from preferl.testing.worlds import sample_steps
from preferl.training.batches import to_tensor, to_tensors

WINDOWS, LONGEST = 5, 6


def check_reward_model(model: RewardModel, *, seed: int = 0) -> None:
    """Raise `ModelError` unless a reward model keeps what trainers and policies count on.

    A batch equals its rows, rewards look neither ahead nor further back than the context,
    padding does not matter, members come first, gradients are finite and reach every parameter,
    statistics are set and not gathered, and copies (files, where it has a config) are exact.

    Args:
        model: yours, on the processor; it is copied, not changed.
        seed: of the steps it is shown.

    >>> from gymnasium.spaces import Box, Discrete
    >>> from preferl.models import MLPReward
    >>> check_reward_model(MLPReward(Box(-1, 1, (3,)), Discrete(2), seed=0))
    """
    copy = _copy(model)
    windows = _some_windows(copy, np.random.default_rng(seed))
    copy.eval()
    for check in (
        _check_statistics,
        _check_output,
        _check_rows,
        _check_future,
        _check_past,
        _check_padding,
        _check_pooling,
        _check_gradients,
        _check_copies,
    ):
        check(copy, windows)


class Windows(NamedTuple):
    """What a model is asked about.

    Attributes:
        observations: `[B, L, *obs]`
        actions: `[B, L, *act]`
        mask: `[B, L]` all real.
        others: observations and actions alike, of other values.
    """

    observations: Any
    actions: Any
    mask: Tensor
    others: tuple[Any, Any]


def _copy(model: RewardModel) -> RewardModel:
    try:
        return deepcopy(model)
    except Exception as error:  # whatever a class of someone else raises
        _fail(model, "copying it with deepcopy", expected="a copy", got=error)


def _some_windows(model: RewardModel, rng: np.random.Generator) -> Windows:
    for name in ("context", "members"):
        value = getattr(model, name)
        if not isinstance(value, int) or value < 1:
            _fail(model, name, expected="a whole number of at least 1", got=value)
    length = LONGEST if model.context == 1 else min(LONGEST, model.context)

    def steps(space: Any) -> Any:
        drawn = to_tensors(sample_steps(space, WINDOWS * length, rng), "cpu")
        return map_observations(lambda a: a.reshape(WINDOWS, length, *a.shape[1:]), drawn)

    spaces = model.observation_space, model.action_space
    observations, actions = (steps(space) for space in spaces)
    mask = to_tensor(np.ones((WINDOWS, length), bool), "cpu")
    others = steps(spaces[0]), steps(spaces[1])
    return Windows(observations, actions, mask, others)


def _check_statistics(model: RewardModel, windows: Windows) -> None:
    parameters = [name for name, _ in model.encoder.named_parameters()]
    if parameters:
        fix = "Features are made once per fit, so these would never learn: move them to `judge`."
        _fail(model, "parameters of its encoder", expected="none", got=parameters, fix=fix)
    for observations, actions in (windows.others, windows[:2], windows[:2]):
        before = model.encoder(windows.observations, windows.actions)
        model.encoder.observe(_steps(observations), _steps(actions))
    after = model.encoder(windows.observations, windows.actions)
    fix = "Set statistics from what `observe` is given; do not add to what was there."
    map_observations(
        lambda a, b: _compare(model, "features after observing the same again", a, b, fix=fix),
        before,
        after,
    )


def _check_output(model: RewardModel, windows: Windows) -> None:
    output = _ask(model, *windows[:3])
    shape = (model.members, *windows.mask.shape)
    for name, tensor, expected in (
        ("rewards", output.rewards, shape),
        ("scores", output.scores, shape[:2]),
    ):
        if tuple(tensor.shape) != expected:
            what = f"shape of {name} for {shape[1]} windows of {shape[2]} steps"
            _fail(model, what, expected=f"{expected}, members first", got=tuple(tensor.shape))
        if tensor.dtype != torch.float32 or not tensor.isfinite().all():
            _fail(model, name, expected="finite float32 numbers", got=f"{tensor.dtype}: {tensor}")
    again = _ask(model, *windows[:3])
    _same(model, "output of the same windows in eval mode", output, again)


def _check_rows(model: RewardModel, windows: Windows) -> None:
    whole = _ask(model, *windows[:3])
    rows = [
        _ask(model, *(take(part, slice(i, i + 1)) for part in windows[:3]))
        for i in range(len(windows.mask))
    ]
    alone = RewardOutput(*(torch.cat(parts, dim=1) for parts in zip(*rows, strict=True)))
    fix = "Nothing may be shared between the windows of a batch in eval mode."
    _same(model, "a batch of windows, compared with one window at a time", alone, whole, fix=fix)


def _check_future(model: RewardModel, windows: Windows) -> None:
    rewards = _ask(model, *windows[:3]).rewards
    if rewards.shape[2] == 1:
        return
    changed = _ask(model, *_replaced(windows, np.s_[:, -1:]), windows.mask).rewards
    fix = "A reward is paid before the future is known: look back only."
    what = "rewards of earlier steps after the last step was changed"
    _compare(model, what, rewards[..., :-1], changed[..., :-1], fix=fix)


def _check_past(model: RewardModel, windows: Windows) -> None:
    if model.context > 1:
        return
    rewards = _ask(model, *windows[:3]).rewards
    changed = _ask(model, *_replaced(windows, np.s_[:, :1]), windows.mask).rewards
    fix = "Give it a larger `context`, so that policies are paid with the history it needs."
    what = "rewards of a model with context 1 after an earlier step was changed"
    _compare(model, what, rewards[..., 1:], changed[..., 1:], fix=fix)


def _check_padding(model: RewardModel, windows: Windows) -> None:
    length = windows.mask.shape[1]
    for real in range(1, length):
        mask = windows.mask.clone()
        mask[:, :-real] = False
        padded = _ask(model, windows.observations, windows.actions, mask)
        other = _ask(model, *_replaced(windows, np.s_[:, :-real]), mask)
        bare = _ask(model, *(take(part, np.s_[:, -real:]) for part in windows[:3]))
        for what, expected, got in (
            ("what stands where the mask is false was changed", padded, other),
            ("windows were padded on the left", bare, padded),
        ):
            got, expected = (
                RewardOutput(o.rewards[..., -real:], o.scores) for o in (got, expected)
            )
            fix = "Masked places must not matter, and the last real step must come last."
            _same(model, f"output after {what}, {real} of {length} steps real", expected, got, fix)


def _check_pooling(model: RewardModel, windows: Windows) -> None:
    if model.context > 1:
        return
    mask = _staircase(windows.mask)
    output = _ask(model, windows.observations, windows.actions, mask)
    pooled = model.pool(output.rewards, mask)
    fix = "`judge` should call `pool`."
    _compare(model, "scores by `pool`, compared with `judge`", output.scores, pooled, fix=fix)


def _check_gradients(model: RewardModel, windows: Windows) -> None:
    with torch.no_grad():
        features = model.encoder(windows.observations, windows.actions)
    scores = model.judge(features, _staircase(windows.mask)).scores
    model.zero_grad()
    weight = torch.linspace(-1, 2, scores.numel()).view_as(scores)
    (scores * weight).sum().backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        if not parameter.requires_grad:
            continue
        if gradient is None or not gradient.any():
            fix = "Remove it, freeze it, or let scores depend on it."
            _fail(model, f"gradient of {name}", expected="numbers", got="nothing or zeros", fix=fix)
        if not gradient.isfinite().all():
            fix = "Look for a division or softmax over nothing where the mask is false."
            _fail(
                model, f"gradient of {name}", expected="finite numbers", got="NaN or inf", fix=fix
            )


def _check_copies(model: RewardModel, windows: Windows) -> None:
    output = _ask(model, *windows[:3])
    _exact(model, "output of a copy", output, _ask(deepcopy(model), *windows[:3]))
    try:
        config_of(model)
    except ConfigError:
        return  # a class of one's own, which is saved by its owner
    with TemporaryDirectory() as folder:
        save_reward_model(Path(folder) / "model", model)
        loaded = load_reward_model(Path(folder) / "model")
    _exact(model, "output after saving and loading", output, _ask(loaded, *windows[:3]))


def _ask(model: RewardModel, observations: Any, actions: Any, mask: Tensor) -> RewardOutput:
    with torch.no_grad():
        return RewardOutput(*model(observations, actions, mask))


def _steps(windows: Any) -> Any:
    return map_observations(lambda a: a.flatten(0, 1), windows)  # [B, L, ...] to [B * L, ...]


def _replaced(windows: Windows, where: Any) -> tuple[Any, Any]:
    """Observations and actions with other values at some places."""

    def replace(array: Tensor, other: Tensor) -> Tensor:
        changed = array.clone()
        changed[where] = other[where]
        return changed

    observations = map_observations(replace, windows.observations, windows.others[0])
    return observations, map_observations(replace, windows.actions, windows.others[1])


def _staircase(mask: Tensor) -> Tensor:
    """`[B, L]` with one real step in the first row, two in the second, and so on."""
    rows, length = mask.shape
    return torch.arange(length) >= length - 1 - torch.arange(rows)[:, None]


def _same(
    model: RewardModel, what: str, expected: RewardOutput, got: RewardOutput, fix: str = ""
) -> None:
    for name, one, other in zip(expected._fields, expected, got, strict=True):
        _compare(model, f"{name}: {what}", one, other, fix=fix)


def _exact(model: RewardModel, what: str, expected: RewardOutput, got: RewardOutput) -> None:
    fix = "Keep all that it learned in parameters and buffers."
    for one, other in zip(expected, got, strict=True):
        _compare(model, what, one, other, fix=fix, equal=torch.equal)


def _close(one: Tensor, other: Tensor) -> bool:
    scale = float(one.abs().max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5 * (1 + scale))


def _compare(
    model: RewardModel,
    what: str,
    expected: Tensor,
    got: Tensor,
    *,
    fix: str = "",
    equal: Callable[[Tensor, Tensor], bool] = _close,
) -> None:
    if expected.shape != got.shape or not equal(expected, got):
        off = f" (up to {float((expected - got).abs().max()):.2g} off)"
        same = expected.shape == got.shape
        _fail(model, what, expected="the same numbers", got=f"others{off if same else ''}", fix=fix)


def _fail(model: object, what: str, *, expected: object, got: object, fix: str = "") -> NoReturn:
    name = type(model).__name__
    raise ModelError(f"{name}: " + mismatch(what, expected=expected, got=got, fix=fix))
