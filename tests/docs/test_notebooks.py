"""The notebooks run from their first to their last cell, in a kernel of their own."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def settings():
    """The settings of the site."""
    return runpy.run_path(str(ROOT / "docs/conf.py"))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["labels_to_reward", "pendulum_tutorial"])
def test_runs(name, settings, tmp_path, monkeypatch):
    import jupytext
    from nbclient import NotebookClient

    assert f"examples/{name}.py" in settings["NOTEBOOKS"]
    monkeypatch.setenv("MPLBACKEND", settings["INLINE"])
    notebook = jupytext.read(ROOT / f"examples/{name}.py", fmt="py:percent")
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert "image/png" in shown
    assert any("accuracy" in output.get("text", "") for output in outputs)
