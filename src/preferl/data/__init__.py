"""Experience as arrays: episodes, segments, comparisons, and where they come from (numpy only)."""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.data.arrays import (
        content_id as content_id,
        load_comparisons as load_comparisons,
        load_episodes as load_episodes,
        save_comparisons as save_comparisons,
        save_episodes as save_episodes,
    )
    from preferl.data.comparisons import Comparisons as Comparisons, concatenate as concatenate
    from preferl.data.episodes import Episodes as Episodes, join as join
    from preferl.data.ratings import Ratings as Ratings, load_ratings as load_ratings
    from preferl.data.segment_sampling import (
        crosses_end as crosses_end,
        cut as cut,
        sample_segments as sample_segments,
        whole_episodes as whole_episodes,
    )
    from preferl.data.segments import Clips as Clips, Segments as Segments
    from preferl.data.tasks import (
        TASKS as TASKS,
        Task as Task,
        find_task as find_task,
        normalised_score as normalised_score,
    )
    from preferl.data.to_minari import save_minari as save_minari
    from preferl.data.validation import (
        folds as folds,
        split as split,
        split_off_episodes as split_off_episodes,
    )
    from preferl.data.windows import History as History, window_indices as window_indices
    from preferl.reading import allow_large as allow_large
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
