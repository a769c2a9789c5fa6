"""List answers page by page, and withdraw or correct them; no answer is ever deleted."""

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
"""Which answers to list: all, newest first; those to queries whose answers differ; those that
contradict the newest reward, the most surprising first; or those withdrawn or undone."""

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
    """One page of a list of answers, whether pages precede or follow it, and the list's length.

    Counting stops early: a `total` above `MOST_COUNTED` only says that there are more than that.
    """

    answers: tuple[GivenAnswer, ...]
    total: int
    has_before: bool = False
    has_after: bool = False


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

        The database filters, sorts and cuts. Pages use keyset pagination: each begins next to an
        answer of its neighbour, so that late pages cost no more than the first one. If that answer
        is not in the list, the first page is returned.

        Args:
            project_id: the project.
            show: which answers, and in which order.
            annotator_id: number of the person whose answers are listed; None lists everybody's.
            before: return the page that ends just before the answer of this number.
            after: return the page that begins just after the answer of this number. With neither,
                the first page is returned.
            size: answers on a page.

        Raises:
            ConfigError: an unknown `show`.
        """
        require_one_of("show", show, Show)
        chosen = _chosen(project_id, show)
        if annotator_id is not None:
            chosen = chosen.where(Answer.annotator_id == annotator_id)
        counted = chosen.with_only_columns(Answer.id).limit(MOST_COUNTED + 1)
        keys = _KEYS[show]
        beside = before if after is None else after
        anchor = _rows(project_id).with_only_columns(*keys).where(Answer.id == beside)
        with self._database.read() as session:
            total = int(session.scalar(select(func.count()).select_from(counted.subquery())) or 0)
            begin = None if beside is None else session.execute(anchor).first()
            begins = begin is not None and None not in begin
            backwards = begins and after is None
            if begin is not None and begins:
                place = tuple_(*keys)
                chosen = chosen.where(place > tuple(begin) if backwards else place < tuple(begin))
            order = (key.asc() if backwards else key.desc() for key in keys)
            rows = session.execute(chosen.order_by(*order).limit(size + 1)).all()
        answers = tuple(_given(*row) for row in rows[:size])
        more = len(rows) > size
        if backwards:
            return AnswerPage(answers[::-1], total, has_before=more, has_after=True)
        return AnswerPage(answers, total, has_before=begins, has_after=more)

    def get(self, project_id: int, answer_id: int) -> GivenAnswer | None:
        """Return a project's answer by its number, whether or not it counts; None if unknown."""
        rows = self._database.rows(_rows(project_id).where(Answer.id == answer_id))
        return _given(*rows[0]) if rows else None

    def history(self, project_id: int, query_id: int) -> Sequence[GivenAnswer]:
        """Return every answer ever given to a query, oldest first, withdrawn ones included."""
        given = _rows(project_id).where(Answer.query_id == query_id).order_by(Answer.id)
        return [_given(*row) for row in self._database.rows(given)]

    def withdraw(self, project_id: int, answer_id: int, *, by: int, key: str) -> int:
        """Withdraw an answer, so that it no longer counts; its query may then wait for another one.

        The answer's row stays. A new row of the kind `"retract"` names the person who withdrew it.
        Sending the same `key` again changes nothing.

        Args:
            project_id: the project.
            answer_id: number of an answer that counts.
            by: number of the person who withdraws it.
            key: chosen by the sender for this change.

        Returns:
            The number of the new row.

        Raises:
            FeedbackError: the answer does not exist or does not count; nothing is changed then.
        """
        return self._change(project_id, answer_id, by, key, None)

    def correct(self, project_id: int, answer_id: int, *, by: int, key: str, kind: str) -> int:
        """Withdraw an answer and record another one in the name of the person who corrects it.

        The correction never stands in the name of the first annotator. Earlier corrections of the
        same answer, by whomever, are withdrawn, so that only the latest counts. An earlier answer
        of `by` to the query is withdrawn too, since each person has one. All rows stay. If the
        answer was withdrawn before, only the new one is recorded.

        Args:
            project_id: the project.
            answer_id: number of the latest answer of its person to a query.
            by: number of the person who corrects it.
            key: chosen by the sender for this change; sending it again changes nothing.
            kind: `"left"`, `"right"`, `"equal"` or `"cannot_tell"`, of the sides as the first
                annotator saw them.

        Returns:
            The number of the new answer.

        Raises:
            FeedbackError: the answer does not exist, has changed, or belongs to a repeated query,
                which only its own annotator can answer; or the kind is unknown. Nothing is changed
                then.
        """
        if kind not in COUNTED:
            raise FeedbackError(f"answer: expected one of {COUNTED}, got {kind!r}.")
        return self._change(project_id, answer_id, by, key, kind)

    def _change(self, project_id: int, answer_id: int, by: int, key: str, kind: str | None) -> int:
        """Correct an answer, or withdraw it where `kind` is None, and log the event with it."""
        if not 8 <= len(key) <= 90:
            raise FeedbackError(f"key: expected 8 to 90 letters, got {len(key)}.")
        with self._database.write() as session:
            answer, query = _alone(session, project_id, answer_id, by)
            if (known := _by_key(session, project_id, key)) is not None:
                return known
            given = list(session.scalars(_TO_QUERY, {"query_id": query.id}))
            latest = {row.annotator_id: row for row in given}
            if latest[answer.annotator_id] is not answer:
                raise FeedbackError(
                    "answer: expected the latest of its person, got one that has changed since."
                )
            if kind is not None:
                recorded = _correct(session, query, answer, given, by=by, key=key, kind=kind)
            elif answer.kind in COUNTED:
                recorded = _retract(session, query, answer, by, key)
            else:
                raise FeedbackError("answer: expected one that counts, got one that was withdrawn.")
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
    """SQL: answers with their queries, annotators' names and the newest reward's predictions."""
    newest = (
        select(func.max(RewardVersion.version))
        .where(RewardVersion.project_id == project_id)
        .scalar_subquery()
    )
    asked = func.coalesce(Query.repeat_of, Query.id)
    is_newest = and_(Prediction.query_id == asked, Prediction.version == newest)
    return (
        select(Answer, Query, Annotator.name, Prediction.preference)
        .join(Query, Query.id == Answer.query_id)
        .join(Annotator, Annotator.id == Answer.annotator_id)
        .outerjoin(Prediction, is_newest)
        .where(Answer.project_id == project_id)
    )


