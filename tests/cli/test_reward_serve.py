"""`preferl reward serve` ends politely whatever its thread is doing when the signal comes."""

import subprocess
import sys

import pytest

from helpers.waiting import SECONDS

SERVES = '''
import signal
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

from preferl.cli import reward
from preferl.online.service.service_config import ServiceConfig
from preferl.online.service import reward_service


class Event(threading.Event):
    """One whose lock has a name."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def set(self):
        with self.lock:
            super().set()


def serve(config, store, project, *, stop, report_to):
    assert report_to == ()
    with stop.lock:  # as in the middle of `stop.wait`
        signal.raise_signal(signal.SIGTERM)
    assert stop.wait(600)
    return 3


reward.opened = lambda labels: nullcontext((None, SimpleNamespace(id=1, slug="dots")))
reward_service.serve_reward = serve
threading.Event = Event
reward.reward_serve(reward.RewardServeConfig(ServiceConfig(Path("rewards"))))
'''


@pytest.mark.slow
def test_a_signal_in_the_middle_of_a_wait_ends_the_service(tmp_path):
    command = [sys.executable, "-c", SERVES]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert "Stopped. The latest reward is version 3." in done.stderr
