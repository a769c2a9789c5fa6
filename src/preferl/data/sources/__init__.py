"""Experience and labels of other projects, one reader per format."""

from typing import TYPE_CHECKING

from preferl._optional import lazily

if TYPE_CHECKING:
    from preferl.data.sources.d4rl import load_d4rl as load_d4rl
    from preferl.data.sources.drlhp import load_drlhp_preferences as load_drlhp_preferences
    from preferl.data.sources.hub import load_hub_dataset as load_hub_dataset
    from preferl.data.sources.kinds import load_demonstrations as load_demonstrations
    from preferl.data.sources.kinds import load_source as load_source
    from preferl.data.sources.kinds import load_stacked as load_stacked
    from preferl.data.sources.labels import LabelledPairs as LabelledPairs
    from preferl.data.sources.labels import LabelReport as LabelReport
    from preferl.data.sources.labels import LabelRows as LabelRows
    from preferl.data.sources.labels import join_labels as join_labels
    from preferl.data.sources.labels import label_rows as label_rows
    from preferl.data.sources.labels import load_labels as load_labels
    from preferl.data.sources.labels import read_labels as read_labels
    from preferl.data.sources.labels import sample_pt_queries as sample_pt_queries
    from preferl.data.sources.labels import save_pt_labels as save_pt_labels
    from preferl.data.sources.labels import scripted_preferences as scripted_preferences
    from preferl.data.sources.minari import load_minari as load_minari
    from preferl.data.sources.pickles import load_pickle as load_pickle
    from preferl.data.sources.robomimic import OBSERVATION_KEYS as OBSERVATION_KEYS
    from preferl.data.sources.robomimic import check_observation_order as check_observation_order
    from preferl.data.sources.robomimic import load_robomimic as load_robomimic
else:
    __getattr__, __dir__, __all__ = lazily(__name__)
