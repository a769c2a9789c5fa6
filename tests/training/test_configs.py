import math

import pytest

from preferl.errors import ConfigError
from preferl.training import CosineSchedule


def test_the_rate_rises_in_a_line_and_falls_along_half_a_cosine():
    schedule = CosineSchedule(warmup=0.2, start=0.1, end=0.3)
    rates = [schedule.at(update, 10) for update in range(11)]
    assert rates[:3] == pytest.approx([0.1, 0.55, 1.0])
    assert rates[6] == pytest.approx(0.3 + 0.7 * 0.5)  # half way down
    assert rates[4] == pytest.approx(0.3 + 0.7 * (1 + math.cos(math.pi / 4)) / 2)
    assert rates[10] == pytest.approx(0.3)


def test_a_schedule_has_no_share_above_one():
    with pytest.raises(ConfigError, match="end"):
        CosineSchedule(end=1.5)
