"""List answers page by page, and withdraw or correct them. No answer is ever deleted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from sqlalchemy import ColumnElement, Select, and_, func, select, tuple_
from sqlalchemy.orm import Session

from preferl.errors import FeedbackError, require_one_of
from preferl.store import statements
from preferl.store.database import Database, clock
from preferl.store.queue import record_answer
from preferl.store.schema import (
    COUNTED,
    Annotator,
    Answer,
    Event,
    Prediction,
    Query,
    RewardVersion,
    preference_of,
)
from preferl.store.statements import LATEST

Show = Literal["all", "differing", "surprising", "withdrawn"]
"""Which answers to list.

They are all answers, newest first; those to queries whose answers differ; those that contradict the
newest reward, most surprising first; or those withdrawn or undone.
"""

PAGE: Final = 25  # answers on a page
MOST_COUNTED: Final = 10_000  # answers at which counting a list stops


@final
@dataclass(frozen=True)
class GivenAnswer:
    """An answer with its query, its annotator and the prediction of the newest reward.

    Attributes:
        answer: the row.
        query: the query that it answers.
        name: name of the annotator.
        predicted: probability that the left clip is preferred, as the person saw the sides; None
            if the newest reward predicted nothing here.
    """

    answer: Answer
    query: Query
    name: str
    predicted: float | None

    @property
    def sides(self) -> tuple[str, str]:
        """Names of the clips on the left and on the right, as the person saw them."""
        return self.query.sides(self.answer.swapped)

    @property
    def counts(self) -> bool:
        """Whether the answer counts: it was neither withdrawn nor undone."""
        return self.answer.kind in COUNTED


@final
@dataclass(frozen=True)
class AnswerPage:
    """A page of a list of answers, and the length of the list.

    `has_previous` and `has_next` tell whether there are pages before and after it. Counting stops
    after `MOST_COUNTED`. A larger `total` only means that there are more than that.
    """

    answers: tuple[GivenAnswer, ...]
    total: int
    has_previous: bool = False
    has_next: bool = False


@final
class GivenAnswers:
    """Lists, withdraws and corrects the answers of a store, for people who run a study."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(
        self,
        project_id: int,
        *,
        show: Show = "all",
        annotator_id: int | None = None,
        before: int | None = None,
        after: int | None = None,
        size: int = PAGE,
    ) -> AnswerPage:
        """Return a page with the latest answer of each person to each query, without skips.

        The database filters, sorts and cuts. Pages use keyset pagination: a page begins next to the
        last answer of its neighbour, so late pages cost no more than the first. If that answer is
        not in the list, the first page is returned.

        Args:
            project_id: the project.
            show: which answers, and in which order.
            annotator_id: number of the person whose answers are listed; None lists everybody's.
            before: number of an answer; the page that ends just before it is returned.
            after: number of an answer; the page that begins just after it is returned. If neither
                is given, it is the first page.
            size: number of answers on a page.

        Raises:
            ConfigError: `show` is unknown.
        """
        require_one_of("show", show, Show)
        listed = _listed(project_id, show)
        if annotator_id is not None:
            listed = listed.where(Answer.annotator_id == annotator_id)
        counted_ids = listed.with_only_columns(Answer.id).limit(MOST_COUNTED + 1)
        keys = _KEYS[show]
        anchor_id = before if after is None else after
        anchor_row = _rows(project_id).with_only_columns(*keys).where(Answer.id == anchor_id)
        with self._database.read() as session:
            total = int(
                session.scalar(select(func.count()).select_from(counted_ids.subquery())) or 0
            )
            anchor_keys = None if anchor_id is None else session.execute(anchor_row).first()
            has_anchor = anchor_keys is not None and None not in anchor_keys
            backwards = has_anchor and after is None
            if anchor_keys is not None and has_anchor:
                sort_key = tuple_(*keys)
                listed = listed.where(
                    sort_key > tuple(anchor_keys) if backwards else sort_key < tuple(anchor_keys)
                )
            order = (key.asc() if backwards else key.desc() for key in keys)
            rows = session.execute(listed.order_by(*order).limit(size + 1)).all()
        answers = tuple(_given_answer(*row) for row in rows[:size])
        has_more = len(rows) > size
        if backwards:
            return AnswerPage(answers[::-1], total, has_previous=has_more, has_next=True)
        return AnswerPage(answers, total, has_previous=has_anchor, has_next=has_more)

    def get(self, project_id: int, answer_id: int) -> GivenAnswer | None:
        """Return a project's answer by its number, even if it does not count; None if unknown."""
        rows = self._database.rows(_rows(project_id).where(Answer.id == answer_id))
        return _given_answer(*rows[0]) if rows else None

    def history(self, project_id: int, query_id: int) -> Sequence[GivenAnswer]:
        """Return every answer ever given to a query, oldest first, including withdrawn ones."""
        answers = _rows(project_id).where(Answer.query_id == query_id).order_by(Answer.id)
        return [_given_answer(*row) for row in self._database.rows(answers)]

    def withdraw(self, project_id: int, answer_id: int, *, by: int, key: str) -> int:
        """Withdraw an answer, so that it no longer counts; its query may then wait for another one.

        The answer's row stays. A new row of the kind `"retract"` names the person who withdrew it.
        Sending the same `key` again changes nothing.

        Args:
            project_id: the project.
            answer_id: number of an answer that counts.
            by: number of the person who withdraws it.
            key: names this change, and is chosen by the sender.

        Returns:
            The number of the new row.

        Raises:
            FeedbackError: the answer does not exist or does not count. Nothing is changed then.
        """
        return self._change(project_id, answer_id, by, key, None)

    def correct(self, project_id: int, answer_id: int, *, by: int, key: str, kind: str) -> int:
        """Withdraw an answer and record another one in the name of the person who corrects it.

        The correction never has the name of the first annotator. Earlier corrections of the same
        answer, by anybody, are withdrawn, so that only the latest counts. An earlier answer of `by`
        to the query is withdrawn too, since each person has only one. All rows stay. If the answer
        was withdrawn before, only the new one is recorded.

        Args:
            project_id: the project.
            answer_id: number of the latest answer of its person to a query.
            by: number of the person who corrects it.
            key: names this change, and is chosen by the sender. Sending it again changes nothing.
            kind: `"left"`, `"right"`, `"equal"` or `"cannot_tell"`, of the sides as the first
                annotator saw them.

        Returns:
            The number of the new answer.

        Raises:
            FeedbackError: the answer does not exist or has changed, it belongs to a repeated query,
                which only its own annotator can answer, or the kind is unknown. Nothing is changed
                then.
        """
        if kind not in COUNTED:
            raise FeedbackError(f"answer: expected one of {COUNTED}, got {kind!r}.")
        return self._change(project_id, answer_id, by, key, kind)

    def _change(self, project_id: int, answer_id: int, by: int, key: str, kind: str | None) -> int:
        """Correct an answer, or withdraw it if `kind` is None; log the event with the change."""
        if not 8 <= len(key) <= 90:
            raise FeedbackError(f"key: expected 8 to 90 letters, got {len(key)}.")
        with self._database.write() as session:
            answer, query = _locked(session, project_id, answer_id, by)
            if (earlier_id := _by_key(session, project_id, key)) is not None:
                return earlier_id
            history = list(session.scalars(_TO_QUERY, {"query_id": query.id}))
            latest = {row.annotator_id: row for row in history}
            if latest[answer.annotator_id] is not answer:
                raise FeedbackError(
                    "answer: expected the latest of its person, got one that has changed."
                )
            if kind is not None:
                recorded = _correct(session, query, answer, history, by=by, key=key, kind=kind)
            elif answer.kind in COUNTED:
                recorded = _retract(session, query, answer, by, key)
            else:
                raise FeedbackError(
                    "answer: expected an answer that counts, got one that was withdrawn."
                )
            name = session.get_one(Annotator, answer.annotator_id).name
            event = Event(
                project_id=project_id,
                annotator_id=by,
                kind="withdrew" if kind is None else "corrected",
                at=clock(session),
                detail={"name": name, "query": query.id, "answer": answer_id},
            )
            session.add(event)
            return recorded.id


