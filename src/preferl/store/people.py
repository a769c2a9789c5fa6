"""People of a project: names, personal links, roles, sign-ins, and whether they may still answer.

Models that answer as people do are among them. They have their own names, and no link.

A link holds a random secret, of which the store keeps only a digest. Whoever has the link is taken
for the person. Names that look like `owner` are refused in every alphabet. The look-alike letters
follow the skeletons of Unicode Technical Standard 39 (Unicode Security Mechanisms).
"""

import hashlib
import hmac
import re
import secrets
import unicodedata
from collections.abc import Callable
from typing import Final, NamedTuple, final

from sqlalchemy import ColumnElement, Select, and_, case, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from preferl.errors import ConfigError, DataError, require_in, require_one_of
from preferl.store.database import Database, clock, now
from preferl.store.schema import Allowance, Annotator, Project, Role, SignIn

# newest sign-ins kept per person; older ones end, so that no link fills the database
KEPT: Final = 100
LONGEST_NAME: Final = 80  # letters
OWNER: Final = "owner"  # name of the admin who works on the machine of the store

LOOKS_LIKE: Final = {
    letter: latin
    for latin, letters in {
        "o": "οσоօס०০੦૦௦ధ౦೦൦๐໐ဝ០ჿᴏഠଠⲟ𐓪𐐬ꬽθⵔ○◯●〇",
        "w": "ωшщԝѡѿաɯʍᴡⲱꞷᏔᎳ",
        "n": "ηпиոռղɴᴎᥒⲡℼ",
        "e": "εеєэҽҿəɛɜɘᴇⅇ℮ⲉꬲꞓᎬꭼ",
        "r": "гґяᴦᴙʀʁɼɽɾꭇꭈⲅᎡᏒꭱꮢᖇ",
    }.items()
    for letter in letters
}
"""Letters of other alphabets, by the letter of `owner` that they look like."""

DIGITS: Final = {"0": "o", "3": "e"}

LETTER: Final = re.compile(r"\bLETTER (?:[A-Z-]+ )*?([A-Z])(?: WITH .*)?$")
"""Finds the plain letter in Unicode's name of a letter with strokes, hooks or circles."""


def tidy(name: str) -> str:
    """Return a name as the store keeps it: without outer spaces, and with single inner spaces."""
    return " ".join(name.split())


def is_name(name: str) -> bool:
    """Whether a name is tidy, can be printed, and has 1 to `LONGEST_NAME` letters."""
    return name == tidy(name) and name.isprintable() and 1 <= len(name) <= LONGEST_NAME


def require_name(name: str) -> str:
    """Return a tidied name for an import; raise `DataError` if it is empty or like the owner's."""
    if not is_name(name):
        raise DataError(f"annotator: expected 1 to {LONGEST_NAME} letters, got {repr(name)[:100]}.")
    if looks_like_owner(name):
        raise DataError(
            f"annotator: expected a name that is not the owner's, got {name!r}. The owner of this "
            "store gave none of these answers: name their annotator with --name."
        )
    return name


def refuse_owner(name: str) -> None:
    """Raise `ConfigError` for a name that people could take for the owner's.

    >>> refuse_owner("Owen")
    """
    if looks_like_owner(name):
        raise ConfigError(
            f'name: expected one that nobody takes for "{OWNER}", who runs this server, got '
            f"{name[:100]!r}. Choose another name. `preferl annotate serve` shows the owner's link."
        )


def looks_like_owner(name: str) -> bool:
    """Whether a name reads as `owner`, even in other alphabets, or with marks, spaces or digits.

    >>> looks_like_owner("Ｏｗｎｅｒ"), looks_like_owner("0WNER."), looks_like_owner("Owner of it")
    (True, True, False)
    """
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    return "".join(map(_latin, plain)).replace("vv", "w") == OWNER


def _latin(letter: str) -> str:
    """Return the Latin letter that a letter looks like; "" for an invisible letter."""
    if letter in LOOKS_LIKE:
        return LOOKS_LIKE[letter]
    if letter.isascii():
        return DIGITS.get(letter, letter if letter.isalnum() else "")
    if unicodedata.digit(letter, None) == 0:
        return "o"
    name = unicodedata.name(letter, "")
    if match := LETTER.search(name):
        return match[1].lower()
    return letter if unicodedata.category(letter)[0] in "LN" and "FILLER" not in name else ""


class Invitation(NamedTuple):
    """A person and the secret of their link, which cannot be looked up later."""

    annotator: Annotator
    secret: str


