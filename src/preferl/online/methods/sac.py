"""Soft actor-critic (Haarnoja et al. 2018) of stable-baselines3 with updates as CUDA graphs."""

from typing import Any, final

import stable_baselines3
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Normal

from preferl.training.recorded import RecordedUpdate


@final
class SAC(stable_baselines3.SAC):
    """SAC that records its update on a GPU as a CUDA graph, and replays the graph.

    Minibatches, noise and formulas are those of stable-baselines3. On a CPU, stable-baselines3's
    own updates run. They also run on a GPU if exploration depends on states, if observations are
    dictionaries, or if the target networks are not updated every time.
    """

    _recorded: RecordedUpdate | None = None
    _recorded_batch_size = 0
    _recorded_states: tuple[Any, ...] = ()  # the optimisers' states, which the graph changes

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Make updates from minibatches of the replay buffer."""
        if not self._is_recordable():
            self._recorded = None
            super().train(gradient_steps, batch_size)
            return
        self.policy.set_training_mode(True)
        self._update_learning_rate(self._optimisers())
        update = self._recorded_update(batch_size)
        measured = []
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]  # made with its memory
            losses = update(batch)
            names = list(losses)
            measured.append(torch.stack([*losses.values()]))
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, mean in zip(names, torch.stack(measured).mean(0).tolist(), strict=True):
            self.logger.record(f"train/{name}", mean)

    def update(self, batch: Any) -> dict[str, Tensor]:
        """Make one update from a minibatch, as stable-baselines3's `train` does; return its losses.

        Args:
            batch: `ReplayBufferSamples`; observations must not be dictionaries.
        """
        actor = self.actor
        critic = self.critic
        target = self.critic_target
        actions, log_density = self._act(batch.observations)
        losses: dict[str, Any] = {}
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            temperature = self.ent_coef_tensor
        else:
            temperature = torch.exp(self.log_ent_coef.detach())
            excess = (log_density + float(self.target_entropy)).detach()
            temperature_loss = -(self.log_ent_coef * excess).mean()
            _descend(self.ent_coef_optimizer, temperature_loss)
            losses["ent_coef_loss"] = temperature_loss
        losses["ent_coef"] = temperature.mean()

        with torch.no_grad():
            next_actions, next_log_density = self._act(batch.next_observations)
            next_values = torch.cat(target(batch.next_observations, next_actions), dim=1)
            next_value = next_values.min(dim=1, keepdim=True)[0]
            next_value = next_value - temperature * next_log_density
            discounts = self.gamma if batch.discounts is None else batch.discounts
            wanted = batch.rewards + (1 - batch.dones) * discounts * next_value
        values = critic(batch.observations, batch.actions)
        losses["critic_loss"] = 0.5 * sum(F.mse_loss(value, wanted) for value in values)
        _descend(critic.optimizer, losses["critic_loss"])

        values = torch.cat(critic(batch.observations, actions), dim=1)
        value = values.min(dim=1, keepdim=True)[0]
        losses["actor_loss"] = (temperature * log_density - value).mean()
        _descend(actor.optimizer, losses["actor_loss"])
        with torch.no_grad():  # Polyak averaging
            weights: list[Tensor] = [*target.parameters()]
            newer: list[Tensor] = [*critic.parameters()]
            torch._foreach_mul_(weights, 1 - self.tau)
            torch._foreach_add_(weights, newer, alpha=self.tau)
        return losses

    def _act(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actor's `action_log_prob`, `[B, A]` and `[B, 1]`, without checks of numbers.

        Checks would wait for results of the device, which a graph cannot do.
        """
        mean, log_std, _ = self.actor.get_action_dist_params(observations)
        density = Normal(mean, log_std.exp(), validate_args=False)
        unsquashed = density.rsample()
        actions = torch.tanh(unsquashed)
        squashing = torch.log(1 - actions**2 + self.actor.action_dist.epsilon)
        log_density = density.log_prob(unsquashed).sum(1) - squashing.sum(1)
        return actions, log_density[:, None]

    def _is_recordable(self) -> bool:
        """Return whether a recorded graph can make the updates."""
        return (
            self.device.type == "cuda"
            and not self.use_sde
            and not isinstance(self.replay_buffer.observations, dict)  # type: ignore[union-attr]  # made with its memory
            and self.target_update_interval == 1
            and not self.batch_norm_stats
            and self.policy.optimizer_class is torch.optim.Adam
            and all(part.requires_grad for part in self.actor.parameters())
        )

    def _recorded_update(self, batch_size: int) -> RecordedUpdate:
        """Return the recording. Record again if an optimiser was replaced or restored."""
        states = tuple(optimiser.state for optimiser in self._optimisers())
        kept = zip(states, self._recorded_states, strict=False)
        same = self._recorded_batch_size == batch_size and all(a is b and a for a, b in kept)
        if self._recorded is None or not same:
            for optimiser in self._optimisers():
                _keep_on_device(optimiser, self.device)
            self._recorded = RecordedUpdate(self.update, self.device)
            self._recorded_batch_size = batch_size
            self._recorded_states = states
        return self._recorded

    def _optimisers(self) -> list[torch.optim.Optimizer]:
        optimisers = [self.actor.optimizer, self.critic.optimizer]
        if self.ent_coef_optimizer is not None:
            optimisers.append(self.ent_coef_optimizer)
        return optimisers

    def _update_learning_rate(self, optimizers: Any) -> None:
        """Set the scheduled learning rate; if a graph reads it, set it in place."""
        rate = self.lr_schedule(self._current_progress_remaining)
        self.logger.record("train/learning_rate", rate)
        for optimiser in optimizers:
            for group in optimiser.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate

    def _excluded_save_params(self) -> list[str]:
        recording = ["_recorded", "_recorded_batch_size", "_recorded_states"]
        return super()._excluded_save_params() + recording


def _descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Make an optimiser step; compute gradients only for the optimiser's parameters."""
    optimiser.zero_grad()
    loss.backward(inputs=[part for group in optimiser.param_groups for part in group["params"]])
    optimiser.step()


def _keep_on_device(optimiser: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep an optimiser's numbers on the device, because a graph reads and writes them there."""
    for group in optimiser.param_groups:
        rate = torch.as_tensor(group["lr"], dtype=torch.float32, device=device)
        group.update(lr=rate, capturable=True, fused=True, foreach=False)
    for state in optimiser.state.values():
        state["step"] = state["step"].to(device, torch.float32)
