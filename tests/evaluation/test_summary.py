"""Blocks of reports, in their places."""

from preferl.evaluation.findings import Finding
from preferl.evaluation.report import Report, render
from preferl.evaluation.summary import findings_sections


def test_findings_are_a_section_of_their_own() -> None:
    found = (Finding("at_chance", "It <guesses>.", ("ask more",)), Finding("stuck", "So.", ("go",)))
    (section,) = findings_sections(found)
    assert section.title == "What to look at"
    assert section.text == (
        "at_chance: It <guesses>. What to try: (1) ask more.",
        "stuck: So. What to try: (1) go.",
    )
    assert "It &lt;guesses&gt;." in render(Report("A run", sections=(section,)))


def test_where_nothing_was_found_there_is_none() -> None:
    assert findings_sections(()) == ()