def _rows(project_id: int) -> Select[*tuple[Any, ...]]:
    """SQL: answers with their queries, annotators' names and predictions of the newest reward."""
    newest_version = (
        select(func.max(RewardVersion.version))
        .where(RewardVersion.project_id == project_id)
        .scalar_subquery()
    )
    answered_query = func.coalesce(Query.repeat_of, Query.id)
    is_newest_prediction = and_(
        Prediction.query_id == answered_query, Prediction.version == newest_version
    )
    return (
        select(Answer, Query, Annotator.name, Prediction.preference)
        .join(Query, Query.id == Answer.query_id)
        .join(Annotator, Annotator.id == Answer.annotator_id)
        .outerjoin(Prediction, is_newest_prediction)
        .where(Answer.project_id == project_id)
    )


def _listed(project_id: int, show: Show) -> Select[*tuple[Any, ...]]:
    rows = _rows(project_id).where(Answer.kind != "skip", LATEST)
    if show == "differing":
        return rows.where(Answer.kind.in_(COUNTED), Answer.query_id.in_(_differing(project_id)))
    if show == "surprising":
        return rows.where((Answer.preference - 0.5) * (Prediction.preference - 0.5) < 0)
    if show == "withdrawn":
        return rows.where(Answer.kind == "retract")
    return rows


