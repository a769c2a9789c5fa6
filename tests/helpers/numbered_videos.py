"""Videos whose frames can be distinguished, and segments to go with them."""

from functools import cache

import numpy as np

from preferl.data.segments import Segments
from preferl.video import encode

BITS = 6
FPS = 20


@cache
def coded_video(frames, fps=FPS, tone=200):
    """A video whose frames tell their number: one band of pixels per bit, lowest first."""
    number = np.arange(frames)[:, None, None, None]
    bit = np.repeat(np.arange(BITS), 8)[None, None, :, None]
    picture = np.where((number >> bit) & 1, tone, 20).astype(np.uint8)
    return encode(np.ascontiguousarray(np.broadcast_to(picture, (frames, 48, 8 * BITS, 3))), fps)


def random_segments(count, steps, seed=0):
    rng = np.random.default_rng(seed)
    total = count * steps
    return Segments(
        observations=rng.normal(size=(total, 3)).astype(np.float32),
        actions=rng.normal(size=(total, 1)).astype(np.float32),
        rewards=np.zeros(total, np.float32),
        start=np.arange(count) * steps,
        real=np.full(count, steps),
        length=steps,
    )


def barcodes(pictures):
    """`[N, 3]` episode, frame and camera that pictures of the barcode sets show."""
    height, width = pictures.shape[1:3]
    rows, columns = ((2 * np.arange(4) + 1) * side // 8 for side in (height, width))
    bits = (pictures[:, rows[:, None], columns].mean(-1) > 127).reshape(-1, 16)
    episode = bits[:, :5] @ (1 << np.arange(5))
    return np.stack([episode, bits[:, 5:14] @ (1 << np.arange(9)), bits[:, 14]], axis=1)
