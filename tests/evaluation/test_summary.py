"""Blocks of reports, in their places."""

from preferl.evaluation import Finding
from preferl.evaluation.report import Report, render
from preferl.evaluation.summary import findings_section, trust_section


def test_findings_are_a_section_of_their_own():
    found = (Finding("at_chance", "It <guesses>.", ("ask more",)), Finding("stuck", "So.", ("go",)))
    assert findings_section(()).is_empty
    section = findings_section(found)
    assert section.title == "What to look at"
    assert section.text == (
        "at_chance: It <guesses>. What to try: (1) ask more.",
        "stuck: So. What to try: (1) go.",
    )
    assert "It &lt;guesses&gt;." in render(Report("A run", sections=(section,)))


def test_trust_is_a_table_by_name_with_half_its_interval():
    ann = {"value": 0.9, "low": 0.5, "high": 1.3, "answers": 1_040}
    bo = {"value": -0.25, "low": -0.5, "high": 0.0, "answers": 12}
    section = trust_section({"Ann <b>": ann, "Bo": bo})
    (table,) = section.tables
    assert table.columns == ("name", "answers", "trust")
    assert table.rows == (("Ann <b>", "1,040", "0.90 ± 0.40"), ("Bo", "12", "−0.25 ± 0.25"))
    assert "Ann &lt;b&gt;" in render(Report("A run", sections=(section,)))
    assert trust_section({}).is_empty
