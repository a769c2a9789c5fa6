"""Report a preference transformer's attention to the steps of a segment.

The attention gives the importance weights of section 4.2 of Kim et al. 2023, "Preference
Transformer".
"""

import numpy as np
import torch

from preferl.data.episodes import Episodes
from preferl.evaluation.filming import FilmedEpisode
from preferl.evaluation.plots import attention_map, importance_bar
from preferl.evaluation.report import Figure, Section, Video
from preferl.models.ensemble import Ensemble
from preferl.models.transformer import PreferenceTransformer
from preferl.shapes import Array, FloatArray, take
from preferl.training.batches import steps_for
from preferl.training.reward_function import RewardFunction


def attention_section(reward: RewardFunction, shown: FilmedEpisode) -> Section:
    """Return a section on a reward's attention in the segment with the highest learned reward.

    The section is empty if `preference_attention` returns None.
    """
    title = "Attention of the reward"
    rewards = reward.combine(reward.member_rewards(shown.episode))
    rows = best_window(rewards, reward.context)
    attention = preference_attention(reward, shown.episode, rows)
    if attention is None:
        return Section(title)
    steps = f"steps {rows.start} to {rows.stop - 1}"
    frames = None if shown.frames is None else shown.frames[rows]
    importance = attention.mean(0)
    most = rows.start + int(importance.argmax())
    return Section(
        title,
        (f"In {steps}, the segment of that episode with the highest learned reward.",),
        clips=clip_of(frames, shown.rate, "The segment", steps),
        figures=(
            Figure(
                importance_bar(importance, offset=rows.start),
                f"Share of each step in the segment's score; the largest is that of step {most}.",
                "How much each step of the clip counts for the score of the segment; if all "
                "counted the same, they would be on the dashed line.",
            ),
            Figure(
                attention_map(attention),
                "Preference attention of each step to each other.",
                "Preference attention among the steps, counted from the segment's first.",
                half=True,
            ),
        ),
    )


def clip_of(frames: Array | None, rate: int, title: str, what: str) -> tuple[Video, ...]:
    """Return frames `[T, height, width, 3]` as one clip; no clip if there are no pictures."""
    if frames is None:
        return ()
    from preferl.video import encode

    return (Video(encode(frames, rate), title, f"Pictures of {what}."),)


@torch.inference_mode()
def preference_attention(
    reward: RewardFunction, episodes: Episodes, rows: slice
) -> FloatArray | None:
    """Compute a reward's preference attention in the segment at `rows`, within its context length.

    Returns `[L, L]`: the share of attention that each step (row) gives to each step (column), as a
    mean over members. The mean of a column is the share of its step in the segment's score. Returns
    None unless the reward is a `PreferenceTransformer` with preference attention, or an ensemble of
    them.
    """
    model = reward.model.eval()
    parts = [
        part
        for part in (model.models if isinstance(model, Ensemble) else [model])
        if isinstance(part, PreferenceTransformer) and part.config.head == "preference"
    ]
    if not parts:
        return None
    seen = take(episodes.observations, rows)
    steps = steps_for(model.encoder, seen, episodes.actions[rows], model.device)
    features = model.encoder(*steps)[None]
    mask = torch.ones(features.shape[:2], dtype=torch.bool, device=model.device)
    maps = [part.attention(features, mask).preference for part in parts]
    return np.asarray(
        torch.cat([attention for attention in maps if attention is not None]).mean(0).cpu().numpy()
    )


def best_window(rewards: FloatArray, length: int) -> slice:
    """Find the `length` consecutive steps with the highest sum; all steps if there are no more."""
    windows = np.lib.stride_tricks.sliding_window_view(rewards, min(length, len(rewards)))
    first = int(windows.sum(1, dtype=np.float64).argmax())
    return slice(first, first + windows.shape[1])
