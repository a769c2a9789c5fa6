"""Answers between two checkpoints of the loop; each is on disk before the next query."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.errors import CheckpointError
from preferl.files import write_json, writing
from preferl.reading import read_object, reading
from preferl.runs.versioned import version_folder, versions
from preferl.training.checkpoint_folder import RESTORE, read_state, require_same, write_state


@final
@dataclass
class AnswerJournal:
    """Keeps answers that no checkpoint holds. Each is on disk before the next query is asked.

    Each iteration has a folder with its answers in order. Answers of another `run` are refused.
    """

    folder: Path
    iteration: int
    run: dict[str, Any]

    @property
    def place(self) -> Path:
        """Folder of the answers of this iteration."""
        return version_folder(self.folder, self.iteration)

    def add(self, answers: Comparisons, rng: np.random.Generator) -> None:
        """Write answers, declined ones as NaN, and the teacher's generator after them."""
        number = max(versions(self.place), default=0) + 1
        with writing(version_folder(self.place, number), durable=True) as draft:
            draft.mkdir()
            write_state(draft, {"answers": answers.compact(), "rng": rng, "run": self.run})

    def read(self) -> Iterator[tuple[Comparisons, np.random.Generator]]:
        """Read the answers of this iteration, in the order in which they were added."""
        for number in versions(self.place):
            path = version_folder(self.place, number)
            state = read_state(path)
            require_same(path, state["run"], self.run)
            yield state["answers"], state["rng"]

    def next_iteration(self, iteration: int) -> None:
        """Begin an iteration; remove the answers of earlier ones, which a checkpoint holds."""
        for earlier in versions(self.folder):
            if earlier < iteration:
                shutil.rmtree(version_folder(self.folder, earlier), ignore_errors=True)
        self.iteration = iteration

    def begun(self, newest: int) -> int | None:
        """Return the number of the newest query when the run began.

        If the run begins now, write `newest` and return None.
        """
        path = self.folder / "begun.json"
        if not path.is_file():
            write_json(path, {"newest": newest, "run": self.run}, durable=True)
            return None
        with reading(path, expected="a note", fix=RESTORE):
            noted = read_object(path)
            require_same(path, noted["run"], self.run)
            return int(noted["newest"])

    def fixed(self, load: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the data that the run began with. If it begins now, load and write them."""
        path = self.folder / "fixed"
        if path.is_dir():
            state: dict[str, Any] = read_state(path)
            require_same(path, state.pop("run"), self.run)
            return state
        loaded = load()
        if any(part is not None for part in loaded.values()):
            if self.iteration != 0:
                raise CheckpointError(
                    f"data of the run in {self.folder.parent}: expected no data, as when the "
                    "run began, got some. Leave them out, or begin another run."
                )
            with writing(path, durable=True) as draft:
                draft.mkdir()
                write_state(draft, loaded | {"run": self.run})
        return loaded