@final
class People:
    """The annotators of a store, and the browsers in which they are signed in."""

    def __init__(self, database: Database, key: Callable[[], bytes]) -> None:
        self._database = database
        self._key = key  # returns the store's secret, from which the owner's secret is derived

    def invite(
        self,
        project_id: int,
        name: str,
        role: Role = "annotator",
        *,
        hours: float | None = None,
        uses: int | None = None,
    ) -> Invitation:
        """Invite a person and return their link. The link of an earlier invitation ends.

        The link opens for `hours`, and `uses` times; None sets no limit. Sessions that it opened
        may last longer than `hours`.

        Raises:
            ConfigError: the name is empty, longer than 80 letters or like the owner's; the role or
                project is unknown; or a number is not above zero.
        """
        refuse_owner(name)
        require_in("hours", 1.0 if hours is None else hours, 1e-3, 24 * 3650)
        require_in("uses", 1 if uses is None else uses, 1, 1_000_000)
        return self._admit(project_id, name, role, secrets.token_urlsafe(24), hours, uses)

    def model(self, project_id: int, name: str) -> Annotator:
        """Return the model that answers under this name; add it if the name is new.

        Nobody gets a link to answer in its name.

        Raises:
            ConfigError: a person has this name, or `invite` refuses it.
        """
        refuse_owner(name)
        existing = self._database.first(_named(project_id, tidy(name)))
        if existing is not None and existing.is_model:
            return existing
        secret = secrets.token_urlsafe(24)
        return self._admit(project_id, name, "annotator", secret, is_model=True).annotator

    def revoke(self, project_id: int, name: str) -> Annotator:
        """End the link of a person and all their sessions. A new invitation lets them in again.

        `ConfigError` is raised if nobody has this name, or if it is the owner's.
        """
        refuse_owner(name)
        with self._database.write() as session:
            annotator = session.scalar(_named(project_id, name := tidy(name)))
            if annotator is None:
                raise ConfigError(f"name: expected somebody here, got {name[:100]!r}.")
            _change_link(session, annotator, secrets.token_urlsafe(24))
        return annotator

    def owner(self, project_id: int) -> Invitation:
        """Return the admin on this machine. Their link never changes."""
        secret = hmac.new(self._key(), f"owner of {project_id}".encode(), hashlib.sha256)
        return self._admit(project_id, OWNER, "admin", secret.hexdigest())

    def by_secret(self, secret: str) -> Annotator | None:
        """Return the person whose link has this secret; None if they may not answer any more."""
        return self._database.first(select(Annotator).where(_opens(secret)))

    def get(self, annotator_id: int) -> Annotator:
        """Return the person of this number; raise `ConfigError` if there is none."""
        with self._database.read() as session:
            return _existing(session, annotator_id)

    def all(self, project_id: int) -> list[Annotator]:
        """Return everybody in a project, oldest first."""
        people = select(Annotator).where(Annotator.project_id == project_id)
        return self._database.all(people.order_by(Annotator.id))

    def update(
        self,
        annotator_id: int,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        qualified: bool | None = None,
    ) -> Annotator:
        """Change a person's role or rights, unless None.

        Raise `ConfigError` if they are unknown.
        """
        with self._database.write() as session:
            annotator = _existing(session, annotator_id)
            if role is not None:
                require_one_of("role", role, Role)
                annotator.role = role
            time = clock(session)
            if disabled is not None:
                annotator.disabled_at = time if disabled else None
            if qualified is not None:
                annotator.qualified_at = time if qualified else None
        return annotator

    def sign_in(
        self, secret: str, *, instead_of: str | None = None
    ) -> tuple[Annotator, str] | None:
        """Sign in by the secret of a link; return its person and the token of a new session.

        This counts as one use of the link. The store keeps only a digest of the token. The
        browser's former session, whose token is `instead_of`, ends. If the link is unknown, has
        expired or is used up, None is returned.
        """
        token = secrets.token_urlsafe(24)
        with self._database.write() as session:
            annotator = session.scalar(select(Annotator).where(_opens(secret)).with_for_update())
            if annotator is None:
                return None
            if annotator.link_uses is not None:
                annotator.link_uses -= 1
            session.add(
                SignIn(
                    annotator_id=annotator.id, token_hash=_digest(token), began_at=clock(session)
                )
            )
            if instead_of is not None:
                _end(session, SignIn.token_hash == _digest(instead_of))
            session.flush()
            is_own = SignIn.annotator_id == annotator.id
            newest_sign_in = select(SignIn.id).where(is_own).order_by(SignIn.id.desc())
            oldest = newest_sign_in.offset(KEPT).limit(1).scalar_subquery()
            session.execute(delete(SignIn).where(is_own, SignIn.id <= oldest))
        return annotator, token

    def by_token(self, token: str) -> Annotator | None:
        """Return the person of a session; None if the session or the person's access has ended."""
        people = select(Annotator).join(SignIn).where(Annotator.disabled_at.is_(None))
        return self._database.first(
            people.where(SignIn.token_hash == _digest(token), SignIn.ended_at.is_(None))
        )

    def sign_out(self, token: str) -> None:
        """Sign out of one browser."""
        with self._database.write() as session:
            _end(session, SignIn.token_hash == _digest(token))

    def last_sign_ins(self, project_id: int) -> dict[int, float]:
        """Return when each person of a project last opened their link, by the person's number."""
        sign_ins = (
            select(SignIn.annotator_id, func.max(SignIn.began_at))
            .join(Annotator)
            .where(Annotator.project_id == project_id)
            .group_by(SignIn.annotator_id)
        )
        return {
            number: float(signed_in_at) for number, signed_in_at in self._database.rows(sign_ins)
        }

    def take_allowance(
        self, what: str, who: str, per_second: float, burst: float, *, count: int = 1
    ) -> bool:
        """Take `count` requests of the kind `what` from an allowance; false if fewer are left.

        Everybody's allowance begins at `burst`. It grows by `per_second` each second, up to
        `burst`.
        """
        seconds_since = now() - Allowance.at
        seconds_since = case(
            (seconds_since < 0, 0.0), else_=seconds_since
        )  # otherwise the clock was set back
        grown = Allowance.left + seconds_since * per_second
        left = case((grown > burst, burst), else_=grown)
        allowance = (
            update(Allowance)
            .where(Allowance.what == what, Allowance.who == who, left >= count)
            .values(left=left - count, at=now())
            .returning(Allowance.left)
            .execution_options(synchronize_session=False)
        )
        try:
            with self._database.write(durable=False) as session:
                if session.execute(allowance).first() is not None:
                    return True
                if session.get(Allowance, (what, who)) is not None:
                    return False
                session.add(Allowance(what=what, who=who, left=burst - count, at=clock(session)))
        except IntegrityError:  # another server just now took the same person's first request
            return self.take_allowance(what, who, per_second, burst, count=count)
        return True

    def forget_allowances(self, seconds: float = 86_400.0) -> None:
        """Delete allowances unused for `seconds`: they have grown back to their limit."""
        with self._database.write(durable=False) as session:
            session.execute(delete(Allowance).where(Allowance.at < clock(session) - seconds))

    def _admit(
        self,
        project_id: int,
        name: str,
        role: Role,
        secret: str,
        hours: float | None = None,
        uses: int | None = None,
        *,
        is_model: bool = False,
    ) -> Invitation:
        if not is_name(name := tidy(name)):
            raise ConfigError(f"name: expected 1 to {LONGEST_NAME} letters, got {name[:100]!r}.")
        require_one_of("role", role, Role)

        def admit() -> Annotator:
            with self._database.write() as session:
                if session.get(Project, project_id) is None:
                    raise ConfigError(
                        f"project: expected the number of a project, got {project_id}."
                    )
                annotator = session.scalar(_named(project_id, name))
                time = clock(session)
                if annotator is None:
                    annotator = Annotator(
                        project_id=project_id, name=name, created_at=time, is_model=is_model
                    )
                    session.add(annotator)
                elif annotator.is_model != is_model:
                    raise ConfigError(
                        f"name: expected one that no {'person' if is_model else 'model'} has, got "
                        f"{name!r}. Choose another name: people and models have different names."
                    )
                annotator.role = role
                annotator.disabled_at = None
                annotator.link_uses = uses
                annotator.link_expires_at = None if hours is None else time + 3600 * hours
                _change_link(session, annotator, secret)
                session.flush()
            return annotator

        try:
            return Invitation(admit(), secret)
        except IntegrityError:  # another program added this person just now
            return Invitation(admit(), secret)


