"""The Preference Transformer: a reward that depends on history, and which steps matter.

Kim et al. (2023), "Preference Transformer: Modeling Human Preferences using Transformers for RL",
arXiv:2303.00957.
"""

import math
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from preferl.errors import ModelError
from preferl.models.attention import UNSEEN, Block, Perceptron, causal_bias
from preferl.models.base import ConfiguredReward, LastRewards, RewardOutput, trace_causal
from preferl.models.blocks import drop, lecun_linear
from preferl.models.configs import PreferenceTransformerConfig
from preferl.models.spaces import feature_size
from preferl.registry import ENGINES
from preferl.shapes import BoolArray

SPAN: Final = 256
"""Windows computed together: enough for efficient products, and few enough for the cache."""

ENGINE: Final = "one-block transformer"


class Attention(NamedTuple):
    """Attention weights of a `PreferenceTransformer`.

    Attributes:
        layers: `[layers, B, heads, 2L, 2L]` shares of each block. A step's action comes before its
            state. Rows add up to 1; rows of padding have no meaning.
        preference: `[B, L, L]` shares of the preference attention; None with the plain head.
        importance: `[B, L]` weight of each step's reward in a score with pooling "mean"; rows add
            up to 1.
    """

    layers: Tensor
    preference: Tensor | None
    importance: Tensor


