"""A store that somebody answers into."""

from shutil import copytree

import pytest

from helpers.answered_store import Answering
from helpers.waiting import SECONDS
from preferl.online.service import heartbeat
from preferl.online.wrappers.feedback_controls import FeedbackControls
from preferl.online.wrappers.query_worker import QueryWorker
from preferl.store.store import Store


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """What is written in the end may take long on a busy machine; users wait for ten seconds."""
    monkeypatch.setattr(heartbeat, "LAST_SECONDS", SECONDS)
    for waits in (QueryWorker.flush, QueryWorker.close, FeedbackControls.save):
        monkeypatch.setattr(waits, "__defaults__", (SECONDS,))


@pytest.fixture
def world(tmp_path, empty_store):
    with Store.open(copytree(empty_store, tmp_path / "store")) as store:
        yield Answering(store)
