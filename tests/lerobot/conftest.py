"""Tests against LeRobot itself, in an environment of its own: `make lerobot`."""

import pytest

pytest.importorskip("lerobot", reason="LeRobot has an environment of its own: make lerobot")
