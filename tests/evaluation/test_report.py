import re
from html.parser import HTMLParser

import numpy as np
import pytest

from preferl.errors import DataError, StorageError
from preferl.evaluation import Calibration, PolicyReport, RewardReport
from preferl.evaluation.plots import Curve
from preferl.evaluation.report import (
    Fact,
    Figure,
    Report,
    ReportTable,
    Section,
    Video,
    render,
    write_report,
)
from preferl.evaluation.summary import run_report

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """Checks that tags close in order, and keeps what the page is made of."""

    def __init__(self, page):
        super().__init__()
        self.open = []
        self.tags = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


EVIL = "<script>alert('x')</script>&\""

CALIBRATION = Calibration((0.2, 0.8), (0.25, 0.75), (10, 20), 0.05)


def full():
    return Report(
        title=EVIL,
        lead=EVIL,
        facts=(Fact(EVIL, EVIL, EVIL),),
        sections=(
            Section(
                EVIL,
                (EVIL,),
                (ReportTable(EVIL, (EVIL, "b"), ((EVIL, EVIL), ("c", "d")), emphasis=1),),
                (Video(b"\x00\x01", EVIL, EVIL, EVIL),),
                (Figure("<svg id='drawing'></svg>", EVIL, EVIL, half=True),),
            ),
        ),
        details={EVIL: {EVIL: EVIL, "deep": {"list": [1, 2], "none": None}}},
    )


def test_everything_is_shown_and_escaped():
    page = render(full())
    outline = Outline(page)
    assert not outline.all("script")
    assert page.count("&lt;script&gt;") == page.count("alert(") > 15
    assert "<svg id='drawing'></svg>" in page
    assert "deep.list" in outline.text
    assert "1, 2" in outline.text


def test_the_page_is_accessible_and_needs_nobody():
    page = render(full())
    outline = Outline(page)
    assert outline.all("html")[0]["lang"] == "en"
    (video,) = outline.all("video")
    assert {"controls", "loop", "muted", "playsinline"} <= set(video)
    assert video["src"] == "data:video/mp4;base64,AAE="
    assert video["aria-label"] == EVIL
    (drawing,) = (a for a in outline.all("div") if a.get("role") == "img")
    assert drawing["aria-label"] == EVIL
    assert [a["scope"] for a in outline.all("th")] == ["col", "col", "row", "row"]
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"(src|href)=[\"'](?!data:)", page)
    assert not re.search(r"https?://|@import|url\(", page)


def test_every_row_of_a_table_is_whole():
    with pytest.raises(DataError, match="2 cells"):
        ReportTable("t", ("a", "b"), (("1", "2"), ("3",)))


def test_write_is_atomic_and_errors_name_what_is_wrong(tmp_path):
    path = tmp_path / "deep" / "report.html"
    write_report(path, Report("First"))
    write_report(path, Report("Second"))
    assert "Second" in path.read_text(encoding="utf-8")
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(StorageError):
        write_report(path / "below-a-file.html", Report("Third"))


def reward_report(accuracy=0.8, decided=30):
    notes = ("epic: not given.",)
    return RewardReport(accuracy, decided, 2, 1, (0.6, 0.9), 0.5, CALIBRATION, 0.7, notes=notes)


def policies(rng):
    return {
        name: PolicyReport(mean + rng.normal(size=5), np.full(5, 200))
        for name, mean in {"random": -1200.0, "taught": -170.0, "oracle": -150.0}.items()
    }


def test_run_report_shows_the_whole_run(rng):
    steps = np.arange(3)
    report = run_report(
        "Run",
        policies=policies(rng),
        taught="taught",
        reward=reward_report(),
        controls={"random": reward_report(0.5)},
        curves=[Curve("taught", steps, -steps * 1.0)],
        curve_episodes=10,
        clips=[Video(b"", "Before", "hangs"), Video(b"", "After", "stands")],
        facts=[Fact("Comparisons", "200")],
    )
    text = Outline(render(report)).text
    for part in ("What the policy earns", "How it behaves", "How it learned", "80 %", "200"):
        assert part in text
    for part in ("the same 10 episodes each time", "episodes that nothing else used"):
        assert part in text
    for part in ("epic: not given.", "30 decided", "−1,200", "60 to 90 %", "0.700", "–"):
        assert part in text
    assert report.sections[0].tables[0].emphasis == 1


def test_run_report_leaves_out_what_is_not_there(rng):
    report = run_report(
        "Run", policies=policies(rng), taught="taught", reward=reward_report(None, 0)
    )
    assert [section.title for section in report.sections] == [
        "What the policy earns",
        "How good the reward is",
    ]
    assert report.sections[1].figures == ()
    Outline(render(report))
    with pytest.raises(DataError, match="taught"):
        run_report("Run", policies=policies(rng), taught="learned", reward=reward_report())


def test_success_is_shown_where_an_environment_reports_it(rng):
    known = policies(rng)
    known["taught"] = PolicyReport(np.zeros(4), np.full(4, 9), np.array([1, 1, 1, 0], bool))
    report = run_report("Run", policies=known, taught="taught", reward=reward_report())
    table = report.sections[0].tables[0]
    column = table.columns.index("success")
    assert [row[column] for row in table.rows] == ["–", "75 %", "–"]
    assert report.facts[1] == Fact("Success", "75 %", "random\u00a0– · oracle\u00a0–")
    report = run_report("Run", policies=policies(rng), taught="taught", reward=reward_report())
    assert "success" not in report.sections[0].tables[0].columns
    assert "Success" not in [fact.label for fact in report.facts]


def test_sections_and_tables_without_content_are_left_out():
    table = ReportTable("t", ("a",), ())
    report = Report(
        "A run", sections=(Section("Bare", tables=(table,)), Section("Said", ("Yes.",)))
    )
    assert [section.title for section in report.sections] == ["Said"]
