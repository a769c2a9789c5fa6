"""The process that draws the videos of clips; those of the most urgent queries come first."""

import json
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import NamedTuple, Self, final

from preferl.data.segments import Segments
from preferl.errors import DataError, PreferlError, StorageError
from preferl.printing import get_logger
from preferl.remote import Location
from preferl.shapes import Array
from preferl.store.clips import DRAWING_SECONDS
from preferl.store.rendering.frames import (
    FrameSource,
    ProjectFrames,
    frame_source,
    function_frames,
)
from preferl.store.schema import Project
from preferl.store.store import Store
from preferl.video import encode

logger = get_logger(__name__)

LONGEST_PAUSE = 30.0  # seconds between two tries while object storage cannot be reached
AT_ONCE = 8  # clips drawn before priorities are read again; more urgent queries wait until then
LOOK_UP_SECONDS = 0.05  # how often a waiting worker looks whether it has to stop


class Rendered(NamedTuple):
    """How many clips were drawn, and how many could not be."""

    drawn: int
    failed: int


@final
class RenderWorker:
    """Draws clips of a store until it is stopped, the most urgent ones first.

    Several workers, on one machine or on many, share the clips of a store: each claims the clip
    that it draws. If a worker is killed, its claim ends after `DRAWING_SECONDS`.

    `stop` may be called from a signal or another thread. Graphics contexts belong to the thread
    that calls `round`. They are kept from clip to clip until `close`.

    If a `source` is given, it draws the clips of every project, and its owner closes it. By
    default, each project's `frames` describe how to draw. They may import the modules of `trust`
    (see `preferl.trust`).
    """

    def __init__(
        self, store: Store, source: FrameSource | None = None, *, trust: Collection[str] = ()
    ) -> None:
        self._store = store
        self._source = source
        self._trust = trust
        self._sources: dict[str, ProjectFrames] = {}
        self._warned: set[tuple[int, str]] = set()
        self.rendered = Rendered(0, 0)  # so far
        self.stopped = False  # not an Event, as a signal may come while the Event's lock is held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self) -> None:
        """End the round after the picture that is being drawn now."""
        self.stopped = True

    def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until `stop` is called."""
        until = time.monotonic() + seconds
        while not self.stopped and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_UP_SECONDS))

    def close(self) -> None:
        """Close simulators and graphics contexts."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    def round(self) -> int:
        """Draw the most urgent clips of each project; return how many were tried.

        A clip that cannot be drawn is marked as failed, with the error, and the next clip follows.

        Raises:
            StorageError: a video cannot be written, or the database is gone.
        """
        return sum(self._some_of(project) for project in self._store.projects.all())

    def _some_of(self, project: Project) -> int:
        clips = self._store.clips.without_video(project.id, AT_ONCE)
        if clips and self._source is None and project.frames is None:
            if self._is_new(project, "no frames"):
                message = "Project %s has clips to draw, but no `frames` that describe how."
                logger.warning(message, project.slug)
            return 0
        for done, clip in enumerate(clips):
            if self.stopped:
                return done
            with self._store.clips.drawing(project.id, clip) as claimed:
                if claimed:
                    self._draw(project, clip)
        return len(clips)

    def waits_for_others(self) -> bool:
        """Whether other workers draw clips; if they are killed, their clips are drawn again."""
        clips = self._store.clips
        projects = self._store.projects.all()
        return any(clips.is_drawing(project.id) for project in projects)

    def _is_new(self, project: Project, why: str) -> bool:
        """Whether this is a new problem of a project; most clips share a problem."""
        is_new = (project.id, why) not in self._warned
        self._warned.add((project.id, why))
        return is_new

    def _draw(self, project: Project, clip: str) -> None:
        clips = self._store.clips
        try:
            segments = clips.segments(project.id, [clip])
            pictures = pictures_of(self._source_of(project), segments, 0)
            video = encode(self._until_stopped(project, clip, pictures), project.fps)
        except StorageError:
            raise  # storage cannot be reached; the clip is tried again later
        except Exception as error:  # the next clip may work
            if self.stopped or clips.get(project.id, clip) is None:
                return  # it was stopped half-way, or newer episodes replaced the clip
            self.rendered = self.rendered._replace(failed=self.rendered.failed + 1)
            why = f"{type(error).__name__}: {error}"
            if self._is_new(project, why):
                ours = isinstance(error, PreferlError)
                logger.warning(
                    "Clip %s of %s cannot be drawn: %s Others that fail like this are not logged.",
                    clip,
                    project.slug,
                    error if ours else f"{why}.",
                    exc_info=None if ours else error,
                )
            clips.video_failed(project.id, clip, why)
            return
        if self.stopped:
            return
        if not clips.put_video(project.id, clip, video):
            return
        self.rendered = self.rendered._replace(drawn=self.rendered.drawn + 1)
        logger.info("Clip %s of %s is drawn.", clip, project.slug)

    def _until_stopped(
        self, project: Project, clip: str, pictures: Iterator[Array]
    ) -> Iterator[Array]:
        """Yield pictures until `stop` is called, and extend the claim if they take long."""
        heard = time.monotonic()
        for picture in pictures:
            if self.stopped:
                return
            yield picture
            if time.monotonic() > heard + DRAWING_SECONDS / 3:
                self._store.clips.extend_drawing(project.id, clip)
                heard = time.monotonic()

    def _source_of(self, project: Project) -> FrameSource:
        """Return the source for the project's `frames`; projects with equal `frames` share it."""
        if self._source is not None:
            return self._source
        spec = project.frames or {}
        where = f"project {project.slug}"
        key = json.dumps(spec, sort_keys=True)
        if key not in self._sources:
            self._sources[key] = frame_source(spec, trust=self._trust, source=where)
        return self._sources[key]