def _opens(secret: str) -> ColumnElement[bool]:
    """SQL: whether a secret is that of a person's link, and the link opens now."""
    return and_(
        Annotator.secret_hash == _digest(secret),
        Annotator.disabled_at.is_(None),
        or_(Annotator.link_expires_at.is_(None), Annotator.link_expires_at > now()),
        or_(Annotator.link_uses.is_(None), Annotator.link_uses > 0),
    )


def _named(project_id: int, name: str) -> Select[Annotator]:
    return select(Annotator).where(Annotator.project_id == project_id, Annotator.name == name)


def _existing(session: Session, annotator_id: int) -> Annotator:
    annotator = session.get(Annotator, annotator_id)
    if annotator is None:
        raise ConfigError(f"annotator: expected the number of an annotator, got {annotator_id}.")
    return annotator


def _change_link(session: Session, annotator: Annotator, secret: str) -> None:
    """Give a person another link, and end the sessions that the old one opened."""
    if annotator.id is not None and annotator.secret_hash != _digest(secret):
        _end(session, SignIn.annotator_id == annotator.id)
    annotator.secret_hash = _digest(secret)


def _end(session: Session, whose: ColumnElement[bool]) -> None:
    session.execute(update(SignIn).where(whose, SignIn.ended_at.is_(None)).values(ended_at=now()))


def _digest(secret: str) -> str:
    """Return the digest that the store keeps of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
