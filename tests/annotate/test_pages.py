"""The pages that people see: their words, their clips, and nothing that a browser would run."""

import re

import pytest

from helpers.page_requests import claim, form
from preferl.annotate.pages import HEADINGS, prose


def test_instructions_become_paragraphs_and_lists():
    text = "One\ntwo.\n\nFirst:\n- a & b\n* <c>\n1. d\n2) e\n\n"
    expected = (
        "<p>Onetwo.</p><p>First:</p><ul><li>a &amp; b</li></ul><ul><li>&lt;c&gt;</li></ul>"
        '<ol><li>d</li></ol><ol start="2"><li>e</li></ol>'
    )
    assert prose(text).replace("\n", "") == expected
    assert str(prose("")) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. one\n2. two", "<ol><li>one</li><li>two</li></ol>"),
        ("* one\n• two", "<ul><li>one</li><li>two</li></ul>"),
        ("-5 is less than 3", "<p>-5 is less than 3</p>"),
        ("1999 was long ago", "<p>1999 was long ago</p>"),
        ("<script>[a](javascript:b) `c` # d", "<p>&lt;script&gt;[a](javascript:b) `c` # d</p>"),
        ("one\n \t\n\n\ntwo", "<p>one</p><p>two</p>"),
        ("&amp; \"'", "<p>&amp;amp; &quot;'</p>"),
    ],
)
def test_prose_knows_lists_by_a_mark_and_a_space(text, expected):
    assert prose(text).replace("\n", "") == expected


def test_an_error_is_a_page_with_a_heading(ann, visitor):
    for browser, path, status in ((ann, "/nothing", 404), (visitor(), "/", 401)):
        reply = browser.get(path)
        assert reply.status_code == status
        assert f"<h1>{HEADINGS[status]}</h1>" in reply.text


def version_of(browser):
    return re.search(r'data-version="([0-9a-f]{16})"', browser.get("/").text)[1]


def test_instructions_have_a_version_that_changes_with_them(study, ann):
    before = version_of(ann)
    assert version_of(ann) == before
    study.update(title="Another title")
    assert version_of(ann) == before, "a title is nothing that people have to read again"
    study.update(instructions="Watch the door.")
    assert version_of(ann) != before


def test_clips_in_parts(study, ann):
    study.ask(1)
    address = claim(ann)["queries"][0]["left"]
    whole = ann.get(address)
    assert whole.status_code == 200
    assert whole.headers["content-type"] == "video/mp4"
    assert whole.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert whole.headers["x-content-type-options"] == "nosniff"
    part = ann.get(address, headers={"Range": "bytes=10-19"})
    assert part.status_code == 206
    assert part.headers["content-range"] == f"bytes 10-19/{len(whole.content)}"
    assert part.content == whole.content[10:20]
    far = {"Range": "bytes=99999999-"}
    assert ann.get(address, headers=far).status_code == 416


def test_clips_of_other_projects_are_not_shown(study, ann, store, visitor):
    study.ask(1)
    other = store.projects.create("other")
    stranger = visitor(store.people.invite(other.id, "zoe").secret)
    address = claim(ann)["queries"][0]["left"]
    assert ann.get(address).status_code == 200
    assert stranger.get(address).status_code == 404


def test_text_of_people_is_never_html(study, owner, visitor):
    evil = "<script>alert(1)</script>"
    study.update(title=evil, question=evil, instructions=f"- {evil}\n\n{evil}")
    name = '"><img src=x onerror=alert(1)>'
    reply = owner.post("/admin/invite", data=form(owner, name=name))
    assert reply.status_code == 200
    ann = visitor(study.invite(f"{evil}"))
    pages = [reply.text, ann.get("/").text, owner.get("/admin").text, owner.get("/episode").text]
    for text in pages:
        assert "<script>alert" not in text
        assert "<img" not in text
    assert "<li>&lt;script&gt;" in pages[1]


def test_pages_hold_nothing_inline(study, ann, owner):
    study.ask(1)
    for text in (ann.get("/").text, owner.get("/admin").text, owner.get("/episode").text):
        assert not re.search(r"<script(?![^>]*\bsrc=)", text)
        assert not re.search(r"\son[a-z]+=|\sstyle=|<style|javascript:", text)
        for address in re.findall(r'(?:src|href|action)="([^"]*)"', text):
            assert address.startswith(("/", "#")), address
