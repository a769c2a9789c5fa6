"""Encode frames as a video that a browser can step through, or one frame as a small picture."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import av
import numpy as np

from preferl.errors import ConfigError, DataError
from preferl.shapes import Array

SMALLEST = 256
"""A picture whose shorter side has fewer pixels is too small to see, and is scaled up."""

LARGEST = 2048
"""Pixels that the longer side of a scaled picture never exceeds."""

KEYFRAME_EVERY = 10
"""Frames between complete pictures: a browser decodes at most as many when a person steps back."""

PICTURE_SIDE: Final = 256
"""Most pixels on the longer side of a single picture."""

QUALITIES: Final = ((1, 3), (1, 8), (1, 16), (1, 31), (2, 31), (4, 31), (8, 31))
"""How a picture is made smaller: a factor of lost detail, and JPEG's scale of quantisation."""


def encode(frames: Iterable[Array], fps: int, *, smallest: int = SMALLEST) -> bytes:
    """Encode frames as an H.264 MP4 that plays before it is completely loaded.

    In the constrained baseline profile, no frame refers to a later one, so frame `t` is shown at
    exactly `t / fps` seconds, on telephones, too. Equal frames give equal bytes.

    Args:
        frames: bytes `[T, height, width, 3]`, or grey ones `[T, height, width]` or
            `[T, height, width, 1]`. An iterator of pictures also works; then only one picture is in
            memory at a time. The colour format cannot hold odd sizes, so their last row or column
            is repeated.
        fps: frames per second.
        smallest: if the shorter side has fewer pixels, pictures are scaled up by a whole factor.
            Each pixel becomes a square, so that video games stay sharp.

    Raises:
        DataError: `frames` are not such arrays, differ in size, or are empty.
        ConfigError: `fps` is below 1.

    >>> encode(np.zeros((2, 16, 16, 3), np.uint8), 10)[4:8]
    b'ftyp'
    """
    if not fps >= 1:
        raise ConfigError(f"fps: expected at least 1, got {fps}.")
    pictures = (_fit(picture, smallest) for picture in _colour(frames))
    first = next(pictures, None)
    if first is None:
        raise DataError("frames: expected at least one frame, got none.")
    # Only in a file with a name can the index move to the front.
    with TemporaryDirectory() as folder:
        file = Path(folder) / "clip.mp4"
        _write(file, first, pictures, fps)
        return file.read_bytes()


def _colour(frames: Iterable[Array]) -> Iterator[Array]:
    """Yield pictures `[height, width, 3]`; all must have the size of the first one."""
    size = None
    for frame in frames:
        picture = frame[..., None] if frame.ndim == 2 else frame
        size = size or picture.shape
        is_colour = picture.ndim == 3 and picture.shape[-1] in (1, 3) and picture.size
        if not is_colour or picture.dtype != np.uint8 or picture.shape != size:
            alike = "" if picture.shape == size else f", each {size} like the first"
            raise DataError(
                f"frames: expected [T, height, width, 3 or 1] of uint8{alike}, got one of "
                f"{frame.shape} of {frame.dtype}."
            )
        yield np.broadcast_to(picture, (*picture.shape[:2], 3))


def _fit(picture: Array, smallest: int) -> Array:
    """Return a picture scaled up until it is visible, with even sides."""
    height, width = picture.shape[:2]
    wanted = -(-smallest // min(height, width))
    room = LARGEST // max(height, width)
    factor = max(1, min(wanted, room))
    large = picture.repeat(factor, 0).repeat(factor, 1) if factor > 1 else picture
    odd = [(0, side % 2) for side in large.shape[:2]]
    return np.pad(large, (*odd, (0, 0)), mode="edge") if any(map(any, odd)) else large


def _write(file: Path, first: Array, rest: Iterator[Array], fps: int) -> None:
    with av.open(str(file), "w", options={"movflags": "+faststart"}) as container:
        stream: Any = container.add_stream("libx264", rate=fps)
        stream.pix_fmt = "yuv420p"
        keyframes = {"g": str(KEYFRAME_EVERY)}
        stream.options = {"preset": "veryfast", "crf": "23", "profile": "baseline"} | keyframes
        stream.thread_count = 1  # with more, machines write different bytes
        stream.height, stream.width = first.shape[:2]
        for frame in chain([first], rest):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def encode_picture(picture: Array, most_bytes: int) -> bytes:
    """Encode one frame as the best JPEG of at most `most_bytes` bytes.

    Frames of one size become pictures of one size, with at most `PICTURE_SIDE` on the longer side.

    Raises:
        DataError: the array is not a frame that `encode` takes, or even a blurred picture is too
            large.

    >>> data = encode_picture(np.full((40, 60, 3), 200, np.uint8), 4096)
    >>> len(data) <= 4096, decode_picture(data).shape
    (True, (40, 60, 3))
    """
    (colour,) = _colour([picture])
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(colour), format="rgb24")
    share = min(1.0, PICTURE_SIDE / max(frame.width, frame.height))
    width, height = (max(2, 2 * round(share * n / 2)) for n in (frame.width, frame.height))
    for factor, scale in QUALITIES:
        small = frame.reformat(max(2, width // factor), max(2, height // factor), "yuvj420p")
        data = _jpeg(small.reformat(width, height), scale)
        if len(data) <= most_bytes:
            return data
    raise DataError(
        f"picture: expected a picture that fits into {most_bytes:,} bytes, got {len(data):,} when "
        "blurred."
    )


def decode_picture(data: bytes) -> Array:
    """Return the picture `[height, width, 3]` that `encode_picture` encoded.

    Else raise `DataError`.
    """
    codec: Any = av.CodecContext.create("mjpeg", "r")
    try:
        frame = next(iter([*codec.decode(av.Packet(data)), *codec.decode(None)]))
    except (av.FFmpegError, StopIteration) as error:
        raise DataError(f"picture: expected a whole JPEG, got {error!r}.") from error
    picture: Array = frame.to_ndarray(format="rgb24")
    return picture


def _jpeg(frame: Any, scale: int) -> bytes:
    codec: Any = av.CodecContext.create("mjpeg", "w")
    codec.width = frame.width
    codec.height = frame.height
    codec.pix_fmt = "yuvj420p"
    codec.time_base = Fraction(1, 1)
    codec.thread_count = 1
    codec.qmin = codec.qmax = scale
    frame.pts = 0
    return b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])
