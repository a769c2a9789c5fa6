"""`preferl online run`: settings from presets, files and options, in this order."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers import gardens
from helpers.command_line import run
from helpers.gardens import Lawn
from preferl.cli.online import OnlineRunConfig, read_settings, run_with_progress, starting_point
from preferl.cli.parsing import parse
from preferl.errors import ConfigError
from preferl.online import OnlineConfig, PPOConfig
from preferl.online.configs import EvaluationConfig
from preferl.presets import measured_shares
from preferl.reading import MOST_SETTINGS


def small(out, *more):
    return [
        "online", "run", "--out", str(out), "--steps", "800", "--initial-steps", "400",
        "--iterations", "1", "--comparisons", "6", "--environments", "2", "--segment-length", "10",
        "--evaluation.episodes", "2", "--evaluation.queries", "10", "--evaluation.clip-steps", "4",
        "--evaluation.no-oracle", "--eval-every", "0", *more,
    ]  # fmt: skip


def test_online_run_from_options(tmp_path, capsys):
    ppo = ["--algorithm", "ppo", "--algorithm.n-steps", "100", "--algorithm.batch-size", "50"]
    ppo += ["--true-reward", "preferl.cli.demo:pendulum_reward", "--eval-every", "600"]
    assert run(*small(tmp_path / "run", *ppo)) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["comparisons"] == 6
    words = " ".join(capsys.readouterr().out.split())
    assert "report.html" in words
    assert 0 < result["reward"]["epic"] < 1
    assert (
        f"EPIC distance of the learned reward from the true one: {result['reward']['epic']:.3f}"
        in words
    )
    assert "the same 10 episodes showed its progress; these 2 are others" in words
    assert measured_shares("Pendulum-v1")[0].in_words in words


def test_the_last_preset_counts(capsys):
    assert run("online", "run", "--preset", "pendulum", "--preset", "moon", "--resume") == 2
    message = capsys.readouterr().err
    assert "--preset: expected one of ant, " in message
    assert "pendulum" in message
    assert "got 'moon'" in message
    assert starting_point(["--preset", "moon", "--preset=pendulum"]).preset == "pendulum"


@pytest.mark.parametrize(("name", "place"), [("dqn", "DQN"), ("A2C", "A2C"), ("td3", "TD3")])
def test_algorithms_of_stable_baselines3_are_led_to_the_option_that_takes_them(name, place, capsys):
    assert run("online", "run", "--algorithm", name) == 2
    fix = f"Write --algorithm sb3 --algorithm.algorithm stable_baselines3:{place}."
    assert fix in capsys.readouterr().err


def test_a_teacher_takes_the_place_of_a_files(tmp_path):
    (tmp_path / "it.yaml").write_text("teacher: mistake\ncomparisons: 7\n")
    file = ["--config", str(tmp_path / "it.yaml")]
    default = starting_point(file)
    words = [*file, "--teacher", "oracle"]
    found = parse(OnlineRunConfig, words, prog="", default=default).run
    assert found.comparisons == 7
    assert (found.teacher.error_rate, default.run.teacher.error_rate) == (0, 0.1)


def test_settings_are_yaml_or_json_or_those_of_a_run(tmp_path):
    expected = {"env": "Pendulum-v1", "steps": 500}
    contents = {
        "a.yaml": "env: Pendulum-v1\nsteps: 500\n",
        "b.json": json.dumps(expected),
        "config.json": json.dumps({"config": expected, "seed": 3}),
        "d.yaml": "shared: &it {env: Pendulum-v1}\nconfig: {<<: *it, steps: 500}\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        assert read_settings(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"- env\n- steps\n", "expected settings by name, got list"),
        (b"", r"it.yaml: expected settings by name, got a file without any. Write one a line"),
        (b"# env: x\n", "expected settings by name, got a file without any"),
        (b"config:\n", "expected settings by name, got nothing"),
        (b"env: 1\n---\nenv: 2", "expected a YAML or JSON file of settings"),
        (b'env: "\\e]0;x"', "characters that a terminal would obey"),
        (b"env: [", "expected a YAML or JSON file of settings"),
        (b"env: \xff", "expected a YAML or JSON file of settings"),
        (b"a: !!python/object/apply:os.getcwd []", "expected a YAML or JSON file of settings"),
        (b"#" * (MOST_SETTINGS + 1), "more than 65,536 bytes"),
        (b"a: &a [*a, *a]", "aliases that stand for more"),
    ],
)
def test_files_that_are_no_settings(tmp_path, content, expected):
    (tmp_path / "it.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=expected):
        read_settings(tmp_path / "it.yaml")


TINY = [
    "--eval-every", "0",
    "--steps", "400", "--initial-steps", "200", "--iterations", "1", "--comparisons", "4",
    "--environments", "2", "--segment-length", "5", "--initial-epochs", "1",
    "--evaluation.episodes", "2", "--evaluation.queries", "4", "--evaluation.clip-steps", "2",
    "--evaluation.no-oracle", "--algorithm", "ppo", "--algorithm.n-steps", "50",
    "--algorithm.batch-size", "50",
]  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder that holds `garden.py`."""
    shutil.copy(gardens.__file__, tmp_path / "garden.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("garden", None)


def online(*words):
    return run("online", "run", "--out", "run", *words, *TINY)


WRONG = {
    ("--env", ""): "environment ''",
    ("--env", "Pendulum-v2"): "Pendulum-v1",
    ("--env", "Pendulumm"): "Did you mean Pendulum-v1",
    ("--env", "nowhere:Garden"): "module that can be imported",
    ("--env", "garden:Gardn"): "Did you mean garden:Garden?",
    ("--env", "garden.py:Garden"): "Did you mean garden:Garden?",
    ("--env", "./garden.py:Garden"): "Did you mean garden:Garden?",
    ("--env", "./garden:Garden"): "Did you mean garden:Garden?",
    ("--env", "garden.Garden"): "Did you mean garden:Garden?",
    ("--env", "./garden.py"): "Name the class or function in it, too: garden:Garden.",
    ("--env", "garden.py"): "Name the class or function in it, too: garden:Garden.",
    ("--wrappers", "garden.py:Shift"): "Did you mean garden:Shift?",
    ("--trust", "garden.py"): "Did you mean garden?",
    ("--device", "nowhere"): "device 'nowhere': expected one that torch has here",
    ("--env", "garden:nothing"): "has to return the environment",
    ("--env", "garden:OldStep"): "shimmy",
    ("--env", "garden:OldReset"): "`reset` as gymnasium defines it",
    ("--env", "garden:NoSpaces"): "a space as `observation_space`",
    ("--env", "garden:WideView"): "as in its space, got (3,)",
    ("--env", "garden:Garden", "--env-kwargs", "{sped: 1}"): "(render_mode, speed, hides)",
    ("--env-kwargs", "{gravity: 1}"): "environment 'Pendulum-v1': expected arguments",
    ("--wrappers", "garden:Absent"): "wrappers: expected module:Name",
    ("--wrappers", "Shift"): "wrappers: expected module:Name",
    ("--max-episode-steps", "0"): "--max-episode-steps: expected at least 1",
}


@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # gymnasium's own, of old interfaces
@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_environments_are_one_line_and_move_nothing(here, capsys, words):
    Path("run").mkdir()
    Path("run/config.json").write_text("{}")
    assert online(*words) == 1
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("preferl online run:")]
    assert len(lines) == 1
    assert WRONG[words] in lines[0]
    assert "Traceback" not in out + err
    assert "Teaching" not in out + err
    assert [path.name for path in here.glob("run*")] == ["run"]
    assert Path("run/config.json").read_text() == "{}"


