"""Decision Transformers on Hugging Face's hub: pushed whole with a card, and those of others."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZipFile, is_zipfile

import numpy as np
import torch
from gymnasium import spaces

from preferl._optional import require
from preferl.errors import CheckpointError, ConfigError, PreferlError, SpaceError, require_in
from preferl.evaluation.policy import PolicyReport
from preferl.models.folder import bounded_network
from preferl.offline.decision_transformer.sequences import InputStatistics
from preferl.offline.learner_configs import PixelEncoderConfig, Spending, TokenShape
from preferl.offline.transitions import observation_size
from preferl.reading import Expansion
from preferl.shapes import FloatArray

if TYPE_CHECKING:
    from preferl.offline.decision_transformer.policy import DecisionTransformerPolicy

PREFIX: Final = "hub:"  # before the name of a repository, as of data sets there
WANTED: Final = ("*.json", "*.safetensors", "pytorch_model.bin")  # no cards, videos, optimisers

FIXED: Final = {  # settings of Hugging Face's config that our forward pass cannot vary
    "activation_function": "relu",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
TAGS: Final = ("reinforcement-learning", "offline-rl", "decision-transformer", "preferl")

CARD: Final = """\
# {title}

A Decision Transformer (Chen et al. 2021, [arXiv:2106.01345](https://arxiv.org/abs/2106.01345)),
trained with preferl {preferl} on recorded episodes. It acts to earn a target return.

| | |
|---|---|
| algorithm | {policy.learner} |
| observations | `{policy.observation_space}` |
| actions | `{policy.action_space}` |
| steps of history | {about.context} |
| target return | {policy.target:g}, unless another is given |
| lowers that | {spending} |
| parameters | {parameters:,} |

## Use

```python
from preferl.offline import DecisionTransformerPolicy

policy = DecisionTransformerPolicy.load("hub:{name}")
actions, state = policy.predict(observations)  # as the environment gives them, [V, *obs]
policy.earned(state, rewards)  # of the actions, before the next call
actions, state = policy.predict(observations, state)
```

`policy.with_target(1000.0)` and `policy.with_target("q0.9")` have other target returns.
`pip install 'preferl[hub]'` brings what this needs.

Without preferl, `transformers.DecisionTransformerModel.from_pretrained("{name}")` has the
parameters. Its inputs are then yours to make: states `(observation - mean) / deviation`,
returns-to-go divided by `scale`, timesteps at most `horizon - 1`, and actions scaled to [-1, 1]
where the space has bounds.{more}

```python
mean = np.array({mean})
deviation = np.array({deviation})
scale, horizon = {about.scale!r}, {about.horizon}
```

## Data

{data}

Returns of the recorded episodes, by the reward that it learned from: {returns}. The longest episode
has {about.longest:,} steps.

## Scores

{scores}

## Licence

{licence}
"""

PARTS: Final = {"pixel_encoder": "its pixel encoder", "critics": "its critics"}
SPENDING: Final[Mapping[str, str]] = {
    "paid": "by the rewards it receives",
    "even": "evenly over the steps of the longest recorded episode",
}


def local_folder(source: Path | str) -> Path:
    """The folder itself, or the download of `hub:OWNER/NAME` or `hub:OWNER/NAME@REVISION`."""
    name = str(source)
    if not name.startswith(PREFIX):
        return Path(source)
    hub = require("huggingface_hub", extra="hub")
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    expected = "a repository of the hub, hub:OWNER/NAME"
    fix = "Check the name, the network, and `hf auth login` if it is private."
    how = {"revision": revision or None, "allow_patterns": WANTED}
    with any_error(CheckpointError, f"policy {name}", expected, fix):
        return Path(hub.snapshot_download(repository, **how))


@contextmanager
def any_error(kind: type[PreferlError], what: str, expected: str, fix: str) -> Iterator[None]:
    """Raise one kind for any error of the block: networks, hubs and transformers have many."""
    try:
        yield
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        raise kind.mismatch(what, expected=expected, got=got, fix=fix) from error


def model_card(
    policy: "DecisionTransformerPolicy",
    name: str,
    env: str | None = None,
    report: PolicyReport | None = None,
    data: str | None = None,
    licence: str | None = None,
) -> str:
    """Markdown with metadata as the hub reads it, of the arguments of `push_to_hub`."""
    about = policy.statistics
    firsts = {name.partition(".")[0] for name in policy.parameters}
    parts = " and ".join(word for part, word in PARTS.items() if part in firsts)
    more = f" It is not the whole policy: {parts} are in `policy.safetensors`, for preferl alone."
    returns = "not known"
    if about.quantiles:
        low, *_, high = about.quantiles
        returns = f"{low:g} to {high:g}, median {about.target_return('q0.5'):g}"
    card = CARD.format(
        title=name.rpartition("/")[2],
        name=name,
        preferl=version("preferl"),
        policy=policy,
        about=about,
        mean=about.mean.tolist(),
        deviation=about.deviation.tolist(),
        spending=SPENDING[policy.spending],
        parameters=sum(tensor.numel() for tensor in policy.parameters.values()),
        more=more if parts else "",
        data=data or "The owner has not described the episodes.",
        returns=returns,
        scores=_scores(env, report),
        licence=licence or "No licence was chosen. Ask the owner before you use it.",
    )
    return f"---\n{_metadata(name, env, report, licence)}\n---\n\n{card}"


def _metadata(name: str, env: str | None, report: PolicyReport | None, licence: str | None) -> str:
    hub = require("huggingface_hub", extra="hub")
    results = None
    if report is not None:
        about = {"task": TAGS[0], "dataset": env or "unknown", "metric": "mean_reward"}
        named = {f"{what}_{of}": word for what, word in about.items() for of in ("type", "name")}
        value = f"{report.mean:.2f} +/- {report.std:.2f}"
        results = [hub.EvalResult(**named, metric_value=value, verified=False)]
    card: Any = hub.ModelCardData(
        model_name=name.rpartition("/")[2],
        library_name="transformers",
        pipeline_tag="reinforcement-learning",
        tags=[*TAGS, *([env] if env else [])],
        license=licence,
        eval_results=results,
    )
    return str(card.to_yaml())


def _scores(env: str | None, report: PolicyReport | None) -> str:
    if report is None:
        return "The owner has not evaluated it."
    where = f" in {env}" if env else ""
    low, high = report.interval
    success = report.success_rate
    return (
        f"{report.episodes} episodes{where}: mean return {report.mean:.2f}, standard deviation "
        f"{report.std:.2f}, 95 % interval of the mean {low:.2f} to {high:.2f}."
    ) + ("" if success is None else f" {success:.1%} of them succeeded.")


def load_decision_transformer(
    source: Path | str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    mean: FloatArray,
    deviation: FloatArray,
    target: float,
    scale: float = 1000.0,
    context: int = 20,
    discount: float = 1.0,
    spending: Spending = "paid",
) -> "DecisionTransformerPolicy":
    """Load a Decision Transformer of somebody else, from `config.json` and its parameters alone.

    The rest, such as the mean and deviation of states, is on its card. Those that preferl pushed
    need none of this: `DecisionTransformerPolicy.load("hub:...")`.

    Args:
        source: a folder, or `hub:OWNER/NAME` (`hub:OWNER/NAME@REVISION`).
        observation_space: a Box of floats, or a Dict of these.
        action_space: a Box from -1 to 1, or without bounds: actions are as the model makes them.
        mean: `[O]` that was subtracted from states.
        deviation: `[O]` that states were divided by.
        target: target return; recorded ones are not known, so no quantile.
        scale: that returns were divided by; 1000 in the tutorial.
        context: `H`, steps of history; 20 in the tutorial.
        discount: of returns, in (0, 1].
        spending: how the target goes down.

    Raises:
        CheckpointError: no such model, parameters that are missing or not finite, or a config of
            another kind of transformer.
        ConfigError: a setting out of range.
        MissingExtraError: transformers is not installed.
        SpaceError: spaces or statistics of other sizes than the model's.
    """
    from preferl.offline.decision_transformer.policy import (
        DecisionTransformerPolicy,  # which imports this
    )

    config, parameters = _read(local_folder(source))
    size = observation_size(observation_space)
    steps = config.max_ep_len
    _require_spaces(config, size, action_space)
    require_in("discount", discount, sys.float_info.min, 1)
    arrays = {"mean": np.asarray(mean, np.float32), "deviation": np.asarray(deviation, np.float32)}
    for name, array in arrays.items():
        if not (array.shape == (size,) and np.isfinite(array).all()):
            raise SpaceError(f"{name} of states: expected {size} finite numbers, got {array}.")
    if not (arrays["deviation"] > 0).all():
        raise ConfigError(
            f"deviation of states: expected numbers above 0, got {arrays['deviation']}."
        )
    policy = DecisionTransformerPolicy(
        observation_space,
        action_space,
        parameters,
        TokenShape(config.n_layer, config.n_head, config.action_tanh),
        InputStatistics(context, steps, discount, scale, longest=steps, quantiles=(), **arrays),
        pixel_encoder=PixelEncoderConfig(),
        regulariser=None,
        hub=config.to_dict() | {"architectures": ["DecisionTransformerModel"]},
        spending=spending,
    )
    return policy.with_target(target)


def _read(folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """Hugging Face's config and all parameters of its model."""
    transformers = require("transformers", extra="hub")
    expected = "config.json with model.safetensors or pytorch_model.bin, all whole"
    fix = "Check the name, and fetch it again."
    with any_error(CheckpointError, f"Decision Transformer {folder}", expected, fix):
        if not (folder / "config.json").is_file():
            raise FileNotFoundError("no config.json")
        how: Any = {"local_files_only": True}
        config = transformers.DecisionTransformerConfig.from_pretrained(folder, **how)
        how |= {"output_loading_info": True, "dtype": torch.float32}
        for file in folder.glob("*.bin"):
            if is_zipfile(file):  # whose parts torch unpacks, though it packs none
                with ZipFile(file) as archive:
                    Expansion.of(file).add(sum(part.file_size for part in archive.infolist()))
        weights = (*folder.glob("*.safetensors"), *folder.glob("*.bin"))
        numbers = sum(file.stat().st_size for file in weights)  # a number has a byte at least
        with bounded_network(numbers):
            model, found = transformers.DecisionTransformerModel.from_pretrained(folder, **how)
        missing = sorted({*found["missing_keys"], *map(str, found["mismatched_keys"])})
        if missing:
            raise ValueError(f"no parameters for {missing[:3]}")
        parameters = {name: t.detach().contiguous() for name, t in model.state_dict().items()}
        if not all(torch.isfinite(t).all() for t in parameters.values()):
            raise ValueError("parameters that are not finite")
    for name, value in FIXED.items():
        got = getattr(config, name, value)
        if got != value:
            raise CheckpointError(f"{name} of {folder}: expected {value}, got {got}.")
    return config, parameters


def _require_spaces(config: Any, size: int, space: spaces.Space[Any]) -> None:
    sizes = (size, int(np.prod(space.shape or ())))
    if not isinstance(space, spaces.Box) or sizes != (config.state_dim, config.act_dim):
        expected = f"observations of {config.state_dim} numbers, actions of a Box of "
        expected = f"{expected}{config.act_dim}"
        raise SpaceError(f"spaces: expected {expected}, got {size} numbers and {space}.")
    bounded = space.bounded_below & space.bounded_above
    fine = not bounded.any() or ((space.low == -1) & (space.high == 1)).all()
    fix = "Such models act in the numbers that were recorded: pass a Box from -1 to 1, "
    fix += "or one without bounds where actions are larger."
    if not fine:
        raise SpaceError(
            f"actions: expected a Box from -1 to 1, or without bounds, got {space}. {fix}"
        )
