"""`preferl annotate create` asks only what people can answer, and makes nothing if it fails."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import lerobot_maker

from helpers.command_line import run
from preferl.cli.annotate import CreateConfig, annotate_create, episodes_of_run
from preferl.data import save_episodes
from preferl.data.arrays import load_arrays
from preferl.data.episodes import join
from preferl.errors import ConfigError, DataError, MissingExtraError
from preferl.registry import SAMPLERS
from preferl.store.store import Store


def test_episodes_that_repeat_themselves_are_not_compared_with_themselves(episodes, tmp_path):
    still = join([episodes[:1]] * 5)
    save_episodes(tmp_path / "still", still)
    more = ("--env", "Pendulum-v1", "--length", 10, "--queries", 60, "--elsewhere")
    where = tmp_path / "labels"
    assert run("annotate", "create", "--run", tmp_path / "still", *more, "--store", where) == 0
    with Store.open(where) as store:
        asked = store.queries.asked(store.projects.only().id)
    assert len(asked) == 60
    assert all(first != second for _, first, second in asked)


def test_clips_may_be_drawn_elsewhere(recorded, tmp_path, capsys):
    options = ("--run", recorded, "--env", "Elsewhere-v1", "--length", 10, "--queries", 2)
    assert run("annotate", "create", *options, "--elsewhere", "--store", tmp_path / "far") == 0
    assert run("annotate", "render", "--store", tmp_path / "far", "--once") == 0
    assert "0 clips drawn, 4 could not be." in capsys.readouterr().out


def test_a_program_that_drew_nothing_beside_a_page_says_nothing(tmp_path, capsys):
    with Store.open(tmp_path / "labels") as store:
        store.projects.create("door")
    command = ("annotate", "render", "--store", tmp_path / "labels", "--once")
    assert run(*command) == 0
    assert capsys.readouterr().out == "There were no clips to draw.\n"
    assert run(*command, "--parent", os.getppid()) == 0
    assert capsys.readouterr().out == ""


def test_episodes_of_an_offline_run(recorded, tmp_path):
    about = {"config": {"config": {"demonstrations": str(recorded / "episodes"), "task": None}}}
    (tmp_path / "offline").mkdir()
    (tmp_path / "offline/config.json").write_text(json.dumps(about))
    assert episodes_of_run(tmp_path / "offline").steps == 120
    with pytest.raises(DataError, match="save_episodes"):
        episodes_of_run(tmp_path)
    for damaged in ({"config": []}, {"config": {"config": {"demonstrations": None}}}):
        (tmp_path / "offline/config.json").write_text(json.dumps(damaged))
        with pytest.raises(DataError, match="save_episodes"):
            episodes_of_run(tmp_path / "offline")
    about["config"]["config"] = {"demonstrations": None, "dataset": "none/such-v0"}
    (tmp_path / "offline/config.json").write_text(json.dumps(about))
    with pytest.raises((DataError, MissingExtraError), match=r"such|minari"):
        episodes_of_run(tmp_path / "offline")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"reward": "somewhere"}, "reward: expected none.*Give --sampler informative"),
        ({"sampler": "best"}, "sampler: expected one of .*uniform.*, got 'best'"),
        ({"qualification": 3, "known": 2}, r"in \[0, 2\], got 3. Raise --known"),
        ({"env": "Pendulum-v1", "colours": 4}, "colours: expected observations that hold pictures"),
        ({"queries": 0}, "queries: expected at least 1, got 0"),
        ({"dataset": "door"}, r"one of --demonstrations, --dataset, --run.*--dataset.*--run"),
    ],
)
def test_settings_that_do_not_go_together(recorded, tmp_path, settings, expected):
    with pytest.raises(ConfigError, match=expected):
        annotate_create(CreateConfig(run=recorded, store=str(tmp_path / "new"), **settings))
    assert not (tmp_path / "new").exists()


def test_a_sampler_that_cannot_do_without_scores_needs_a_reward(recorded, tmp_path):
    class Scored:
        def __init__(self, scorer):
            self.scorer = scorer

    SAMPLERS.register("scored", Scored)
    try:
        with pytest.raises(ConfigError, match=r"with 'scored' pairs, got None. Give --reward"):
            annotate_create(CreateConfig(run=recorded, sampler="scored"))
    finally:
        SAMPLERS.remove("scored")


def test_instructions_that_are_no_text(recorded, tmp_path):
    (tmp_path / "it").write_bytes(b"\xff\xfe\xff")
    for path in (tmp_path / "it", tmp_path / "none"):
        with pytest.raises(DataError, match="expected a text file"):
            annotate_create(CreateConfig(run=recorded, instructions=path))


def test_a_project_holds_what_was_given(recorded, tmp_path, capsys):
    (tmp_path / "it").write_text("Watch the tür.", encoding="utf-8")
    where = ("--store", tmp_path / "new", "--instructions", tmp_path / "it", "--title", "Doors")
    more = ("--queries", 7, "--length", 10, "--env", "Pendulum-v1", "--elsewhere", "--fps", 20)
    assert run("annotate", "create", "--run", recorded, *where, *more) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("7 pairs of 10 steps from 3 episodes wait in ")
    assert f"preferl annotate serve --store {tmp_path / 'new'}" in printed
    with Store.open(tmp_path / "new") as store:
        project = store.projects.only()
        assert (project.slug, project.title, project.fps) == ("labels", "Doors", 20)
        assert project.instructions == "Watch the tür."
        assert project.question == "Which clip is better?"
        assert len(store.queries.asked(project.id)) == 7
    assert run("annotate", "create", "--run", recorded, *where, *more) == 1, "the name is taken"


def test_the_seed_decides_the_pairs(recorded, tmp_path):
    asked = []
    for number, seed in enumerate((0, 0, 1)):
        where = ("--store", tmp_path / str(number), "--seed", seed, "--elsewhere")
        more = ("--queries", 5, "--length", 10, "--env", "Pendulum-v1")
        assert run("annotate", "create", "--run", recorded, *where, *more) == 0
        with Store.open(tmp_path / str(number)) as store:
            asked.append(store.queries.asked(store.projects.only().id))
    assert asked[0] == asked[1] != asked[2]


@pytest.fixture
def robot(tmp_path):
    """A LeRobot data set of two tasks."""
    lerobot_maker.make(tmp_path / "robot", [12, 30, 7, 20, 9], side=64)
    table = tmp_path / "robot/meta/episodes/chunk-000/file-000.parquet"
    episodes = pq.read_table(table)
    tasks = pa.array([["push"], ["push"], ["pull"], ["push"], ["pull"]])
    place = episodes.column_names.index("tasks")
    pq.write_table(episodes.set_column(place, "tasks", tasks), table)
    return tmp_path / "robot"


@pytest.mark.parametrize("whole", [False, True])
def test_only_clips_of_one_task_are_compared(robot, tmp_path, whole, capsys):
    labels = tmp_path / "labels"
    kind = ["--whole-episodes"] if whole else ["--length", 5]
    options = (*kind, "--queries", 30, "--ratings", "--speed", 1.5, "--store", labels)
    assert run("annotate", "create", "--lerobot", robot, *options) == 0
    output = capsys.readouterr().out
    assert ("Episodes differ in length (7 to 30 steps)" in output) == whole
    with Store.open(labels) as store:
        project = store.projects.only()
        assert project.ratings
        assert project.fps == 15
        asked = store.queries.asked(project.id)
        names = sorted({clip for _, *pair in asked for clip in pair})
        clips = store.clips.segments(project.id, names)
        episode = clips.states[clips.start, 0]
        ann = store.people.invite(project.id, "Ann").annotator.id
        task = dict(enumerate(["push", "push", "pull", "push", "pull"]))
        seen = set()
        for count in range(30):
            query = store.queue.claim(project.id, ann, 1, undrawn=True).queries[0]
            sides = [episode[names.index(clip)] for clip in (query.left, query.right)]
            assert {task[int(side)] for side in sides} == {query.task}
            seen.add(query.task)
            store.queue.answer(ann, query.token, f"key-{count:05}", "left")
    assert len(asked) == 30
    assert seen == {"push", "pull"}
    if whole:
        assert sorted(clips.real.tolist()) == [7, 9, 12, 20, 30]
    exported = tmp_path / "clips"
    words = ("annotate", "export", tmp_path / "a.jsonl", "--clips", exported, "--store", labels)
    assert run(*words) == 0
    cut = load_arrays(exported)[0]["cut"]
    np.testing.assert_array_equal(cut[:, 0], episode)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--known", 2), "known: expected clips of one task"),
        (("--lists", 2), "lists: expected clips of one task"),
        (("--length", 31), "expected at most 30, the longest of 5 episodes, and two clips"),
        (("--cameras", "nose"), "expected some of observation.images.front, got nose"),
        (("--env", "Pendulum-v1"), "expected cameras as pictures"),
        (("--speed", 100), "fps times speed"),
    ],
)
def test_what_does_not_go_with_a_robot_is_refused(robot, tmp_path, options, message, capsys):
    where = ("--store", tmp_path / "labels")
    assert run("annotate", "create", "--lerobot", robot, "--length", 5, *options, *where) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "labels").exists()
