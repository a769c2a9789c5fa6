"""Takes the pictures of the page that this folder's documents show.

    python docs/annotate/screenshots.py [FOLDER]

needs Chromium. The clips are of a pendulum that is swung up by policies of different quality. Into
a folder that is named, every page is drawn; else only those that are shown, beside this file.
"""

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import gymnasium as gym
import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from preferl.annotate import AnnotateSettings, create_app
from preferl.annotate.serve import Server, configured
from preferl.data.segments import Segments
from preferl.shapes import Array
from preferl.statistics import wilson_interval
from preferl.store.status import Status
from preferl.store.store import Store
from preferl.video import encode

FPS, STEPS = 30, 60
SHOWN = {
    "pair-desktop",
    "pair-desktop-dark",
    "pair-phone",
    "instructions-desktop",
    "keys-desktop",
    "waiting-desktop",
    "overview-desktop",
}
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
QUESTION = "Which pendulum is held upright better?"
INSTRUCTIONS = """\
The pendulum should be swung up and then held upright.

- Upright and still is best.
- Else, the clip in which it comes closer to that.
- If both do equally well, the calmer one is better."""


def clips(count: int, steps: int, seed: int = 0) -> tuple[Segments, list[Array]]:
    """Segments of a pendulum, the later ones of better policies, and their pictures."""
    env: Any = gym.make("Pendulum-v1", render_mode="rgb_array")
    rng = np.random.default_rng(seed)
    rows, frames = [], []
    for number in range(count):
        observation, _ = env.reset(seed=seed + number)
        skill, shown = rng.random(), []
        for step in range(steps + 40):
            action = skill * _swing(observation) + (1 - skill) * rng.uniform(-2, 2)
            if step >= 40:
                rows.append((observation, [action]))
                shown.append(env.render()[50:450, 50:450])
            observation = env.step(np.array([np.clip(action, -2, 2)], np.float32))[0]
        frames.append(np.stack(shown))
    env.close()
    observations, actions = (np.array(column, np.float32) for column in zip(*rows, strict=True))
    start = np.arange(count) * steps
    rewards = np.zeros(len(rows), np.float32)
    real = np.full(count, steps)
    return Segments(observations, actions, rewards, start, real, steps), frames


def _swing(observation: Array) -> float:
    """Swing up by energy, then balance."""
    cos, sin, speed = observation
    if cos > 0.9:
        return float(-8 * np.arctan2(sin, cos) - 2 * speed)
    return float(2 * np.sign(speed * (1.2 - cos) + 1e-3))


def fill(store: Store) -> tuple[int, str]:
    """A project with queries, answers of two people and three rewards; the owner's secret."""
    project = store.projects.create(
        "pendulum",
        title="Pendulum",
        question=QUESTION,
        instructions=INSTRUCTIONS,
        fps=FPS,
        quorum=2,
        budget=200,
        qualification=3,
        repeat_share=0.15,
        known_share=0.15,
    )
    segments, frames = clips(28, STEPS)
    pairs = np.arange(24).reshape(12, 2)
    store.queries.ask(project.id, segments, pairs)
    upright = segments.mask().sum(1) * 0 + segments.observations[:, 0].reshape(-1, STEPS).mean(1)
    known = (upright[0::2] > upright[1::2])[12:].astype(float)
    last = np.arange(24, 28).reshape(2, 2)
    store.queries.ask(project.id, segments, last, purpose="known", known=known)
    ordered = np.argsort(upright)
    store.queries.ask(
        project.id,
        segments,
        np.array([[ordered[-1], ordered[0]]]),
        purpose="example",
        known=np.ones(1),
        details=[{"note": "On the left it stays up; on the right it never comes there."}],
    )
    episode, film = clips(1, 200, seed=90)
    store.clips.put(
        project.id, episode, kind="episode", detail={"reward version": 4, "return": -142.0}
    )
    names = store.clips.put(project.id, segments)
    for clip, pictures in zip(names, frames, strict=True):
        _save(store, project.id, clip, pictures)
    _save(store, project.id, store.clips.put(project.id, episode)[0], film[0])
    versions = ((4, 2), (8, 5), (11, 7), (13, 10))  # answers, and how many of them it gets right
    for version, (answers, right) in enumerate(versions, start=1):
        interval = wilson_interval(right, answers)
        store.reports.announce_reward(
            project.id, version, answers=answers, accuracy=right / answers, interval=interval
        )
    waits = Status("waiting", version=4, behind=2, first_at=4, next_at=20)
    store.reports.beat(project.id, "reward", waits, every=600)
    acts = Status("healthy", steps=12_400, reward_version=4)
    store.reports.beat(project.id, "agent", acts, every=600)
    return project.id, store.people.owner(project.id).secret


