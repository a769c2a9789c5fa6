"""Features are those of `transformers`, are computed once, and damage is refused."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.lerobot_maker import CAMERA, make

from helpers.local_hub import on_this_machine
from helpers.tiny_encoders import save_encoder
from preferl.data.sources import open_lerobot
from preferl.errors import DataError, MissingExtraError, UnsafePickleError
from preferl.models import FrozenEncoder, encoded_episodes, frame_features

LENGTHS = [150, 120]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("robot") / "set"
    make(folder, LENGTHS, side=64)
    return open_lerobot(folder)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFERL_CACHE", f"{tmp_path / 'cache'}")
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", ["dinov2", "dino", "siglip"])
def test_features_are_those_of_transformers_in_batches_of_any_size(kind, recording, tmp_path):
    from transformers import AutoImageProcessor, AutoModel

    folder = save_encoder(tmp_path / kind, kind=kind)
    pictures = recording.pictures(CAMERA)[:40]
    features = FrozenEncoder.of(folder)(pictures)
    processor = AutoImageProcessor.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    pixels = processor(images=list(pictures), return_tensors="pt")
    with torch.inference_mode():
        if kind == "siglip":
            expected = model.vision_model(**pixels).pooler_output
        elif kind == "dino":
            expected = model(**pixels).last_hidden_state[:, 1:].mean(1)  # behind the class token
        else:
            expected = model(**pixels).pooler_output
    np.testing.assert_allclose(features, expected.numpy(), atol=1e-5)
    alone = np.concatenate([FrozenEncoder.of(folder)(pictures[k : k + 1]) for k in (0, 33)])
    np.testing.assert_allclose(alone, features[[0, 33]], atol=1e-5)
    assert np.ptp(features, axis=0).max() > 1e-3


def test_an_encoder_comes_from_the_hub_without_its_pickles_and_code(
    recording, tmp_path, monkeypatch
):
    folder = save_encoder(tmp_path / "encoder")
    with on_this_machine(monkeypatch, tmp_path / "hub") as hub:
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
        hub.repositories["me/seer"] = files | {"pytorch_model.bin": b"no", "code.py": b"no"}
        hub.private["me/seer"] = False
        fetched = FrozenEncoder.of("hub:me/seer")
        with pytest.raises(DataError, match="model hub:me/blind: expected one of the hub"):
            FrozenEncoder.of("hub:me/blind")
    names = {file.name for file in (tmp_path / "hub").rglob("snapshots/*/*")}
    assert names == {"config.json", "preprocessor_config.json", "model.safetensors"}
    assert fetched.content_id == FrozenEncoder.of(folder).content_id
    pictures = recording.pictures(CAMERA)[:2]
    np.testing.assert_array_equal(fetched(pictures), FrozenEncoder.of(folder)(pictures))


def test_a_stopped_computation_goes_on_and_what_is_there_needs_no_weights(
    recording, cache, tmp_path
):
    folder = save_encoder(tmp_path / "encoder")
    encoder = FrozenEncoder.of(folder)

    def stop(camera, done, frames):
        assert (camera, done, frames) == (CAMERA, 256, sum(LENGTHS))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        frame_features(recording, CAMERA, encoder, on_frames=stop)
    (first,) = cache.rglob("*.npy")
    written = first.stat().st_mtime_ns
    with pytest.raises(DataError, match="expected those of all frames on disk"):
        frame_features(recording, CAMERA, FrozenEncoder(encoder.content_id))
    features = np.asarray(frame_features(recording, CAMERA, encoder))
    assert first.stat().st_mtime_ns == written
    np.testing.assert_array_equal(features[240:], encoder(recording.pictures(CAMERA)[240:]))

    (folder / "model.safetensors").unlink()
    read = FrozenEncoder(encoder.content_id)
    episodes = encoded_episodes(recording, read)
    np.testing.assert_array_equal(episodes.observations, features)
    np.testing.assert_array_equal(episodes.final_observations, features[[149, 269]])
    beside = encoded_episodes(open_lerobot(f"{recording.path}:observation.state,{CAMERA}"), read)
    assert {name: array.shape for name, array in beside.observations.items()} == {
        "observation.state": (270, 3),
        CAMERA: (270, 16),
    }
    with pytest.raises(DataError, match="expected a camera for the encoder, got observation"):
        encoded_episodes(open_lerobot(f"{recording.path}:observation.state"), read)

    first.write_bytes(first.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"000\.npy: expected features.*Delete the file"):
        frame_features(recording, CAMERA, read)
    np.save(first, np.zeros((3, 16), np.float32))
    with pytest.raises(DataError, match=r"shape \(3, 16\)"):
        frame_features(recording, CAMERA, read)


def test_what_is_no_encoder_is_refused(recording, tmp_path, monkeypatch):
    folder = save_encoder(tmp_path / "encoder")
    pictures = recording.pictures(CAMERA)[:2]
    preprocessing = folder / "preprocessor_config.json"
    config = folder / "config.json"
    encoder = FrozenEncoder.of(folder)
    with pytest.raises(DataError, match=r"at least 14 pixels.*got 8 and 64"):
        encoder(pictures[:, :8])

    def refused(file, message, **changes):
        before = file.read_text()
        file.write_text(json.dumps(json.loads(before) | changes))
        changed = FrozenEncoder.of(folder)
        assert changed.content_id != encoder.content_id
        with pytest.raises(DataError, match=message):
            changed(pictures)
        file.write_text(before)

    refused(preprocessing, r"pictures of \[5000, 28, 28\]", size={"shortest_edge": 5000})
    refused(config, "no weights for", num_hidden_layers=3)
    refused(config, "different models", hidden_size=4096)
    refused(config, "vision model of transformers", model_type="bert", vocab_size=9)
    remote = {"auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.Config"}}
    Path(folder / "evil.py").write_text("raise SystemExit('ran')")
    refused(config, "vision model of transformers", model_type="evil", **remote)

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'preferl\[vision\]'"):
            FrozenEncoder.of(folder)(pictures)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsafePickleError, match=r"safetensors, got pytorch_model\.bin"):
        FrozenEncoder.of(folder)
    preprocessing.unlink()
    with pytest.raises(DataError, match=r"got no preprocessor_config\.json"):
        FrozenEncoder.of(folder)
