"""Clips in a browser: every frame, in step, seen before they are judged."""

import pytest

from helpers.answering_page import LOST, rows, until_answers, wait_in, watched

pytestmark = pytest.mark.browser

WHOLE = """() => window.preferl.player.clips.every(
  (clip) => clip.count && clip.frames.filter(Boolean).length === clip.count)"""
"""Whether all frames of a pair are there."""

NUMBERS = """() => {
  // The number that a picture tells, low bit first; see coded_video.
  const read = (id) => {
    const canvas = document.getElementById(id);
    const pen = canvas.getContext('2d');
    const wide = canvas.width / 6;
    return [0, 1, 2, 3, 4, 5].reduce((sum, bit) => {
      const at = pen.getImageData(Math.round((bit + 0.5) * wide), canvas.height / 2, 1, 1).data;
      return sum + (at[0] > 110 ? 1 << bit : 0);
    }, 0);
  };
  return [read('canvas-a'), read('canvas-b')];
}"""


@pytest.mark.slow
def test_an_answer_before_both_were_seen_is_refused(study, person):
    study.ask(1, steps=60)
    page = person(reduced_motion="reduce")  # it plays only on request
    button = page.get_by_role("button", name="A is better")
    page.wait_for_selector("#pair[aria-busy=false]")
    assert button.get_attribute("aria-disabled") == "true"
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(200)
    assert not rows(study)
    assert "Watch both clips" in page.locator("#announcement").text_content()
    assert "Watch both clips" in page.locator("#why").text_content()
    page.locator("#answers").focus()
    page.keyboard.press(" ")
    watched(page)
    assert button.get_attribute("aria-disabled") == "false"
    assert page.locator("#announcement").text_content() == "Both clips shown. Choose."


@pytest.mark.slow
def test_leaping_to_the_end_is_not_watching(study, person):
    study.ask(1, steps=60)
    page = person(reduced_motion="reduce")
    page.wait_for_selector("#pair[aria-busy=false]")
    page.wait_for_function(WHOLE)
    page.locator("#scrub").focus()
    page.keyboard.press("End")
    page.wait_for_function("() => window.preferl.frames().left === 59")
    page.wait_for_timeout(200)
    assert page.locator("#pair.may").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["decoder", "seeking"])
def test_every_frame_is_the_one_that_the_player_reports(study, person, decoder):
    study.ask(1, steps=30)
    init = "delete window.VideoDecoder" if decoder == "seeking" else None
    page = person(init=init)
    watched(page)
    page.keyboard.press("r")
    page.keyboard.press(" ")
    page.locator("#scrub").focus()
    page.keyboard.press("Home")
    page.locator("#answers").focus()
    page.wait_for_function(WHOLE)
    seen = []
    for _ in range(30):
        frames = page.evaluate("window.preferl.frames()")
        seen.append((page.evaluate(NUMBERS), [frames["left"], frames["right"]]))
        page.keyboard.press(".")
    assert seen == [([n, n], [n, n]) for n in range(30)]
    assert page.evaluate(NUMBERS) == [0, 0]  # on from the end is the beginning


@pytest.mark.slow
def test_clips_never_drift(study, person):
    study.ask(1, steps=60)
    page = person()
    watched(page)
    page.keyboard.press("]")
    seen = set()
    skew = []

    def looked():  # at three rounds, each of which begins at nought, and at most of the frames
        left, right = page.evaluate(NUMBERS)
        seen.add(left)
        skew.append(abs(left - right))
        return page.evaluate("window.preferl.player.loops") >= 3 and len(seen) > 30

    wait_in(page, looked, "three rounds, which take seconds", seconds=300)
    assert max(skew) == 0


@pytest.mark.slow
def test_the_shorter_clip_is_marked_as_ended(study, person):
    study.ask(1, video=False)
    study.film(10, 50)
    page = person(reduced_motion="reduce")
    counts = "window.preferl.player.clips.map(clip => clip.count)"
    page.wait_for_selector("#pair[aria-busy=false]")
    page.wait_for_function(WHOLE)
    for _ in range(20):
        page.keyboard.press(".")
    frames, count = page.evaluate(f"[window.preferl.frames(), {counts}]")
    short = "a" if count[0] == 10 else "b"
    long = "b" if short == "a" else "a"
    assert page.locator(f"#clip-{short} .ended").is_visible()
    assert page.locator(f"#clip-{long} .ended").is_hidden()
    assert frames["left" if short == "a" else "right"] == 9
    assert page.locator("#pair.may").count() == 0  # the longer one is not seen yet
    page.keyboard.press(" ")
    watched(page)


@pytest.mark.slow
def test_speed_pause_and_steps(study, person):
    study.ask(1, steps=40)
    page = person()
    watched(page)
    assert page.locator("#speed").text_content() == "1×"
    for key, speed in (("]", "1.5×"), ("]", "2×"), ("]", "2×"), ("[", "1.5×")):
        page.keyboard.press(key)
        assert page.locator("#speed").text_content() == speed
    page.keyboard.press(" ")
    before = page.evaluate("window.preferl.frames().left")
    page.wait_for_timeout(200)
    assert page.evaluate("window.preferl.frames().left") == before
    page.keyboard.press(",")
    assert page.evaluate("window.preferl.frames().left") == (before - 1) % 40
    assert page.get_by_role("button", name="Play", exact=True).is_visible()


@pytest.mark.slow
def test_reduced_motion_plays_nothing_by_itself(study, person):
    study.ask(1, steps=8)
    page = person(reduced_motion="reduce")
    page.wait_for_selector("#pair[aria-busy=false]")
    page.wait_for_function(WHOLE)
    page.wait_for_timeout(700)
    assert page.evaluate("window.preferl.frames()") == {"left": 0, "right": 0, "time": 0}
    for _ in range(7):
        page.keyboard.press(".")
    watched(page)  # stepping through is watching
    page.keyboard.press("ArrowLeft")
    until_answers(study, page, 1)


@pytest.mark.slow
def test_a_clip_that_is_broken_can_be_skipped(study, person):
    study.ask(2)
    for clip in study.store.files.rglob("*.mp4"):
        clip.write_bytes(b"\0\0\0\x20ftypisom" + b"\0" * 100)
    page = person()
    page.get_by_text("cannot be shown here").wait_for()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("s")
    until_answers(study, page, 1)
    assert rows(study)[0].kind == "skip"


@pytest.mark.slow
def test_clips_that_do_not_come_through_are_asked_for_again(study, person):
    study.ask(2)
    page = person(read=False, expected=LOST)
    page.keyboard.press("Escape")
    watched(page)
    page.route("**/media/*", lambda route: route.abort())
    page.reload()
    page.get_by_text("The clips have not arrived yet").wait_for()
    page.unroute("**/media/*")
    watched(page)
    page.keyboard.press("ArrowUp")
    until_answers(study, page, 1)
