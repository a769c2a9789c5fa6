"""Answers of the iteration under way, each on the disk before the next query is put."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np

from preferl.data.comparisons import Comparisons
from preferl.errors import CheckpointError
from preferl.files import write_json, writing
from preferl.training.checkpoint_folder import read_state, require_same, write_state
from preferl.versioned import version_folder, versions

BEGUN: Final = "begun.json"


class Kept(NamedTuple):
    """Answers that were given at once, declined ones as NaN, and the teacher's draws after them."""

    answers: Comparisons
    rng: np.random.Generator


@final
class AnswerJournal:
    """Keeps what a checkpoint does not hold yet, so that nobody is asked again after a kill.

    Answers lie in one folder per iteration, in the order in which they were given. The checkpoint
    after an iteration holds its answers, and they leave the journal.

    Args:
        folder: made with the first answer.
        iteration: whose answers come next.
        run: what has to be the same for answers to be of this run, as JSON.
    """

    def __init__(self, folder: Path, iteration: int, *, run: Mapping[str, Any]) -> None:
        self._folder, self._iteration, self._run = folder, iteration, dict(run)

    @property
    def _place(self) -> Path:
        return version_folder(self._folder, self._iteration)

    def add(self, kept: Kept) -> None:
        """Keep answers; once this returns, the disk holds them.

        Raises:
            StorageError: the folder cannot be written to, or is full.
        """
        number = max(versions(self._place), default=0) + 1
        with writing(version_folder(self._place, number), durable=True) as draft:
            draft.mkdir()
            answers = kept.answers.compact()
            write_state(draft, {"answers": answers, "rng": kept.rng, "run": self._run})

    def read(self) -> Iterator[Kept]:
        """Answers of the iteration, in their order.

        Raises:
            CheckpointError: files that are cut short or missing, or of another run.
            StorageError: the folder cannot be read.
        """
        for number in versions(self._place):
            path = version_folder(self._place, number)
            state = read_state(path)
            require_same(path, state["run"], self._run)
            yield Kept(state["answers"], state["rng"])

    def next_iteration(self, iteration: int) -> None:
        """Forget earlier ones, which a checkpoint holds."""
        for earlier in versions(self._folder):
            if earlier < iteration:
                shutil.rmtree(version_folder(self._folder, earlier), ignore_errors=True)
        self._iteration = iteration

    def begun(self, newest: int) -> int | None:
        """The newest query of a lasting feedback when the run began; None where it begins now.

        Args:
            newest: query now, noted if an earlier program noted none.

        Raises:
            CheckpointError: a note that is damaged, or of another run.
            StorageError: the folder cannot be written to.
        """
        path = self._folder / BEGUN
        if not path.is_file():
            write_json(path, {"newest": newest, "run": self._run}, durable=True)
            return None
        try:
            noted = json.loads(path.read_text(encoding="utf-8"))
            require_same(path, noted["run"], self._run)
            return int(noted["newest"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError.mismatch(f"{path}", expected="a note", got=error) from error
