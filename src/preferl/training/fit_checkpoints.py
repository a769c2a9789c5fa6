"""Checkpoints of a fit under way, so that hours of it survive a killed program."""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from preferl.errors import require_in
from preferl.training.checkpoint_folder import has_run, read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from preferl.training.fit import Fit

SECONDS: Final = 60.0
"""Between two checkpoints. One takes tens of milliseconds, so that this costs less than a
thousandth of a fit, and a killed program loses a minute at most, or one epoch that takes longer."""


@final
class FitCheckpoints:
    """A folder in which a fit is kept between epochs, and from which it goes on.

    A fit that goes on comes to what it would have come to without the interruption, to the last
    bit, on the same machine with the same packages.
    """

    def __init__(self, folder: Path | str, *, seconds: float = SECONDS) -> None:
        """Keep a fit in a folder.

        Args:
            folder: for one fit's checkpoints alone; made if it is not there.
            seconds: between two checkpoints, at least; 0 keeps every epoch.

        Raises:
            ConfigError: negative seconds.
        """
        require_in("seconds", seconds, 0, float("inf"))
        self.folder = Path(folder)
        self._seconds = seconds
        self._written = time.monotonic()

    def resume(self, fit: "Fit") -> None:
        """Bring a fit to where its newest checkpoint is; without one it begins.

        Raises:
            CheckpointError: a damaged checkpoint, or one of other answers or settings.
            StorageError: the folder cannot be read.
        """
        if has_run(self.folder):
            fit.restore(read_checkpoint(self.folder, run=fit.identity()).state)

    def offer(self, fit: "Fit") -> None:
        """Write a checkpoint, on the disk when this returns, if the last one is old enough.

        Raises:
            StorageError: the folder cannot be written to, or is full.
        """
        if time.monotonic() - self._written >= self._seconds:
            write_checkpoint(self.folder, fit.snapshot(), steps=fit.epoch, run=fit.identity())
            self._written = time.monotonic()

    def remove(self) -> None:
        """Remove the folder, once what the fit came to is safe."""
        shutil.rmtree(self.folder, ignore_errors=True)
