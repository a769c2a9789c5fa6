"""Readers of other projects' experience and labels, one module per format."""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.data.sources.d4rl import load_d4rl as load_d4rl
    from preferl.data.sources.drlhp import load_drlhp_preferences as load_drlhp_preferences
    from preferl.data.sources.hub import load_hub_dataset as load_hub_dataset
    from preferl.data.sources.kinds import (
        load_demonstrations as load_demonstrations,
        load_source as load_source,
        load_stacked as load_stacked,
    )
    from preferl.data.sources.labels import (
        LabelledPairs as LabelledPairs,
        LabelReport as LabelReport,
        LabelRows as LabelRows,
        join_labels as join_labels,
        label_rows as label_rows,
        load_labels as load_labels,
        read_labels as read_labels,
        sample_pt_queries as sample_pt_queries,
        save_pt_labels as save_pt_labels,
        scripted_preferences as scripted_preferences,
    )
    from preferl.data.sources.lerobot import (
        Feature as Feature,
        LeRobotFolder as LeRobotFolder,
        open_lerobot as open_lerobot,
    )
    from preferl.data.sources.minari import load_minari as load_minari
    from preferl.data.sources.pickles import load_pickle as load_pickle
    from preferl.data.sources.robomimic import (
        OBSERVATION_KEYS as OBSERVATION_KEYS,
        check_observation_order as check_observation_order,
        load_robomimic as load_robomimic,
    )
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
