"""Settings of the reward service: refused out of range, and kept in files."""

from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from preferl.errors import ConfigError
from preferl.online.service.service_config import ServiceConfig
from preferl.threads import half_of_the_cores
from preferl.training.reward_presets import RewardSettings


@pytest.mark.parametrize(("model", "threads", "taken"), [("mlp", None, 1), ("pt", 1, 1)])
def test_a_fit_takes_threads_that_others_do_not_need(tmp_path, model, threads, taken):
    config = ServiceConfig(tmp_path, RewardSettings(model), threads=threads)
    assert config.fit_threads == taken
    assert ServiceConfig(tmp_path, RewardSettings("nmr")).fit_threads == half_of_the_cores()
    with pytest.raises(ConfigError, match="threads"):
        replace(config, threads=0)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("min_answers", 0), ("context", 0), ("max_wait", -1.0), ("pessimism", nan),
        ("beat_seconds", 1e5), ("validation", 1.0),
    ],
)  # fmt: skip
def test_a_number_out_of_its_range_is_named(name, wrong):
    with pytest.raises(ConfigError, match=f"{name}: expected"):
        ServiceConfig(Path("rewards"), **{name: wrong})
