"""One folder per run: its lock, its configuration, the versions it runs on, and its result."""

from preferl.runs.folder import RunFolder, open_run, require_openable
from preferl.runs.provenance import versions

__all__ = ["RunFolder", "open_run", "require_openable", "versions"]
