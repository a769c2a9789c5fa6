"""Wrong data and settings of commands: each gets one clear line, and nothing is moved or lost."""

import pickle
import shlex
import shutil

import numpy as np
import pytest
from gymnasium import spaces

from helpers.command_line import run
from helpers.folder_contents import contents
from helpers.offline_runs import LENGTH, recorded, write_labels
from preferl.data import save_comparisons, save_episodes
from preferl.models import MLPReward
from preferl.testing import make_comparisons, make_episodes
from preferl.testing.worlds import POINT_SPACE, PUSH_SPACE
from preferl.training import RewardFunction, save_reward

STEPS = 20  # of each episode
WIDE = spaces.Box(-1, 1, (3,))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Whole data, and each kind of damage to them."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    episodes = recorded(rng, steps=STEPS)
    save_episodes(folder / "episodes", episodes)
    write_labels(folder / "labels", episodes, rng, count=30)
    labels = f"human_label_x_len_{LENGTH}.pkl"
    for name in ("short", "text", "damaged"):
        shutil.copytree(folder / "labels", folder / name)
    answers = pickle.loads((folder / "labels" / labels).read_bytes())
    (folder / "short" / labels).write_bytes(pickle.dumps(answers[:-7]))
    (folder / "text" / labels).write_bytes(b"0, 1, 1")
    (folder / "damaged" / labels).write_bytes((folder / "labels" / labels).read_bytes()[:-20])
    (folder / "episodes.pickle").write_bytes(b"observations, actions, rewards")
    (folder / "empty").mkdir()
    shutil.copytree(folder / "episodes", folder / "nan")
    seen = np.load(folder / "nan/observations.npy")
    seen[7] = np.nan
    np.save(folder / "nan/observations.npy", seen)
    shutil.copytree(folder / "episodes", folder / "uneven")
    np.save(folder / "uneven/actions.npy", np.asarray(episodes.actions)[:-3])
    for name, widths, actions in (("widths", (3, 4), 9), ("uneven", (3,), 8)):
        columns = {"actions": np.zeros((actions, 1)), "rewards": np.zeros(9)}
        parts = [columns | {"observations": np.zeros((9, width))} for width in widths]
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(parts))
    still = make_episodes(rng, [STEPS], reward=lambda seen, done: np.zeros(len(done)))
    save_episodes(folder / "still", still)
    for name, space in (("fit", POINT_SPACE), ("wide", WIDE)):
        save_reward(folder / name / "reward", RewardFunction(MLPReward(space, PUSH_SPACE, seed=0)))
    wide = make_comparisons(rng, episodes=make_episodes(rng, [30, 30], WIDE, PUSH_SPACE))
    save_comparisons(folder / "online/comparisons", wide)
    return folder


DATA = "--demonstrations episodes"
BOTH = f"{DATA} --labels labels"
FIT = "reward fit --out OUT"
OFFLINE = "offline run --episodes 0 --out OUT"
TEACHER = f"{FIT} {DATA} --teacher"
EVALUATE = "reward evaluate fit"

WRONG = [
    # data that are not there
    (f"{FIT} --demonstrations nowhere --labels labels", "nowhere: expected a file, a folder"),
    (f"{FIT} {DATA} --labels nowhere", "nowhere: expected a folder of label files"),
    (f"{OFFLINE} {DATA} --labels empty", "expected the label files of either"),
    (f"{OFFLINE} {DATA} --reward nowhere", "nowhere: expected a run with a reward"),
    (f"{FIT} --store nowhere", "store nowhere: expected a folder of labels"),
    (f"{FIT} --comparisons nowhere", "nowhere: expected a folder written by preferl"),
    (f"{FIT} --comparisons episodes", "episodes: expected comparisons, got episodes"),
    # data that do not belong together
    (f"{FIT} {BOTH} --length 7", "segment length: expected one for a label set, got [7, 8]"),
    (f"{FIT} {DATA} --labels short", "30 first, 30 second, 23 labels"),
    (f"{FIT} --demonstrations still --labels labels", "does not belong to these episodes"),
    (f"{OFFLINE} {DATA} --reward wide", "was fitted to other data: observations"),
    (f"reward evaluate wide {BOTH}", "observations of the data: expected shape (3,)"),
    (f"{FIT} {DATA} --comparisons online", "observations of the clips: expected shape (2,)"),
    # damaged data
    (f"{FIT} {DATA} --labels text", "human_label_x_len_8.pkl"),
    (f"{FIT} --demonstrations episodes.pickle --labels labels", "episodes.pickle: expected"),
    ("data inspect widths.pickle", "expected rows of (3,), as in demonstration 0, got (4,)"),
    ("data inspect uneven.pickle", "demonstration 0: expected arrays of one length"),
    (f"{FIT} --demonstrations nan --labels labels", "got NaN or infinity, first in row 7"),
    (f"{FIT} --demonstrations uneven --labels labels", "Episodes.actions: expected 800 rows"),
    # settings that the data do not allow
    (f"{TEACHER} oracle --length 500", "segment length: expected at most 20"),
    (f"{TEACHER} oracle --length 0", "segments: expected count >= 0 and length >= 1"),
    (f"{FIT} {BOTH} --queries 31", "queries: expected at most 30, the number of answers, got 31"),
    (
        f"{FIT} --demonstrations still --teacher oracle --length 5",
        "recorded rewards: expected different",
    ),
    (
        f"{OFFLINE} {BOTH} --reward true",
        "labels or comparisons: expected none beside the true reward",
    ),
    # settings
    (f"{OFFLINE} {BOTH} --steps -3", "steps: expected at least 1, got -3"),
    (f"{FIT} {BOTH} --members 0", "members: expected at least 1, got 0"),
    (f"{FIT} {BOTH} --report-to paper", "report_to: expected some of jsonl"),
    (f"{TEACHER} '{{kind: mistake, rate: 2}}'", "error_rate: expected in [0, 1], got 2"),
    (f"{FIT} {BOTH} --comparisons labels", "got --labels and --comparisons"),
    (f"{FIT} {DATA}", "or --teacher, got none"),
    (f"{FIT} --teacher oracle", "Give --demonstrations with the episodes"),
    (f"{EVALUATE} {BOTH} --true-reward numpy:nothing", "true reward: expected module:Name"),
    (f"{EVALUATE} {BOTH} --true-reward numpy:pi", "numpy:pi: expected a function"),
    (f"{EVALUATE} {BOTH} --true-reward preferl.cli.demo:pendulum_reward", "got not enough values"),
    (f"{EVALUATE} {BOTH} --true-reward numpy:shape", "reward: expected a function of observations"),
]


@pytest.mark.parametrize(("command", "text"), WRONG, ids=[command for command, _ in WRONG])
def test_each_is_one_line_and_moves_nothing(command, text, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(made)
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_text("{}")  # of an older run
    words = [str(out) if word == "OUT" else word for word in shlex.split(command)]
    before = contents(made), contents(tmp_path)
    assert run(*words) in (1, 2)  # 2 where an option itself cannot take the value
    error = capsys.readouterr().err
    assert error.startswith(f"preferl {' '.join(words[:2])}: ")
    assert text in error
    assert error.count("\n") == 1
    assert (contents(made), contents(tmp_path)) == before