def _save(store: Store, project: int, clip: str, pictures: Array) -> None:
    path = store.clips.video_path(project, clip)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(pictures, FPS))
    store.clips.video_ready(project, [clip])


def answer_some(store: Store, project: int) -> None:
    """Two people answer most of what is asked."""
    rng = np.random.default_rng(1)
    for name, share in (("Ann", 0.95), ("Ben", 0.6)):
        person = store.people.invite(project, name).annotator
        store.people.update(person.id, qualified=True)
        for number in range(9):
            claim = store.queue.claim(project, person.id, 1)
            for query in claim.queries:
                better = int(query.left, 16) % 2 if rng.random() < share else rng.integers(2)
                store.queue.answer(
                    person.id,
                    query.token,
                    f"{name}-{number:016d}",
                    "left" if better else "right",
                    response_ms=float(rng.gamma(6, 500)),
                )


@contextlib.contextmanager
def serving(store: Store) -> Iterator[str]:
    """The page at a free port."""
    app = create_app(store, AnnotateSettings(port=0, poll_seconds=0.2))
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(configured(app, log_level="error"), app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.stop()
        thread.join()


def page(browser: Browser, link: str, size: dict[str, int], scheme: Any = "light") -> Page:
    """A signed-in page whose instructions were read."""
    context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=size is PHONE)
    opened = context.new_page()
    opened.goto(link)
    return opened


def start(opened: Page) -> None:
    """Read the instructions and watch the first pair."""
    opened.get_by_role("button", name="Start").click()
    opened.wait_for_selector("#pair.may", timeout=20_000)


def shoot(folder: Path, names: set[str] | None = None) -> None:
    """All pictures, or those of these names."""
    with tempfile.TemporaryDirectory() as place, Store.open(place) as store:
        project, secret = fill(store)
        answer_some(store, project)
        empty = store.projects.create("waiting", title="Pendulum", question=QUESTION).id
        with serving(store) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            link = f"{address}/join/{secret}"

            def keep(opened: Page, name: str, whole: bool = False) -> None:
                if names is None or name in names:
                    opened.mouse.move(0, 0)
                    opened.wait_for_timeout(1000)
                    file = folder / f"{name}.png"
                    opened.screenshot(path=file, full_page=whole)
                    with Image.open(file) as drawn:  # few colours, so that pictures stay small
                        drawn.convert("RGB").quantize(
                            256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
                        ).save(file, optimize=True)

            for name, size, scheme in (
                ("desktop", DESKTOP, "light"),
                ("desktop-dark", DESKTOP, "dark"),
                ("phone", PHONE, "light"),
            ):
                opened = page(browser, link, size, scheme)
                opened.wait_for_selector("dialog[open]")
                keep(opened, f"instructions-{name}")
                start(opened)
                keep(opened, f"pair-{name}")
                opened.keyboard.press("?")
                keep(opened, f"keys-{name}")
                opened.keyboard.press("?")
                opened.goto(f"{address}/admin")
                keep(opened, f"overview-{name}", whole=True)
                opened.goto(f"{address}/episode")
                keep(opened, f"episode-{name}")
                store.projects.update(project, paused=True)
                opened.goto(address)
                keep(opened, f"paused-{name}")
                store.projects.update(project, paused=False)
                newcomer = store.people.invite(project, f"Cleo {name}")
                store.people.update(newcomer.annotator.id, qualified=True)
                store.projects.update(project, budget=1)
                opened.goto(f"{address}/join/{newcomer.secret}")
                keep(opened, f"done-{name}")
                store.projects.update(project, budget=200)
                opened.goto(f"{address}/join/{store.people.invite(empty, 'Cleo').secret}")
                opened.get_by_role("button", name="Start").click()
                keep(opened, f"waiting-{name}")
                opened.context.clear_cookies()
                opened.goto(address)
                keep(opened, f"stranger-{name}")
                opened.context.close()
            browser.close()


if __name__ == "__main__":
    here = Path(__file__).parent
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else here
    target.mkdir(parents=True, exist_ok=True)
    shoot(target, None if len(sys.argv) > 1 else SHOWN)
