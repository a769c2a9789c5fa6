"""All uses of Hugging Face's `transformers`: the model's parameters, and its `Trainer`.

This module is imported only when it is needed, since it takes seconds to load. It needs the extra
`hub`.
"""

import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from transformers import (
    DecisionTransformerConfig,
    DecisionTransformerModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from preferl.errors import ConfigError, SpaceError, require_in
from preferl.models.folder import require_converged
from preferl.offline.decision_transformer.action_loss import Loss, action_loss
from preferl.offline.decision_transformer.critics import Critics, regularise
from preferl.offline.decision_transformer.parameters import ACTIONS
from preferl.offline.decision_transformer.pixel_encoder import PixelEncoder
from preferl.offline.decision_transformer.sequences import action_size, are_pictures
from preferl.offline.learner_configs import DTConfig, TokenShape
from preferl.offline.transitions import observation_size
from preferl.reading import read_json
from preferl.registry import ENGINES
from preferl.training.distributed import ALONE, World

CRITICS: Final = "critics."  # prefix of parameters that have their own learning rate
# never trained; kept for the hub
UNUSED: Final = ("predict_state", "predict_return", "encoder.wte")

SET_BY_PREFERL: Final[Mapping[str, str]] = {
    "output_dir": "`folder` of fit",
    "resume_from_checkpoint": "`resume` of fit",
    "save_steps": "`checkpoint_every` of fit",
    "logging_steps": "`every` of fit",
    "max_steps": "`steps` of the agent",
    **dict.fromkeys(("seed", "data_seed"), "`seed` of the agent"),
    "use_cpu": "`device` of the agent",
    "per_device_train_batch_size": "`DTConfig.batch_size`, over all processes",
    **{name: f"`DTConfig.{name}`" for name in ("learning_rate", "weight_decay", "max_grad_norm")},
    **dict.fromkeys(("warmup_steps", "warmup_ratio"), "`DTConfig.warmup`"),
    "bf16": "`DTConfig.precision`",
    **dict.fromkeys(("optim", "optim_args"), "nothing: it is AdamW, which decays only matrices"),
    "optim_target_modules": "nothing: all of the model is trained",
    "train_sampling_strategy": "nothing: windows are drawn from the seed and the update's number",
    "remove_unused_columns": "nothing: windows have no columns",
    "dataloader_pin_memory": "nothing: it is done where there is a GPU",
    "logging_nan_inf_filter": "nothing: losses are shown as they are",
    "save_total_limit": "nothing: the latest checkpoint is kept, to resume from",
    "disable_tqdm": "`on_progress` of fit",
}
"""Fields of `TrainingArguments` that preferl sets itself, and what to use instead."""


def build_model(seed: int, **settings: Any) -> nn.Module:
    """Return a model initialised from a seed; `settings` have Hugging Face's names."""
    # Without these settings, transformers warns about tokens outside of a vocabulary of one.
    config = DecisionTransformerConfig(
        **settings, vocab_size=1, bos_token_id=None, eos_token_id=None
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = DecisionTransformerModel(config)
    for name in UNUSED:
        model.get_submodule(name).requires_grad_(False)
    return model


def rebuild_model(hub: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> nn.Module:
    """Return the model of a config with parameters by name. Further parameters are ignored."""
    with torch.random.fork_rng(devices=[]):
        model: nn.Module = DecisionTransformerModel(DecisionTransformerConfig.from_dict(dict(hub)))
    model.load_state_dict({name: parameters[name] for name in model.state_dict()})
    return model.eval()


def plain_actions(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Predict the action at each step of each window, `[B, H, A]`, with the model's own forward.

    The engine in `tokens` computes the same in a third of the time.
    """
    mask = batch["attention_mask"].float()
    rewards = torch.zeros_like(batch["returns_to_go"])
    inputs = dict(batch) | {"attention_mask": mask, "rewards": rewards}
    predicted: Tensor = model(**inputs).action_preds
    return predicted


@final
class TrainedTransformer(nn.Module):
    """The model with its pixel encoder and critics, if there are any; `forward` computes the loss.

    `inputs` is the shape of a state or picture. `outputs` counts the numbers of an action.
    `metrics` are those of the last minibatch, without the loss. Saved parameters are named after
    these modules. `world` has the processes that train the model together: means are over the
    windows of all of them.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: DTConfig,
        seed: int,
    ) -> None:
        super().__init__()
        discrete = isinstance(action_space, spaces.Discrete)
        pictures = are_pictures(observation_space)
        self._loss: Loss = "choices" if discrete else config.action_loss
        self.outputs = action_size(action_space)
        generator = torch.Generator().manual_seed(seed)
        size = config.pixel_encoder.size
        encoder = None
        if pictures:
            encoder = PixelEncoder(observation_space, config.pixel_encoder, generator)
        else:
            size = observation_size(observation_space)
        self.add_module("pixel_encoder", encoder)
        self.inputs = observation_space.shape if pictures else (size,)
        bounded = isinstance(action_space, spaces.Box) and action_space.is_bounded()
        self.shape = TokenShape(config.layers, config.heads, bounded, config.dropout)
        self.transformer = build_model(
            seed,
            state_dim=size,
            act_dim=self.outputs,
            hidden_size=config.width,
            max_ep_len=config.horizon,
            n_layer=config.layers,
            n_head=config.heads,
            n_positions=3 * config.context,
            action_tanh=bounded,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout),
        )
        self.critics: Critics | None = None
        if config.regulariser is not None:
            if discrete or pictures:
                raise SpaceError(
                    "spaces of DTR: expected states of numbers and continuous actions, got "
                    f"{observation_space} and {action_space}. Train a Decision Transformer "
                    "without the regulariser."
                )
            self.critics = Critics(size + self.outputs, config.regulariser, generator=generator)
        # Looking up parameters in the module takes longer than some of the products with them.
        self._named = dict(self.transformer.named_parameters())
        self.metrics: dict[str, Tensor] = {}
        self.world = ALONE

    # There is no **kwargs. If there were, the trainer would assume that the model scales its loss.
    def forward(
        self,
        states: Tensor,
        actions: Tensor,
        rewards: Tensor,
        returns_to_go: Tensor,
        timesteps: Tensor,
        attention_mask: Tensor,
        terminated: Tensor,
    ) -> dict[str, Tensor]:
        """Return the mean loss over real steps of a minibatch."""
        encoder = self._modules["pixel_encoder"]
        batch = {
            "states": states if encoder is None else encoder(states),
            "actions": actions,
            "rewards": rewards,
            "returns_to_go": returns_to_go,
            "timesteps": timesteps,
            "attention_mask": attention_mask,
        }
        if ACTIONS in ENGINES:
            engine = ENGINES.load(ACTIONS)
            predicted = engine(self._named, self.shape, batch, training=self.training).float()
        else:
            predicted = plain_actions(self.transformer, batch).float()
        loss = action_loss(predicted, actions, attention_mask, self._loss, self.world)
        if self.critics is None:
            return {"loss": loss}
        batch["terminated"] = terminated
        critic_loss, value_loss, self.metrics = regularise(
            self.critics, batch, predicted, self.world
        )
        self.metrics["action_loss"] = loss.detach()
        return {"loss": loss + value_loss + critic_loss}

    def copies(self) -> dict[str, Tensor]:
        """Return copies of all parameters on the CPU.

        Hugging Face's parameters keep their names.
        """
        model = dict(self.transformer.state_dict())
        other_parameters = {
            n: t for n, t in self.state_dict().items() if not n.startswith("transformer.")
        }
        return {name: t.detach().cpu().clone() for name, t in (model | other_parameters).items()}


def require_options(options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for options that preferl sets itself and for unknown options."""
    fields_of_trainer = {field.name for field in fields(TrainingArguments)}
    for name, value in options.items():
        if name in SET_BY_PREFERL:
            raise ConfigError(
                f"options[{name!r}]: expected a field of transformers' TrainingArguments that "
                f"preferl does not set itself, got {value!r}. In its place: {SET_BY_PREFERL[name]}."
            )
        if name not in fields_of_trainer:
            raise ConfigError(
                f"options[{name!r}]: expected a field of transformers' TrainingArguments, but "
                "there is none of this name."
            )


def hub_target(options: Mapping[str, Any], folder: Path | None) -> tuple[dict[str, Any], bool]:
    """Return arguments of `push_to_hub`, empty if nothing is pushed.

    And whether to push checkpoints.
    """
    if not options.get("push_to_hub"):
        return {}, False
    name = options.get("hub_model_id") or (folder.absolute().name if folder else None)
    if name is None:
        raise ConfigError(
            "hub_model_id: expected the name of a repository, got None, and there is no folder to "
            "name it after."
        )
    strategy = options.get("hub_strategy")
    strategy = str(getattr(strategy, "value", strategy))
    if strategy not in ("end", "every_save", "None"):
        raise ConfigError(
            f"hub_strategy: expected one of end, every_save, got {strategy}. Checkpoints hold "
            "pickles, which nobody should load from the hub."
        )
    target = {
        "name": name,
        "token": options.get("hub_token"),
        "private": options.get("hub_private_repo"),
        "revision": options.get("hub_revision"),
    }
    return target, strategy != "end"


def planned_updates(
    options: Mapping[str, Any], steps: int | None, *, episodes: int, batch_size: int
) -> tuple[int, int]:
    """Return the number of all updates, and of the updates of an epoch.

    An epoch draws as many windows as there are episodes, as in Hugging Face's tutorial, where a row
    is an episode. The option `num_train_epochs` comes before `steps`.

    >>> planned_updates({"num_train_epochs": 3}, None, episodes=100, batch_size=64)
    (6, 2)
    """
    accumulated = int(options.get("gradient_accumulation_steps") or 1)
    require_in("gradient_accumulation_steps", accumulated, 1, math.inf)
    epoch = math.ceil(math.ceil(episodes / batch_size) / accumulated)
    epochs = options.get("num_train_epochs")
    if epochs is not None:
        require_in("num_train_epochs", epochs, 1e-9, math.inf)
        return math.ceil(epochs * epoch), epoch
    if steps is None:
        raise ConfigError(
            'steps: expected updates, or fit(options={"num_train_epochs": ...}), got neither.'
        )
    return steps, epoch


def by_steps(options: Mapping[str, Any], epoch: int) -> dict[str, Any]:
    """Return options, with strategies by epoch replaced by strategies by update.

    The trainer sees the whole run as one pass over its data, so it knows no epochs.
    """
    # preferl pushes policies itself, and counts the updates of all epochs.
    own_prefixes = ("push_to_hub", "hub_", "num_train_epochs")
    trainer_options = {
        name: value for name, value in options.items() if not name.startswith(own_prefixes)
    }
    for strategy_of in ("save", "logging"):
        strategy = trainer_options.get(f"{strategy_of}_strategy")
        if str(getattr(strategy, "value", strategy)) == "epoch":
            trainer_options |= {f"{strategy_of}_strategy": "steps", f"{strategy_of}_steps": epoch}
    return trainer_options


def train(
    module: TrainedTransformer,
    collate: Callable[[Sequence[int]], dict[str, Tensor]],
    config: DTConfig,
    settings: Mapping[str, Any],
    *,
    device: torch.device,
    resume: bool,
    callbacks: Sequence[Any],
) -> bool:
    """Train a module with Hugging Face's `Trainer`; with other processes under torchrun.

    `settings` are further `TrainingArguments`. Without `resume`, checkpoints in the folder are
    removed. Return whether this process is the first of those that train together.
    """
    module.world = World.join()
    arguments = _arguments(config, settings, device, processes=module.world.size)
    accumulated = config.batch_size * arguments.gradient_accumulation_steps
    with _own_randomness():
        trainer = Trainer(
            model=module,
            args=arguments,
            # numbers of samples for the collator
            train_dataset=range(arguments.max_steps * accumulated),
            data_collator=collate,
            callbacks=list(callbacks),
            optimizers=(_optimiser(module, arguments, config), None),
        )
        trainer.remove_callback(PrinterCallback)
        folder = Path(arguments.output_dir)
        trainer.train(resume_from_checkpoint=_last_whole(folder, keep=resume))
        return bool(trainer.is_world_process_zero())


def _arguments(
    config: DTConfig, settings: Mapping[str, Any], device: torch.device, *, processes: int
) -> TrainingArguments:
    """Return the arguments of the trainer, for processes that share each minibatch."""
    if config.batch_size % processes:
        raise ConfigError(
            f"batch_size: expected a multiple of the {processes} processes, got "
            f"{config.batch_size}."
        )
    return TrainingArguments(
        per_device_train_batch_size=config.batch_size // processes,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        warmup_steps=config.warmup,
        # If critics train beside the policy, `Hooks` clips gradients instead.
        max_grad_norm=config.max_grad_norm if config.regulariser is None else 0.0,
        optim="adamw_torch_fused",
        bf16=config.precision == "bfloat16",
        use_cpu=device.type == "cpu",
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        dataloader_pin_memory=device.type != "cpu",
        logging_nan_inf_filter=False,
        save_total_limit=1,
        disable_tqdm=True,
        **settings,
    )


def _last_whole(folder: Path, *, keep: bool) -> str | None:
    """Return the latest complete checkpoint, if any; remove the others, or all unless `keep`."""
    whole = {}
    for checkpoint in folder.glob("checkpoint-*"):
        if keep:
            with suppress(OSError, ValueError):
                read_json(checkpoint / "trainer_state.json")  # the file that is written last
                whole[int(checkpoint.name.rpartition("-")[2])] = str(checkpoint)
                continue
        shutil.rmtree(checkpoint, ignore_errors=True)
    return whole[max(whole)] if whole else None


def _optimiser(module: nn.Module, arguments: Any, config: DTConfig) -> torch.optim.Optimizer:
    """Return an AdamW that decays only matrices; critics have their own learning rate."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            part = config.regulariser if name.startswith(CRITICS) else None
            decay = config.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault(((part or config).learning_rate, decay), []).append(parameter)
    parts = [
        {"params": parameters, "lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
    betas = (arguments.adam_beta1, arguments.adam_beta2)
    return torch.optim.AdamW(parts, betas=betas, eps=arguments.adam_epsilon, fused=True)


@final
class Hooks(TrainerCallback):
    """Reports metrics and checkpoints, and clips and updates the critics beside the policy.

    `metrics` are those of the last report. `on_progress` gets the number of updates and these
    metrics. `on_save` is called only in the first process.
    """

    def __init__(
        self,
        module: TrainedTransformer,
        config: DTConfig,
        on_progress: Callable[[int, dict[str, float]], None] | None,
        on_save: Callable[[], None],
    ) -> None:
        self.metrics: dict[str, float] = {}
        self._module = module
        self._norm = config.max_grad_norm
        self._on_progress = on_progress
        self._on_save = on_save

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
        """Report metrics of the latest updates; the summary at the end has none."""
        if logs and "loss" in logs:
            require_converged("the agent's weights", self._module.parameters())
            logged = {name: logs[name] for name in ("loss", "grad_norm") if name in logs}
            self.metrics = {k: float(v) for k, v in (logged | self._module.metrics).items()}
            if self._on_progress is not None:
                self._on_progress(state.global_step, dict(self.metrics))

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Clip the gradients of critics and of the rest, each by its own norm."""
        if self._module.critics is not None:
            parts: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
            for name, parameter in self._module.named_parameters():
                parts[name.startswith(CRITICS)].append(parameter)
            for part in parts:
                nn.utils.clip_grad_norm_(part, self._norm)

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Report that a checkpoint was written."""
        if state.is_world_process_zero:
            self._on_save()

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """Move the critics after an update, and have the last update reported."""
        control.should_log |= state.global_step == state.max_steps
        if self._module.critics is not None:
            self._module.critics.update(state.global_step / state.max_steps)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Restore the global random states after the block, since `Trainer` seeds them."""
    ours = random.getstate()
    theirs = np.random.get_state()  # noqa: NPY002 - `Trainer` seeds the old generator
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(ours)
        np.random.set_state(theirs)  # noqa: NPY002 - as above