@final
class PreferenceTransformer(ConfiguredReward):
    """`r(o_1, a_1, ..., o_t, a_t)` by causal attention, and scores by attention among steps.

    >>> from gymnasium.spaces import Box
    >>> model = PreferenceTransformer(Box(-1, 1, (3,)), Box(-1, 1, (1,)), seed=0)
    >>> model(torch.ones(4, 10, 3), torch.ones(4, 10, 1), torch.ones(4, 10) > 0).rewards.shape
    torch.Size([1, 4, 10])
    """

    config: PreferenceTransformerConfig
    defaults = PreferenceTransformerConfig
    recordable = True

    def build(self, generator: torch.Generator) -> None:
        """Make the networks."""
        config = self.config
        width = config.width
        states = feature_size(self.observation_space)
        self.state_embed = lecun_linear(states, width, generator)
        self.action_embed = lecun_linear(self.encoder.size - states, width, generator)
        table = torch.randn((config.positions or config.context) + 1, width, generator=generator)
        self.time_embed = nn.Embedding.from_pretrained(table / math.sqrt(width), freeze=False)
        self.input_norm = nn.LayerNorm(width)
        self.blocks: Any = nn.ModuleList(Block(config, generator) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(width)
        if config.head == "preference":
            self.pref_proj = lecun_linear(width, 2 * config.preference_width + 1, generator)
        else:
            self.head = Perceptron((width, width // 2, 1), config.activation, generator)

    def judge(self, features: Tensor, mask: Tensor) -> RewardOutput:
        """Compute rewards `[1, B, L]` and scores `[1, B]` of features `[B, L, F]`."""
        # Rewards are read only at states, so actions need no query in the last block.
        hidden = self._hidden(features, mask, every=2)  # [B, L, W]
        rewards = weighed = self.reward(hidden)  # [B, L]
        if self.config.head == "preference":
            weighed = (self._preference(hidden, mask) * rewards[:, None]).sum(-1)
        return RewardOutput(rewards[None], super().pool(weighed[None], mask))

    def reward(self, hidden: Tensor) -> Tensor:
        """Compute rewards `[...]` of normalised states `[..., W]` after the last block."""
        if self.config.head == "plain":
            return self.head(hidden)[..., 0].float()  # type: ignore[no-any-return]
        with torch.autocast(hidden.device.type, enabled=False):
            own = F.linear(hidden.float(), self.pref_proj.weight[-1:], self.pref_proj.bias[-1:])
        return own[..., 0]

    def trace(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Compute rewards as in `RewardModel`, with one pass for windows at an episode's beginning.

        Later windows, which no longer begin with the episode, are computed one by one, or by an
        engine.
        """
        engine = self._engine()
        late = partial(engine.full_windows, features) if engine else None
        return trace_causal(self, features, lengths, SPAN, late)

    def judge_last(self, features: Tensor, mask: BoolArray) -> Tensor:
        """Compute rewards `[1, B]` of the last step of windows `[B, L, F]`, as `judge` does."""
        longest = max(int(mask.sum(1).max()), 1)  # only a few steps at the beginning of episodes
        real = torch.tensor(mask[:, -longest:], device=features.device)
        hidden = self._hidden(features[:, -longest:], real, every=2 * longest)  # [B, 1, W]
        return self.reward(hidden)[None, :, -1]

    def last_rewards(self) -> LastRewards:
        """Return a function for rewards `[1, B]` of last steps, with the current weights."""
        return self._engine() or self.judge_last

    def _engine(self) -> Any:
        """Return the engine that computes the same faster; None if there is none for this model."""
        if len(self.blocks) > 1 or ENGINE not in ENGINES:
            return None
        return ENGINES.load(ENGINE)(self)

    @torch.no_grad()
    def attention(self, features: Tensor, mask: Tensor) -> Attention:
        """Compute attention weights in windows `[B, L, F]`; call it in evaluation mode."""
        bias = causal_bias(mask, each=2)
        tokens = self._tokens(features, mask)
        layers = []
        for block in self.blocks:
            layers.append(block.attn.shares(block.norm1(tokens), bias))
            tokens = block(tokens, bias)
        real = mask / mask.sum(1, keepdim=True).clamp(min=1)  # [B, L]
        if self.config.head == "plain":
            return Attention(torch.stack(layers), None, real)
        shares = self._preference(self.final_norm(tokens[:, 1::2]), mask)
        importance = (real[:, None] @ shares)[:, 0]
        return Attention(torch.stack(layers), shares, importance)

    def pool(self, rewards: Tensor, mask: Tensor) -> NoReturn:  # noqa: ARG002 (the contract)
        """Raise `ModelError`: scores weigh steps by their features."""
        raise ModelError(
            "scores of a PreferenceTransformer: expected features to judge, got only rewards. "
            "Call `judge`."
        )

    def _hidden(self, features: Tensor, mask: Tensor, every: int) -> Tensor:
        """Compute normalised outputs `[B, 2L / every, W]` of the last of every `every` tokens."""
        bias = causal_bias(mask, each=2)  # [B or 1, 1, 2L, 2L]
        tokens = self._tokens(features, mask)
        for block in self.blocks[:-1]:
            tokens = block(tokens, bias)
        return self.final_norm(self.blocks[-1](tokens, bias, every=every))  # type: ignore[no-any-return]

    def _tokens(self, features: Tensor, mask: Tensor) -> Tensor:
        """Embed each step's action and state as normalised tokens with its place, `[B, 2L, W]`."""
        if mask.shape[1] >= self.time_embed.num_embeddings:
            raise ModelError(
                f"steps per window: expected at most {self.time_embed.num_embeddings - 1}, got "
                f"{mask.shape[1]}. Build the model with a longer context, or more positions."
            )
        # If all windows have the same real steps, a GPU need not sort to sum the gradients of each
        # place over windows. On a CPU, that would only change the rounding.
        real = mask[:1] if mask.is_cuda and mask.stride(0) == 0 else mask
        place = self.time_embed(real.cumsum(1))[:, :, None]  # [B or 1, L, 1, W], row 0 for padding
        # One product writes actions and states into their places.
        weight = torch.block_diag(self.state_embed.weight, self.action_embed.weight)  # [2W, F]
        weight = weight.unflatten(0, (2, -1)).flip(0).flatten(0, 1)  # rows of actions first
        bias = torch.cat([self.action_embed.bias, self.state_embed.bias])
        features = torch.where(mask[..., None], features, 0.0)
        with torch.autocast(features.device.type, enabled=False):  # cheap, and inputs are exact
            pairs = F.linear(features, weight, bias).unflatten(-1, (2, -1))  # [B, L, 2, W]
        tokens = self.input_norm(pairs + place).flatten(1, 2)  # [B, L, 2, W] to [B, 2L, W]
        dropped, scale = drop(tokens, self.config.dropout, self.training)
        # in float32, since bfloat16 would round the scale
        return dropped if scale == 1.0 else dropped * scale

    def _preference(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Compute shares `[B, L, L]` of the preference attention, whose logits are not scaled."""
        weight = self.pref_proj.weight[:-1]
        bias = self.pref_proj.bias[:-1]
        query, key = F.linear(hidden, weight, bias).float().chunk(2, dim=-1)
        with torch.autocast(hidden.device.type, enabled=False):
            logits = query @ key.mT  # large logits differ by less than bfloat16 resolves
        return torch.where(mask[:, None], logits, UNSEEN).softmax(-1)
