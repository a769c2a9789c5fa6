import numpy as np
import pytest

from preferl.errors import ConfigError
from preferl.online.wrappers.state_entropy import StateEntropyBonus


def test_bonuses_by_hand():
    bonus = StateEntropyBonus(nearest=2)
    assert bonus(np.array([[0.0, 0.0], [0.0, 3.0], [4.0, 0.0]])).tolist() == [0.0] * 3
    # From (4, 3) the distances are 5, 4 and 3; the second nearest is at 4, the mean so far.
    np.testing.assert_allclose(bonus(np.array([[4.0, 3.0]])), np.log(2), rtol=1e-6)
    # From the origin: 0, 3, 4 and 5. The mean of 4 and 3 is 3.5.
    np.testing.assert_allclose(bonus(np.array([[0.0, 0.0]])), np.log1p(3 / 3.5), rtol=1e-6)


def test_only_the_latest_states_are_remembered():
    bonus = StateEntropyBonus(nearest=1, remembered=2)
    for state in ([0.0], [5.0], [6.0]):
        bonus(np.array([state]))
    assert bonus(np.array([[0.0]]))[0] > 0, "which was forgotten"
    assert bonus(np.array([[6.0]]))[0] == 0


def test_pictures_and_dictionaries_have_distances(rng):
    bonus = StateEntropyBonus(nearest=1)
    seen = {"picture": rng.integers(0, 255, (3, 20, 20, 1), np.uint8), "arm": np.zeros((3, 2))}
    bonus(seen)
    same, new = bonus(
        {
            "picture": np.stack([seen["picture"][0], 255 - seen["picture"][0]]),
            "arm": np.zeros((2, 2)),
        }
    )
    assert same < 1e-3 < new


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="remembered"):
        StateEntropyBonus(nearest=5, remembered=4)
