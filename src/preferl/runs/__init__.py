"""One folder per run: its lock, its configuration, the versions it runs on, and its result."""

from preferl.runs.folder import RunFolder, open_run, require_openable
from preferl.runs.provenance import versions
from preferl.runs.records import RunRecord, find_runs, read_run

__all__ = [
    "RunFolder",
    "RunRecord",
    "find_runs",
    "open_run",
    "read_run",
    "require_openable",
    "versions",
]
