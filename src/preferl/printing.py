"""Make text from elsewhere safe to print, so that a terminal shows control codes as text.

Names of files, runs and people may contain sequences that change a terminal's title or write to its
clipboard. Errors, log messages and everything that commands print pass through here.
"""

import logging
import re
from typing import Final

UNSHOWN: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, with which sequences begin
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of the text after them
    "\u2028\u2029"  # ends of lines
    "\ud800-\udfff"  # halves of a character, and bytes of file names that are not text
    "]"
)
"""Characters that are shown as escapes; tabs and ends of lines are not among them."""


def harmless(text: str) -> str:
    r"""Return a text with escapes for characters that a terminal would obey or could not show.

    >>> harmless("title: \x1b]0;owned\x07")
    'title: \\x1b]0;owned\\x07'
    """
    return UNSHOWN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    r"""Return a harmless text on one line, for the cell of a table.

    >>> one_line("two\n words\x1b")
    'two words\\x1b'
    """
    return " ".join(harmless(text).split())


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module, with messages that are harmless to print."""
    logger = logging.getLogger(name)
    logger.addFilter(_make_harmless)
    return logger


def _make_harmless(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if UNSHOWN.search(message):
        record.msg = harmless(message)
        record.args = ()
    if record.exc_info:
        record.exc_text = harmless(logging.Formatter().formatException(record.exc_info))
    return True
