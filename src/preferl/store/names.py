"""Names of people, and those that look like the owner's in whatever alphabet.

After the skeletons of Unicode Technical Standard 39 (Unicode Security Mechanisms), of which only
the letters of one word are needed here.
"""

import re
import unicodedata
from typing import Final

from preferl.errors import ConfigError, DataError

LONGEST_NAME: Final = 80

OWNER: Final = "owner"
"""Name of the admin who works on the machine of the store."""

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
"""Letters of other alphabets by the one of `owner` that they may be taken for."""

DIGITS: Final = {"0": "o", "3": "e"}

LETTER: Final = re.compile(r"\bLETTER (?:[A-Z-]+ )*?([A-Z])(?: WITH .*)?$")
"""The plain letter in the name that Unicode gives to one with strokes, hooks or circles."""


def tidy(name: str) -> str:
    """A name as it is kept: without spaces around it, and with single ones between."""
    return " ".join(name.split())


def is_name(name: str) -> bool:
    """Whether a name is tidy, can be printed, and is of 1 to `LONGEST_NAME` letters."""
    return name == tidy(name) and name.isprintable() and 1 <= len(name) <= LONGEST_NAME


def require_name(name: str) -> str:
    """A name that an import may give to somebody, as it is kept.

    Raises:
        DataError: without letters, of over `LONGEST_NAME`, or one like the owner's.
    """
    if not is_name(name):
        expected = f"1 to {LONGEST_NAME} letters"
        raise DataError.mismatch("annotator", expected=expected, got=repr(name)[:100])
    if looks_like_owner(name):
        fix = "The owner of this store gave none of them: say who did, with --name."
        raise DataError.mismatch(
            "annotator", expected="a name that is not the owner's", got=repr(name), fix=fix
        )
    return name


def refuse_owner(name: str) -> None:
    """Raise `ConfigError` for a name that people would take for the owner's.

    >>> refuse_owner("Owen")
    """
    if looks_like_owner(name):
        raise ConfigError.mismatch(
            "name",
            expected=f'one that nobody takes for "{OWNER}", who runs this server',
            got=repr(name[:100]),
            fix="Choose another one. The owner's link is shown by `preferl annotate serve`.",
        )


def looks_like_owner(name: str) -> bool:
    """Whether people would read `owner` here: full width, other alphabets, marks, spaces, digits.

    >>> looks_like_owner("Ｏｗｎｅｒ"), looks_like_owner("0WNER."), looks_like_owner("Owner of it")
    (True, True, False)
    """
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    return "".join(_latin(letter) for letter in plain).replace("vv", "w") == OWNER


def _latin(letter: str) -> str:
    """The letter that it may be taken for; nothing for what is no letter, or is not seen."""
    if letter in LOOKS_LIKE:
        return LOOKS_LIKE[letter]
    if letter.isascii():
        return DIGITS.get(letter, letter if letter.isalnum() else "")
    if unicodedata.digit(letter, None) == 0:
        return "o"
    name = unicodedata.name(letter, "")
    found = LETTER.search(name)
    if found:
        return found[1].lower()
    seen = unicodedata.category(letter)[0] in "LN" and "FILLER" not in name
    return letter if seen else ""
