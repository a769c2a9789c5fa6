"""Labels in SQL, clips in array files, and the people between them (no torch).

`frames`, `rendering` and `exchange` are imported by name, since they load what draws and writes.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.store.clips import ClipStore as ClipStore
    from preferl.store.clips import clip_ids as clip_ids
    from preferl.store.clips import distinct_clips as distinct_clips
    from preferl.store.feedback import StoredFeedback as StoredFeedback
    from preferl.store.people import Invitation as Invitation
    from preferl.store.progress import Progress as Progress
    from preferl.store.projects import ProjectSettings as ProjectSettings
    from preferl.store.queue import Claim as Claim
    from preferl.store.queue import Question as Question
    from preferl.store.queue import RecordedAnswer as RecordedAnswer
    from preferl.store.status import FitMetrics as FitMetrics
    from preferl.store.status import ServiceState as ServiceState
    from preferl.store.status import Status as Status
    from preferl.store.store import Store as Store
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
