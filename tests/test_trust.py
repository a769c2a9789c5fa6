"""Which modules a text may make Python import, and where the current folder comes on its path."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from preferl.errors import ConfigError
from preferl.trust import (
    SAFE_PATH,
    admitted,
    preferl_program,
    resolve,
    safe_children,
    trust_options,
    typed,
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder, with a module that leaves a mark when it is imported."""
    (tmp_path / "minemod.py").write_text("from pathlib import Path\nPath('mark').touch()\nX = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("minemod", None)


@pytest.mark.parametrize(
    "name",
    [
        "Pendulum-v1",
        "preferl/MovingDot-v0",
        "gymnasium:Pendulum-v1",
        "ale_py.registration:ALE/Pong-v5",
    ],
)
def test_plain_ids_and_those_of_allowed_packages_are_admitted(name):
    assert admitted(name, source="a project") == name


@pytest.mark.parametrize(
    "name",
    [
        "evilmod:X-v0",
        "gymnasium_evil:X-v0",
        "gymnasium._private:X-v0",
        "evil.gymnasium:X-v0",
        "os:X-v0",
    ],
)
def test_other_modules_are_refused_with_what_to_do(name):
    module = name.partition(":")[0]
    with pytest.raises(ConfigError, match=rf"the project door names.*--trust {module}"):
        admitted(name, source="the project door")
    assert admitted(name, source="the project door", trust=[module]) == name


def test_trust_covers_what_is_below_a_module_and_nothing_beside_it():
    assert admitted("mine.envs:X-v0", source="a file", trust=["mine"])
    for other in ("minemod:X-v0", "mine:X-v0"):
        with pytest.raises(ConfigError, match="a file names"):
            admitted(other, source="a file", trust=["mine.envs"])


@pytest.mark.parametrize(
    "name", ["a:b:c", ":X-v0", "mod:", "a b:X", "../a:X", ".a:X", 7, None, ["a"]]
)
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ConfigError):
        admitted(name, source="a project", trust=["a", "mod"])


def test_an_object_is_imported_only_if_its_module_may_be(here):
    sys.path.append(str(here))
    with pytest.raises(ConfigError, match="--trust minemod"):
        resolve("minemod:X", what="frames", source="a folder")
    assert not (here / "mark").exists()
    assert resolve("minemod:X", what="frames", source="a folder", trust=["minemod"]) == 3
    assert (here / "mark").exists()


def test_a_typed_module_is_found_in_the_current_folder_behind_all_others(here):
    (here / "alembic.py").write_text("raise ImportError\n")
    before = list(sys.path)
    assert typed("Pendulum-v1", None, "alembic:X-v0", "nowhere:X-v0") == ("alembic", "nowhere")
    assert sys.path == before, "the folder is not needed for these"
    assert typed("gymnasium:Pendulum-v1", trust=["minemod"]) == ("minemod",)
    assert sys.path == [*before, str(here)]
    typed("minemod:X-v0")
    assert sys.path == [*before, str(here)]


def test_an_allowed_package_that_lies_in_the_folder_alone_is_not_the_one_that_was_meant(here):
    (here / "sbx.py").write_text("raise ImportError\n")
    with pytest.raises(ConfigError, match="--trust sbx"):
        admitted("sbx:X-v0", source="a project")
    assert typed("gymnasium:X-v0", "sbx:X-v0") == ("sbx",), "a person typed it"
    assert sys.path[-1] == str(here)
    with pytest.raises(ConfigError, match="--trust sbx"):
        admitted("sbx:X-v0", source="a project")
    assert admitted("sbx:X-v0", source="a project", trust=["sbx"])
    assert admitted("shimmy:X-v0", source="a project"), "it is nowhere, and harms nobody"


def test_trusted_modules_go_on_as_options():
    assert trust_options(["b.c"]) == ("--trust", "b.c")
    for wrong in ("", "--host", "a b", "a:b"):
        with pytest.raises(ConfigError, match="trust"):
            trust_options([wrong])
        with pytest.raises(ConfigError, match="trust"):
            typed(trust=[wrong])


WORKERS = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from preferl.trust import safe_children

if __name__ == "__main__":
    with safe_children():
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        waiting = pool.submit(abs, -3)
    print(waiting.result())
    pool.shutdown()
"""


def test_children_import_nothing_from_the_current_folder(tmp_path):
    """A preferl of its own, and the workers of a pool, in a folder of modules that leave marks."""
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "workers.py").write_text(WORKERS)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("multiprocessing", "pickle", "runpy", "preferl", "typing"):
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'mark')!r}, 'w').close()\nraise ImportError\n"
        )
    for command in (
        preferl_program("--version"),
        (sys.executable, str(tmp_path / "program" / "workers.py")),
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        assert not (tmp_path / "mark").exists()


def test_the_environment_is_as_it_was_after_children_are_started(monkeypatch):
    monkeypatch.delenv(SAFE_PATH, raising=False)
    with safe_children():
        assert os.environ[SAFE_PATH] == "1"
    assert SAFE_PATH not in os.environ
    monkeypatch.setenv(SAFE_PATH, "x")
    with safe_children():
        assert os.environ[SAFE_PATH] == "1"
    assert os.environ[SAFE_PATH] == "x"


def where(pattern):
    """Files of the package whose code, not whose examples, matches."""
    source = Path(__file__).parents[1] / "src" / "preferl"
    code = re.compile(rf"^(?! *(>>>|\.\.\.)).*{pattern}", re.M)
    return sorted(
        str(p.relative_to(source)) for p in source.rglob("*.py") if code.search(p.read_text())
    )


def test_modules_are_imported_and_programs_started_in_few_places():
    """What is read from data passes `admitted` or `resolve` before it reaches any of these."""
    assert where(r"sys\.executable") == ["trust.py"]
    assert where(r"import_module\(") == [
        "_optional.py",  # tables of our own names, as the next
        "cli/main.py",
        "registry.py",  # by a table of our own names, what a module adds to it, or `admitted`
        "store/rendering/frames.py",  # mujoco
        "trust.py",
    ]
    assert where(r"(gymnasium|gym)\.make(_vec)?\(|make_vec_env\(") == [
        "data/to_minari.py",  # the specification of an environment that was made before
        "envs/atari.py",  # ids that are typed, or passed in Python, as all here
        "envs/simulators.py",
        "online/algorithms.py",
    ]
