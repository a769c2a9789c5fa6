"""Experience as arrays: episodes, segments, comparisons, and where they come from (numpy only)."""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.data.arrays import content_id as content_id
    from preferl.data.arrays import load_comparisons as load_comparisons
    from preferl.data.arrays import load_episodes as load_episodes
    from preferl.data.arrays import save_comparisons as save_comparisons
    from preferl.data.arrays import save_episodes as save_episodes
    from preferl.data.comparisons import Comparisons as Comparisons
    from preferl.data.comparisons import concatenate as concatenate
    from preferl.data.episodes import Episodes as Episodes
    from preferl.data.episodes import join as join
    from preferl.data.segments import Clips as Clips
    from preferl.data.segments import Segments as Segments
    from preferl.data.segments import crosses_end as crosses_end
    from preferl.data.segments import cut as cut
    from preferl.data.segments import sample_segments as sample_segments
    from preferl.data.tasks import TASKS as TASKS
    from preferl.data.tasks import Task as Task
    from preferl.data.tasks import find_task as find_task
    from preferl.data.tasks import normalised_score as normalised_score
    from preferl.data.to_minari import save_minari as save_minari
    from preferl.data.validation import folds as folds
    from preferl.data.validation import split as split
    from preferl.data.validation import split_off_episodes as split_off_episodes
    from preferl.data.windows import History as History
    from preferl.data.windows import window_indices as window_indices
    from preferl.reading import allow_large as allow_large
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
