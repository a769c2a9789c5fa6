"""The scripts of the pages that wait for people learn from a person's answers."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest

from preferl.feedback import ScriptedTeacher
from preferl.online.service.scripted_answers import ScriptedAnswers
from preferl.store import Store, StoredFeedback

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = re.compile(r"<!-- skip: waits for people -->\n+```python\n(.*?)^```$", re.M | re.S)


def shortened(page, changes):
    """The first script of a page that waits for people, with other numbers."""
    (code, *_) = SCRIPT.findall((DOCS / page).read_text("utf-8"))
    for before, after in changes.items():
        assert before in code
        code = code.replace(before, after)
    return code


@pytest.fixture
def person(tmp_path, monkeypatch):
    """Runs a script while somebody answers what is open in its store; the script's names."""
    monkeypatch.chdir(tmp_path)

    def run(code, labels):
        store = Store.open(labels)
        over = threading.Event()

        def answer():
            rng = np.random.default_rng(0)
            answers = None
            while not over.wait(0.05):
                if answers is None and store.projects.all():
                    feedback = StoredFeedback(store)
                    answers = ScriptedAnswers(feedback, ScriptedTeacher.oracle(), rng)
                if answers is not None:
                    answers.answer()

        thread = threading.Thread(target=answer)
        thread.start()
        names = {"__name__": "__main__"}
        try:
            exec(compile(code, labels, "exec"), names)
        finally:
            over.set()
            thread.join()
            store.close()
        return names

    return run


@pytest.mark.slow
def test_an_agent_that_trains(person):
    changes = {
        "sleep(0.03)": "sleep(0.001)",
        "100_000": "1_024",
        '"labels/rewards"):': '"labels/rewards", page=False):',
        "episodes=20": "episodes=2",
    }
    code = shortened("tutorials/while-training.md", changes)
    assert person(code, "labels")["env"].reward_version >= 1
