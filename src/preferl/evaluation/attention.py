"""What a preference transformer looks at in a segment when it scores it.

Kim et al. 2023, "Preference Transformer", section 4.2: importance weights of steps.
"""

from typing import NamedTuple

import numpy as np
import torch

from preferl.data.episodes import Episodes
from preferl.models.ensemble import Ensemble
from preferl.models.transformer import PreferenceTransformer
from preferl.shapes import FloatArray, take
from preferl.training.batches import to_tensor, to_tensors
from preferl.training.reward_function import RewardFunction


class StepAttention(NamedTuple):
    """Attention in one segment, mean over the members that have it.

    Attributes:
        shares: `[L, L]` what each step (row) takes from each (column); rows sum to 1.
        importance: `[L]` share of each step in the score, the mean of the columns.
    """

    shares: FloatArray
    importance: FloatArray


@torch.inference_mode()
def preference_attention(
    reward: RewardFunction, episodes: Episodes, rows: slice
) -> StepAttention | None:
    """Preference attention of a reward in one segment; None if it has none.

    Args:
        reward: a `PreferenceTransformer` with that head, or an ensemble of such.
        episodes: hold the segment.
        rows: of its steps, no more than the reward's context.
    """
    model = reward.model.eval()
    parts = model.models if isinstance(model, Ensemble) else [model]
    looking = [
        part
        for part in parts
        if isinstance(part, PreferenceTransformer) and part.config.head == "preference"
    ]
    if not looking:
        return None
    features = model.encoder(
        to_tensors(take(episodes.observations, rows), model.device),
        to_tensor(episodes.actions[rows], model.device),
    )[None]
    mask = torch.ones(features.shape[:2], dtype=torch.bool, device=model.device)
    looked = [part.attention(features, mask) for part in looking]
    shares = torch.cat([maps.preference for maps in looked if maps.preference is not None])
    importance = torch.cat([maps.importance for maps in looked])
    return StepAttention(shares.mean(0).cpu().numpy(), importance.mean(0).cpu().numpy())


def best_window(rewards: FloatArray, length: int) -> slice:
    """The `length` steps in a row with the highest sum; all steps if there are no more.

    >>> best_window(np.array([0.0, 1, 5, 2, 0]), 2)
    slice(2, 4, None)
    """
    if len(rewards) <= length:
        return slice(0, len(rewards))
    sums = np.cumsum(np.concatenate([[0.0], rewards]))
    first = int((sums[length:] - sums[:-length]).argmax())
    return slice(first, first + length)
