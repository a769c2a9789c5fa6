"""All that is asked of Hugging Face's `transformers`: the model's parameters, and its `Trainer`.

Imported when it is needed, and nowhere else, since it takes seconds to load; extra `hub`.
"""

import atexit
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    DecisionTransformerConfig,
    DecisionTransformerModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from preferl.errors import ConfigError
from preferl.offline.dt_config import DTConfig
from preferl.offline.trainer_options import ON_THE_HUB
from preferl.reading import read_json

UNUSED: Final = ("predict_state", "predict_return", "encoder.wte")
"""Parts of the model that no action comes from; they are kept as they are, for the hub."""


CRITICS: Final = "critics"
"""The part of what is trained that learns at a rate of its own."""


def build_model(seed: int, **settings: Any) -> nn.Module:
    """A `DecisionTransformerModel` initialised from a seed, which no other random state depends on.

    Args:
        seed: of its parameters.
        **settings: of its config, by Hugging Face's names.
    """
    # Without these it warns of tokens that a vocabulary of one does not have.
    config = DecisionTransformerConfig(
        **settings, vocab_size=1, bos_token_id=None, eos_token_id=None
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = DecisionTransformerModel(config)
    for name in UNUSED:
        model.get_submodule(name).requires_grad_(False)
    return model


def config_json(model: Any) -> dict[str, Any]:
    """What `DecisionTransformerModel.from_pretrained` wants beside the parameters."""
    described: dict[str, Any] = model.config.to_dict()
    return described | {"architectures": ["DecisionTransformerModel"]}


def rebuild_model(hub: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> nn.Module:
    """The model of a config, with the parameters of those names, to act.

    Args:
        hub: its config, as `config_json` wrote it.
        parameters: by name; others may be among them.
    """
    with torch.random.fork_rng(devices=[]):
        model: nn.Module = DecisionTransformerModel(DecisionTransformerConfig.from_dict(dict(hub)))
    model.load_state_dict({name: parameters[name] for name in model.state_dict()})
    return model.eval()


def plain_actions(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """What is predicted at each step of each window, by the model's own forward, `[B, H, A]`.

    The engine `preferl.offline.tokens` has to equal it, in a third of the time.

    Args:
        model: from `build_model`.
        batch: `states` `[B, H, O]`, `actions` `[B, H, A]`, `returns_to_go` `[B, H, 1]`,
            `timesteps` and `attention_mask` `[B, H]`, as `SequenceCollator` makes them.
    """
    mask, rewards = batch["attention_mask"].float(), torch.zeros_like(batch["returns_to_go"])
    seen = dict(batch) | {"attention_mask": mask, "rewards": rewards}
    predicted: Tensor = model(**seen).action_preds
    return predicted


def train(
    module: nn.Module,
    collate: Callable[[Sequence[int]], dict[str, Tensor]],
    folder: Path,
    config: DTConfig,
    *,
    steps: int,
    epoch: int,
    device: torch.device,
    seed: int,
    save_every: int,
    report_every: int,
    resume: bool,
    on_log: Callable[[int, dict[str, float]], None],
    after_update: Callable[[int], None],
    on_save: Callable[[], None],
    options: Mapping[str, Any],
    callbacks: Sequence[Any],
) -> bool:
    """Train a module whose forward returns its loss, from the last checkpoint if there is one.

    Args:
        module: takes a minibatch by keywords.
        collate: sample numbers to a minibatch.
        folder: of the checkpoints.
        config: batches, learning rates and precision.
        steps: updates in all.
        epoch: updates that a strategy of epochs waits for.
        device: where.
        seed: of dropout.
        save_every: updates between two checkpoints.
        report_every: updates between two calls of `on_log`.
        resume: go on from the last whole checkpoint in `folder`; without it, they are removed.
        on_log: told the update and its numbers.
        after_update: told the number of updates done, after each.
        on_save: called when a checkpoint is written, in the first process alone.
        options: more of `TrainingArguments`, none of those that are set here.
        callbacks: more of `TrainerCallback`.

    Returns:
        Whether this process is the first of those that train together.
    """
    apart = {} if config.regulariser is None else {CRITICS: config.regulariser.learning_rate}
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=_share(config.batch_size),
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        warmup_steps=config.warmup,
        max_grad_norm=0.0 if apart else config.max_grad_norm,
        optim="adamw_torch_fused",
        bf16=config.precision == "bfloat16",
        use_cpu=device.type == "cpu",
        seed=seed % 2**32,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        dataloader_pin_memory=device.type != "cpu",
        logging_nan_inf_filter=False,
        save_total_limit=1,
        disable_tqdm=True,
        **{"report_to": "none", "logging_steps": report_every, "save_steps": save_every}
        | _by_steps(options, epoch),
    )
    told = _Told(on_log, after_update, on_save, apart, config.max_grad_norm)
    samples = range(steps * config.batch_size * arguments.gradient_accumulation_steps)
    with _own_randomness():
        trainer = Trainer(
            model=module,
            args=arguments,
            train_dataset=_Numbers(samples),
            data_collator=collate,
            callbacks=[told, *callbacks],
            optimizers=(_optimiser(module, arguments, apart), None),
        )
        trainer.remove_callback(PrinterCallback)
        _leave_together()
        trainer.train(resume_from_checkpoint=_last_whole(folder, keep=resume))
        return bool(trainer.is_world_process_zero())


def known_options() -> frozenset[str]:
    """Names of the fields of `TrainingArguments`."""
    return frozenset(field.name for field in fields(TrainingArguments))


def _by_steps(options: Mapping[str, Any], epoch: int) -> dict[str, Any]:
    """Strategies of epochs in updates: to the trainer all of a run is one pass over its data."""
    given = {name: value for name, value in options.items() if name not in ON_THE_HUB}
    given.pop("num_train_epochs", None)  # the updates of all epochs are counted already
    for what in ("save", "logging"):
        strategy = given.get(f"{what}_strategy")
        if str(getattr(strategy, "value", strategy)) == "epoch":
            given |= {f"{what}_strategy": "steps", f"{what}_steps": epoch}
    return given


def _leave_together() -> None:
    """Close the group of processes before this one ends, as `Trainer` does not.

    A process that ends with it open is sometimes aborted by the threads that are still in it, and
    the other processes with it.
    """
    group = torch.distributed
    if group.is_available() and group.is_initialized():
        atexit.unregister(_close_group)
        atexit.register(_close_group)


def _close_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _last_whole(folder: Path, *, keep: bool) -> str | None:
    """The latest checkpoint that was written to its end, if any; others go, or all of them."""
    whole = {}
    for checkpoint in folder.glob("checkpoint-*"):
        try:  # what is written last
            read_json(checkpoint / "trainer_state.json")
        except (OSError, ValueError):
            keep_this = False
        else:
            keep_this = keep
        if keep_this:
            whole[int(checkpoint.name.rpartition("-")[2])] = str(checkpoint)
        else:
            shutil.rmtree(checkpoint, ignore_errors=True)
    return whole[max(whole)] if whole else None


def _share(batch_size: int) -> int:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if batch_size % processes:
        raise ConfigError.mismatch(
            "batch_size", expected=f"a multiple of the {processes} processes", got=batch_size
        )
    return batch_size // processes


def _optimiser(
    module: nn.Module, arguments: Any, apart: Mapping[str, float]
) -> torch.optim.Optimizer:
    """AdamW that decays matrices only; submodules of `apart` learn at their own rates."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            rate = apart.get(name.split(".")[0], arguments.learning_rate)
            decay = arguments.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": some, "lr": rate, "weight_decay": decay}
            for (rate, decay), some in groups.items()
        ],
        betas=(arguments.adam_beta1, arguments.adam_beta2),
        eps=arguments.adam_epsilon,
        fused=True,
    )


@final
class _Numbers(Dataset[int]):
    """Sample numbers: what they stand for is the collator's business."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: int) -> int:
        return number

    def __getitems__(self, numbers: list[int]) -> list[int]:
        """All of a minibatch at once, without a call for each."""
        return numbers


@final
class _Told(TrainerCallback):
    """Passes on what happens, and scales the gradients of parts that are kept apart."""

    def __init__(
        self,
        on_log: Callable[[int, dict[str, float]], None],
        after_update: Callable[[int], None],
        on_save: Callable[[], None],
        apart: Mapping[str, float],
        max_grad_norm: float,
    ) -> None:
        self._on_log, self._after_update, self._on_save = on_log, after_update, on_save
        self._apart, self._norm = apart, max_grad_norm

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Numbers of the latest updates; the summary at the end has none."""
        if logs and "loss" in logs:
            self._on_log(state.global_step, {k: float(v) for k, v in logs.items()})

    def on_pre_optimizer_step(
        self, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any
    ) -> None:
        """Scale each part's gradients by their own norm."""
        parts: dict[str, list[nn.Parameter]] = {}
        if not self._apart:
            return
        for name, parameter in model.named_parameters():
            part = name.removeprefix("module.").split(".")[0]
            parts.setdefault(part if part in self._apart else "", []).append(parameter)
        for some in parts.values():
            nn.utils.clip_grad_norm_(some, self._norm)

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """A checkpoint is written."""
        if state.is_world_process_zero:
            self._on_save()

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """An update is done."""
        self._after_update(state.global_step)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Leave the random states of everybody else as they were: `Trainer` seeds them all."""
    ours = random.getstate()
    theirs = np.random.get_state()  # noqa: NPY002 - it is the old generator that is seeded
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(ours)
        np.random.set_state(theirs)  # noqa: NPY002 - as above
