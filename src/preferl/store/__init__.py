"""Labels in SQL, clips in array files, and the people between them (no torch).

Import `frames`, `rendering` and `exchange` by name, since they load packages that draw and write.
"""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.store.clips import (
        ClipStore as ClipStore,
        clip_ids as clip_ids,
        distinct_clips as distinct_clips,
    )
    from preferl.store.feedback import StoredFeedback as StoredFeedback
    from preferl.store.http_model import HttpModel as HttpModel
    from preferl.store.model_annotator import (
        ModelAnswer as ModelAnswer,
        ModelTally as ModelTally,
        PairModel as PairModel,
        ShownPair as ShownPair,
        model_answers as model_answers,
    )
    from preferl.store.people import Invitation as Invitation
    from preferl.store.progress import Progress as Progress
    from preferl.store.projects import ProjectSettings as ProjectSettings
    from preferl.store.queue import (
        Claim as Claim,
        LeasedQuery as LeasedQuery,
        RecordedAnswer as RecordedAnswer,
    )
    from preferl.store.status import (
        FitMetrics as FitMetrics,
        ServiceState as ServiceState,
        Status as Status,
    )
    from preferl.store.store import Store as Store
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
