"""Policies on Hugging Face's hub: a folder as `save` writes it, with a card that explains it."""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preferl._optional import require
from preferl.errors import CheckpointError, StorageError
from preferl.evaluation.policy import PolicyReport
from preferl.files import write_text
from preferl.offline.trainer_options import Pushing

if TYPE_CHECKING:
    from preferl.offline.decision_policy import DecisionTransformerPolicy

PREFIX: Final = "hub:"
"""Before the name of a repository on the hub, as of data sets there."""

WANTED: Final = ("*.json", "*.safetensors", "pytorch_model.bin")
"""What is fetched; cards, videos and the optimisers of others are not."""

TAGS: Final = ("reinforcement-learning", "offline-rl", "decision-transformer", "preferl")

BODY: Final = """\
# {title}

A Decision Transformer (Chen et al. 2021, [arXiv:2106.01345](https://arxiv.org/abs/2106.01345)),
trained with preferl {preferl} on recorded episodes. It is asked for a return, and acts to earn it.

| | |
|---|---|
| learned by | {learner} |
| observations | `{observations}` |
| actions | `{actions}` |
| steps it looks at | {context} |
| asks for a return of | {target:g}, unless another is asked for |
| lowers that | {spending} |
| parameters | {parameters:,} |

## Use

```python
from preferl.offline import DecisionTransformerPolicy

policy = DecisionTransformerPolicy.load("hub:{name}")
actions, state = policy.predict(observations)  # as the environment gives them, [V, *obs]
policy.earned(state, rewards)  # what the actions earned, before the next call
actions, state = policy.predict(observations, state)
```

`policy.asking(1000.0)` and `policy.asking("q0.9")` ask for other returns. `pip install
'preferl[hub]'` brings what this needs.

Without preferl, `transformers.DecisionTransformerModel.from_pretrained("{name}")` has the
parameters. {alone}

```python
{statistics}
```

## Data

{data}

Returns of the recorded episodes, by the reward that it learned from: {returns}. The longest episode
has {longest:,} steps.

## Scores

{scores}

## Licence

{licence}
"""

ALONE: Final = (
    "Its inputs are then yours to make: states `(observation - mean) / deviation`, returns-to-go "
    "divided by `scale`, timesteps at most `horizon - 1`, and actions scaled to [-1, 1] where the "
    "space has bounds."
)
MORE: Final = (
    "It is not the whole policy: {parts} are in `policy.safetensors`, and preferl alone uses them."
)

_SPENDING: Final[Mapping[str, str]] = {
    "paid": "by what it earns",
    "even": "evenly over the steps of the longest recorded episode",
}


def push_policy(
    policy: "DecisionTransformerPolicy", where: Pushing, card: Callable[[str], str], message: str
) -> str:
    """Push a policy's whole folder and its card in one commit; the repository is made if absent.

    Args:
        policy: what is pushed.
        where: it goes.
        card: made for the full name of the repository.
        message: of the commit.

    Returns:
        The address of the repository.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        StorageError: the hub cannot be reached, or refuses.
    """
    hub = require("huggingface_hub", extra="hub")
    api: Any = hub.HfApi(token=where.token, library_name="preferl")
    try:
        made = api.create_repo(where.name, private=where.private, exist_ok=True)
        if where.revision is not None:
            api.create_branch(made.repo_id, branch=where.revision, exist_ok=True)
        with TemporaryDirectory() as holder:
            folder = Path(holder) / "policy"
            policy.save(folder)
            write_text(folder / "README.md", card(made.repo_id))
            operations = [
                hub.CommitOperationAdd(file.name, str(file)) for file in sorted(folder.iterdir())
            ]
            api.create_commit(
                made.repo_id, operations, commit_message=message, revision=where.revision
            )
    except Exception as error:  # a network and a hub have errors of every kind
        raise StorageError.mismatch(
            f"{where.name} on the hub",
            expected="a repository that can be written to",
            got=f"{type(error).__name__}: {error}",
            fix="Sign in with `hf auth login`, or pass a token that may write there.",
        ) from error
    return str(made)


