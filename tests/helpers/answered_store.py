"""A project about clips whose true returns are known, and somebody who answers by them."""

from dataclasses import dataclass, field

import numpy as np

from helpers.queue_steps import show
from preferl.data.segments import Segments
from preferl.store.clips import clip_ids
from preferl.store.store import Store

LENGTH = 4


@dataclass
class Answering:
    """A store with one project, and one person in it."""

    store: Store
    returns: dict[str, float] = field(default_factory=dict)
    batches: int = 0

    def __post_init__(self):
        self.project = self.store.projects.create("dots", repeat_share=0.0, known_share=0.0)
        self.person = self.store.people.owner(self.project.id).annotator.id

    def ask(self, count, **more):
        """Ask about `count` pairs of new clips; the first observation is the true reward."""
        rng = np.random.default_rng([17, self.batches])
        self.batches += 1
        clips = 2 * count
        steps = clips * LENGTH
        observations = rng.normal(size=(steps, 3)).astype(np.float32)
        segments = Segments(
            observations=observations,
            actions=rng.uniform(-1, 1, (steps, 1)).astype(np.float32),
            rewards=observations[:, 0],
            start=np.arange(clips) * LENGTH,
            real=np.full(clips, LENGTH),
            length=LENGTH,
        )
        returns = observations[:, 0].reshape(clips, LENGTH).sum(1)
        self.returns |= dict(zip(clip_ids(segments), returns.tolist(), strict=True))
        pairs = np.arange(clips).reshape(count, 2)
        numbers = self.store.queries.ask(self.project.id, segments, pairs, **more)
        self.show()
        return numbers

    def show(self):
        """Every clip has its video."""
        show(self.store, self.project.id)

    def answer(self, count=10**9):
        """Answer so many questions; returns how many there were."""
        for given in range(count):
            claim = self.store.queue.claim(self.project.id, self.person, 1)
            if not claim.queries:
                return given
            question = claim.queries[0]
            left = self.returns[question.left] > self.returns[question.right]
            kind = "left" if left else "right"
            self.store.queue.answer(self.person, question.token, f"k-{question.token}", kind)
        return count

    def ask_and_answer(self, count, **more):
        """Both."""
        numbers = self.ask(count, **more)
        assert self.answer() == count
        return numbers
