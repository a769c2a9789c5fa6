"""What options choose by name, and the config that other options change."""

from dataclasses import dataclass, replace

import pytest

from preferl.cli.data_record import DataRecordConfig
from preferl.cli.offline import OfflineRunConfig
from preferl.cli.online import OnlineRunConfig
from preferl.cli.parsing.parts import (
    ABSENT,
    all_slots,
    options_of,
    starting_config,
    without_choices,
)
from preferl.errors import ConfigError, UsageError
from preferl.models.configs import CNNRewardConfig, LSTMRewardConfig, MLPRewardConfig
from preferl.offline.learner_configs import IQLConfig
from preferl.online.configs import OnlineConfig, PPOConfig, SACConfig
from preferl.registry import ALGORITHMS
from preferl.training.configs import CosineSchedule


def started(*words, cls=OnlineRunConfig, **options):
    return starting_config(cls, words, **options)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--env A", ["A"]),
        ("--env=A", ["A"]),
        ("--env= --env B", ["", "B"]),
        ("--env A --env=B", ["A", "B"]),
        ("--environments 3 --env-id=A", []),
        ("--other --env", []),
        ("--env a=b --env=c=d", ["a=b", "c=d"]),
    ],
)
def test_all_values_of_an_option_are_found(words, values):
    assert options_of(words.split(), "--env") == values


def test_without_words_it_is_the_default():
    run = started().run
    assert run == OnlineConfig()
    assert type(run) is OnlineConfig


@pytest.mark.parametrize("words", [("--algorithm", "sac"), ("--algorithm=sac",)])
def test_a_name_chooses_an_algorithm(words):
    assert started(*words).run.algorithm == SACConfig()
    assert started("--algorithm", "ppo", *words).run.algorithm == SACConfig()


def test_what_a_preset_chose_is_kept_where_an_option_names_it_again():
    preset = OnlineRunConfig(replace(OnlineConfig(), algorithm=PPOConfig(gamma=0.9)))
    again = started("--algorithm", "ppo", default=preset)
    assert again.run.algorithm == PPOConfig(gamma=0.9)
    assert started("--algorithm", "sac", default=preset).run.algorithm == SACConfig()


def test_models_are_registered_ones_or_those_of_presets():
    assert started("--model", "mlp").run.model == MLPRewardConfig(members=3)
    assert started("--model", "cnn").run.model == CNNRewardConfig(members=3)
    assert started("--model", "lstm").run.model == LSTMRewardConfig(context=50)
    long = started("--model", "pt", "--segment-length", "120").run.model
    assert (long.context, long.normalise) == (120, False)
    assert started("--model", "mr").run.model.hidden == (256, 256)


def test_a_teacher_is_a_name_or_settings():
    mistaken = started("--teacher", "mistake").run.teacher
    assert mistaken.error_rate == 0.1
    assert mistaken == started("--teacher={kind: mistake}").run.teacher
    skipping = started("--teacher", "{kind: skip, typical: 20}").run.teacher
    assert skipping == started("--teacher={typical: 20, kind: skip}").run.teacher
    following = started("--teacher", "skip", "--sampler", "disagreement").run
    assert following.teacher.skip_margin == 0.1
    with pytest.raises(UsageError, match="--teacher: expected a name, or settings"):
        started("--teacher", "{kind: skip")


def test_an_algorithm_may_be_settings_too():
    found = started("--algorithm", "{kind: sac, tau: 0.1}").run.algorithm
    assert found == SACConfig(tau=0.1)
    with pytest.raises(ConfigError, match=r"The nearest is tau"):
        started("--algorithm", "{kind: sac, taw: 0.1}")


def test_a_name_that_nothing_has():
    with pytest.raises(UsageError, match=r"^--algorithm: expected one of ppo, sac, sb3, got 'pop'"):
        started("--algorithm", "pop")
    with pytest.raises(UsageError, match=r"The nearest is transformer\."):
        started("--model", "ttransformer")


def test_a_part_that_may_be_left_out_is_there_once_an_option_sets_it():
    assert started(cls=OfflineRunConfig).run.iql is None
    assert started("--iql.discount", "0.9", cls=OfflineRunConfig).run.iql == IQLConfig()
    assert started("--iql.discount=0.9", cls=OfflineRunConfig).run.dt is None
    inner = started("--dt.regulariser.weight", "2", cls=OfflineRunConfig).run
    assert inner.dt.regulariser is not None
    assert started().run.trainer.schedule is None
    assert started(every_part=True).run.trainer.schedule == CosineSchedule()


def test_what_has_to_be_given_is_absent():
    run = started("--algorithm", "sac", cls=DataRecordConfig).run
    assert run.env is ABSENT
    assert run.algorithm == SACConfig()
    assert started(cls=DataRecordConfig).run.algorithm is None


def test_what_a_module_registers_is_chosen_by_name():
    @dataclass(frozen=True)
    class OwnConfig:
        rate: float = 0.5

    ALGORITHMS.register("own", "module:Own", OwnConfig)
    try:
        assert started("--algorithm", "own").run.algorithm == OwnConfig()
    finally:
        ALGORITHMS.remove("own")


def test_options_that_are_followed_are_taken_out():
    start = started()
    words = ["--steps", "5", "--algorithm", "sac", "--model=pt", "--algorithm.tau", "1", "--ask"]
    rest = without_choices(words, OnlineRunConfig, start)
    assert rest == ["--steps", "5", "--algorithm.tau", "1", "--ask"]
    assert without_choices(["--algorithm"], OnlineRunConfig, start) == ["--algorithm"]


def test_paths_are_those_of_options():
    paths = {slot.path for slot in all_slots(OnlineRunConfig, started("--algorithm", "ppo"))}
    assert {"env", "algorithm", "algorithm.n-steps", "trainer.penalty.band"} <= paths
    assert {"evaluation.clip-steps", "out"} <= paths
