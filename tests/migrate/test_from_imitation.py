"""Files that imitation saved arrive with the same numbers, and its reward nets give the same.

`make migrate` installs imitation; elsewhere these tests skip.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from helpers.converters import SCRIPTS
from preferl.data import load_comparisons, load_episodes
from preferl.feedback import ScriptedTeacher
from preferl.training import RewardFunction, load_reward, relabel

ROOT = Path(__file__).parents[2]
IMITATION = ROOT / ".venv-imitation/bin/python"
MAKE = ROOT / "benchmarks/imitation_files.py"

pytestmark = pytest.mark.slow

SAME = ("basic", "deep", "linear", "action", "state", "discrete", "forgetting", "normalised")
SAME += ("ensemble", "pessimist", "twice")
OTHER = ("next", "gated", "shaped")
"""Nets that preferl has no counterpart of."""


@dataclass
class Made:
    """A folder of files that imitation saved, converted ones, and what they hold."""

    folder: Path
    recorded: dict
    messages: dict

    def walks(self, name):
        """The episodes that a net was asked about."""
        discrete = name in ("state", "discrete", "forgetting", "twice")
        return load_episodes(self.folder / f"{'falls' if discrete else 'swings'}.episodes")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    if not IMITATION.exists():
        pytest.skip("no .venv-imitation; `make migrate` makes it")
    folder = tmp_path_factory.mktemp("imitation")
    done = subprocess.run(
        [IMITATION, MAKE, SCRIPTS / "from_imitation.py"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "recorded.npz") as file:
        recorded = dict(file)
    return Made(folder, recorded, json.loads((folder / "messages.json").read_text()))


@pytest.mark.parametrize("name", ["swings", "falls", "npz"])
def test_trajectories(made, name):
    episodes = load_episodes(made.folder / f"{name}.episodes")
    columns = {
        "obs": episodes.observations,
        "acts": episodes.actions,
        "rews": episodes.rewards,
        "final": episodes.final_observations,
        "lengths": episodes.lengths,
    }
    for key, column in columns.items():
        expected = made.recorded[f"{'falls' if name == 'npz' else name}/{key}"]
        np.testing.assert_array_equal(column, expected, strict=True)
    last_steps = episodes.terminated[episodes.ends - 1]
    assert last_steps.all() if name != "swings" else not episodes.terminated.any()


def test_a_time_limit_that_infos_do_not_tell(made):
    episodes = load_episodes(made.folder / "limited.episodes")
    ended = episodes.terminated[episodes.ends - 1]
    assert ended.tolist() == (episodes.lengths < episodes.lengths.max()).tolist()
    assert 0 < ended.sum() < len(ended)


def test_pictures_stay_bytes_and_may_have_no_rewards(made):
    episodes = load_episodes(made.folder / "pictures.episodes")
    assert episodes.observations.dtype == np.uint8
    assert episodes.final_observations.ravel().tolist() == [n % 256 for n in range(225, 300)]
    assert not episodes.has_true_reward
    assert not episodes.terminated.any()


def test_preferences(made):
    comparisons = load_comparisons(made.folder / "comparisons")
    assert comparisons.preference.tolist() == made.recorded["preferences"].tolist()
    first, second = comparisons.pairs.T
    assert (first[4], second[4]) == (second[11], first[11])
    clips = comparisons.segments[comparisons.pairs.ravel()]
    assert clips.mask.all()
    shown = made.recorded["shown"]
    np.testing.assert_array_equal(clips.observations.reshape(shown.shape), shown, strict=True)
    returns = comparisons.segments.returns()[comparisons.pairs]
    np.testing.assert_allclose(returns, made.recorded["returns"], rtol=1e-5)
    decided = comparisons.preference != 0.5
    answers = ScriptedTeacher.oracle()(
        comparisons.segments[comparisons.pairs], np.random.default_rng(0)
    )
    assert answers[decided].tolist() == comparisons.preference[decided].tolist()


@pytest.mark.parametrize("name", SAME)
def test_reward_nets_give_the_same(made, name):
    reward = load_reward(made.folder / f"{name}.reward")
    assert isinstance(reward, RewardFunction)
    assert reward.members == (3 if name in ("ensemble", "pessimist", "twice") else 1)
    rewards = relabel(made.walks(name), reward).rewards
    assert rewards.std() > 0.1
    np.testing.assert_allclose(rewards, made.recorded[name], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", OTHER)
def test_nets_without_a_counterpart_are_refused_by_name(made, name):
    message = made.messages[f"reward {name}.pt {name}.reward"]
    word = {"next": "next state", "gated": "SELU", "shaped": "BasicShapedRewardNet"}[name]
    assert word in message
    assert "`relabel`" in message
    assert not (made.folder / f"{name}.reward").exists()


@pytest.mark.parametrize("name", SAME + OTHER)
def test_trajectories_with_the_rewards_of_any_net(made, name):
    episodes = load_episodes(made.folder / f"{name}.relabelled")
    np.testing.assert_allclose(episodes.rewards, made.recorded[name], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("reward broken.pt broken", "broken.pt: expected a saved reward net"),
        ("reward preferences.pkl broken", "preferences.pkl: expected a saved reward net"),
        ("preferences absent.pkl broken", "absent.pkl: expected a saved PreferenceDataset"),
        ("preferences falls.pkl broken", "got a list"),
        ("trajectories absent broken", "absent: expected trajectories"),
        ("reward basic.pt basic.reward", "basic.reward: expected a new folder"),
    ],
)
def test_what_is_wrong_is_said(made, command, word):
    assert word in made.messages[command]
    assert not (made.folder / "broken").exists()
    assert not list(made.folder.glob(".*.part"))
