"""Hugging Face's hub: downloads of policies, and model cards of policies that are pushed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from preferl._optional import require
from preferl.errors import CheckpointError, PreferlError
from preferl.evaluation.policy import PolicyReport
from preferl.offline.decision_transformer.parameters import LearnedTransformer
from preferl.offline.learner_configs import Decrement

PREFIX: Final = "hub:"  # before the name of a repository, as for data sets
DOWNLOADED_FILES: Final = (
    "*.json",
    "*.safetensors",
    "pytorch_model.bin",
)  # leaves out cards, videos and optimisers

TAGS: Final = ("reinforcement-learning", "offline-rl", "decision-transformer", "preferl")

CARD: Final = """\
# {title}

A Decision Transformer (Chen et al. 2021, [arXiv:2106.01345](https://arxiv.org/abs/2106.01345)),
trained with preferl {preferl} on recorded episodes. It acts to earn a target return.

| | |
|---|---|
| algorithm | {learned.algorithm} |
| observations | `{learned.observation_space}` |
| actions | `{learned.action_space}` |
| steps of history | {statistics.context} |
| target return | {target:g}, unless another is given |
| target return is lowered | {decrement} |
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
scale, horizon = {statistics.scale!r}, {statistics.horizon}
```

## Data

{data}

Returns of the recorded episodes, by the reward that it learned from: {returns}. The longest episode
has {statistics.longest:,} steps.

## Scores

{scores}

## Licence

{licence}
"""

PARTS: Final = {"pixel_encoder": "its pixel encoder", "critics": "its critics"}
DECREMENT: Final[Mapping[str, str]] = {
    "received": "by the rewards it receives",
    "even": "evenly over the steps of the longest recorded episode",
}


def local_folder(source: Path | str) -> Path:
    """Return `source`, or the folder to which `hub:OWNER/NAME[@REVISION]` was downloaded."""
    name = str(source)
    if not name.startswith(PREFIX):
        return Path(source)
    hub = require("huggingface_hub", extra="hub")
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    expected = "a repository of the hub, hub:OWNER/NAME"
    fix = "Check the name, the network, and `hf auth login` if it is private."
    with any_error(CheckpointError, f"policy {name}", expected, fix):
        folder = hub.snapshot_download(
            repository, revision=revision or None, allow_patterns=DOWNLOADED_FILES
        )
    return Path(folder)


@contextmanager
def any_error(kind: type[PreferlError], name: str, expected: str, fix: str) -> Iterator[None]:
    """Raise errors of one `kind` for all errors of the block, as its libraries have many kinds."""
    try:
        yield
    except Exception as error:
        raise kind(
            f"{name}: expected {expected}, got {type(error).__name__}: {error}. {fix}"
        ) from error


def model_card(
    learned: LearnedTransformer,
    name: str,
    *,
    target: float,
    decrement: Decrement,
    env: str | None = None,
    report: PolicyReport | None = None,
    data: str | None = None,
    licence: str | None = None,
) -> str:
    """Return a model card in Markdown with the hub's metadata, from arguments of `push_to_hub`."""
    statistics = learned.statistics
    modules = {parameter.partition(".")[0] for parameter in learned.parameters}
    parts = " and ".join(words for part, words in PARTS.items() if part in modules)
    note = f" It is not the whole policy: {parts} are in `policy.safetensors`, for preferl alone."
    returns = "not known"
    if statistics.quantiles:
        low, *_, high = statistics.quantiles
        returns = f"{low:g} to {high:g}, median {statistics.target_return('q0.5'):g}"
    card = CARD.format(
        title=name.rpartition("/")[2],
        name=name,
        preferl=version("preferl"),
        learned=learned,
        statistics=statistics,
        target=target,
        mean=statistics.mean.tolist(),
        deviation=statistics.deviation.tolist(),
        decrement=DECREMENT[decrement],
        parameters=sum(tensor.numel() for tensor in learned.parameters.values()),
        more=note if parts else "",
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
        result = hub.EvalResult(
            task_type=TAGS[0],
            task_name=TAGS[0],
            dataset_type=env or "unknown",
            dataset_name=env or "unknown",
            metric_type="mean_reward",
            metric_name="mean_reward",
            metric_value=f"{report.mean:.2f} +/- {report.std:.2f}",
            verified=False,
        )
        results = [result]
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
    place = f" in {env}" if env else ""
    low, high = report.interval
    success = report.success_rate
    return (
        f"{report.episodes} episodes{place}: mean return {report.mean:.2f}, standard deviation "
        f"{report.std:.2f}, 95 % interval of the mean {low:.2f} to {high:.2f}."
    ) + ("" if success is None else f" {success:.1%} of them succeeded.")
