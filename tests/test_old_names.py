"""Settings by the names that they once had: in files, calls and commands; old checkpoints."""

import json
from dataclasses import replace

import pytest

from preferl.configs import from_json, to_json
from preferl.errors import CheckpointError, ConfigError
from preferl.offline import DTConfig, OfflineConfig, PixelEncoderConfig
from preferl.online import FeedbackConfig, OnlineConfig, learn_from_preferences
from preferl.online.loop import FORMAT
from preferl.online.service.service_config import ServiceConfig
from preferl.training.checkpoint_folder import write_checkpoint

OLD_FILE = {
    "env": "Pendulum-v1",
    "environments": 4,
    "steps": 1000,
    "comparisons": 20,
    "turns": 3,
    "segment_length": 25,
    "initial_steps": 200,
    "initial_epochs": None,
    "sampler": "informative",
    "oversampling": 4.0,
    "memory": 9000,
    "algorithm": {"kind": "PPOConfig", "n_steps": 64},
    "max_comparisons": None,
    "reward_deviation": 1.0,
    "seed": 3,
}


def test_a_file_of_an_older_run_is_read() -> None:
    config = from_json(OnlineConfig, OLD_FILE)
    assert (config.iterations, config.buffer_steps, config.initial_epochs) == (3, 9000, None)
    assert from_json(OnlineConfig, json.loads(json.dumps(to_json(config)))) == config
    with pytest.raises(ConfigError, match="iterations: expected one of its names"):
        from_json(OnlineConfig, OLD_FILE | {"iterations": 4})


def test_calls_with_old_names_go_on(tmp_path) -> None:
    assert OnlineConfig(turns=5, memory=70) == OnlineConfig(iterations=5, buffer_steps=70)  # type: ignore[call-arg]
    assert replace(OnlineConfig(), turns=5).iterations == 5  # type: ignore[call-arg]
    old = FeedbackConfig(sampling="disagreement", candidates=6)  # type: ignore[call-arg]
    assert (old.sampler, old.oversampling) == ("informative", 3.0)
    service = ServiceConfig(tmp_path, first_epochs=7, deviation=0.05)  # type: ignore[call-arg]
    assert (service.initial_epochs, service.reward_deviation) == (7, 0.05)


def test_the_pixel_encoder_by_its_old_name() -> None:
    new = DTConfig(pixel_encoder=PixelEncoderConfig(filters=2))
    assert DTConfig(sight=PixelEncoderConfig(filters=2)) == new  # type: ignore[call-arg]
    file = {"demonstrations": "a", "policy": "bc", "env": "E", "dt": {"sight": {"filters": 2}}}
    assert from_json(OfflineConfig, file).dt == new


def test_unfinished_checkpoints_of_the_former_loop_are_refused_in_words(tmp_path) -> None:
    write_checkpoint(tmp_path, {"turns": []}, steps=0, run=OLD_FILE)
    with pytest.raises(
        CheckpointError, match=rf"format of the run in .*expected {FORMAT}, got 1\. Go"
    ):
        learn_from_preferences(from_json(OnlineConfig, OLD_FILE), checkpoints=tmp_path)
