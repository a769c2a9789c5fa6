"""Tests against LeRobot itself, in an environment of its own: `make lerobot`."""

from importlib.util import find_spec

# Without LeRobot this folder goes by its name.
collect_ignore_glob = [] if find_spec("lerobot.datasets") else ["test_*.py"]