def _differing(project_id: int) -> Select[int]:
    """SQL: queries whose counted answers differ; "cannot tell" differs from a preference."""
    preference = func.coalesce(Answer.preference, -1.0)
    return (
        select(Answer.query_id)
        .where(Answer.project_id == project_id, Answer.kind.in_(COUNTED), LATEST)
        .group_by(Answer.query_id)
        .having(func.min(preference) != func.max(preference))
        .correlate(None)
    )


_KEYS: Final[dict[Show, tuple[ColumnElement[Any], ...]]] = {
    "all": (Answer.id.expression,),
    "withdrawn": (Answer.id.expression,),
    "differing": (Answer.query_id.expression, Answer.id.expression),
    "surprising": (func.abs(Answer.preference - Prediction.preference), Answer.id.expression),
}
"""Sort keys of each list, greatest first; no two answers have the same keys."""

_TO_QUERY: Final = select(Answer).where(Answer.query_id == statements.QUERY).order_by(Answer.id)


def _given_answer(
    answer: Answer, query: Query, name: str, first_preferred: float | None
) -> GivenAnswer:
    left_preferred = (
        None
        if first_preferred is None
        else 1 - first_preferred
        if answer.swapped
        else first_preferred
    )
    return GivenAnswer(answer, query, name, left_preferred)


def _by_key(session: Session, project_id: int, key: str) -> int | None:
    """Return the number of the row that an earlier change with this key added, or None."""
    answer = session.scalar(select(Answer).where(Answer.key == key))
    if answer is None:
        return None
    if answer.project_id != project_id:
        raise FeedbackError("key: expected a key of this project, got another's.")
    return answer.id


def _locked(session: Session, project_id: int, answer_id: int, by: int) -> tuple[Answer, Query]:
    """Lock an answer and its query for this transaction, and return both.

    Other requests wait until the transaction is over if they come from the person who changes the
    answer, or from anybody who has answered the query. Annotators are locked before the query, as
    in the queue.
    """
    answer = session.get(Answer, answer_id)
    if answer is None or answer.project_id != project_id or answer.kind == "skip":
        raise FeedbackError(f"answer: expected an answer in this project, got number {answer_id}.")
    history = session.scalars(_TO_QUERY, {"query_id": answer.query_id})
    for person in sorted({by, *(row.annotator_id for row in history)}):
        session.scalar(statements.ALONE, {"annotator_id": person})
    return answer, session.get_one(Query, answer.query_id, with_for_update=True)


def _correct(
    session: Session,
    query: Query,
    answer: Answer,
    history: Sequence[Answer],
    *,
    by: int,
    key: str,
    kind: str,
) -> Answer:
    """Withdraw the answers that a correction replaces, and record it; `history` is the query's."""
    if query.for_annotator not in (None, by):
        raise FeedbackError("answer: expected an answer to a query of everybody, got a repeat.")
    own_answers = [row for row in history if row.annotator_id == answer.annotator_id]
    counted_answers = [answer, *(row for row in own_answers if row.kind in COUNTED)]
    # from the last answer that counted, since `answer` may only withdraw another one
    corrected = counted_answers[-1].key
    latest = {row.annotator_id: row for row in history}
    for count, row in enumerate(latest.values()):
        is_earlier_correction = (row.detail or {}).get("corrects") == corrected
        if row.kind in COUNTED and (
            row is answer or row.annotator_id == by or is_earlier_correction
        ):
            _retract(session, query, row, by, f"{key}-{count}")
    return record_answer(
        session,
        query,
        answer,
        annotator_id=by,
        granted_at=None,
        key=key,
        kind=kind,
        preference=preference_of(kind, answer.swapped),
        answered_at=clock(session),
        detail={"corrects": corrected},
    )


def _retract(session: Session, query: Query, answer: Answer, by: int, key: str) -> Answer:
    return record_answer(
        session,
        query,
        answer,
        key=key,
        kind="retract",
        answered_at=clock(session),
        detail={"withdraws": answer.key, "by": by},
    )
