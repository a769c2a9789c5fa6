"""Experience and labels of other projects, one reader per format."""

from preferl.data.sources.demonstrations import load_demonstrations
from preferl.data.sources.labels import (
    LabelledPairs,
    LabelReport,
    LabelRows,
    load_labels,
    load_pt_labels,
    load_unirlhf_labels,
    read_labels,
    read_pt_labels,
    read_unirlhf_labels,
)
from preferl.data.sources.minari import load_minari
from preferl.data.sources.pickles import load_pickle

__all__ = [
    "LabelReport",
    "LabelRows",
    "LabelledPairs",
    "load_demonstrations",
    "load_labels",
    "load_minari",
    "load_pickle",
    "load_pt_labels",
    "load_unirlhf_labels",
    "read_labels",
    "read_pt_labels",
    "read_unirlhf_labels",
]
