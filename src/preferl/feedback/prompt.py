"""A person at a terminal, who sees two clips and presses a key."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO, final

import numpy as np

from preferl.data.segments import Clips
from preferl.feedback.protocols import FeedbackInterrupted, InputEndedError
from preferl.printing import harmless
from preferl.shapes import Array, BoolArray, FloatArray

KEYS = {"l": 1.0, "r": 0.0, "e": 0.5, "n": float("nan"), "": float("nan")}
"""Maps what a person types to a preference; Enter alone declines."""

HELP = "l left, r right, e equal, n or Enter cannot tell, q stop"

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-:=+*#"


@final
@dataclass(frozen=True)
class PromptTeacher:
    """Shows one pair after another and waits for a key: l, r, e, n or Enter, and q to stop.

    Attributes:
        show: presents a pair, given its clips `[2, L]` and its number from 0. None writes
            `sparklines` to `output`. Play videos or plot here.
        ask: shows a prompt and returns what the person typed.
        output: where everything except the prompt is written; None is standard output.
    """

    show: Callable[[Clips, int], None] | None = None
    ask: Callable[[str], str] = input
    output: TextIO | None = None

    def __call__(self, shown: Clips, rng: np.random.Generator) -> FloatArray:
        """Show clips `[P, 2, L]`, and return the preferences `[P]` that the person types.

        Raises:
            FeedbackInterrupted: the person stopped with q or Ctrl-C; it holds the answers so far.
            InputEndedError: the input was closed, for example because there is no terminal.
        """
        return np.array(list(self.one_by_one(shown, rng)), np.float64)

    def one_by_one(self, shown: Clips, rng: np.random.Generator) -> Iterator[float]:
        """Yield each preference before the next pair is shown; raise as `__call__` does."""
        del rng  # people decide for themselves
        answers: list[float] = []
        for number in range(len(shown)):
            try:
                self._present(shown[number], number)
                answers.append(self._answer(f"[{number + 1}/{len(shown)}] {HELP}: "))
            except EOFError as error:
                raise InputEndedError(
                    f"The input ended after {len(answers)} of {len(shown)} answers. Run in a "
                    "terminal in which a person can type, or use a ScriptedTeacher.",
                    np.array(answers, np.float64),
                ) from error
            except KeyboardInterrupt as stop:
                raise FeedbackInterrupted(np.array(answers, np.float64)) from stop
            yield answers[-1]

    def _answer(self, prompt: str) -> float:
        while (typed := self.ask(prompt).strip().lower()) not in KEYS:
            if typed == "q":
                raise KeyboardInterrupt
            self._write(f"{typed!r} is not one of the keys.")
        return KEYS[typed]

    def _present(self, clips: Clips, number: int) -> None:
        if self.show is not None:
            self.show(clips, number)
            return
        levels = BLOCKS
        try:
            BLOCKS.encode(getattr(self.output or sys.stdout, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            levels = PLAIN
        self._write("\n" + sparklines(clips, levels=levels))

    def _write(self, text: str) -> None:
        output = self.output or sys.stdout
        encoding = getattr(output, "encoding", None) or "utf-8"
        shown = harmless(text).encode(encoding, "replace").decode(encoding)
        output.write(shown + "\n")
        output.flush()


def sparklines(clips: Clips, *, width: int = 30, rows: int = 12, levels: str = BLOCKS) -> str:
    """Draw two clips side by side, with a line for each number of observations and actions.

    Both clips of a line share a scale, whose ends are written after them. Padded steps are blank.
    The environment's reward is not shown, since the person should decide and not read it off.

    Args:
        clips: `[2, L]`.
        width: columns for each clip; some steps of longer clips are left out.
        rows: most lines; further lines are only counted.
        levels: characters from low to high.

    >>> steps = np.array([[0.0, 1.0, 2.0], [2.0, 0.0, 0.0]])[..., None]
    >>> clips = Clips(steps, steps, np.array([[True] * 3, [False, True, True]]), steps[..., 0])
    >>> print(sparklines(clips, levels="_-#").replace(" ", "~"))
    ~~~~~~~~~~~~~~~left~~~right
    observation~0~~_-#~~~~~__~~~~0~to~2
    action~0~~~~~~~_-#~~~~~__~~~~0~to~2
    """
    named = _columns(clips)
    label = max((len(name) for name, _ in named[:rows]), default=0)
    steps = clips.mask.shape[1]
    visible = np.linspace(0, steps - 1, min(steps, width)).round().astype(np.int64)
    side = max(len(visible), len("right"))
    lines = [f"{'':{label}}  {'left':{side}}  {'right':{side}}".rstrip()]
    for name, values in named[:rows]:
        left, right, ends = _line(values[:, visible], clips.mask[:, visible], levels)
        lines.append(f"{name:{label}}  {left:{side}}  {right:{side}}  {ends}")
    if len(named) > rows:
        lines.append(f"and {len(named) - rows} more; pass `show` to see them in another way")
    return "\n".join(lines)


def _columns(clips: Clips) -> list[tuple[str, Array]]:
    """Return name and `[2, L]` values of each number in observations and actions."""
    seen = clips.observations
    keyed = {"": seen} if not isinstance(seen, dict) else {f" {key}": seen[key] for key in seen}
    columns = []
    for name, array in [*((f"observation{k}", keyed[k]) for k in keyed), ("action", clips.actions)]:
        flat = array.reshape(*array.shape[:2], -1)  # [2, L, *] to [2, L, F]
        columns += [(f"{name} {i}", flat[..., i]) for i in range(flat.shape[-1])]
    return columns


def _line(values: Array, mask: BoolArray, levels: str) -> tuple[str, str, str]:
    """Draw two strips of characters for values `[2, W]`, and the ends of their common scale."""
    values = np.asarray(values, np.float64)
    visible = mask & np.isfinite(values)
    if not visible.any():
        return "", "", "nothing to show"
    low = values[visible].min()
    high = values[visible].max()
    height = (np.where(visible, values, low) - low) / ((high - low) or 1.0)
    level = np.minimum((height * len(levels)).astype(np.int64), len(levels) - 1)
    characters = np.where(visible, np.array(list(levels))[level], " ")
    return "".join(characters[0]), "".join(characters[1]), f"{low:.3g} to {high:.3g}"
