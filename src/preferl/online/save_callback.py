"""Saves a whole run while stable-baselines3's algorithms learn."""

import logging
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType, MethodType
from typing import Any, final

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from preferl.errors import CheckpointError, StorageError, require_in
from preferl.online.checkpoint import save_run
from preferl.online.supervisor import Say, say_on_terminal
from preferl.training.checkpoint_folder import require_own

LOGGER = logging.getLogger(__name__)


@final
class SaveRunCallback(BaseCallback):
    """Writes a checkpoint every so many steps, between two rollouts, and one at the end.

    A run that was killed goes on from the last one: see `resume_run`. A run that a callback
    stopped in the middle of a rollout is not saved there, since half a rollout is not kept. Where
    a disk is full or away, or the checkpoint before was damaged meanwhile, that is said, what is
    there stays, and learning goes on.

    The first Ctrl-C lets the rollout under way, and the learning from it, come to its end, saves,
    and interrupts then; a second one interrupts at once. This is so where Ctrl-C would raise
    `KeyboardInterrupt` in the main thread; a script's own handling stays as it is, and so does
    Ctrl-C with `SubprocVecEnv`, whose environments end by it themselves.

    Args:
        folder: of this run's checkpoints alone.
        every: environment steps from one to the next, at least. 10,000 cost little beside
            learning; what comes after the last one is lived through again.
        say: told what Ctrl-C does; the terminal by default.
        verbose: as SB3 has it.

    Raises:
        CheckpointError: with `learn`, a folder whose newest checkpoint is damaged.
        ConfigError: less than one step; with `learn`, a folder whose run has come further.
        StorageError: with `learn`, a folder that holds something else, or cannot be read.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        every: int = 10_000,
        say: Say = say_on_terminal,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        require_in("every", every, 1, float("inf"))
        self._folder = Path(folder)
        self._every = every
        self._say = say
        self._saved = self._tried = 0
        self._between = True  # two rollouts
        self._interrupted = False

    def _init_callback(self) -> None:
        self._saved = self._tried = self.model.num_timesteps
        self._between, self._interrupted = True, False
        require_own(self._folder, self._saved)  # now rather than after the first hours

    def _on_training_start(self) -> None:
        if (
            threading.current_thread() is threading.main_thread()
            and _is_plain(signal.getsignal(signal.SIGINT))
            and not isinstance(self.training_env.unwrapped, SubprocVecEnv)
        ):
            signal.signal(signal.SIGINT, self._interrupt)

    def _on_rollout_start(self) -> None:
        if self._interrupted:
            self._save_and_leave()
        if self.model.num_timesteps - self._tried >= self._every:
            self._save()
        self._between = False

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self._between = True

    def _on_training_end(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._interrupted:  # as it came to its end by itself
            self._save_and_leave()
        if self._between and self.model.num_timesteps > self._tried:
            self._save()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Note that the run is to stop; from now on Ctrl-C interrupts at once."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not _learns(self.model, frame):  # it ended by an error, which no callback is told of
            signal.default_int_handler(number, frame)
        self._interrupted = True
        with suppress(RuntimeError):  # a line that was being written cannot be cut by another one
            self._say(
                "Ctrl-C: the rollout under way is finished, then the run is saved and stops. "
                f"Ctrl-C again stops at once; {self._unsaved()} are then lived through again."
            )

    def _save_and_leave(self) -> None:
        self._interrupted = False
        if self._between and self.model.num_timesteps > self._saved:
            self._save()
        if self.model.num_timesteps > self._saved:
            self._say(f"Not saved; {self._unsaved()} are lived through again.")
        else:
            self._say(f"Saved after {self._saved:,} steps.")
        raise KeyboardInterrupt

    def _unsaved(self) -> str:
        count = self.model.num_timesteps - self._saved
        return f"{count:,} steps since the last checkpoint" if self._saved else f"{count:,} steps"

    def _save(self) -> None:
        self._tried = self.model.num_timesteps
        try:
            save_run(self._folder, self.model, self.training_env)
        except (StorageError, CheckpointError) as error:
            LOGGER.warning("No checkpoint after %d steps: %s", self._tried, error)
        else:
            self._saved = self._tried


def _is_plain(handler: Any) -> bool:
    """Whether Ctrl-C is as Python has it, or as an earlier run that failed has left it."""
    left = isinstance(handler, MethodType) and isinstance(handler.__self__, SaveRunCallback)
    return handler is signal.default_int_handler or left


def _learns(model: Any, frame: FrameType | None) -> bool:
    """Whether this is a moment within the algorithm's `learn`."""
    while frame is not None:
        if frame.f_code.co_name == "learn" and frame.f_locals.get("self") is model:
            return True
        frame = frame.f_back
    return False
