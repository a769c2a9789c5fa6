"""`preferl online run`: settings from presets, files and options, in this order."""

import json

import pytest

from helpers.command_line import run
from preferl.cli.online import MOST_SETTINGS, OnlineRunConfig, read_settings, starting_point
from preferl.errors import ConfigError
from preferl.online import OnlineConfig


def small(out, *more):
    return [
        "online", "run", "--out", str(out), "--steps", "800", "--initial-steps", "400",
        "--iterations", "1", "--comparisons", "6", "--environments", "2", "--segment-length", "10",
        "--judge.episodes", "2", "--judge.questions", "10", "--judge.clip-steps", "4",
        "--judge.no-oracle", *more,
    ]  # fmt: skip


def test_online_run_from_options(tmp_path, capsys):
    ppo = ["algorithm:ppo-config", "--algorithm.n-steps", "100", "--algorithm.batch-size", "50"]
    assert run(*small(tmp_path / "run", *ppo)) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["comparisons"] == 6
    assert "report.html" in capsys.readouterr().out


def test_online_run_from_a_file_with_options_on_top(tmp_path):
    settings = {"env": "Pendulum-v1", "algorithm": {"kind": "PPOConfig", "n_steps": 64}}
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps(settings))
    assert run(*small(tmp_path / "run", "--config", str(file))) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert config["algorithm"]["n_steps"] == 64
    assert config["comparisons"] == 6


def test_online_run_from_a_preset(tmp_path):
    longer = ["--steps", "2000", "--sampler", "uniform"]
    assert run(*small(tmp_path / "run", "--preset", "pendulum", *longer)) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert config["algorithm"]["gamma"] == 0.9


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--preset", "moon"], "pendulum"),
        (["--config", "missing.yaml"], "missing.yaml"),
        (["--preset", "pendulum", "--config", "x.yaml"], "both"),
    ],
)
def test_online_run_with_bad_settings(words, text, tmp_path, capsys):
    assert run("online", "run", "--out", str(tmp_path / "run"), *words) == 1
    assert text in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_nothing_given_starts_from_the_defaults():
    assert starting_point([]) == OnlineRunConfig(run=OnlineConfig())


def test_a_teacher_is_a_name_or_settings():
    mistaken = starting_point(["--teacher", "mistake"]).run.teacher
    assert mistaken.error_rate == 0.1
    assert mistaken == starting_point(["--teacher={kind: mistake}"]).run.teacher
    skipping = starting_point(["--teacher", "{kind: skip, typical: 20}"]).run.teacher
    assert skipping == starting_point(["--teacher={typical: 20, kind: skip}"]).run.teacher
    with pytest.raises(ConfigError, match="typical"):
        starting_point(["--teacher", "skip"])
    with pytest.raises(ConfigError, match="teacher: expected a name, or settings"):
        starting_point(["--teacher", "{kind: skip"])


def test_a_teacher_takes_the_place_of_a_files(tmp_path):
    (tmp_path / "it.yaml").write_text("teacher: mistake\ncomparisons: 7\n")
    file = ["--config", str(tmp_path / "it.yaml")]
    found = starting_point([*file, "--teacher", "oracle"]).run
    assert found.comparisons == 7
    assert (found.teacher.error_rate, starting_point(file).run.teacher.error_rate) == (0, 0.1)


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
        (b"", "expected settings by name, got NoneType"),
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
