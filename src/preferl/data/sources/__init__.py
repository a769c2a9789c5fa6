"""Experience and labels of other projects, one reader per format."""

from preferl.data.sources.d4rl import load_d4rl
from preferl.data.sources.drlhp import load_drlhp_preferences
from preferl.data.sources.hub import load_hub_dataset
from preferl.data.sources.kinds import load_demonstrations, load_source, load_stacked
from preferl.data.sources.labels import (
    LabelledPairs,
    LabelReport,
    LabelRows,
    join_labels,
    load_labels,
    load_pt_labels,
    load_unirlhf_labels,
    read_labels,
    read_pt_labels,
    read_unirlhf_labels,
    sample_pt_queries,
    scripted_preferences,
)
from preferl.data.sources.minari import load_minari
from preferl.data.sources.pickles import load_pickle
from preferl.data.sources.robomimic import OBSERVATION_KEYS, check_observation_order, load_robomimic

__all__ = [
    "OBSERVATION_KEYS",
    "LabelReport",
    "LabelRows",
    "LabelledPairs",
    "check_observation_order",
    "join_labels",
    "load_d4rl",
    "load_demonstrations",
    "load_drlhp_preferences",
    "load_hub_dataset",
    "load_labels",
    "load_minari",
    "load_pickle",
    "load_pt_labels",
    "load_robomimic",
    "load_source",
    "load_stacked",
    "load_unirlhf_labels",
    "read_labels",
    "read_pt_labels",
    "read_unirlhf_labels",
    "sample_pt_queries",
    "scripted_preferences",
]
