"""What answers, queries, clips and rewards cost at several sizes, from which limits are calculated.

    python benchmarks/sizes.py [--answers 1000 10000 100000]

Stores grow by imports of answers about clips of 50 steps of HalfCheetah's shape (17 numbers seen, 6
of an action). At each size: bytes of the database, of clips and of both per answer; the time of a
claim, of an answer, of the overview's numbers, of reading all answers as a reward service does, and
of a fit's epoch. Writes `results/sizes.json`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from run import machine
from sqlalchemy import insert

from preferl.data.segments import Segments
from preferl.models import MLPReward, MLPRewardConfig, infer_spaces
from preferl.store import Store, StoredFeedback
from preferl.store.schema import Answer, Query
from preferl.training import RewardTrainer, RewardTrainerConfig

RESULTS = Path(__file__).parent / "results" / "sizes.json"
STEPS = 50
SEEN = 17
ACTION = 6
AT_ONCE = 2_000  # clips that are put into the store together


def segments_of(count: int, rng: np.random.Generator) -> Segments:
    """Clips of noise."""
    total = count * STEPS
    return Segments(
        observations=rng.normal(size=(total, SEEN)).astype(np.float32),
        actions=rng.normal(size=(total, ACTION)).astype(np.float32),
        rewards=rng.normal(size=total).astype(np.float32),
        start=np.arange(0, total, STEPS),
        real=np.full(count, STEPS),
        length=STEPS,
    )


def grow(store: Store, project: int, annotator: int, count: int, rng: np.random.Generator) -> None:
    """Ask, and answer, so many more queries."""
    for begin in range(0, count, AT_ONCE // 2):
        pairs = np.arange(min(AT_ONCE, 2 * (count - begin))).reshape(-1, 2)
        asked = store.queries.ask(project, segments_of(pairs.size, rng), pairs)
        rows = [
            {
                "project_id": project,
                "query_id": number,
                "annotator_id": annotator,
                "key": uuid4().hex,
                "kind": "left",
                "preference": 1.0,
                "swapped": False,
                "response_ms": 3000.0,
                "answered_at": time.time(),
                "detail": {"shown": {"loops": 1, "speed": 1.0, "steps": 0}},
            }
            for number in asked
        ]
        with store.database.write() as session:
            session.execute(insert(Answer), rows)
            session.query(Query).where(Query.id.in_(asked)).update({"needed": 0, "ready": True})


def median_ms(act: Callable[[], Any], times: int = 9) -> float:
    """The median of so many calls."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return round(1e3 * float(np.median(taken)), 2)


def measured(folder: Path, sizes: list[int]) -> list[dict[str, Any]]:
    """One row for each size of a store."""
    found = []
    rng = np.random.default_rng(0)
    there = 0
    with Store.open(folder) as store:
        project = store.projects.create("sizes", repeat_share=0.0).id
        ann, ben = (store.people.invite(project, name).annotator.id for name in ("Ann", "Ben"))
        for size in sizes:
            grow(store, project, ann, size - there, rng)
            there = size
            found.append(_row(store, project, ben, size, rng))
            print(found[-1], flush=True)
    return found


def _row(
    store: Store, project: int, ben: int, size: int, rng: np.random.Generator
) -> dict[str, Any]:
    store.queries.ask(project, segments_of(200, rng), np.arange(200).reshape(100, 2))
    claims = iter(range(1_000_000))

    def claim() -> None:
        store.queue.claim(project, ben, 2, undrawn=True)

    def answer() -> None:
        (question, *_) = store.queue.claim(project, ben, 1, undrawn=True).queries
        store.queue.answer(ben, question.token, f"{size}-{next(claims):08d}", "left")

    times = {"claim_ms": median_ms(claim), "claim_and_answer_ms": median_ms(answer)}
    times["overview_ms"] = median_ms(lambda: store.progress(project))
    feedback = StoredFeedback(store, project)
    began = time.perf_counter()
    comparisons = feedback.comparisons()
    read = time.perf_counter() - began
    spaces = infer_spaces(comparisons.segments.observations, comparisons.segments.actions)
    model = MLPReward(*spaces, MLPRewardConfig(), seed=0)
    trainer = RewardTrainer(model, RewardTrainerConfig(), seed=0)
    trainer.fit(comparisons, epochs=1)  # packages and caches
    epoch = trainer.fit(comparisons, epochs=2).seconds / 2
    database = sum(file.stat().st_size for file in store.files.glob("labels.db*"))
    clips = sum(file.stat().st_size for file in (store.files / "clips").rglob("*"))
    return {
        "answers": size,
        "database_bytes_per_answer": round(database / size),
        "clip_bytes_per_answer": round(clips / size),
        **times,
        "read_all_s": round(read, 3),
        "fit_epoch_s": round(epoch, 3),
        "members": model.members,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="preferl-sizes-") as folder:
        result = {"sizes": measured(Path(folder), sorted(options.answers)), "machine": machine()}
    if not options.no_write:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
