"""Labels in SQL, clips in array files, and the people between them (no torch).

`frames`, `rendering` and `exchange` are imported by name, since they load what draws and writes.
"""

from preferl.store.clips import ClipStore, clip_ids, distinct_clips
from preferl.store.feedback import StoredFeedback
from preferl.store.people import Invitation
from preferl.store.progress import Progress
from preferl.store.projects import ProjectSettings
from preferl.store.queue import Claim, Question, RecordedAnswer
from preferl.store.status import FitMetrics, ServiceState, Status
from preferl.store.store import Store

__all__ = [
    "Claim",
    "ClipStore",
    "FitMetrics",
    "Invitation",
    "Progress",
    "ProjectSettings",
    "Question",
    "RecordedAnswer",
    "ServiceState",
    "Status",
    "Store",
    "StoredFeedback",
    "clip_ids",
    "distinct_clips",
]
