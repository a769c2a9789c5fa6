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
        store, over = Store.open(labels), threading.Event()

        def answer():
            rng, answers = np.random.default_rng(0), None
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
def test_an_environment_of_ones_own(person, tmp_path, monkeypatch):
    page = "how-to/environment.md"
    few = "steps=2_000, initial_steps=400, iterations=2, eval_every=0"
    code = shortened(page, {"steps=20_000": few, "comparisons=100": "comparisons=16"})
    monkeypatch.syspath_prepend(tmp_path)
    block = re.search(r"^```python\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.M | re.S)
    (tmp_path / "courtyard.py").write_text(block[1], encoding="utf-8")
    report = person(code, "runs/courtyard-labels")["report"]
    assert len(report.comparisons) == 16
    assert report.comparisons.segments.states.dtype == np.uint8  # pictures
    assert (tmp_path / "runs/courtyard-policy").is_dir()


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
