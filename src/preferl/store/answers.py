"""Answers to look through, page by page, and to withdraw or correct; none is ever lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from sqlalchemy import Select, and_, exists, func, select
from sqlalchemy.orm import Session, aliased

from preferl.errors import FeedbackError, require_one_of
from preferl.store import statements
from preferl.store.database import Database, clock
from preferl.store.queue import record_answer
from preferl.store.schema import (
    COUNTED,
    Annotator,
    Answer,
    Prediction,
    Query,
    RewardVersion,
    preference_of,
)
from preferl.store.statements import LATEST

Show = Literal["all", "differing", "surprising", "withdrawn"]
"""All answers, the newest first; those to queries whose answers differ; those that the newest
reward predicts otherwise, the most surprising first; those that were withdrawn or undone."""

PAGE: Final = 25  # answers on a page


@final
@dataclass(frozen=True)
class GivenAnswer:
    """An answer, who gave it, to which query, and what the newest reward predicts.

    Attributes:
        answer: the row.
        query: what it answers.
        name: of the person.
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
        clips = self.query.first_clip, self.query.second_clip
        return (clips[1], clips[0]) if self.answer.swapped else clips

    @property
    def counts(self) -> bool:
        """Whether it was neither withdrawn nor undone; later answers are rows of their own."""
        return self.answer.kind in COUNTED


@final
@dataclass(frozen=True)
class AnswerPage:
    """Some of the answers that were asked for, and how many there are in all."""

    answers: tuple[GivenAnswer, ...]
    total: int


