"""Frames of videos by their numbers, and what damaged files are."""

import av
import numpy as np
import pytest
from benchmarks.lerobot_maker import picture

from preferl.data.videos import VideoFrames
from preferl.errors import DataError

FRAMES = 60


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Frames that refer to later ones, ten between two keys, at a rate that is no whole number."""
    path = tmp_path_factory.mktemp("video") / "clip.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        stream.options = {"g": "10", "bf": "3", "crf": "20"}
        for number in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(picture(0, number, 64), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def numbers_in(pictures):
    bits = pictures[:, 8::16, 8::16].mean(-1).reshape(-1, 16)[:, 9:] > 127
    return (bits @ (1 << np.arange(7))).tolist()


@pytest.mark.parametrize(
    "numbers", [range(FRAMES), [59, 0, 17, 17, 3], [11, 12, 13, 50, 51], [9], [1, 58]]
)
def test_the_frame_that_is_asked_for(video, numbers):
    reader = VideoFrames(video, fps=30, size=(64, 64))
    assert numbers_in(reader[np.array(numbers)]) == list(numbers)
    assert numbers_in(reader[np.array(numbers)[::-1]]) == list(numbers)[::-1]


def test_frames_that_are_not_there(video):
    reader = VideoFrames(video, fps=30, size=(64, 64))
    with pytest.raises(DataError, match="expected a frame 60, got none"):
        reader[np.array([5, 60])]
    assert numbers_in(reader[np.array([5])]) == [5]


def test_pictures_of_another_size(video):
    with pytest.raises(DataError, match=r"expected pictures of 32 x 64 pixels.* got 64 x 64"):
        VideoFrames(video, fps=30, size=(32, 64)).require(1)


@pytest.mark.parametrize(
    "content", [b"", b"#EXTM3U\nhttp://example.invalid/clip.ts\n", b"ffconcat"]
)
def test_files_that_are_no_mp4(tmp_path, content):
    (tmp_path / "clip.mp4").write_bytes(content)
    with pytest.raises(DataError, match=r"expected a whole MP4 file .*Copy the file again"):
        VideoFrames(tmp_path / "clip.mp4", fps=30, size=(64, 64)).require(1)


def test_a_damaged_video(video, tmp_path):
    content = bytearray(video.read_bytes())
    begin = content.index(b"mdat") + 200
    content[begin : begin + 4000] = b"\xff" * 4000
    (tmp_path / "clip.mp4").write_bytes(content)
    with pytest.raises(DataError, match=r"expected a|whole"):
        VideoFrames(tmp_path / "clip.mp4", fps=30, size=(64, 64))[np.arange(FRAMES)]
