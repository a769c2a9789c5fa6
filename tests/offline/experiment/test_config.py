"""Settings of offline runs: what they need, and what they find out."""

from pathlib import Path

import pytest

from preferl.configs import from_json, to_json
from preferl.errors import ConfigError
from preferl.offline import IQLConfig, OfflineConfig
from preferl.offline.experiment.config import OfflineRun

LABELS = Path("labels")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "neither"),
        ({"demonstrations": "a", "dataset": "b"}, "both"),
        ({"demonstrations": "a", "env": "E"}, "neither labels nor reward"),
        ({"demonstrations": "a", "labels": LABELS}, "env"),
        ({"demonstrations": "a", "labels": LABELS, "reward": "true", "env": "E"}, "do not learn"),
        ({"demonstrations": "a", "labels": LABELS, "task": "Lift_ph"}, "names none"),
        ({"demonstrations": "a", "labels": LABELS, "env": "E", "steps": 0}, "steps"),
        ({"demonstrations": "a", "labels": LABELS, "env": "E", "policy": "cql"}, "iql"),
        ({"demonstrations": "a", "labels": LABELS, "comparisons": LABELS, "env": "E"}, "got both"),
        ({"demonstrations": "a", "reward": "r", "policy": "cpl", "env": "E"}, "policy cpl"),
    ],
)
def test_settings_are_checked(settings, words):
    with pytest.raises(ConfigError, match=words):
        OfflineConfig(**settings)


def test_task_and_environment_find_each_other():
    by_task = OfflineConfig(demonstrations="a", labels=LABELS, task="door-human-v1")
    assert by_task.env_id == "AdroitHandDoor-v1"
    assert by_task.settings == IQLConfig.preset("adroit")
    by_env = OfflineConfig(demonstrations="a", labels=LABELS, env="AdroitHandDoor-v1")
    assert by_env.row.expert == by_task.row.expert
    other = OfflineConfig(
        demonstrations="a", labels=LABELS, env="Pendulum-v1", iql=IQLConfig(expectile=0.8)
    )
    assert other.row is None
    assert other.settings.expectile == 0.8


def test_where_episodes_are():
    assert OfflineConfig(demonstrations="a.pickle", labels=LABELS, episodes=0).source == "a.pickle"
    minari = OfflineConfig(dataset="D4RL/door/human-v2", labels=LABELS, episodes=0)
    assert minari.source == "minari:D4RL/door/human-v2"


def test_runs_are_remembered_as_json():
    config = OfflineConfig(demonstrations="a", labels=LABELS, env="E", iql=IQLConfig(hidden=(8,)))
    run = OfflineRun(config, (0, 2))
    assert from_json(OfflineRun, to_json(run)) == run


def test_the_true_reward_is_a_word_and_a_folder_of_that_name_a_path():
    def config(reward, **more):
        return OfflineConfig(demonstrations="a", reward=reward, env="E", **more)

    assert config("true").uses_true_reward
    assert config("true").fitted is None
    assert not config("true", policy="bc").uses_true_reward  # clones learn from no reward
    for folder in ("./true", Path("true"), "runs/true"):
        assert not config(folder).uses_true_reward
        assert config(folder).fitted == Path(folder)
        run = OfflineRun(config(folder), (0,))
        assert from_json(OfflineRun, to_json(run)) == run