def serve_rendering(
    location: Location,
    files: Location | None = None,
    *,
    function: str | None = None,
    trust: Collection[str] = (),
    parent: int | None = None,
    poll_seconds: float = 0.5,
    once: bool = False,
) -> Rendered:
    """Draw clips of a store as they are asked about, until SIGTERM or SIGINT.

    Clips that failed before are tried again, since the cause may be gone.

    `Store.open` opens the store. A `function`, named `module:function`, draws every clip instead of
    the projects' `frames`. Both may import modules of `trust` (see `preferl.trust`). The process
    ends with the `parent` process, if one is given. With `once`, it ends when nothing is left to
    draw. Otherwise it looks for clips every `poll_seconds`.

    Raises:
        ConfigError: there is no such store or function.
        StorageError: videos cannot be written, or the database is gone. While object storage cannot
            be reached, the process waits and tries again, unless `once` is true.
    """
    source = None if function is None else function_frames(function)
    with ExitStack() as ending:
        store = ending.enter_context(Store.open(location, files))
        worker = ending.enter_context(RenderWorker(store, source, trust=trust))
        for project in store.projects.all():
            store.clips.retry_failed(project.id)
        # only the main thread gets signals
        if threading.current_thread() is threading.main_thread():
            for kind in (signal.SIGTERM, signal.SIGINT):
                before = signal.signal(kind, lambda *_: worker.stop())
                ending.callback(signal.signal, kind, before)
        pause = poll_seconds
        while not worker.stopped and parent in (None, os.getppid()):
            try:
                done = worker.round()
                pause = poll_seconds
            except StorageError as error:
                if store.synced.url is None or once:
                    raise
                pause = min(2 * pause, LONGEST_PAUSE)  # it may be away for a while
                logger.warning("%s Clips are drawn again in %g s.", error, pause)
                worker.wait(pause)
                continue
            if once and not done and not worker.waits_for_others():
                break
            if not done:
                worker.wait(poll_seconds)
        return worker.rendered


def pictures_of(source: FrameSource, segments: Segments, row: int) -> Iterator[Array]:
    """Yield the pictures of one segment; raise `DataError` unless there is one per real step."""
    steps = int(segments.real[row])
    count = 0
    for count, picture in enumerate(source(segments, row), 1):
        if count <= steps:
            yield picture
    if count != steps:
        raise DataError(f"pictures of a clip: expected {steps}, one per step, got {count}.")