def test_data_sets_are_recorded_in_them(here):
    words = ("--env", "garden:Garden", "--env-kwargs", "{speed: 0.3}", "--mix", "random:3")
    assert run("data", "record", *words, "--out", "data", "--max-episode-steps", "9") == 0
    result = json.loads(Path("data/result.json").read_text())
    assert (result["env"], result["tiers"][0]["steps"]) == ("garden:Garden", 27)
    assert run("data", "record", "--env", "garden:OldStep", "--out", "old") == 1
    assert not Path("old").exists()


def first_is_better(shown, rng):
    return np.ones(len(shown))


def test_without_a_reward_of_the_environment_the_terminal_is_about_the_answers(tmp_path, capsys):
    config = OnlineConfig(
        env=Lawn,
        environments=2,
        steps=800,
        initial_steps=400,
        iterations=1,
        comparisons=12,
        segment_length=10,
        eval_every=400,
        eval_episodes=2,
        teacher=first_is_better,
        algorithm=PPOConfig(n_steps=100, batch_size=50),
    )
    evaluation = EvaluationConfig(episodes=2, queries=4, clip_steps=0, oracle=False)
    run_with_progress(OnlineRunConfig(config, evaluation, out=tmp_path / "run"))
    output = " ".join(capsys.readouterr().out.split())
    assert " s · 12 answers · reward accuracy " in output
    assert "From 12 answers, the reward model predicts " in output
    for words in ("return 0", "return while", "True return", "showed its progress", "held-out"):
        assert words not in output, words
