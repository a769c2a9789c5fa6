"""The git revision is read from files, so that nothing a repository configures is run."""

import os
import shutil
import subprocess

import pytest

from preferl.runs import versions
from preferl.runs.provenance import git_revision

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *words):
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(
        ["git", *who, *words],
        cwd=folder,
        env=os.environ | nobody,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A repository with one commit."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--initial-branch", "main")
    (folder / "file").write_text("text")
    git(folder, "add", "file")
    git(folder, "commit", "-m", "first")
    return folder


def test_nothing_that_a_repository_configures_runs(checkout, monkeypatch):
    marker = checkout / "ran"
    program = checkout / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {marker}\ncat\n")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "filter.f.clean", "filter.f.process", "core.sshCommand"):
        git(checkout, "config", name, str(program))
    git(checkout, "config", "alias.status", f"!{program}")
    git(checkout, "config", "alias.rev-parse", f"!{program}")
    (checkout / ".gitattributes").write_text("* filter=f\n")
    (checkout / "file").write_text("other text")
    monkeypatch.chdir(checkout)
    assert versions()["git"] is not None
    assert not marker.exists()


def test_git_is_not_called(checkout, monkeypatch, tmp_path):
    called = tmp_path / "called"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\ntouch {called}\n")
    (tmp_path / "bin/git").chmod(0o755)
    revision = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(checkout)
    assert versions()["git"] == {"revision": revision}
    assert not called.exists()


def test_the_revision_is_the_one_of_git(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    (checkout / "deep/er").mkdir(parents=True)
    assert git_revision(checkout / "deep/er") == head
    git(checkout, "pack-refs", "--all")
    assert not (checkout / ".git/refs/heads/main").exists()
    assert git_revision(checkout) == head
    git(checkout, "checkout", "--detach")
    assert git_revision(checkout) == head
    git(checkout, "commit", "--allow-empty", "-m", "second")
    assert git_revision(checkout) == git(checkout, "rev-parse", "HEAD") != head


@pytest.mark.parametrize("packed", [False, True])
def test_worktrees_have_a_revision_of_their_own(checkout, tmp_path, packed):
    other = tmp_path / "other"
    git(checkout, "worktree", "add", "-b", "branch/other", str(other))
    git(other, "commit", "--allow-empty", "-m", "second")
    if packed:
        git(checkout, "pack-refs", "--all")
    assert git_revision(other) == git(other, "rev-parse", "HEAD") != git_revision(checkout)


def test_a_repository_without_commits_has_no_revision(tmp_path):
    git(tmp_path, "init")
    assert git_revision(tmp_path) is None


@pytest.mark.parametrize(
    "head",
    [
        "ref: refs/../../../secret",
        "ref: ../secret",
        "ref: /etc/passwd",
        "",
        "words",
        "\x00",
        "ref: refs/" + "x" * 5000,
    ],
)
def test_a_damaged_or_hostile_head_is_none(checkout, head):
    (checkout.parent / "secret").write_text("a" * 40)
    (checkout / ".git/HEAD").write_text(head)
    assert git_revision(checkout) is None


def test_what_never_ends_is_not_read(checkout):
    (checkout / ".git/HEAD").unlink()
    os.mkfifo(checkout / ".git/HEAD")
    assert git_revision(checkout) is None
    (checkout / ".git/HEAD").unlink()
    (checkout / ".git/HEAD").symlink_to("/dev/zero")
    assert git_revision(checkout) is None
    shutil.rmtree(checkout / ".git")
    (checkout / ".git").symlink_to(".git")
    assert git_revision(checkout) is None
