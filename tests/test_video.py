import io
import itertools

import av
import numpy as np
import pytest

from preferl.errors import ConfigError, DataError
from preferl.video import LARGEST, decode_picture, encode, encode_picture


def decoded(video):
    with av.open(io.BytesIO(video)) as container:
        return np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])


def test_video_holds_the_frames():
    ramp = np.arange(0, 250, 10, dtype=np.uint8)
    frames = np.broadcast_to(ramp[:, None, None, None], (25, 33, 47, 3))
    video = encode(frames, 12, smallest=16)
    with av.open(io.BytesIO(video)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert stream.codec_context.profile == "Constrained Baseline"
        assert stream.average_rate == 12
        assert stream.frames == 25
    pictures = decoded(video)
    assert pictures.shape == (25, 34, 48, 3)
    np.testing.assert_allclose(pictures.mean((1, 2, 3)), ramp, atol=4)


def test_frames_come_in_order_and_a_complete_one_often(rng):
    noise = rng.integers(0, 255, (25, 32, 32, 3), dtype=np.uint8)
    with av.open(io.BytesIO(encode(noise, 10))) as container:
        (stream,) = container.streams.video
        packets = [p for p in container.demux(stream) if p.size]
        seconds = [float(p.pts * stream.time_base) for p in packets]
    np.testing.assert_allclose(seconds, np.arange(25) / 10)
    assert [p.dts for p in packets] == [p.pts for p in packets]
    complete = [0, *(t for t, p in enumerate(packets) if p.is_keyframe), 25]
    assert max(b - a for a, b in itertools.pairwise(complete)) <= 10


def test_video_begins_with_its_index_and_repeats_itself():
    frames = np.zeros((4, 16, 16, 3), np.uint8)
    video = encode(frames, 10)
    assert video.index(b"moov") < video.index(b"mdat")
    assert video == encode(frames, 10) == encode(iter(frames), 10)


@pytest.mark.parametrize(
    ("size", "smallest", "shown"),
    [
        ((84, 84), 256, (336, 336)),
        ((210, 160), 256, (420, 320)),
        ((256, 300), 256, (256, 300)),
        ((63, 5), 10, (126, 10)),
        ((11, 7), 1, (12, 8)),
        ((2, LARGEST // 4), 256, (8, LARGEST)),
    ],
)
def test_small_pictures_are_scaled_up(size, smallest, shown):
    frames = np.zeros((1, *size, 3), np.uint8)
    assert decoded(encode(frames, 5, smallest=smallest)).shape == (1, *shown, 3)


def test_scaling_up_makes_a_square_of_each_pixel():
    board = (np.indices((8, 8)).sum(0) % 2 * 255).astype(np.uint8)
    (picture,) = decoded(encode(board[None], 5))
    np.testing.assert_allclose(picture[..., 1], board.repeat(32, 0).repeat(32, 1), atol=40)
    middles = picture[16::32, 16::32]
    np.testing.assert_allclose(middles, np.repeat(board[..., None], 3, -1), atol=8)


def test_grey_is_shown_as_grey(rng):
    grey = rng.integers(0, 255, (3, 256, 256), dtype=np.uint8)
    colour = np.repeat(grey[..., None], 3, -1)
    assert encode(grey, 5) == encode(grey[..., None], 5) == encode(colour, 5)


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((0, 4, 4, 3), np.uint8),
        np.zeros((1, 4, 4, 3)),
        np.zeros((1, 0, 4), np.uint8),
        np.zeros((1, 4), np.uint8),
        np.zeros((1, 4, 4, 4), np.uint8),
        [np.zeros((4, 4), np.uint8), np.zeros((4, 5), np.uint8)],
    ],
)
def test_wrong_frames_are_refused(frames):
    with pytest.raises(DataError, match="frames"):
        encode(frames, 10)


def test_a_rate_below_one_is_refused():
    with pytest.raises(ConfigError, match="fps"):
        encode(np.zeros((1, 4, 4, 3), np.uint8), 0)


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize("size", [(60, 90), (500, 500), (1080, 1920), (3, 700), (17, 31)])
def test_pictures_fit_whatever_they_show(size):
    for picture in (noise(*size, 3), np.full((*size, 3), 200, np.uint8)):
        data = encode_picture(picture, 8_192)
        assert len(data) <= 8_192
        height, width, colours = decode_picture(data).shape
        assert colours == 3
        assert max(height, width) <= 256
        assert abs(width / height - size[1] / size[0]) < 0.1 * size[1] / size[0] or height == 2


def test_a_picture_that_fits_is_hardly_changed():
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    picture = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None], np.uint8(80)), axis=-1)
    difference = decode_picture(encode_picture(picture, 8_192)).astype(int) - picture
    assert np.abs(difference).mean() < 3


def test_what_is_no_picture_is_refused():
    with pytest.raises(DataError, match="frames: expected"):
        encode_picture(np.zeros((4, 4, 3)), 8_192)
    with pytest.raises(DataError, match="picture: expected a picture that fits into 100 bytes"):
        encode_picture(noise(64, 64, 3), 100)
    for data in (b"", b"no picture", encode_picture(noise(64, 64, 3), 8_192)[:40]):
        with pytest.raises(DataError, match="picture: expected a whole JPEG"):
            decode_picture(data)
