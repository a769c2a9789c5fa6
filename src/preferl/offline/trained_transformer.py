"""What the trainer of a Decision Transformer trains: the model and what stands beside it."""

from collections.abc import Mapping
from typing import Any, Final, Literal, final

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from preferl.errors import SpaceError
from preferl.offline.dt_config import ActionLoss, DTConfig, TokenShape
from preferl.offline.dtr import Critics, regularise
from preferl.offline.pixel_encoder import PixelEncoder
from preferl.offline.sequences import Sequences, action_size, are_pictures
from preferl.offline.transitions import observation_size
from preferl.registry import ENGINES

LEAST_SQUARE: Final = 1e-6
"""Added to the square of deviations: without it, what is fitted exactly would outweigh the rest."""

EVERY_ACTION: Final = "every action"
"""The engine that does what `hugging_face.plain_actions` does."""

Loss = ActionLoss | Literal["choices"]


@final
class TrainedTransformer(nn.Module):
    """What is trained: Hugging Face's model and what stands beside it; forward is the loss.

    Attributes:
        transformer: Hugging Face's model.
        sight: what looks at pictures, or None.
        critics: of the regulariser, or None.
        inputs: shape of a state, or of a picture.
        outputs: numbers of an action.
        measured: what the last minibatch showed beside the loss.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: DTConfig,
        seed: int,
    ) -> None:
        super().__init__()
        # Only now: it takes seconds to load, and policies act without it.
        from preferl.offline import hugging_face

        self.discrete = isinstance(action_space, spaces.Discrete)
        self._loss: Loss = "choices" if self.discrete else config.action_loss
        self.outputs = action_size(action_space)
        generator = torch.Generator().manual_seed(seed)
        pictures = are_pictures(observation_space)
        self.sight = PixelEncoder(observation_space, config.sight, generator) if pictures else None
        size = observation_size(observation_space) if self.sight is None else self.sight.size
        self.inputs = observation_space.shape if pictures else (size,)
        self.shape = TokenShape(config.layers, config.heads, _bounded(action_space), config.dropout)
        self.transformer = hugging_face.build_model(
            seed,
            state_dim=size,
            act_dim=self.outputs,
            hidden_size=config.width,
            max_ep_len=config.horizon,
            n_layer=config.layers,
            n_head=config.heads,
            n_positions=3 * config.context,
            action_tanh=self.shape.squashed,
            resid_pdrop=config.dropout,
            embd_pdrop=config.dropout,
            attn_pdrop=config.dropout,
        )
        self.critics: Critics | None = None
        if config.regulariser is not None:
            if self.discrete or pictures:
                raise SpaceError.mismatch(
                    "spaces of DTR",
                    expected="states of numbers and continuous actions",
                    got=f"{observation_space} and {action_space}",
                    fix="Train a Decision Transformer without the regulariser.",
                )
            inputs = size + self.outputs
            self.critics = Critics(inputs, config.regulariser, generator=generator)
        # Looking parameters up in the module costs more than some of the products with them.
        self._named = dict(self.transformer.named_parameters())
        self.measured: dict[str, Tensor] = {}

    def forward(
        self,
        states: Tensor,
        actions: Tensor,
        rewards: Tensor,
        returns_to_go: Tensor,
        timesteps: Tensor,
        attention_mask: Tensor,
        terminated: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The mean loss over real steps of a minibatch."""
        batch = {
            "states": states if self.sight is None else self.sight(states),
            "actions": actions,
            "rewards": rewards,
            "returns_to_go": returns_to_go,
            "timesteps": timesteps,
            "attention_mask": attention_mask,
        }
        predicted = self._predict(batch).float()
        loss = action_loss(predicted, actions, attention_mask, self._loss)
        if self.critics is None or terminated is None:
            return {"loss": loss}
        batch["terminated"] = terminated
        critic_loss, opinion, self.measured = regularise(self.critics, batch, predicted)
        self.measured["action_loss"] = loss.detach()
        return {"loss": loss + opinion + critic_loss}

    def _predict(self, batch: Mapping[str, Tensor]) -> Tensor:
        """`[B, H, A]`, by the fast forward if there is one."""
        from preferl.offline import hugging_face

        if EVERY_ACTION not in ENGINES:
            return hugging_face.plain_actions(self.transformer, batch)
        forward = ENGINES.load(EVERY_ACTION)
        predicted: Tensor = forward(self._named, self.shape, batch, training=self.training)
        return predicted

    def begin(self, data: Sequences) -> None:
        """Take from the data what the regulariser measures rewards by."""
        if self.critics is not None:
            self.critics.unit.fill_(float(data.rewards[:-1].std()) or 1.0)

    def follow(self, progress: float) -> None:
        """After an update."""
        if self.critics is not None:
            self.critics.follow(progress)

    def copies(self) -> dict[str, Tensor]:
        """All parameters, on the processor: those of Hugging Face's model by its own names."""
        model = dict(self.transformer.state_dict())
        beside = {n: t for n, t in self.state_dict().items() if not n.startswith("transformer.")}
        return {name: t.detach().cpu().clone() for name, t in (model | beside).items()}


def action_loss(predicted: Tensor, actions: Tensor, mask: Tensor, loss: Loss = "squares") -> Tensor:
    """How far predictions are from what was done, over real steps.

    Args:
        predicted: `[B, H, A]` actions, or logits if they are discrete.
        actions: `[B, H, A]`, one-hot if they are discrete.
        mask: `[B, H]` 1 where a step is real.
        loss: of continuous actions, see `DTConfig`; or cross-entropy, in nats, of `"choices"`.

    >>> action_loss(torch.tensor([[[9.0], [3.0]]]), torch.zeros(1, 2, 1), torch.tensor([[0, 1]]))
    tensor(9.)
    """
    real = mask.bool()
    match loss:
        case "choices":
            return F.cross_entropy(predicted[real], actions[real].argmax(-1))
        case "gaussian":
            squares = (predicted[real] - actions[real]).square().mean(0)
            return (squares + LEAST_SQUARE).log().mean() / 2
    return F.mse_loss(predicted[real], actions[real])


def _bounded(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and bool((space.bounded_below & space.bounded_above).all())
