"""A reward of the whole history by an LSTM (NMR; Early et al. 2022, as in Kim et al. 2023)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from preferl.models.base import ConfiguredReward, RewardOutput, trace_causal
from preferl.models.blocks import ACTIVATIONS, lecun_linear, lecun_normal_
from preferl.models.configs import LSTMRewardConfig

SPAN = 512
"""Number of full windows that go through the recurrence at once."""


@final
class LSTMReward(ConfiguredReward):
    """`r(o_1, a_1, ..., o_t, a_t)`: layers on each step, an LSTM over steps, layers on both.

    >>> from gymnasium.spaces import Box
    >>> model = LSTMReward(Box(-1, 1, (3,)), Box(-1, 1, (1,)), seed=0)
    >>> model(torch.ones(4, 10, 3), torch.ones(4, 10, 1), torch.ones(4, 10) > 0).rewards.shape
    torch.Size([1, 4, 10])
    """

    config: LSTMRewardConfig
    defaults = LSTMRewardConfig

    def build(self, generator: torch.Generator) -> None:
        """Make the networks."""
        config = self.config
        half = config.width // 2
        quarter = config.width // 4
        self.before = Layers((self.encoder.size, config.width, half, half), config, generator)
        self.lstm = LSTM(half, generator)
        self.after = Layers((config.width, half, quarter, quarter), config, generator)
        self.output = lecun_linear(quarter, 1, generator)

    def judge(self, features: Tensor, mask: Tensor) -> RewardOutput:
        """Compute rewards `[1, B, L]` and scores `[1, B]` of features `[B, L, F]`."""
        # The recurrence must not begin with padding, so steps move to the front and back again.
        step = torch.arange(mask.shape[1], device=mask.device)
        missing = mask.shape[1] - mask.sum(1, keepdim=True)  # [B, 1]
        shifted = (step + missing).clamp(max=mask.shape[1] - 1)  # [B, L]
        behind = (step - missing).clamp(min=0)
        inputs = self.before(features.gather(1, shifted[..., None].expand_as(features)))
        rewards = self.reward(inputs, self.lstm(inputs)).gather(1, behind)[None]
        return RewardOutput(rewards, self.pool(rewards, mask))

    def trace(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Compute rewards as in `RewardModel`. Windows at an episode's beginning share one pass.

        For other windows, the part of a step that does not depend on the window is computed once.
        """

        def late(steps: Tensor) -> Tensor:
            first = int(steps[0]) + 1 - self.context
            last = int(steps[-1]) + 1
            inputs = self.before(features[first:last])  # [R, width / 2]
            ends = steps.to(features.device) - first
            return self.reward(inputs[ends], self.lstm.after_windows(inputs, ends, self.context))

        return trace_causal(self, features, lengths, SPAN, late)

    def reward(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        """Compute rewards `[...]` from the LSTM's inputs and outputs, `[..., width / 2]` each."""
        hidden_pair = torch.cat([inputs, hidden.to(inputs.dtype)], dim=-1)
        return self.output(self.after(hidden_pair))[..., 0].float()  # type: ignore[no-any-return]


@final
class Layers(nn.Module):
    """Linear layers, each followed by an activation and dropout."""

    def __init__(
        self, sizes: Sequence[int], config: LSTMRewardConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.ModuleList(lecun_linear(a, b, generator) for a, b in pairwise(sizes))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map `[..., in]` to `[..., out]`."""
        for linear in self.linear:
            hidden = ACTIVATIONS[self.config.activation](linear(hidden))
            hidden = F.dropout(hidden, self.config.dropout, self.training)
        return hidden


@final
class LSTM(nn.Module):
    """One layer of long short-term memory, with weights for the gates i, f, g and o in this order.

    It has one bias per gate. PyTorch's two biases would learn twice as fast as the original's one.
    """

    def __init__(self, units: int, generator: torch.Generator) -> None:
        super().__init__()
        self.units = units
        self.input = nn.Parameter(lecun_normal_(torch.empty(4 * units, units), generator))
        gates = (torch.empty(units, units) for _ in "ifgo")
        gates = (nn.init.orthogonal_(gate, generator=generator) for gate in gates)
        self.recurrent = nn.Parameter(torch.cat(list(gates)))
        self.bias = nn.Parameter(torch.zeros(4 * units))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs `[B, L, units]` to outputs `[B, L, units]`, from a state of zeros."""
        state = inputs.new_zeros(1, len(inputs), self.units)
        parts = (self.input, self.recurrent, torch.zeros_like(self.bias), self.bias)
        # GPU kernels want all weights in one block of memory, and warn otherwise.
        block = torch.cat([part.flatten() for part in parts]).split([p.numel() for p in parts])
        weights = [flat.view_as(part) for flat, part in zip(block, parts, strict=True)]
        train = torch.is_grad_enabled()  # on a GPU, backward needs training mode
        return torch.lstm(inputs, (state, state), weights, True, 1, 0.0, train, False, True)[0]

    def after_windows(self, inputs: Tensor, ends: Tensor, length: int) -> Tensor:
        """Compute outputs `[B, units]` after windows of `length` rows, which end at rows `[B]`.

        Windows may share inputs `[R, units]`. The computation works in place, so there are no
        gradients.
        """
        given = torch.addmm(self.bias, inputs, self.input.T)  # [R, 4 * units]
        hidden, cell = given.new_zeros(2, len(ends), self.units).unbind()
        gates = given.new_empty(len(ends), 4 * self.units)
        i, f, g, o = gates.chunk(4, dim=1)
        for back in range(length - 1, -1, -1):
            torch.index_select(given, 0, ends - back, out=gates)
            gates.addmm_(hidden, self.recurrent.T)
            cell.mul_(f.sigmoid_()).addcmul_(i.sigmoid_(), g.tanh_())
            torch.tanh(cell, out=hidden).mul_(o.sigmoid_())
        return hidden
