"""Online runs of seconds: their settings, where they end, and the numbers that they log."""

from preferl.models import MLPRewardConfig
from preferl.online import OnlineConfig, PPOConfig
from preferl.training import RewardTrainerConfig


def tiny(**changes):
    """Settings of a run that learns nothing, but does everything."""
    settings = {
        "eval_every": 0,
        "environments": 2,
        "steps": 1_000,
        "comparisons": 12,
        "iterations": 2,
        "segment_length": 10,
        "initial_steps": 400,
        "algorithm": PPOConfig(n_steps=50, batch_size=50, n_epochs=1),
        "model": MLPRewardConfig(hidden=(8,), members=2),
        "trainer": RewardTrainerConfig(epochs=2),
    }
    return OnlineConfig(**(settings | changes))


class KilledError(BaseException):
    """Stands for a program that ends here: nothing in it is closed in order."""


def die_in(iteration):
    """A function of reports that ends the program in this iteration."""

    def end(report):
        if report.iteration == iteration:
            raise KilledError

    return end


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self):
        self.rows = []

    def log(self, values, step):
        self.rows.append((step, dict(values)))

    def close(self):
        self.rows.clear()

    def of(self, name):
        """Steps and values of a number."""
        return [(step, values[name]) for step, values in self.rows if name in values]
