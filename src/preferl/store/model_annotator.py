"""A model as an annotator: a function of two clips answers queries of a store as people do.

It uses the same queue with the same leases, and its answers are in the same table.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final, Protocol, final

import av
import numpy as np
from sqlalchemy import select

from preferl.errors import DataError, FeedbackError, require_in
from preferl.reading import reading
from preferl.shapes import Array, BoolArray, Observations
from preferl.store.schema import COUNTED, MODEL, Answer, Project, Query
from preferl.store.store import Store

FRAMES: Final = 8
"""Number of pictures of each clip, and half of those of a query.

For 50 steps at 30 per second, this is a picture every quarter of a second.
"""


@final
@dataclass(frozen=True, eq=False)
class ShownPair:
    """What a model gets of a query: two clips, and the texts that people read.

    Which clip is the first is random for each query. The model does not see rewards or other
    answers.

    Attributes:
        question: the project's question, such as "Which clip is better?".
        instructions: what counts as better, as plain text; "" if nobody wrote any.
        task: what was to be done in both clips; "" if no task is named.
        frames: pictures `[F, height, width, 3]` as bytes, of the first and of the second clip. They
            are evenly spaced from the first step to the last. `F` is 0 if none are wanted.
        observations: `[2, L, *obs]`
        actions: `[2, L, *act]`
        mask: `[2, L]` true where a step is real; real steps come last.
    """

    question: str
    instructions: str
    task: str
    frames: tuple[Array, Array]
    observations: Observations
    actions: Array
    mask: BoolArray


@final
@dataclass(frozen=True)
class ModelAnswer:
    """A model's answer to a pair.

    Raises:
        ConfigError: a number is out of its range.
    """

    preference: float | None  # probability that the first is preferred; None declines
    cost: float = 0.0  # cost of this answer, in any unit
    version: str = ""  # version of the model, which is kept beside the answer

    def __post_init__(self) -> None:
        require_in("preference", 0.5 if self.preference is None else self.preference, 0, 1)
        require_in("cost", self.cost, 0, 1e12)


class PairModel(Protocol):
    """Compares two clips; a plain function can do this."""

    def __call__(self, shown: ShownPair) -> ModelAnswer | float | None:
        """Return the probability that the first is preferred; NaN or None declines."""
        ...


@final
@dataclass
class ModelTally:
    """What a model has answered in one call of `model_answers`."""

    answers: int = 0  # recorded answers, including declined pairs
    declined: int = 0
    reused: int = 0  # answers copied from an earlier one about the same clips, without asking
    contradictions: int = 0  # pairs that got another answer in the other order; they are declined
    cost: float = 0.0
    total_cost: float = 0.0  # cost of all answers of this annotator in the project
    version: str = ""  # version of the newest answer


def model_answers(
    store: Store,
    project: Project,
    name: str,
    model: PairModel,
    *,
    frames: int = FRAMES,
    both_orders: bool = False,
    answered: bool = False,
    budget: float = math.inf,
) -> Iterator[ModelTally]:
    """Let a model answer the queries of a project; yield the tally after each answer.

    Each answer is on disk before the next query is claimed, so the same call can continue after any
    interruption. A probability above one half is an answer for the first clip, one below for the
    second, and one half is a tie. The probability is kept in the `detail` of the answer, with cost
    and version. A pair of clips that the model has answered before is not asked again, except for
    planned repeats, which show how consistent a model is.

    Args:
        store: the store of queries and answers.
        project: project of the store.
        name: name of the annotator: a new name, or that of a model. A name stands for one model.
        model: compares two clips.
        frames: number of pictures of each clip, for which the clips need videos. 0 shows no
            pictures, and needs no videos.
        both_orders: ask each pair twice, the second time with the clips exchanged. If the two
            answers contradict each other, the pair is declined, since the model may follow only the
            order.
        answered: take pairs that others have answered, instead of open ones, to compare the model
            with them.
        budget: limit of `total_cost`. The call ends before an answer could pass it, if that cost as
            much as the most expensive answer so far.

    Raises:
        ConfigError: a person has this name.
        FeedbackError: the model failed or returned no valid answer, or it may not answer here.
        DataError: the video of a clip is damaged.

    >>> import tempfile
    >>> from preferl.testing import example_segments
    >>> with tempfile.TemporaryDirectory() as folder, Store.open(folder) as store:
    ...     project = store.projects.create("dots", repeat_share=0)
    ...     numbers = store.queries.ask(project.id, example_segments(), np.array([[0, 1], [2, 3]]))
    ...     still = lambda shown: float(np.subtract(*np.abs(shown.actions).sum((1, 2))) < 0)
    ...     [tally.answers for tally in model_answers(store, project, "still", still, frames=0)]
    [1, 2]
    """
    annotator = store.people.model(project.id, name)
    # keys are the names of the left and the right clip
    earlier: dict[tuple[str, str], dict[str, Any]] = {}
    tally = ModelTally()
    dearest = 0.0

    def remember(left: str, right: str, detail: dict[str, Any]) -> None:
        nonlocal dearest
        earlier[left, right] = detail
        earlier[right, left] = detail | {"left": [_exchanged(share) for share in detail["left"]]}
        tally.total_cost += detail["cost"]
        dearest = max(dearest, detail["cost"])

    own_answers = select(Answer, Query).join(Query).where(Answer.annotator_id == annotator.id)
    for answer, query in store.database.rows(own_answers.where(Answer.kind.in_(COUNTED))):
        if answer.detail and MODEL in answer.detail:
            remember(*query.sides(answer.swapped), answer.detail[MODEL])
    while tally.total_cost + dearest <= budget:
        claim = store.queue.claim(
            project.id, annotator.id, 1, undrawn=not frames, answered=answered
        )
        if not claim.queries:
            return
        leased = claim.queries[0]
        sides = (leased.left, leased.right)
        purpose = select(Query.purpose).where(Query.id == leased.query_id)
        is_known = sides in earlier and store.database.first(purpose) != "repeat"
        if is_known:
            detail = earlier[sides] | {"cost": 0.0}
        else:
            shown = _shown(store, project, sides, leased.task, frames)
            answers = [_ask(model, shown, name)]
            left = [answers[0].preference]
            if both_orders:
                shown = _shown(store, project, sides[::-1], leased.task, frames)
                answers.append(_ask(model, shown, name))
                left.append(_exchanged(answers[1].preference))
            cost = math.fsum(answer.cost for answer in answers)
            detail = {"left": left, "cost": cost, "version": answers[-1].version}
        kinds = [_kind(share) for share in detail["left"]]
        contradicts = kinds[0] != kinds[-1]
        kind = "cannot_tell" if contradicts else kinds[0]
        store.queue.answer(annotator.id, leased.token, token_hex(16), kind, detail={MODEL: detail})
        remember(*sides, detail)
        tally.answers += 1
        tally.declined += kind == "cannot_tell"
        tally.reused += is_known
        tally.contradictions += contradicts
        tally.cost += detail["cost"]
        tally.version = detail["version"]
        yield tally


def _shown(
    store: Store, project: Project, clips: tuple[str, ...], task: str, frames: int
) -> ShownPair:
    steps = store.clips.segments(project.id, clips)[np.arange(2)]
    first, second = (
        _pictures(f"{store.clips.video_path(project.id, clip)}", frames) for clip in clips
    )
    return ShownPair(
        question=project.question,
        instructions=project.instructions,
        task=task,
        frames=(first, second),
        observations=steps.observations,
        actions=steps.actions,
        mask=steps.mask,
    )


def _pictures(video: str, count: int) -> Array:
    """Decode at most `count` frames of a video, evenly spaced, to `[F, height, width, 3]`."""
    if not count:
        return np.zeros((0, 0, 0, 3), np.uint8)
    with (
        reading(video, expected="a video as preferl draws it", error=DataError),
        av.open(video, format="mp4") as container,
    ):
        length = container.streams.video[0].frames
        rows = np.linspace(0, length - 1, min(count, length)).round()
        pictures = enumerate(container.decode(video=0))
        return np.stack(
            [frame.to_ndarray(format="rgb24") for row, frame in pictures if row in rows]
        )


def _ask(model: PairModel, shown: ShownPair, name: str) -> ModelAnswer:
    with reading(f"model {name}", expected="an answer", error=FeedbackError):
        answer = model(shown)
        if isinstance(answer, ModelAnswer):
            return answer
        return ModelAnswer(None if answer is None or math.isnan(answer) else float(answer))


def _kind(left: float | None) -> str:
    """Return the kind of answer for a probability of the left clip."""
    if left is None:
        return "cannot_tell"
    return ("right", "equal", "left")[1 + int(np.sign(left - 0.5))]


def _exchanged(preference: float | None) -> float | None:
    """Return the preference for the other clip."""
    return None if preference is None else 1 - preference
