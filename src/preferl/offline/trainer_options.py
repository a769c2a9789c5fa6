"""What may be passed on to Hugging Face's `Trainer`, and what is set here."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

from preferl.errors import ConfigError, require_in

OURS: Final[Mapping[str, str]] = {
    "output_dir": "`folder` of fit",
    "resume_from_checkpoint": "`resume` of fit",
    "save_steps": "`checkpoint_every` of fit",
    "logging_steps": "`every` of fit",
    "max_steps": "`steps` of the agent",
    "seed": "`seed` of the agent",
    "data_seed": "`seed` of the agent",
    "use_cpu": "`device` of the agent",
    "per_device_train_batch_size": "`DTConfig.batch_size`, over all processes",
    "learning_rate": "`DTConfig.learning_rate`",
    "weight_decay": "`DTConfig.weight_decay`",
    "warmup_steps": "`DTConfig.warmup`",
    "warmup_ratio": "`DTConfig.warmup`",
    "max_grad_norm": "`DTConfig.max_grad_norm`",
    "bf16": "`DTConfig.precision`",
    "optim": "nothing: it is AdamW, which decays matrices alone",
    "optim_args": "nothing: it is AdamW, which decays matrices alone",
    "optim_target_modules": "nothing: all of the model is trained",
    "train_sampling_strategy": "nothing: windows are drawn from the seed and the update's number",
    "remove_unused_columns": "nothing: windows have no columns",
    "dataloader_pin_memory": "nothing: it is done where there is a GPU",
    "logging_nan_inf_filter": "nothing: losses are shown as they are",
    "save_total_limit": "nothing: the latest checkpoint is kept, from which it goes on",
    "disable_tqdm": "`on_progress` of fit",
}
"""Fields of `TrainingArguments` that are set here, and what to use in their place."""

ON_THE_HUB: Final = frozenset(
    {"push_to_hub", "hub_model_id", "hub_token", "hub_private_repo", "hub_revision"}
    | {"hub_strategy", "hub_always_push"}
)
"""Fields that say where a model is pushed; what is pushed is a whole policy, see `Pushing`."""

STRATEGIES: Final = ("end", "every_save")


@final
@dataclass(frozen=True)
class Pushing:
    """Where what was learned goes on the hub, and when.

    Attributes:
        name: of the repository, `OWNER/NAME` or a name of one's own.
        token: of who may write there; None takes that of `hf auth login`.
        private: whether a new repository is; None is the owner's default.
        revision: branch that is written to; None is the main one.
        often: whether at each checkpoint, too.
    """

    name: str
    token: str | None = None
    private: bool | None = None
    revision: str | None = None
    often: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], folder: Path | None) -> Self | None:
        """What options of `TrainingArguments` say; None where nothing is pushed.

        Raises:
            ConfigError: no name, or a strategy that pushes checkpoints.
        """
        if not options.get("push_to_hub"):
            return None
        name = options.get("hub_model_id") or (folder.absolute().name if folder else None)
        strategy = str(getattr(options.get("hub_strategy"), "value", options.get("hub_strategy")))
        if name is None:
            raise ConfigError.mismatch(
                "hub_model_id",
                expected="the name of a repository, since there is no folder to name it by",
                got=None,
            )
        if strategy not in (*STRATEGIES, "None"):
            raise ConfigError.mismatch(
                "hub_strategy",
                expected=f"one of {', '.join(STRATEGIES)}",
                got=strategy,
                fix="Checkpoints hold pickles, which nobody should load from the hub.",
            )
        return cls(
            name,
            options.get("hub_token"),
            options.get("hub_private_repo"),
            options.get("hub_revision"),
            often=strategy != "end",
        )


def require_options(options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise `ConfigError` for fields that are set here, and for those that do not exist."""
    for name in options:
        if name in OURS:
            raise ConfigError.mismatch(
                f"options[{name!r}]",
                expected="a field of TrainingArguments that preferl does not set itself",
                got=repr(options[name]),
                fix=f"In its place: {OURS[name]}.",
            )
        if name not in known:
            raise ConfigError.mismatch(
                f"options[{name!r}]",
                expected="a field of transformers' TrainingArguments",
                got="none of that name",
            )


def planned_updates(
    options: Mapping[str, Any], steps: int | None, *, episodes: int, batch_size: int
) -> tuple[int, int]:
    """Updates in all, and those of an epoch.

    An epoch draws as many windows as there are episodes, as in Hugging Face's tutorial, whose
    rows are episodes.

    Args:
        options: of `TrainingArguments`; `num_train_epochs` comes before `steps`.
        steps: updates; None leaves it to the epochs.
        episodes: `K`.
        batch_size: windows of a minibatch.

    Raises:
        ConfigError: neither of the two, or no epoch at all.

    >>> planned_updates({"num_train_epochs": 3}, None, episodes=100, batch_size=64)
    (6, 2)
    """
    each = int(options.get("gradient_accumulation_steps") or 1)
    require_in("gradient_accumulation_steps", each, 1, math.inf)
    epoch = math.ceil(math.ceil(episodes / batch_size) / each)
    epochs = options.get("num_train_epochs")
    if epochs is not None:
        require_in("num_train_epochs", epochs, 1e-9, math.inf)
        return math.ceil(epochs * epoch), epoch
    if steps is None:
        raise ConfigError.mismatch(
            "steps", expected='updates, or fit(options={"num_train_epochs": ...})', got="neither"
        )
    return steps, epoch