def _chosen(project_id: int, show: Show) -> Select[*tuple[Any, ...]]:
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
    given = func.coalesce(Answer.preference, -1.0)
    return (
        select(Answer.query_id)
        .where(Answer.project_id == project_id, Answer.kind.in_(COUNTED), LATEST)
        .group_by(Answer.query_id)
        .having(func.min(given) != func.max(given))
        .correlate(None)
    )


_KEYS: Final[dict[Show, tuple[ColumnElement[Any], ...]]] = {
    "all": (Answer.id.expression,),
    "withdrawn": (Answer.id.expression,),
    "differing": (Answer.query_id.expression, Answer.id.expression),
    "surprising": (func.abs(Answer.preference - Prediction.preference), Answer.id.expression),
}
"""Sort keys of each list, the greatest first; no two answers have the same keys."""

_TO_QUERY: Final = select(Answer).where(Answer.query_id == statements.QUERY).order_by(Answer.id)


def _given(answer: Answer, query: Query, name: str, first: float | None) -> GivenAnswer:
    left = None if first is None else 1 - first if answer.swapped else first
    return GivenAnswer(answer, query, name, left)


def _by_key(session: Session, project_id: int, key: str) -> int | None:
    """Return the number of the row that an earlier change with this key made, or None."""
    answer = session.scalar(select(Answer).where(Answer.key == key))
    if answer is None:
        return None
    if answer.project_id != project_id:
        raise FeedbackError("key: expected one of this project, got another's.")
    return answer.id


def _alone(session: Session, project_id: int, answer_id: int, by: int) -> tuple[Answer, Query]:
    """Lock an answer and its query for this transaction, and return both.

    Other requests of the person who changes it, and of everybody who has answered the query, wait
    until the transaction is over. Annotators are locked before the query, as in the queue.
    """
    answer = session.get(Answer, answer_id)
    if answer is None or answer.project_id != project_id or answer.kind == "skip":
        raise FeedbackError(f"answer: expected one of this project, got number {answer_id}.")
    given = session.scalars(_TO_QUERY, {"query_id": answer.query_id})
    for person in sorted({by, *(row.annotator_id for row in given)}):
        session.scalar(statements.ALONE, {"annotator_id": person})
    return answer, session.get_one(Query, answer.query_id, with_for_update=True)


def _correct(
    session: Session,
    query: Query,
    answer: Answer,
    given: Sequence[Answer],
    *,
    by: int,
    key: str,
    kind: str,
) -> Answer:
    """Withdraw what a correction replaces, and record it; `given` is the query's history."""
    if query.for_annotator not in (None, by):
        raise FeedbackError("answer: expected one to a query of everybody, got a repeat.")
    own = [row for row in given if row.annotator_id == answer.annotator_id]
    counted = [answer, *(row for row in own if row.kind in COUNTED)]
    corrected = counted[-1].key  # the last answer that counted; `answer` may withdraw it
    latest = {row.annotator_id: row for row in given}
    for count, row in enumerate(latest.values()):
        earlier = (row.detail or {}).get("corrects") == corrected
        if row.kind in COUNTED and (row is answer or row.annotator_id == by or earlier):
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
