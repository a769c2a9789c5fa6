"""Text from elsewhere is shown by a terminal, and never obeyed."""

import logging

import pytest

from preferl.printing import get_logger, harmless, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;cm0gLXJm\x07", r"\x1b]52;c;cm0gLXJm\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("safe\rfatal\x08\x7f", r"safe\rfatal\x08\x7f"),
        ("a\u202etxt.exe\u2066", r"a\u202etxt.exe\u2066"),
        ("a\u2028b\udc80", r"a\u2028b\udc80"),
        ("two\nlines\tand – 日本語 · é", "two\nlines\tand – 日本語 · é"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text, shown):
    assert harmless(text) == shown
    assert one_line(text) == " ".join(shown.split())


def test_log_messages_and_their_tracebacks_are_harmless(caplog):
    logger = get_logger("preferl.some.module")
    logger.warning("%s of %d", "\x1b[2J", 3)
    try:
        raise ValueError("\x1b]0;owned\x07")
    except ValueError:
        logger.exception("It failed.")
    assert logging.getLogger("preferl.some.module") is logger
    assert caplog.messages == [r"\x1b[2J of 3", "It failed."]
    assert "\x1b" not in caplog.text
    assert r"ValueError: \x1b]0;owned\x07" in caplog.text
