"""Former public names lead to the present ones, and warn."""

from importlib import import_module

import pytest

from preferl import aliases
from preferl.feedback import plan
from preferl.online import OnlineConfig, learn_from_preferences
from preferl.store import Store

PAIRS = [
    (package, former, present)
    for package, names in aliases.NAMES.items()
    for former, present in names.items()
]


@pytest.mark.parametrize(("package", "former", "present"), PAIRS)
def test_names_of_packages(package, former, present):
    home = import_module(package)
    module, _, name = present.rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{former} is {module or package}.{name} now"):
        found = getattr(home, former)
    assert found is getattr(import_module(module or package), name)
    assert former not in dir(home)


def test_members(tmp_path):
    with Store.open(tmp_path) as store:
        with pytest.warns(DeprecationWarning, match="Store.live is Store.reports now"):
            assert store.live is store.reports
        with pytest.raises(AttributeError, match="alive"):
            store.alive  # noqa: B018


@pytest.mark.parametrize("name", aliases.MEMBERS)
def test_each_former_member_is_one_of_its_class(name):
    homes = (import_module(f"preferl.{package}") for package in ("online", "offline", "store"))
    cls = next(getattr(home, name) for home in homes if name in dir(home))
    for former, present in aliases.MEMBERS[name].items():
        assert isinstance(vars(cls)[former], property)
        assert hasattr(cls, present) or name == "Store", "a store has its parts once it is open"


def test_keywords_of_functions():
    settings = {"steps": 100, "initial_steps": 10, "initial_fraction": 0.25}
    with pytest.warns(DeprecationWarning, match="plan") as warned:
        former = plan(turns=2, questions=8, **settings)
    assert former == plan(iterations=2, queries=8, **settings)
    assert sorted(str(one.message).split(" ")[0] for one in warned) == [
        "plan(questions=)",
        "plan(turns=)",
    ]
    assert warned[0].filename == __file__


def test_keywords_of_the_loop():
    seen = []
    config = OnlineConfig(
        steps=600, initial_steps=200, iterations=1, comparisons=4, segment_length=10, eval_every=0
    )
    with pytest.warns(DeprecationWarning, match="on_iteration"):
        learn_from_preferences(config, on_turn=seen.append)
    assert len(seen) == 2


def test_methods_of_somebodys_own_class():
    class Learner:
        def pay(self, reward):
            return reward

    with pytest.warns(DeprecationWarning, match="Learner.pay is set_reward now"):
        assert aliases.present_method(Learner(), "set_reward")(3) == 3
