"""The demo's questions go to a browser: a store, the page, and what keeps both going."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preferl.store import StoredFeedback

QUESTION = "Which pendulum does better?"
INSTRUCTIONS = """\
The pendulum should swing up, and then stand still on its end.

- Upright and still is best.
- Where neither stands, the clip that comes closer to standing is better.
- Where both stand, the calmer one is.
- Judge by what you see in the clip alone, not by what may come after it.

Choose "Can't tell" where you would have to guess. The agent goes on learning once all the pairs
of a round are answered, so clips come in rounds, and get better."""


@contextmanager
def people_in_a_browser(
    folder: Path, questions: int, *, fps: int, browser: bool = True
) -> "Iterator[StoredFeedback]":
    """Feedback of whoever answers on the page, which is open as long as the block runs.

    Args:
        folder: of the labels; those of earlier runs stay, each run has a project of its own.
        questions: that will be asked in all.
        fps: at which clips play.
        browser: open the page on this machine.
    """
    from preferl.online.supervise import page_program
    from preferl.online.supervisor import Supervisor, say_on_terminal
    from preferl.store import Store, StoredFeedback

    with Store.open(folder) as store:
        project = store.projects.create(
            f"pendulum-{len(store.projects.all()) + 1}",
            title="Pendulum",
            question=QUESTION,
            instructions=INSTRUCTIONS,
            fps=fps,
            budget=questions,
            repeat_share=0.0,  # every answer is one the agent waits for
            frames={"kind": "env", "env_id": "Pendulum-v1"},
        )
        shared = ("--store", str(folder), "--project", project.slug)
        options = ("--port", "0", "--browser" if browser else "--no-browser")
        page = page_program(shared, options, say_on_terminal)
        with Supervisor([page], folder / "logs", say=say_on_terminal):
            yield StoredFeedback(store, project.id, patience=inf)