@final
class GivenAnswers:
    """The answers of a store as those see them who run a study."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(
        self,
        project_id: int,
        *,
        show: Show = "all",
        annotator_id: int | None = None,
        number: int = 1,
        size: int = PAGE,
    ) -> AnswerPage:
        """A page of the latest answers of people about queries, skips left out.

        The database filters, sorts and cuts: a page of 10,000 answers costs some milliseconds.

        Args:
            project_id: the project.
            show: which answers, and in which order.
            annotator_id: of one person only; None of everybody.
            number: of the page, from 1.
            size: answers on a page.

        Raises:
            ConfigError: an unknown `show`.
        """
        require_one_of("show", show, Show)
        chosen = _chosen(project_id, show).where(LATEST)
        if annotator_id is not None:
            chosen = chosen.where(Answer.annotator_id == annotator_id)
        some = chosen.order_by(*_ORDER[show]).offset((max(number, 1) - 1) * size).limit(size)
        count = select(func.count()).select_from(chosen.with_only_columns(Answer.id).subquery())
        with self._database.read() as session:
            answers = tuple(_given(*row) for row in session.execute(some))
            return AnswerPage(answers, int(session.scalar(count) or 0))

    def get(self, project_id: int, answer_id: int) -> GivenAnswer | None:
        """One answer of a project by its number, whether or not it counts; None without it."""
        with self._database.read() as session:
            found = session.execute(_rows(project_id).where(Answer.id == answer_id)).first()
        return None if found is None else _given(*found)

    def history(self, project_id: int, query_id: int) -> Sequence[GivenAnswer]:
        """All that anybody ever answered to a query, oldest first, withdrawn answers included."""
        given = _rows(project_id).where(Answer.query_id == query_id).order_by(Answer.id)
        with self._database.read() as session:
            return [_given(*row) for row in session.execute(given)]

    def withdraw(self, project_id: int, answer_id: int, *, by: int, key: str) -> int:
        """Let an answer no longer count; its query waits for one again.

        The answer stays, and a row of the kind `"retract"` follows it, with the number of
        who withdrew it. Sending the same `key` again changes nothing.

        Args:
            project_id: the project.
            answer_id: number of an answer that counts.
            by: number of the person who withdraws it.
            key: chosen by the sender for this change.

        Returns:
            The number of the new row.

        Raises:
            FeedbackError: no such answer, or one that does not count now; nothing is changed then.
        """
        with self._database.write() as session:
            if (known := _by_key(session, project_id, key)) is not None:
                return known
            answer = _standing(session, project_id, answer_id, by)
            counts, got = answer.kind in COUNTED, "one that was withdrawn"
            FeedbackError.check(counts, "answer", "one that counts", got)
            return _retract(session, answer, by, key)

    def correct(self, project_id: int, answer_id: int, *, by: int, key: str, kind: str) -> int:
        """Withdraw an answer and record another one in the name of who corrects it.

        So nobody has an answer in their name that they did not give. What the person had answered
        to the query before is withdrawn, too. An answer that was withdrawn is only followed by the
        new one.

        Args:
            project_id: the project.
            answer_id: number of the latest answer of its person to a query.
            by: number of the person who corrects it.
            key: chosen by the sender for this change; sending it again changes nothing.
            kind: `"left"`, `"right"`, `"equal"` or `"cannot_tell"`, of the sides as the person of
                the answer saw them.

        Returns:
            The number of the new answer.

        Raises:
            FeedbackError: no such answer, one that has changed, one to a repeated query, which
                only its person can answer, or an unknown kind; nothing is changed then.
        """
        FeedbackError.check(kind in COUNTED, "answer", f"one of {COUNTED}", repr(kind))
        with self._database.write() as session:
            if (known := _by_key(session, project_id, key)) is not None:
                return known
            answer = _standing(session, project_id, answer_id, by)
            query = session.get_one(Query, answer.query_id, with_for_update=True)
            own = query.for_annotator in (None, by)
            FeedbackError.check(own, "answer", "one to a query of everybody", "a repeat")
            if answer.kind in COUNTED:
                _retract(session, answer, by, f"{key}-1")
            mine = _latest(session, query.id, by)
            if mine is not None and mine.kind in COUNTED:
                _retract(session, mine, by, f"{key}-2")
            made = record_answer(
                *(session, query, answer),
                annotator_id=by,
                granted_at=None,
                key=key,
                kind=kind,
                preference=preference_of(kind, answer.swapped),
                answered_at=clock(session),
                detail={"corrects": answer.key},
            )
            return made.id


def _rows(project_id: int) -> Select[*tuple[Any, ...]]:
    """Answers with their queries, names and predictions, which are those of the newest reward."""
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
    rows = _rows(project_id).where(Answer.kind != "skip")
    if show == "differing":
        return rows.where(Answer.kind.in_(COUNTED), Answer.query_id.in_(_differing(project_id)))
    if show == "surprising":
        return rows.where((Answer.preference - 0.5) * (Prediction.preference - 0.5) < 0)
    return rows.where(Answer.kind == "retract") if show == "withdrawn" else rows


def _differing(project_id: int) -> Select[int]:
    """Queries whose answers that count are not all alike; one that cannot tell is another kind."""
    one, later = aliased(Answer), aliased(Answer)
    is_later = exists().where(
        later.query_id == one.query_id,
        later.annotator_id == one.annotator_id,
        later.id > one.id,
    )
    given = func.coalesce(one.preference, -1.0)
    return (
        select(one.query_id)
        .where(one.project_id == project_id, one.kind.in_(COUNTED), ~is_later)
        .group_by(one.query_id)
        .having(func.min(given) != func.max(given))
    )


_NEWEST: Final = (Answer.id.desc(),)
_ORDER: Final[dict[Show, tuple[Any, ...]]] = {
    "all": _NEWEST,
    "withdrawn": _NEWEST,
    "differing": (Answer.query_id.desc(), Answer.id.desc()),
    "surprising": (func.abs(Answer.preference - Prediction.preference).desc(), Answer.id.desc()),
}


def _given(answer: Answer, query: Query, name: str, first: float | None) -> GivenAnswer:
    left = None if first is None else 1 - first if answer.swapped else first
    return GivenAnswer(answer, query, name, left)


def _by_key(session: Session, project_id: int, key: str) -> int | None:
    """The row that a change with this key has made before."""
    FeedbackError.check(8 <= len(key) <= 90, "key", "8 to 90 letters", len(key))
    found = session.scalar(statements.BY_KEY, {"key": key})
    ours = found is None or found.project_id == project_id
    FeedbackError.check(ours, "key", "one of this project", "another's")
    return None if found is None else found.id


def _standing(session: Session, project_id: int, answer_id: int, by: int) -> Answer:
    """An answer that is the latest of its person about its query.

    Other requests of that person, and of who changes it, wait until this transaction is over.
    """
    answer = session.get(Answer, answer_id)
    if answer is None or answer.project_id != project_id or answer.kind == "skip":
        got = f"number {answer_id}"
        raise FeedbackError.mismatch("answer", expected="one of this project", got=got)
    for person in sorted({answer.annotator_id, by}):
        session.scalar(statements.ALONE, {"annotator_id": person})
    latest = _latest(session, answer.query_id, answer.annotator_id)
    same = latest is not None and latest.id == answer_id
    FeedbackError.check(same, "answer", "the latest of its person", "one that has changed since")
    return answer


def _latest(session: Session, query_id: int, annotator_id: int) -> Answer | None:
    of_them = (Answer.query_id == query_id, Answer.annotator_id == annotator_id)
    return session.scalar(select(Answer).where(*of_them).order_by(Answer.id.desc()).limit(1))


def _retract(session: Session, answer: Answer, by: int, key: str) -> int:
    query = session.get_one(Query, answer.query_id, with_for_update=True)
    detail = {"withdraws": answer.key, "by": by}
    about = {"key": key, "kind": "retract", "answered_at": clock(session), "detail": detail}
    return record_answer(session, query, answer, **about).id