def local_folder(source: Path | str) -> Path:
    """The folder itself, or what was fetched of `hub:OWNER/NAME` or `hub:OWNER/NAME@REVISION`.

    Raises:
        CheckpointError: no such repository, or a hub that cannot be reached.
        MissingExtraError: huggingface_hub is not installed.
    """
    name = str(source)
    if not name.startswith(PREFIX):
        return Path(source)
    hub = require("huggingface_hub", extra="hub")
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    try:
        return Path(
            hub.snapshot_download(repository, revision=revision or None, allow_patterns=WANTED)
        )
    except Exception as error:  # as above
        raise CheckpointError.mismatch(
            f"policy {name}",
            expected="a repository of the hub, hub:OWNER/NAME",
            got=f"{type(error).__name__}: {error}",
            fix="Check the name, the network, and `hf auth login` if it is private.",
        ) from error


def model_card(
    policy: "DecisionTransformerPolicy",
    name: str,
    *,
    env: str | None = None,
    report: PolicyReport | None = None,
    data: str | None = None,
    licence: str | None = None,
) -> str:
    """Markdown with metadata as the hub reads it.

    Args:
        policy: that is pushed.
        name: of the repository.
        env: id of the environment, if it is known.
        report: episodes in it, if the policy was evaluated.
        data: what the policy learned from, in words or as the name of a data set on the hub.
        licence: identifier such as `"mit"`; None says that nobody chose one.
    """
    return f"---\n{_metadata(name, env, report, licence)}\n---\n\n" + BODY.format(
        title=name.rpartition("/")[2],
        name=name,
        preferl=version("preferl"),
        learner=policy.learner,
        observations=policy.observation_space,
        actions=policy.action_space,
        target=policy.target,
        spending=_SPENDING[policy.spending],
        parameters=policy.size,
        alone=ALONE if not policy.beside else f"{ALONE} {MORE.format(parts=policy.beside)}",
        statistics=_statistics(policy),
        data=data or "Who pushed this has not said what the episodes are.",
        returns=_returns(policy.conditions.quantiles),
        context=policy.conditions.context,
        longest=policy.conditions.longest,
        scores=_scores(env, report),
        licence=licence or "No licence was chosen. Ask who pushed this before you use it.",
    )


def _metadata(
    name: str,
    env: str | None,
    report: PolicyReport | None,
    licence: str | None,
) -> str:
    hub = require("huggingface_hub", extra="hub")
    results = None
    if report is not None:
        where = env or "unknown"
        results = [
            hub.EvalResult(
                task_type="reinforcement-learning",
                task_name="reinforcement-learning",
                dataset_type=where,
                dataset_name=where,
                metric_type="mean_reward",
                metric_name="mean_reward",
                metric_value=f"{report.mean:.2f} +/- {report.std:.2f}",
                verified=False,
            )
        ]
    card: Any = hub.ModelCardData(
        model_name=name.rpartition("/")[2],
        library_name="transformers",
        pipeline_tag="reinforcement-learning",
        tags=[*TAGS, *([env] if env else [])],
        license=licence,
        eval_results=results,
    )
    return str(card.to_yaml())


def _statistics(policy: "DecisionTransformerPolicy") -> str:
    conditions = policy.conditions
    with np.printoptions(threshold=64, linewidth=88, precision=6):
        return "\n".join(
            [
                f"mean = np.{conditions.mean!r}",
                f"deviation = np.{conditions.deviation!r}",
                f"scale, horizon = {conditions.scale!r}, {conditions.horizon}",
            ]
        )


def _returns(quantiles: tuple[float, ...]) -> str:
    if not quantiles:
        return "not known"
    low, middle, high = quantiles[0], quantiles[len(quantiles) // 2], quantiles[-1]
    return f"{low:g} to {high:g}, median {middle:g}"


def _scores(env: str | None, report: PolicyReport | None) -> str:
    if report is None:
        return "Who pushed this has not evaluated it."
    where = f" in {env}" if env else ""
    low, high = report.interval
    told = (
        f"{report.episodes} episodes{where}: mean return {report.mean:.2f}, standard deviation "
        f"{report.std:.2f}, 95 % interval of the mean {low:.2f} to {high:.2f}."
    )
    success = report.success_rate
    return told if success is None else f"{told} {success:.1%} of them succeeded."
