"""Every page in light and dark, at a desk and on a phone, against the rules that axe knows."""

from importlib.resources import files

import pytest

from helpers.answering_page import next_pair, pair, watched

pytestmark = pytest.mark.browser

SIZES = {"desk": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}


def faults(page):
    """What axe finds serious or critical, as its rule and the place."""
    if not page.evaluate("'axe' in window"):
        script = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        page.evaluate(script)
    found = page.evaluate(
        """() => axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa',
             'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then((r) => r.violations)"""
    )
    return [
        (fault["id"], node["html"][:120])
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def faults_anywhere(page):
    """The same in every size and scheme, with both named."""
    found = []
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # colours do not fade
            found += [(size, scheme, *fault) for fault in faults(page)]
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    return found


def test_axe_finds_what_is_wrong(person, study):
    page = person(study.people["ann"][1], read=False)
    page.evaluate("document.querySelector('#scrub').removeAttribute('aria-label')")
    page.evaluate("document.querySelector('html').removeAttribute('lang')")
    assert "html-has-lang" in {rule for rule, _ in faults(page)}


@pytest.mark.slow
def test_axe_finds_what_is_wrong_in_the_dark_on_a_phone_alone(person, study):
    page = person(study.people["ann"][1], read=False)
    page.evaluate(
        """() => {
          const faint = new CSSStyleSheet();
          faint.replaceSync(`@media (prefers-color-scheme: dark) and (max-width: 400px) {
            #instructions * { color: #333 !important; background: #222 !important; } }`);
          document.adoptedStyleSheets = [faint];
        }"""
    )
    found = faults_anywhere(page)
    assert {fault[:3] for fault in found} == {("phone", "dark", "color-contrast")}


@pytest.mark.slow
def test_the_answering_page(study, person):
    study.ask(2)
    study.ask(1, purpose="example", known=[1.0], details=[{"note": "Up is good."}])
    page = person(study.people["ann"][1], read=False)
    page.wait_for_selector("#instructions[open]")
    assert faults_anywhere(page) == []
    page.keyboard.press("Enter")
    page.wait_for_selector("#pair.may")
    assert faults_anywhere(page) == []
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    assert faults_anywhere(page) == []
    page.keyboard.press("Escape")
    watched(page)
    first = pair(page)
    page.keyboard.press("ArrowLeft")
    next_pair(page, first)
    watched(page)
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("#waiting:visible")
    assert faults_anywhere(page) == []


@pytest.mark.slow
def test_the_other_pages(study, person, address):
    study.store.reports.publish_reward(
        study.project.id, 1, answers=9, accuracy=0.7, interval=(0.4, 0.9)
    )
    page = person(study.owner, read=False, expected=("404", "401"))
    for path in ("/episode", "/admin", "/nothing"):
        page.goto(f"{address}{path}")
        assert faults_anywhere(page) == [], path
    page.goto(f"{address}/admin")
    page.get_by_label("Name", exact=True).fill("Cleo")
    page.get_by_role("button", name="Make a link").click()
    page.get_by_label("Personal link of Cleo").wait_for()
    assert faults_anywhere(page) == []
    page.get_by_label("owner: menu").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("Open your personal link").wait_for()
    assert faults_anywhere(page) == []
    once = study.store.people.invite(study.project.id, "Dee", uses=1).secret
    page.goto(f"{address}/join/{once}")
    page.get_by_role("button", name="Continue as Dee").wait_for()
    assert faults_anywhere(page) == []
