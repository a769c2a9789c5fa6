"""Run a command of preferl in this process."""

import pytest

from preferl.cli.main import main


def run(*words):
    """Run a command; returns its exit status."""
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return stopped.value.code
