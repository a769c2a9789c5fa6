"""Saves a whole run while stable-baselines3's algorithms learn."""

import logging
from pathlib import Path
from typing import final

from stable_baselines3.common.callbacks import BaseCallback

from preferl.errors import StorageError, require_in
from preferl.online.checkpoint import save_run
from preferl.online.checkpoint_folder import require_own

LOGGER = logging.getLogger(__name__)


@final
class SaveRunCallback(BaseCallback):
    """Writes a checkpoint every so many steps, between two rollouts, and one at the end.

    A run that was killed goes on from the last one: see `resume_run`. A run that a callback
    stopped in the middle of a rollout is not saved there, since half a rollout is not kept. Where
    a disk is full or away, that is said, the checkpoint before stays, and learning goes on.

    Args:
        folder: of this run's checkpoints alone.
        every: environment steps from one to the next, at least. 10,000 cost little beside
            learning; what comes after the last one is lived through again.
        verbose: as SB3 has it.

    Raises:
        ConfigError: less than one step; with `learn`, a folder whose run has come further.
        StorageError: with `learn`, a folder that holds something else.
    """

    def __init__(self, folder: Path | str, *, every: int = 10_000, verbose: int = 0) -> None:
        super().__init__(verbose)
        require_in("every", every, 1, float("inf"))
        self._folder = Path(folder)
        self._every = every
        self._saved = 0
        self._between = True  # two rollouts

    def _init_callback(self) -> None:
        self._saved, self._between = self.model.num_timesteps, True
        require_own(self._folder, self._saved)  # now rather than after the first hours

    def _on_rollout_start(self) -> None:
        if self.model.num_timesteps - self._saved >= self._every:
            self._save()
        self._between = False

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self._between = True

    def _on_training_end(self) -> None:
        if self._between and self.model.num_timesteps > self._saved:
            self._save()

    def _save(self) -> None:
        self._saved = self.model.num_timesteps
        try:
            save_run(self._folder, self.model, self.training_env)
        except StorageError as error:
            LOGGER.warning("No checkpoint after %d steps: %s", self._saved, error)
