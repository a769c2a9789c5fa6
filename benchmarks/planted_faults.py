"""Plants faults into copies of a commit and notes which default test catches each of them.

    python benchmarks/planted_faults.py list              each fault, and whether it can be planted
    python benchmarks/planted_faults.py run 8b38294       all of them in that commit, one by one
    python benchmarks/planted_faults.py run work          the same in a copy of the working tree
    python benchmarks/planted_faults.py table             what was caught so far, by commit

The tests of a fault's own folder run first and all other default tests afterwards, until one
fails, so the verdict is that of the whole default set. At the end all tests that caught a fault run
without any: what one that fails then has caught is found out again without it. What is measured
already is not run again.
"""

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "planted_faults.csv"
COLUMNS: Final = ("fault", "commit", "caught_by", "seconds")
NOT_CAUGHT: Final = "none"
MISSING: Final = "not planted: the text is not there"
NOT_NEARBY: Final = "none in the files that mirror it; the others were not run"
TOO_LONG: Final = "none within the limit"


@dataclass(frozen=True)
class Edit:
    """A text of one file, which must be there once, and what takes its place."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """A mistake that somebody might make.

    Attributes:
        name: short, for the table.
        breaks: what no longer holds.
        tests: files and folders that mirror the module, which run first.
        edits: one for each state of the code; the first whose text is there is made.
    """

    name: str
    breaks: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]


FAULTS: Final = (
    Fault(
        "discount begins late",
        "the first real step of a segment is discounted already",
        ("tests/functional",),
        (
            Edit(
                "src/preferl/functional/preference.py",
                "position = (mask.cumsum(-1) - 1).clamp(min=0)",
                "position = mask.cumsum(-1).clamp(min=0)",
            ),
        ),
    ),
    Fault(
        "last window never drawn",
        "a segment that ends with its episode is never sampled",
        ("tests/data/test_segment_sampling.py", "tests/data"),
        (
            Edit(
                "src/preferl/data/segment_sampling.py",
                "return np.maximum(episodes.lengths - length + 1, 0)",
                "return np.maximum(episodes.lengths - length, 0)",
            ),
        ),
    ),
    Fault(
        "exact ties decided",
        "a teacher that never errs calls equal returns a coin toss instead of a tie",
        ("tests/feedback/test_scripted.py", "tests/feedback"),
        (
            Edit(
                "src/preferl/feedback/scripted.py",
                "            equal |= difference == 0\n",
                "",
            ),
        ),
    ),
    Fault(
        "sides not tossed",
        "which of two clips comes first is no longer random",
        ("tests/feedback/test_pair_sampling.py", "tests/golden/test_queries.py", "tests/feedback"),
        (
            Edit(
                "src/preferl/feedback/pair_sampling.py",
                "return rng.permuted(windows[_tournament(len(windows), count, rng)], axis=1)",
                "return windows[_tournament(len(windows), count, rng)]",
            ),
        ),
    ),
    Fault(
        "attention sees ahead",
        "a step's reward depends on the step after it",
        ("tests/models/test_attention.py", "tests/models"),
        (
            Edit(
                "src/preferl/models/attention.py",
                "torch.ones(size, size, dtype=torch.bool, device=real.device).tril()",
                "torch.ones(size, size, dtype=torch.bool, device=real.device).tril(1)",
            ),
        ),
    ),
    Fault(
        "bootstrap changes as answers arrive",
        "members see other answers after each new one, so they lose their differences",
        ("tests/training/test_reward_trainer.py", "tests/training"),
        (
            Edit(
                "src/preferl/training/reward_trainer.py",
                "return rng.poisson(1.0, (pairs, members)).T.astype(np.float64)",
                "return rng.poisson(1.0, (members, pairs)).astype(np.float64)",
            ),
        ),
    ),
    Fault(
        "members vote on what they were fitted to",
        "out-of-bag accuracy counts members that learned the answer",
        ("tests/training/test_reward_trainer.py", "tests/training"),
        (
            Edit(
                "src/preferl/training/reward_trainer.py",
                "torch.where(votes, preference_probability(logits) - 0.5, 0.0).sum(0)",
                "(preference_probability(logits) - 0.5).sum(0)",
            ),
        ),
    ),
    Fault(
        "best loss forgotten on resuming",
        "a resumed fit takes the first epoch after it for the best",
        ("tests/training/test_reward_trainer_checkpoints.py", "tests/training"),
        (
            Edit(
                "src/preferl/training/reward_trainer.py",
                "            trainer=self.snapshot(),\n",
                '            trainer=self.snapshot(),\n            best_loss=float("inf"),\n',
            ),
            Edit(
                "src/preferl/training/reward_trainer.py",
                "            self._resume(state)\n",
                '            self._resume(state)\n            state.best_loss = float("inf")\n',
            ),
        ),
    ),
    Fault(
        "minibatches weigh too much",
        "a batch in parts has a larger gradient than the same batch at once",
        ("tests/training/test_reward_trainer.py", "tests/training"),
        (
            Edit(
                "src/preferl/training/reward_trainer.py",
                "(loss.sum() * share).backward()",
                "loss.sum().backward()",
            ),
            Edit(
                "src/preferl/training/reward_trainer.py",
                "(loss.sum() * share).backward()",
                "loss.sum().backward()",
            ),
        ),
    ),
    Fault(
        "time limits end the world",
        "offline learners take an episode that was cut off for one that terminated",
        ("tests/offline/test_transitions.py", "tests/offline"),
        (
            Edit(
                "src/preferl/offline/transitions.py",
                "            ~episodes.terminated,\n",
                "            ~(episodes.terminated | episodes.truncated),\n",
            ),
        ),
    ),
    Fault(
        "query generator not restored",
        "a resumed run samples other segments than the run without interruption",
        ("tests/online/test_loop_resumed.py", "tests/online"),
        (
            Edit(
                "src/preferl/online/loop.py",
                '        self.rng = state["rng"]\n',
                "",
            ),
            Edit(
                "src/preferl/online/loop.py",
                '        reward = own.pop("reward")\n',
                '        reward = own.pop("reward")\n        own.pop("rng")\n',
            ),
        ),
    ),
    Fault(
        "journal emptied before the checkpoint",
        "answers are lost by a kill between the two",
        (
            "tests/test_killed_runs.py",
            "tests/test_power_loss.py",
            "tests/online/test_resumed_answers.py",
            "tests/online",
        ),
        (
            Edit(
                "src/preferl/online/loop.py",
                "        write_checkpoint(self.journal.folder.parent, state, "
                "steps=self.learner.steps, run=run)\n"
                "        self.journal.next_iteration(len(self.iterations))\n",
                "        self.journal.next_iteration(len(self.iterations))\n"
                "        write_checkpoint(self.journal.folder.parent, state, "
                "steps=self.learner.steps, run=run)\n",
            ),
            Edit(
                "src/preferl/online/loop.py",
                "        write_checkpoint(folder, checkpoint, steps=parts.learner.steps, "
                "run=self.journal.run)\n"
                "        self.journal.next_iteration(len(state.iterations))\n",
                "        self.journal.next_iteration(len(state.iterations))\n"
                "        write_checkpoint(folder, checkpoint, steps=parts.learner.steps, "
                "run=self.journal.run)\n",
            ),
        ),
    ),
    Fault(
        "steps of before get the new reward",
        "deferred steps are rewarded by a reward that came after them",
        ("tests/online/wrappers/test_rollout_rewards.py", "tests/online/wrappers"),
        (
            Edit(
                "src/preferl/online/wrappers/reward_computer.py",
                "        self._catch_up()\n        self.reward = reward\n",
                "        self.reward = reward\n",
            ),
            Edit(
                "src/preferl/online/wrappers/feedback_core.py",
                "            self._compute_deferred()  # the steps until now, by the reward that "
                "they had\n",
                "",
            ),
        ),
    ),
    Fault(
        "history crosses a reset",
        "a reward looks back into the episode before",
        ("tests/online/wrappers/test_recording.py", "tests/online/wrappers"),
        (
            Edit(
                "src/preferl/online/wrappers/recording.py",
                "mask = (times >= self._episode_start[:, None]) & (times >= self._first_time)",
                "mask = (times >= 0) & "
                "(times >= self._first_time + 0 * self._episode_start[:, None])",
            ),
        ),
    ),
    Fault(
        "lease to one too many",
        "one person more than a query needs gets it where a lease had run out",
        ("tests/store/test_queue.py", "tests/store"),
        (
            Edit(
                "src/preferl/store/queue.py",
                "return query.needed > self._count(statements.OUT, query_id=query.id)",
                "return query.needed >= self._count(statements.OUT, query_id=query.id)",
            ),
        ),
    ),
    Fault(
        "answers of one person not in turn",
        "the row that lets a person's requests wait for each other is not locked",
        ("tests/store/test_queue.py", "tests/store"),
        (
            Edit(
                "src/preferl/store/queue.py",
                '            session.scalar(statements.ALONE, {"annotator_id": annotator_id})\n'
                "            yield session, _by_key(session, table, key, annotator_id)\n",
                "            yield session, _by_key(session, table, key, annotator_id)\n",
            ),
        ),
    ),
    Fault(
        "queries answered alike count once",
        "annotators are estimated from kinds of queries instead of queries",
        ("tests/store/quality",),
        (
            Edit(
                "src/preferl/store/quality/aggregation.py",
                "expected = posterior * weight[:, None]",
                "expected = posterior",
            ),
        ),
    ),
    Fault(
        "spectators correct answers",
        "who may only look can withdraw and correct",
        ("tests/annotate/test_answers_page.py", "tests/annotate"),
        (
            Edit(
                "src/preferl/annotate/answers_page.py",
                "    request: Request,\n    person: Administering,\n    number:",
                "    request: Request,\n    person: Watching,\n    number:",
            ),
        ),
    ),
    Fault(
        "evaluation repeats its seeds",
        "later episodes of an environment begin like its first one",
        ("tests/evaluation/test_rollout.py", "tests/evaluation"),
        (
            Edit(
                "src/preferl/evaluation/rollout.py",
                "seed=self._seed + self._begun_episodes\n",
                "seed=self._seed + number\n",
            ),
        ),
    ),
    Fault(
        "name not synced",
        "a file that was renamed into place may be gone after a power failure",
        ("tests/test_power_loss.py", "tests/test_files.py"),
        (
            Edit(
                "src/preferl/files.py",
                "            if durable:\n                sync(path.parent)\n",
                "",
            ),
        ),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="each fault, and whether it can be planted here")
    commands.add_parser("table", help="what was caught so far")
    run = commands.add_parser("run", help="plant faults and test")
    run.add_argument("commit", help="a commit, or `work` for the working tree")
    run.add_argument("faults", nargs="*", help="numbers from 1, or parts of names; all by default")
    run.add_argument("--minutes", type=float, default=60.0, help="limit of one fault")
    run.add_argument(
        "--first-only",
        action="store_true",
        help="only the files that mirror it",
    )
    run.add_argument("--no-confirm", action="store_true", help="leave the last run to another call")
    arguments = parser.parse_args()
    if arguments.command == "list":
        show_list()
    elif arguments.command == "run":
        chosen = [fault for fault in FAULTS if is_chosen(fault, arguments.faults)]
        run_all(
            arguments.commit,
            chosen,
            60 * arguments.minutes,
            first_only=arguments.first_only,
            confirm=not arguments.no_confirm,
        )
        show_table()
    else:
        show_table()


def is_chosen(fault: Fault, words: Sequence[str]) -> bool:
    number = str(FAULTS.index(fault) + 1)
    return not words or any(word == number or word in fault.name for word in words)


def edit_for(fault: Fault, tree: Path) -> Edit | None:
    """The edit whose text is in this tree, once."""
    for edit in fault.edits:
        path = tree / edit.file
        if path.is_file() and path.read_text(encoding="utf-8").count(edit.old) == 1:
            return edit
    return None


def run_all(
    commit: str, faults: Sequence[Fault], limit: float, *, first_only: bool, confirm: bool
) -> None:
    innocent: list[str] = []
    with tree_of(commit) as (tree, name):
        while True:
            rows = [row for row in measured() if first_only or row["caught_by"] != NOT_NEARBY]
            write_rows(rows)
            done = {row["fault"] for row in rows if row["commit"] == name}
            for fault in faults:
                if fault.name not in done:
                    measure(tree, name, fault, limit, first_only, innocent)
            wrong = failing_anyway(tree, name) if confirm else []
            if not wrong:
                return
            print(f"failed without a fault: {wrong}", flush=True)
            innocent += wrong
            rows = [row for row in measured() if row["caught_by"] not in wrong]
            write_rows(rows)


def measure(
    tree: Path, name: str, fault: Fault, limit: float, first_only: bool, innocent: Sequence[str]
) -> None:
    """Plant a fault and add its row."""
    began = time.monotonic()
    edit = edit_for(fault, tree)
    if edit is None:
        print(f"{fault.name}: {MISSING}", flush=True)
        return
    caught_by = verdict(tree, fault, edit, limit, first_only, innocent)
    seconds = time.monotonic() - began
    print(f"{fault.name}: {caught_by} ({seconds:.0f} s)", flush=True)
    row = (fault.name, name, caught_by, f"{seconds:.0f}")
    write_rows([*measured(), dict(zip(COLUMNS, row, strict=True))])


def failing_anyway(tree: Path, name: str) -> list[str]:
    """The tests that caught a fault in a commit and fail without any."""
    tests = {row["caught_by"] for row in measured() if row["commit"] == name}
    tests -= {NOT_CAUGHT, NOT_NEARBY, TOO_LONG}
    return (failures(tree, sorted(tests), time.monotonic() + 3600, 1000) or []) if tests else []


def verdict(
    tree: Path, fault: Fault, edit: Edit, limit: float, first_only: bool, innocent: Sequence[str]
) -> str:
    """The test that catches a fault, or why there is none; `innocent` ones are left out."""
    until = time.monotonic() + limit
    first = [name for name in fault.tests if (tree / name).exists()]
    stages = [[name] for name in first]
    if first_only:
        stages = [[name] for name in first if name == first[0] or name.endswith(".py")]
    else:
        stages.append([*(f"--ignore={name}" for name in first), "tests", "src/preferl"])
    left_out = [f"--deselect={name}" for name in innocent]
    for stage in stages:
        with planted(tree, edit):
            failed = failures(tree, [*stage, *left_out], until)
        if failed is None:
            return TOO_LONG
        if failed:
            return failed[0]
    return NOT_NEARBY if first_only else NOT_CAUGHT


@contextmanager
def planted(tree: Path, edit: Edit) -> Iterator[None]:
    path = tree / edit.file
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(edit.old, edit.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


def failures(tree: Path, arguments: Sequence[str], until: float, most: int = 1) -> list[str] | None:
    """Run default tests in a tree; the first ones that fail, or None where time is up."""
    left = until - time.monotonic()
    if left <= 0:
        return None
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "",
        "MPLBACKEND": "Agg",
        "SDL_VIDEODRIVER": "dummy",
    }
    environment.setdefault("PREFERL_SHARED", str(ROOT.parent / "shared"))
    options = (f"--maxfail={most}", "-q", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", *options, *arguments)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            status = process.wait(left)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return None
        output.seek(0)
        text = output.read()
    if status in (0, 5):  # all passed, or none was left to run
        return []
    failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", text, re.MULTILINE)
    if not failed:
        raise SystemExit(f"pytest ended with {status}:\n{text[-3000:]}")
    return failed


@contextmanager
def tree_of(commit: str) -> Iterator[tuple[Path, str]]:
    """A copy of a commit, or of the working tree, and the name of its state."""
    with tempfile.TemporaryDirectory(prefix="planted-") as holder:
        tree = Path(holder) / "tree"
        if commit == "work":
            ignored = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "_build", "__pycache__")
            shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)
            yield tree, f"{git('rev-parse', '--short', 'HEAD')} and changes"
            return
        name = git("rev-parse", "--short", commit)
        git("worktree", "add", "--detach", str(tree), name)
        try:
            yield tree, name
        finally:
            git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> str:
    done = subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def measured() -> list[dict[str, str]]:
    if not RESULTS.is_file():
        return []
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(rows: Sequence[dict[str, str]]) -> None:
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def show_list() -> None:
    table = Table("", "fault", "file", "breaks", "here")
    for number, fault in enumerate(FAULTS, 1):
        edit = edit_for(fault, ROOT)
        state = "can be planted" if edit else "[bold red]its text is missing[/]"
        table.add_row(str(number), fault.name, (edit or fault.edits[0]).file, fault.breaks, state)
    Console(width=160).print(table)


def show_table() -> None:
    rows = {(row["fault"], row["commit"]): row for row in measured()}
    commits = list(dict.fromkeys(commit for _, commit in rows))
    table = Table("fault", *commits)
    for fault in FAULTS:
        cells = [rows.get((fault.name, commit)) for commit in commits]
        table.add_row(fault.name, *(cell["caught_by"] if cell else "" for cell in cells))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
