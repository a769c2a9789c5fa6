"""Scripts by which shells complete commands, options and names."""

import shutil
import subprocess
from contextlib import redirect_stdout

import pytest

from helpers.command_line import run


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The script for bash."""
    file = tmp_path_factory.mktemp("completion") / "preferl.bash"
    with file.open("w") as out, redirect_stdout(out):
        assert run("completion", "bash") == 0
    return file


def completed(script, *words):
    """What bash offers for the last word, where nothing else is known to it."""
    line = f"""
    source {script}
    function=$(complete -p preferl | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
    COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
    COMP_CWORD={len(words) - 1}
    $function preferl '{words[-1]}' '{words[-2]}'
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    bash = [shutil.which("bash"), "--norc", "-c", line]
    done = subprocess.run(bash, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("preferl", "an"), {"annotate"}),
        (("preferl", "annotate", ""), {"serve", "invite", "create"}),
        (("preferl", "online", "run", "--ste"), {"--steps"}),
        (("preferl", "online", "run", "--algorithm", ""), {"ppo", "sac", "sb3"}),
        (("preferl", "online", "run", "--evaluation."), {"--evaluation.clip-steps"}),
        (("preferl", "offline", "run", "--iql.e"), {"--iql.expectile"}),
        (("preferl", "reward", "fit", "--model", "p"), {"pt", "pt-readme"}),
    ],
)
def test_bash_offers(script, words, some):
    assert some <= set(completed(script, *words))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_of_this_program(shell, capsys):
    assert run("completion", shell) == 0
    out = capsys.readouterr().out
    assert "preferl" in out
    assert "gradient-steps" not in out, "options of what was not chosen"
    assert "expectile" in out
